"""Known items: entries of two printed indexes as queries, and the pages that they name as answers.

The pages are those of Debian's `postgresql-doc-15`, `python3.11-doc` and `erlang-doc`; pages that are an index
themselves, and links on them, are left out. What an answer is worth: 1 by the rank of the first page that the entry
names (mean reciprocal rank).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import unescape
from pathlib import Path

import numpy as np

from crawl_lib.config import ParseConfig
from crawl_lib.index import IndexedPage
from crawl_lib.parse import parse_html
from crawl_lib.text.extract import main_text
from crawl_lib.urls import key_of, resolve
from tests.parse.links import columns

ROOT = Path("/usr/share/doc")
ROUNDS, DAMPING = 40, 0.85
ANCHORS = 100


@dataclass(frozen=True)
class Docs:
    """The documentation of a package. `index`: the file with the entries; `left_out`: names of files that are an index
    themselves."""

    folder: Path
    index: str
    left_out: str

    @property
    def host(self) -> str:
        """The host that the pages have here."""
        return f"{self.folder.parts[4].split('-')[0].replace('.', '-')}.example"

    @property
    def is_there(self) -> bool:
        """Whether the package is installed."""
        return (self.folder / self.index).exists()


POSTGRESQL = Docs(ROOT / "postgresql-doc-15" / "html", "bookindex.html", r"bookindex\.html")
PYTHON = Docs(
    ROOT / "python3.11" / "html",
    "genindex-all.html",
    r"(genindex.*|py-modindex|search|contents)\.html",
)
ERLANG = Docs(ROOT / "erlang-doc", "doc/index.html", r"(.*index.*)\.html")


@dataclass(frozen=True)
class Entry:
    """An entry of an index, and the URLs of the pages that it names."""

    text: str
    urls: frozenset[str]


@dataclass
class Web:
    """Pages with the links between them. `links`: targets by source, with the texts of the links."""

    pages: list[IndexedPage] = field(default_factory=list)
    links: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    def linked(self) -> list[IndexedPage]:
        """Return the pages with the anchors of the links to them, each text once for each page that has it."""
        anchors: dict[str, Counter[str]] = defaultdict(Counter)
        for source, links in self.links.items():
            for target, text in dict.fromkeys(links):
                if target != source and text:
                    anchors[target][text] += 1
        most = {url: Counter(dict(texts.most_common(ANCHORS))) for url, texts in anchors.items()}
        return [
            replace(page, anchors=tuple(most.get(page.url, Counter()).elements()))
            for page in self.pages
        ]

    def boosts(self) -> Mapping[str, float]:
        """Return PageRanks by URL, divided by their mean."""
        places = {page.url: place for place, page in enumerate(self.pages)}
        count = len(places)
        arcs = [
            (place, places[target], len(targets))
            for url, place in places.items()
            if (
                targets := {
                    target for target, _ in self.links[url] if target in places and target != url
                }
            )
            for target in targets
        ]
        sources, targets, degrees = np.array(arcs).T
        is_dangling = np.ones(count, bool)
        is_dangling[sources] = False
        ranks = np.full(count, 1 / count)
        for _ in range(ROUNDS):
            given = (
                np.bincount(targets, ranks[sources] / degrees, count)
                + ranks[is_dangling].sum() / count
            )
            ranks = (1 - DAMPING) / count + DAMPING * given
        return dict(zip(places, (ranks * count).tolist(), strict=True))


def read_web(packages: Sequence[Docs], limit: int | None = None) -> Web:
    """Read the pages of packages, of each at most `limit`."""
    web = Web()
    for docs in packages:
        for file in sorted(docs.folder.rglob("*.html"))[:limit]:
            if not re.fullmatch(docs.left_out, file.name):
                url = f"http://{docs.host}/{file.relative_to(docs.folder).as_posix()}"
                page, web.links[url] = _read(url, file.read_bytes())
                web.pages.append(page)
    return web


def _read(url: str, data: bytes) -> tuple[IndexedPage, list[tuple[str, str]]]:
    parsed, html = (
        parse_html(data, url=url, header_charset=None, config=ParseConfig()),
        data.decode("utf-8", "replace"),
    )
    headings = " ".join(
        _plain(inside) for inside in re.findall(r"<h[1-3][ >](.*?)</h[1-3]>", html, re.DOTALL)
    )
    page = IndexedPage(
        key_of(url), url, main_text(html), 0, parsed.title or "", headings, language="en"
    )
    links = [
        (_target(url, href), anchor)
        for href, anchor in zip(*columns(parsed.links)[:2], strict=True)
        if anchor and not re.match(r"[a-z]+:|#", href)
    ]
    return page, links


def read_entries(docs: Docs) -> list[Entry]:
    """Return the entries of an index that name pages; the words of the entry above one are its words, too.

    Entries without a letter are left out, and those that begin with `-`, which is no word but an operator.
    """
    html = (docs.folder / docs.index).read_text()
    base = f"http://{docs.host}/{docs.index}"
    entries = (
        _entries(html, "dl", "dt", r",?\s*<a |, <em")
        if docs is POSTGRESQL
        else _entries(html, "ul", "li", "</a>")
    )
    named = ((text, {_target(base, href) for href in hrefs}) for text, hrefs in entries)
    return [
        Entry(text, frozenset(urls))
        for text, urls in named
        if urls and re.match(r"(?!-).*[A-Za-z]", text)
    ]


def _entries(html: str, nest: str, item: str, end: str) -> Iterator[tuple[str, list[str]]]:
    """Give the entries of nested lists, with the targets of their links. `end`: what ends the words of an item."""
    above: list[str] = []
    text = ""
    items = rf"<{nest}>|</{nest}>|<{item}[^>]*>(.*?)(?=<{nest}>|</{item}>)"
    for found in re.finditer(
        items, html[html.index("<h2 id=") if nest == "ul" else 0 :], re.DOTALL
    ):
        if found[1] is not None:
            text = _plain(re.split(end, found[1], maxsplit=1)[0])
            yield (
                " ".join([*(re.sub(r" ?\(.*\)$", "", one) for one in above if one), text]),
                re.findall(r'href="([^#":]+)', found[1]),
            )
        elif found[0].startswith("</"):
            text = above.pop() if above else ""
        else:
            above.append(text)


def _plain(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", "", html)).split())


def _target(base: str, href: str) -> str:
    return resolve(base, href).partition("#")[0]


def reciprocal_rank(results: Sequence[str], entry: Entry) -> float:
    """Return 1 by the rank of the first result that an entry names; 0 where it names none of them."""
    return next((1 / rank for rank, url in enumerate(results, 1) if url in entry.urls), 0.0)
