"""The page with plots: its numbers are the crawl's, and it opens from disk with nothing else."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from crawl_lib.cli import main
from crawl_lib.errors import PathNotFoundError, StorageError
from crawl_lib.report import write_report
from crawl_lib.stores import open_stores
from demo import Serving, SynthWeb
from tests.e2e.crawl import Result, make_config, run_crawl, write_config

VOID = {"meta", "rect", "path"}


class Page(HTMLParser):
    """Tags with their attributes, and the rows of each plot: label and number."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.plots: dict[str, list[str]] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "svg":
            self.plots[str(dict(attrs)["aria-label"])] = []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "text":
            self.plots[list(self.plots)[-1]].append(data)

    def rows(self, words: str) -> dict[str, float]:
        """Labels and numbers of the plot in whose heading these words are."""
        [texts] = [texts for title, texts in self.plots.items() if words in title]
        return {
            label: float(number.replace(",", ""))
            for label, number in zip(texts[::2], texts[1::2], strict=True)
        }


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Result]:
    directory = tmp_path_factory.mktemp("crawled")
    with Serving(SynthWeb(seed=5, sites=2, pages_per_site=12, specials=False)) as web:
        yield run_crawl(
            make_config(
                directory, nodes=2, crawl={"directory": "a&b"}, fetch={"host_delay_s": 0.0}
            ),
            web.seeds,
        )


@pytest.fixture
def page(crawled: Result, tmp_path: Path) -> Page:
    path = tmp_path / "page.html"
    write_report(open_stores(crawled.config), name=crawled.export, target=path)
    return Page(path.read_text())


def by_range(numbers: list[int]) -> Counter[str]:
    """How many are 0, 1, 2-3, 4-7, ..."""
    powers = Counter(number.bit_length() for number in numbers)
    return Counter(
        {f"{1 << p >> 1}-{(1 << p) - 1}" if p > 1 else str(p): count for p, count in powers.items()}
    )


def test_its_numbers_are_those_of_the_crawl(page: Page, crawled: Result) -> None:
    outcomes = Counter(crawled.outcomes().values())
    assert page.rows("How the crawl of each URL ended") == dict(outcomes)
    arcs, nodes = crawled.arcs(), crawled.node_urls()
    for words, end in (("links to them", 1), ("links on them", 0)):
        degrees = Counter(arc[end] for arc in arcs)
        assert +Counter(page.rows(words)) == by_range([degrees[url] for url in nodes])
    lengths = {
        row["url"]: row["length"] for row in crawled.rows("pages", ["url", "length", "status"])
    }
    assert +Counter(page.rows("by size")) == by_range([lengths[url] for url in nodes])
    rates = page.rows("URLs in a second")
    assert len(rates) == sum(commit["fetched"] > 0 for commit in crawled.commits)
    assert min(rates.values()) > 0


def test_it_opens_from_disk_with_nothing_else(page: Page, tmp_path: Path) -> None:
    assert page.open == ["html"] or page.open == []
    assert {tag for tag, _ in page.tags} <= {
        *(
            "html",
            "meta",
            "title",
            "style",
            "h1",
            "h2",
            "dl",
            "div",
            "dt",
            "dd",
            "p",
            "svg",
            "rect",
            "path",
            "text",
        ),
        *("details", "summary", "table", "thead", "tbody", "tr", "th", "td"),
    }
    assert not [
        attributes
        for _, attributes in page.tags
        if attributes.keys() & {"src", "href", "onload", "style"}
    ]
    text = (tmp_path / "page.html").read_text()
    assert re.findall(r"https?:|url\(|@import|<script", text) == []
    assert "default-src 'none'" in text
    assert "a&amp;b" in text, "names are text, not HTML"


def test_the_command_writes_it(
    crawled: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(crawled.config, tmp_path)
    target = tmp_path / "plots.html"
    for _ in range(2):
        assert main(["--config", str(config), "report", str(target)]) == 0
    assert target.as_uri() in capsys.readouterr().out
    assert Page(target.read_text()).plots


def test_what_is_not_there_is_named(crawled: Result, tmp_path: Path) -> None:
    stores = open_stores(crawled.config)
    with pytest.raises(PathNotFoundError, match="there is no such export"):
        write_report(stores, name="nowhere", target=tmp_path / "page.html")
    with pytest.raises(StorageError, match=r"nowhere/page\.html"):
        write_report(stores, name=crawled.export, target=tmp_path / "nowhere" / "page.html")
    empty = open_stores(
        replace(crawled.config, crawl=replace(crawled.config.crawl, directory="none"))
    )
    write_report(empty, name=crawled.export, target=tmp_path / "page.html")
    assert "<p>none</p>" in (tmp_path / "page.html").read_text()
