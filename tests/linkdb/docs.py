"""Two documentation sites of Debian as segments, and their links as the tree of another parser has them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import urldefrag, urljoin

import pytest
from selectolax.lexbor import LexborHTMLParser

from crawl_lib.config import ParseConfig
from crawl_lib.errors import UrlError
from crawl_lib.parse import parse_html
from crawl_lib.urls import resolve
from tests.crawldb.crawls import Visit
from tests.parse.links import each_link

SITES = {
    "http://python.example/": Path("/usr/share/doc/python3.11-doc/html"),
    "http://postgres.example/": Path("/usr/share/doc/postgresql-doc-15/html"),
}
_RELS = "next prev index contents start alternate canonical author copyright help search license"
RELS = frozenset(_RELS.split())
"""Of `link`, that may lead to a page."""


def files(site: str) -> dict[str, Path]:
    """The pages of a site: URL and file."""
    root = SITES[site].resolve()
    found = {site + str(path.relative_to(root)): path for path in sorted(root.rglob("*.html"))}
    if not found:
        pytest.skip(
            f"{SITES[site]} is not there: the Debian packages python3.11-doc and postgresql-doc-15 are needed"
        )
    return found


def visits(site: str) -> Iterator[Visit]:
    """A visit of each page, with the links that Krake reads."""
    for url, path in files(site).items():
        page = parse_html(path.read_bytes(), url=url, header_charset=None, config=ParseConfig())
        links = []
        for href, anchor, _, _, may_lead, _ in each_link(page):
            try:
                links += [(resolve(page.base, href), anchor)] * may_lead
            except UrlError:
                continue
        yield Visit(url, links=links)


def links_in_files(site: str, targets: set[str]) -> set[tuple[str, str, str]]:
    """Source, target and text of each link to some pages, read out of all files of a site."""
    found, join = set(), cache(lambda base, href: urldefrag(urljoin(base, href)).url)
    for url, path in files(site).items():
        for node in LexborHTMLParser(path.read_bytes()).css("a[href], link[href]"):
            leads = node.tag == "a" or RELS & set((node.attributes.get("rel") or "").split())
            target = join(f"{url.rpartition('/')[0]}/", node.attributes["href"] or url)
            if leads and target in targets - {url}:
                found.add((url, target, " ".join(node.text().split()) if node.tag == "a" else ""))
    return found
