"""Links of pages, judged by whole columns, are what they are judged to be one by one."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from crawl_lib.parse import Links, Page
from crawl_lib.records import QueuedUrl, TakenUrl
from crawl_lib.urls import UrlFilter, key_of
from crawl_lib.worker.discovery import Discovery
from tests.e2e.crawl import make_config

CONFIG = make_config(Path(tempfile.gettempdir()), nodes=1, urls={"scope": "hosts"})
PAGE = "http://a.test/"
HREFS = ("x", "x#part", "/y", "http://a.test/y", "http://other.test/", "mailto:a@b.test", "z")
LINK = st.tuples(st.sampled_from(HREFS), st.booleans(), st.booleans())
"""A href, whether its element may lead to a page, and whether its rel says nofollow."""


class Writer:
    """Keeps what is handed on, and the rows of links."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int, str]] = []
        self.rows: list[tuple[str, bool, str]] = []
        outlinks = SimpleNamespace(add=lambda owner, place, index, found: self.sent.append((place, index, found[0])))
        links = SimpleNamespace(add=self._add)
        counts = SimpleNamespace(rejections=Counter[str]())
        self.part: Any = SimpleNamespace(outlinks=outlinks, links=links, counts=counts)

    def _add(self, links: Any, _text_bytes: int) -> None:
        self.rows.extend(zip(links.target_url, links.followed, links.rule, strict=True))


def page_of(links: list[tuple[str, bool, bool]]) -> Page:
    count = len(links)
    columns = Links(
        [href for href, _, _ in links],
        [""] * count,
        [""] * count,
        ["a"] * count,
        [may for _, may, _ in links],
        [nofollow for _, _, nofollow in links],
    )
    return Page("utf-8", None, None, None, None, PAGE, columns, nofollow=False, links_cut=0)


@given(pages=st.lists(st.tuples(st.lists(LINK, max_size=12), st.booleans()), max_size=4))
def test_a_page_is_judged_as_its_links_are_one_by_one(pages: list[tuple[list[tuple[str, bool, bool]], bool]]) -> None:
    whole, single = Writer(), Writer()
    by_page, by_link = (
        Discovery(CONFIG, ["node-a"], 0, UrlFilter(CONFIG.urls, ["a.test"], CONFIG.traps), it, seeds_widen_scope=False)  # type: ignore[arg-type]
        for it in (whole, single)
    )
    for position, (links, nofollow) in enumerate(pages):
        taken = TakenUrl(position, key_of(PAGE), QueuedUrl(PAGE, None, 0))
        by_page.links(taken, page_of(links), nofollow)
        for place, link in enumerate(links):
            by_link.links(taken, page_of([link]), nofollow, place)
    assert whole.sent == single.sent
    assert whole.rows == single.rows
    assert whole.part.counts.rejections == single.part.counts.rejections
