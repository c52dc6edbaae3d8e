"""Plots: each has a table of the same numbers, whatever names and numbers a stranger chose."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from html.parser import HTMLParser

import pytest

from crawl_lib.plots import (
    DARK,
    LIGHT,
    MOST_SERIES,
    STYLE,
    bars,
    columns,
    lines,
    meters,
    small,
    stacked,
)

VOID = {"rect", "path"}
ALLOWED = {
    "h2",
    "p",
    "svg",
    "rect",
    "path",
    "text",
    "details",
    "summary",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
}
ALLOWED |= {"a", "g", "i", "li", "title", "ul"}
HOSTILE = [
    '"><script>alert(1)</script>',
    "' onload='alert(1)",
    "</text></svg><img src=x onerror=alert(1)>",
    "&lt;b&gt;",
    "javascript:alert(1)",
    "]]><![CDATA[",
    "\u202eevil\x00\x1b[31m",
    "x" * 10_000,
]


class Page(HTMLParser):
    """Tags, attributes, the cells of tables by row, and texts of drawings."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.drawn: list[str] = []
        self.paths: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.paths += [str(value) for name, value in attrs if name in {"d", "width", "x", "y"}]
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in {"td", "th"}:
            self.rows[-1][-1] += data
        if self.open and self.open[-1] == "text":
            self.drawn.append(data)


PLOTS: dict[str, Callable[[str], str]] = {
    "bars": lambda name: bars(name, name, {name: 3}, unit=name),
    "stacked": lambda name: stacked(name, name, {name: {name: 3}}),
    "lines": lambda name: lines(name, name, {name: [(0, 3)]}, unit=name),
    "small": lambda name: small(name, [3], names=[name]),
    "columns": lambda name: columns(
        name, name, {name: {name: 3}}, links={name: f"/{name}"}, slots=5
    ),
    "meters": lambda name: meters({name: 3}, head=name, unit=name),
}


@pytest.mark.parametrize("kind", PLOTS)
def test_names_are_text_and_nothing_else(kind: str) -> None:
    harmless = Page(PLOTS[kind]("harmless"))
    assert set(harmless.tags) <= ALLOWED
    assert harmless.attributes <= {
        *(
            "class",
            "viewbox",
            "role",
            "aria-label",
            "x",
            "y",
            "width",
            "height",
            "d",
            "text-anchor",
            "scope",
        ),
        *("href", "target", "preserveaspectratio", "aria-hidden"),
    }
    for name in HOSTILE:
        page = Page(PLOTS[kind](name))
        assert page.tags == harmless.tags, "the structure is that of a harmless one"
        assert page.attributes == harmless.attributes
        assert max(map(len, page.drawn), default=0) <= 30, "long names are cut in drawings"


def test_bars_have_a_table_of_their_numbers() -> None:
    page = Page(bars("Title", "Text.", {"many": 1200, "few": 0.25, "none": 0}, unit="URLs"))
    assert page.rows == [["", "URLs"], ["many", "1,200"], ["few", "0.2"], ["none", "0"]]
    assert page.drawn == ["many", "1,200", "few", "0.2", "none", "0"]


def test_stacked_bars_fold_the_smallest_series() -> None:
    rows = {str(row): {f"series {number}": number for number in range(1, 13)} for row in range(3)}
    page = Page(stacked("Title", "Text.", rows))
    head, first, *_ = page.rows
    assert len(head) == 1 + MOST_SERIES
    assert (head[1], head[-1]) == ("series 12", "others")
    assert sum(map(int, first[1:])) == sum(range(1, 13)), "nothing disappears"
    assert page.drawn[MOST_SERIES : MOST_SERIES + 2] == ["0", "78.0"]


def test_columns_stay_in_place_when_others_come() -> None:
    rows = {"a": {"ok": 3, "gone": 1}, "b": {"ok": 8}}
    one, two = (
        columns("T", "", dict(list(rows.items())[:count]), links={"a": "/x"}, slots=5)
        for count in (1, 2)
    )
    assert Page(two).rows == [["", "ok", "gone"], ["a", "3", "1"], ["b", "8", "0"]]
    places = [re.findall(r'<rect class="s0" x="(\d+)"', text) for text in (one, two)]
    assert places == [["1"], ["1", "11"]]
    assert 'viewBox="0 0 50 100"' in one
    assert 'viewBox="0 0 50 100"' in two
    assert two.count("<a ") == 1
    assert "The highest bar: 8" in two


def test_meters_are_as_long_as_their_share() -> None:
    text = meters({"many": 8, "few": 2, "none": 0}, head="host", unit="URLs")
    assert re.findall(r'width="([\d.]+)"', text) == ["100.0", "25.0", "0.0"]
    assert [row[-1] for row in Page(text).rows] == ["URLs", "8", "2", "0"]


def test_lines_have_a_row_for_each_place() -> None:
    page = Page(lines("Title", "Text.", {"a": [(0, 1), (2, 3)], "b": [(2, 6)]}, unit="s"))
    assert page.rows == [["s", "a", "b"], ["0", "1", ""], ["2", "3", "6"]]
    assert page.drawn[-2:] == ["0 s", "2 s"]
    with pytest.raises(ValueError, match="9 curves"):
        lines("Title", "", {str(number): [] for number in range(9)})


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -5.0])
def test_no_number_breaks_a_drawing(bad: float) -> None:
    for text in (
        bars("T", "", {"a": bad, "b": 1}),
        stacked("T", "", {"a": {"x": bad, "y": 1}}),
        lines("T", "", {"a": [(bad, bad), (1, 1)]}),
        small("T", [bad, 1]),
        columns("T", "", {"a": {"x": bad, "y": 1}}, links={}, slots=2),
        meters({"a": bad, "b": 1}, head="a", unit="b"),
    ):
        page = Page(text)
        assert not re.search(r"nan|inf|-\d", " ".join(page.paths))
        assert math.isfinite(bad) or "unknown" in [cell for row in page.rows for cell in row]


def test_nothing_to_plot_says_so() -> None:
    for text in (
        bars("T", "x", {}),
        stacked("T", "x", {}),
        lines("T", "x", {}),
        lines("T", "x", {"a": []}),
    ):
        assert text.endswith("<p>none</p>")
    assert small("T", []) == ""
    assert meters({}, head="a", unit="b") == ""
    assert columns("T", "x", {}, links={}, slots=2).endswith("<p>none</p>")


def test_a_small_chart_of_sixty_points_is_small() -> None:
    text = small("pages/s", [number % 7 for number in range(60)])
    assert len(text) < 4_000
    assert len(Page(text).rows) == 61


def test_the_style_loads_nothing() -> None:
    assert not re.search(r"url\(|@import|<|expression", STYLE)
    for colours in (LIGHT, DARK, STYLE):
        assert all(f"--s{number}" in colours for number in range(MOST_SERIES))
