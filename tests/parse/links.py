"""A plain reader of the links of a page, which a page has as bytes: what `parse/native/rows.c` must read in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from crawl_lib.parse import ParsedPage

TO_PAGES = {"a": "a", "r": "area", "f": "frame", "i": "iframe", "m": "meta"} | {
    "c": "loc",
    "d": "item",
    "p": "sitemap",
    "x": "robots",
}
BY_REL = {"l": "link", "y": "entry"}
TO_OTHERS = {
    "g": "img",
    "s": "script",
    "o": "source",
    "v": "video",
    "u": "audio",
    "t": "track",
    "e": "embed",
} | {
    "j": "object",
    "n": "input",
    "k": "style",
    "q": "import",
    "w": "use",
    "z": "image",
    "h": "srcdoc",
}
NAMES = TO_PAGES | BY_REL | TO_OTHERS
"""The names of elements by their letters."""
FOLLOWED_RELS = frozenset(
    {
        *("next", "prev", "index", "contents", "start", "alternate"),
        *("canonical", "author", "copyright", "help", "search", "license"),
    }
)
"""The words of rel that make the target of a `link` element a page to follow."""


class Link(NamedTuple):
    """A link. `element`: its name; `followable`: whether its target may be a page; `nofollow`: rel holds nofollow."""

    href: str
    anchor: str
    rel: str
    element: str
    followable: bool
    nofollow: bool


class Columns(NamedTuple):
    """The links of a page by columns of the same length."""

    hrefs: list[str]
    anchors: list[str]
    rels: list[str]
    elements: list[str]
    followable: list[bool]
    nofollow: list[bool]


def read_links(data: bytes) -> list[Link]:
    """The links in document order. What is no whole link ends them."""
    texts, found = data.split(b"\0")[:-1], []
    for texts_of_link in zip(texts[::3], texts[1::3], texts[2::3], strict=False):
        code = texts_of_link[0][:1].decode("latin-1")
        if not code:
            break
        href, anchor, rel = (
            text.decode("utf-8", "surrogateescape")
            for text in (texts_of_link[0][1:], *texts_of_link[1:])
        )
        letter = code.lower() if code.isascii() else ""
        may = letter in TO_PAGES or (
            letter in BY_REL and not FOLLOWED_RELS.isdisjoint(rel.lower().split(" "))
        )
        found.append(Link(href, anchor, rel, NAMES.get(letter, ""), may, "A" <= code <= "Z"))
    return found


def each_link(page: ParsedPage) -> list[Link]:
    """The links of a page in document order."""
    return read_links(page.links)


def columns(links: bytes) -> Columns:
    """The same by columns."""
    return Columns(*([link[place] for link in read_links(links)] for place in range(6)))


def written(links: Iterable[tuple[str, str, str]]) -> bytes:
    """Links as bytes: a letter before the href, the anchor, the rel."""
    return "".join(f"{text}\0" for link in links for text in link).encode()
