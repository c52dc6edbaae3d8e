"""Links of pages are what they are judged to be one by one, whatever is remembered of earlier pages."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl_lib.config import Config
from crawl_lib.parse import ParsedPage
from crawl_lib.records import QueuedUrl, TakenUrl
from crawl_lib.segment import LinkBlock, PartWriter
from crawl_lib.urls import UrlFilter, key_of
from crawl_lib.worker import rows as rows_module
from crawl_lib.worker.discovery import Discovery
from tests.e2e.crawl import make_config
from tests.parse.links import FOLLOWED_RELS, NAMES, written
from tests.worker.plain_links import Found, PlainLinks

CONFIG = make_config(Path(tempfile.gettempdir()), nodes=1, urls={"scope": "hosts"})
BASES = ("http://a.test/", "http://a.test/d/x?q=/y", "http://a.test/d/y", "http://a.test/e/")
HREFS = (
    *(
        "x",
        "x#part",
        "x #part",
        "x#",
        "/y",
        "/d/x",
        "../y",
        "?q=/y",
        "#",
        "",
        "y/../x",
        "é",
        "http://a.test/y",
    ),
    *("http://other.test/", "mailto:a@b.test", "http://[", "\ttab", "z" * 5000, "//a.test:25/"),
)
LETTERS = [*NAMES, *map(str.upper, NAMES), "?", "b"]
LINK = st.tuples(
    st.builds(str.__add__, st.sampled_from(LETTERS), st.sampled_from(HREFS)),
    st.sampled_from(["", "text", "日本" * 9]),
    st.sampled_from(["", "next", "a NEXT b", "nextx", "nofollow"]),
)
CONFIGS = {
    "plain": CONFIG,
    "depth": replace(CONFIG, urls=replace(CONFIG.urls, max_depth=2)),
    "all": replace(CONFIG, parse=replace(CONFIG.parse, follow_nofollow=True)),
}


class Given(NamedTuple):
    """A page: where it is, what it says, and how it was found."""

    base: str
    position: int
    links: list[tuple[str, str, str]]
    nofollow: bool
    is_similar: bool
    depth: int
    redirects: int


PAGE = st.builds(
    Given,
    st.sampled_from(BASES),
    st.integers(0, 4),
    st.lists(LINK, max_size=12),
    st.booleans(),
    st.integers(0, 5).map(lambda number: number == 0),
    st.integers(0, 3),
    st.sampled_from([0, 1, CONFIG.fetch.max_redirects]),
)


class Kept:
    """A writer that keeps what it gets."""

    def __init__(self) -> None:
        self.found = Found()
        self.block = LinkBlock()
        outlinks = SimpleNamespace(
            add=lambda owner, place, number, found: self._send(place, number, *found)
        )
        counts = SimpleNamespace(rejections=self.found.rejections, requisites=0)
        links = SimpleNamespace(block=self.block, grown=self._grown)
        self.part: Any = SimpleNamespace(outlinks=outlinks, links=links, counts=counts)

    def _send(
        self, place: int, number: int, url: str, via: bytes, depth: int, redirects: int, _: str
    ) -> None:
        self.found.send(url, place, number, via.hex(), depth, redirects)

    def _grown(self, size: int) -> None:
        assert size == sum(buffer.length for buffer in self.block.buffers)
        if self.block.rows > 20:
            self.end()

    def end(self) -> Found:
        """Take the rows out of the block."""
        if self.block.rows:
            batch = self.block.batch()
            batch.validate(full=True)
            self.found.rows += [tuple(row.values()) for row in batch.to_pylist()]  # type: ignore[misc]
            self.block.clear()
        return self.found


def discovery_of(config: Config, kept: Kept) -> Discovery:
    judge = UrlFilter(config.urls, ["a.test"], config.traps)
    return Discovery(config, ["node-a"], 0, judge, cast(PartWriter, kept), seeds_widen_scope=False)


def taken_of(given: Given) -> TakenUrl:
    queued = QueuedUrl(given.base, None, given.depth, given.redirects)
    return TakenUrl(given.position, key_of(given.base), queued)


def page_of(given: Given) -> ParsedPage:
    links = written(given.links)
    return ParsedPage(
        "utf-8", None, None, None, None, given.base, links, nofollow=False, links_cut=0
    )


@pytest.mark.parametrize("most_bytes", [rows_module.REMEMBERED_BYTES, 1])
@pytest.mark.parametrize("kind", CONFIGS)
@settings(max_examples=100, deadline=None)
@given(pages=st.lists(PAGE, max_size=6))
def test_links_are_judged_as_they_are_one_by_one(
    kind: str, most_bytes: int, pages: list[Given]
) -> None:
    """Pages come in any order of their positions; with too little memory all is forgotten before each page."""
    config, kept = CONFIGS[kind], Kept()
    plain = PlainLinks(config, UrlFilter(config.urls, ["a.test"], config.traps))
    found = discovery_of(config, kept)
    found._rows = rows_module.LinkRows(most_bytes)
    for number, drawn in enumerate(pages):
        page = drawn._replace(position=10 * drawn.position + number)
        for one in (plain, found):
            one.links(taken_of(page), page_of(page), page.nofollow, 3, is_similar=page.is_similar)
    seen = kept.end()
    assert seen.rows == plain.found.rows
    assert seen.rejections == plain.found.rejections
    assert seen.sent == plain.found.sent
    kept.block.free()


@pytest.mark.parametrize("letter", ["l", "y"])
def test_which_words_of_rel_lead_to_a_page(letter: str) -> None:
    words = sorted(FOLLOWED_RELS)
    rels = [
        *words,
        *(f"x {word} y" for word in words),
        *(f"x{word}" for word in words),
        *(f"{word}x" for word in words),
    ]
    kept = Kept()
    page = Given(
        BASES[0],
        0,
        [(f"{letter}{place}", "", rel) for place, rel in enumerate(rels)],
        False,
        False,
        0,
        0,
    )
    discovery_of(CONFIG, kept).links(taken_of(page), page_of(page), False)
    followed = [row[6] for row in kept.end().rows]
    assert followed == [True] * 2 * len(words) + [False] * 2 * len(words)


def test_a_redirect_and_a_link_hand_a_url_on_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, sent = Kept(), list[tuple[int, str]]()
    kept.part.outlinks.add = lambda owner, place, number, found: sent.append((place, found[0]))
    found = discovery_of(CONFIG, kept)
    for position, is_link in (
        (5, False),
        (6, True),
        (5, True),
        (4, True),
        (4, False),
        (3, False),
        (3, True),
    ):
        page = Given(BASES[0], position, [("ax", "", "")], False, False, 0, 0)
        if is_link:
            found.links(taken_of(page), page_of(page), False)
        else:
            found.redirect(taken_of(page), BASES[0], "/x#y")
    assert sent == [(6, "http://a.test/x"), (5, "http://a.test/x"), (4, "http://a.test/x")]
    assert len(kept.end().rows) == 4


def test_sitemaps_of_a_robots_file_come_behind_all_links_and_are_rows_if_they_are_followed() -> (
    None
):
    kept, found_on = Kept(), list[str]()
    found = discovery_of(CONFIG, kept)
    found.on_found = lambda taken, key, host: found_on.append(host)
    robots = "http://a.test/robots.txt"
    names = ["/1.xml", "http://other.test/2.xml", "http://[", "3.xml", "/1.xml"]
    found.sitemaps(robots, written((f"x{name}", "", "") for name in names), 7)
    seen = kept.end()
    rows = [(row[0], row[2], row[5:]) for row in seen.rows]
    first, third = "http://a.test/1.xml", "http://a.test/3.xml"
    said = ("robots", True, "accepted")
    assert rows == [(key_of(robots), url, said) for url in (first, third, first)]
    last = 10**10 - 1
    via = key_of(robots).hex()
    assert seen.sent == {first: (last, 7, via, 1, 0), third: (last, 10, via, 1, 0)}
    assert (seen.rejections, found_on) == ({"scope": 1, "invalid": 1}, [])


def test_what_is_remembered_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """References of a folder that differ by their fragment are one; those of another folder are not known."""
    kept, asked = Kept(), list[str]()
    found = discovery_of(CONFIG, kept)
    true = found._resolver.find
    monkeypatch.setattr(found._resolver, "find", lambda text: asked.append(text) or true(text))
    hrefs = ["ax", "ax#1", "gx", "a#1", "a#2", "a" + "z" * 5000]
    links = [(href, "", "") for href in hrefs]
    for place, base in enumerate(("http://a.test/d/1", "http://a.test/d/2", "http://a.test/e/1")):
        page = Given(base, place, links, False, False, 0, 0)
        found.links(taken_of(page), page_of(page), False)
    assert asked == [*("x", "", "z" * 5000), *("", "z" * 5000), *("x", "", "z" * 5000)]


def test_memory_is_bounded_by_bytes_not_by_links() -> None:
    kept, config = Kept(), CONFIG
    found, resident = discovery_of(config, kept), list[int]()
    found._rows = rows_module.LinkRows(1 << 20)
    for number in range(40):
        links = [(f"a{number}-{place}-{'x' * 1500}", "", "") for place in range(200)]
        page = Given(BASES[0], number, links, False, False, 0, 0)
        found.links(taken_of(page), page_of(page), False)
        kept.end()
        kept.found.rows.clear()
        kept.found.sent.clear()
        resident.append(int(Path("/proc/self/statm").read_text().split()[1]))
    assert (
        max(resident[20:]) <= max(resident[:20]) + 500
    )  # pages: what is kept would be 6,000 of them
