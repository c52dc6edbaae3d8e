"""An independent walk of HTML trees on disk: which URLs links lead to, and the arcs between existing pages.

It shares nothing with the crawler: the standard library's HTML parser and urllib instead of lexbor and ada. Good for
well-behaved trees (documentation), where the WHATWG and RFC 3986 agree; it refuses what it cannot be sure of.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

from tests.web.files import find_file

FOLLOWED_RELS = {"next", "prev", "index", "contents", "start", "alternate"} | {
    "canonical",
    "author",
    "copyright",
    "help",
    "search",
    "license",
}
RECORDED = dict.fromkeys(
    ("img", "script", "source", "video", "audio", "track", "embed", "input"), "src"
)
RECORDED["object"] = "data"


class LinkFinder(HTMLParser):
    """Collects (href, followed) of a page; a page's own nofollow is in `nofollow`."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[tuple[str, bool]] = []
        self.base: str | None = None
        self.nofollow = False

    def updatepos(self, i: int, j: int) -> int:
        """Lines and columns are not wanted; counting them takes a tenth of the time."""
        return j

    def parse_endtag(self, i: int) -> int:
        """End tags say nothing of links, but those of script and style switch the parser back."""
        if (
            self.cdata_elem is None
            and (end := self.rawdata.find(">", i)) > 0
            and self.rawdata[i + 2 : i + 3].isalpha()
        ):
            return end + 1
        return super().parse_endtag(i)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in reversed(attrs)}
        rel = set(given.get("rel", "").lower().split())
        if tag == "base" and "href" in given and self.base is None:
            self.base = given["href"]
        elif tag in ("a", "area") and "href" in given:
            self.links.append((given["href"], "nofollow" not in rel))
        elif tag in ("frame", "iframe") and "src" in given:
            self.links.append((given["src"], True))
        elif tag == "link" and "href" in given:
            self.links.append((given["href"], bool(rel & FOLLOWED_RELS) and "nofollow" not in rel))
        elif tag == "meta":
            self.meta(given)
        elif tag in RECORDED and RECORDED[tag] in given:
            self.links.append((given[RECORDED[tag]], False))

    def meta(self, given: dict[str, str]) -> None:
        content = given.get("content", "")
        if given.get("http-equiv", "").lower() == "refresh":
            if found := re.match(
                r"\s*[\d.]+\s*[;,]\s*url\s*=\s*['\"]?([^'\"]*)", content, re.IGNORECASE
            ):
                self.links.append((found[1], True))
        elif given.get("name", "").lower() == "robots":
            self.nofollow |= bool({"nofollow", "none"} & set(re.split(r"[\s,]+", content.lower())))


def absolute(base: str, href: str) -> str | None:
    """The canonical http URL of a reference, None for other schemes."""
    cleaned = re.sub(r"[\t\r\n]", "", href).strip(" \x0b\x0c")
    parts = urlsplit(urljoin(base, cleaned))
    if parts.scheme not in ("http", "https"):
        return None
    assert not re.search(r"\\|%2f", cleaned, re.IGNORECASE), f"not sure what {href!r} means"
    path = quote(unquote(parts.path), safe="/~!$&'()*+,;=:@-._") or "/"
    return urlunsplit(
        (
            parts.scheme,
            parts.netloc.lower(),
            path,
            quote(parts.query, safe="%/?~!$&()*+,;=:@-._"),
            "",
        )
    )


@dataclass
class Walk:
    """`outcomes`: `ok`, `gone` or `redirect` by URL reached; `arcs`: between different URLs that exist."""

    outcomes: dict[str, str] = field(default_factory=dict)
    arcs: set[tuple[str, str]] = field(default_factory=set)

    def urls(self, outcome: str) -> set[str]:
        return {url for url, found in self.outcomes.items() if found == outcome}


def walk(trees: dict[str, Path], seeds: list[str]) -> Walk:
    """Follow links from `seeds` through the trees. `trees`: root directory by origin (`http://address:port`)."""
    result = Walk()
    queue = list(seeds)
    pairs: set[tuple[str, str]] = set()
    while queue:
        url = queue.pop()
        if url in result.outcomes:
            continue
        found = locate(trees, url)
        result.outcomes[url] = {None: "gone", "redirect": "redirect"}.get(found, "ok")
        if found == "redirect":
            queue.append(url + "/")
        elif found is not None and found.suffix in (".html", ".htm"):
            for target, followed in links_of(url, found):
                pairs.add((url, target))
                if followed and origin(target) in trees:
                    queue.append(target)
    existing = result.urls("ok")
    result.arcs = {
        (source, target) for source, target in pairs if target in existing and source != target
    }
    return result


def origin(url: str) -> str:
    """Scheme and authority."""
    return "/".join(url.split("/")[:3])


def locate(trees: dict[str, Path], url: str) -> Path | str | None:
    """The file that a URL of one of the trees names; see `find_file`."""
    root = trees[origin(url)]
    return find_file(root, url[len(origin(url)) :])


def links_of(url: str, path: Path) -> Iterator[tuple[str, bool]]:
    """The (URL, followed) of a page's links."""
    finder = LinkFinder()
    finder.feed(path.read_text(encoding="utf-8", errors="replace"))
    base = urljoin(url, finder.base) if finder.base else url
    for href, followed in dict.fromkeys(
        (href.partition("#")[0], followed) for href, followed in finder.links
    ):
        target = absolute(base, href)
        if target is not None:
            yield target, followed and not finder.nofollow
