"""Links of real documentation, compared with an independent reader: Python's own html.parser."""

from __future__ import annotations

import random
from html.parser import HTMLParser
from pathlib import Path

import pytest

from crawl_lib.config import ParseConfig
from crawl_lib.parse import parse_html
from tests.parse.links import each_link

DOCS = Path("/usr/share/doc/python3.11-doc/html")


class Independent(HTMLParser):
    """Collects (element, reference) of what is a link by the issue's list."""

    SOURCES = dict.fromkeys(
        ("img", "script", "iframe", "frame", "source", "video", "audio", "track", "embed"), "src"
    )

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[tuple[str, str]] = []
        self.anchors: list[str] = []
        self.in_anchor = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        name = self.SOURCES.get(tag) or (
            "href" if tag in ("a", "area", "link") else "data" if tag == "object" else None
        )
        value = dict(attrs).get(name or "")
        self.in_anchor = (tag == "a" and value is not None) or self.in_anchor
        if tag == "a" and value is not None:
            self.anchors.append("")
        if value is not None:
            self.links.append((tag, value.strip()))

    def handle_data(self, data: str) -> None:
        if self.in_anchor:
            self.anchors[-1] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "a":
            self.in_anchor = False


def test_links_equal_those_of_an_independent_reader() -> None:
    pages = sorted(DOCS.rglob("*.html"))
    if not pages:
        pytest.skip("Debian's python3.11-doc is not installed")
    found = 0
    for path in random.Random(7).sample(pages, 60):
        data = path.read_bytes()
        reader = Independent()
        reader.feed(data.decode())
        page = parse_html(
            data,
            url="http://a.b/x",
            header_charset=None,
            config=ParseConfig(max_anchor_chars=10**6),
        )
        links = [(link.element, link.href) for link in each_link(page) if link.element != "meta"]
        assert links == reader.links, path
        anchors = [link.anchor for link in each_link(page) if link.element == "a"]
        assert anchors == [" ".join(text.split()) for text in reader.anchors], path
        found += len(links)
    assert found > 3000
