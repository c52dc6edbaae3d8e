"""Mutated links of pages: C and a plain Python reader must make the same rows of them. By hand, for hours:

    python -m tests.parse.fuzzed_rows --seeds 1000000 [--first 0]

C is compiled with sanitizers. Python finds out anew what C remembers of earlier pages. `_target` and `_verdict` give
the answers of the resolver and the filter of `driver.c`, which know no URLs.
"""

from __future__ import annotations

import argparse
import struct
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.parse.driver import SANITIZERS, Driver, compiled
from tests.parse.links import FOLLOWED_RELS, NAMES, TO_PAGES, Link, read_links

RULES = (
    "",
    "element",
    "nofollow",
    "redirect_limit",
    "similar",
    "on_requisite",
    "invalid",
    "scope",
    "accepted",
)
SOURCE = b"source of 20 bytes.."
SAYS_NOFOLLOW, FOLLOWS_ALL, NO_HOP, IS_SIMILAR, REQUISITES, IS_REQUISITE = 1, 2, 4, 8, 16, 32
LEFT = 1 << 32
PIECES = (
    *(
        b"\0",
        b"\0\0",
        b"#",
        b" #",
        b"\xff",
        b"!",
        b"/",
        b"a",
        b"nofollow",
        b" ",
        b"\xe6\x97\xa5",
        b"m",
        b"A",
        b"\0\0\0",
    ),
    *(word.encode() for word in sorted(FOLLOWED_RELS)[:4]),
)
HREFS = ("x", "y", "x#1", "x #1", "", "#", "/x", "!x", "long" * 50, "日本", "/日", "z#", "\x1f#")
ANCHORS = ("", "text", "日本語", "long " * 30)
RELS = ("", "next", "nofollow", "a prev b", "nexta")
FOLDERS = ("f/", "g/", "f/g/")
PAGES_OF_A_RUN = 500


class Page(NamedTuple):
    """Links as bytes, what the page says, and its folder."""

    links: bytes
    how: int
    folder: str


def page(seed: int) -> Page:
    """The page of a seed: of ten, one is whole; the others have bytes that are taken out, put in, or changed."""
    rng = Random(seed)
    letters = [*NAMES, *map(str.upper, NAMES), "?"]
    links = bytearray()
    for _ in range(rng.choice((0, 1, 3, 10, 40))):
        texts = (rng.choice(letters) + rng.choice(HREFS), rng.choice(ANCHORS), rng.choice(RELS))
        links += "".join(f"{text}\0" for text in texts).encode()
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        place = rng.randrange(len(links) + 1)
        links[place : place + rng.choice((0, 0, 1, 3))] = rng.choice((*PIECES, rng.randbytes(2)))
    return Page(
        bytes(links), rng.choice((0, 0, 1, 2, 3, 4, 8, 12, 15, 16, 48, 32, 40)), rng.choice(FOLDERS)
    )


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _target(href: str, folder: str) -> bytes | None:
    sharp = href.find("#")
    text = _octets(href if sharp < 0 or (sharp and href[sharp - 1] <= " ") else href[:sharp])
    if text.startswith(b"!"):
        return None
    return text if text.startswith(b"/") else folder.encode() + text


def _verdict(url: bytes) -> bool:
    return sum(url) % 2 == 1


def _bar(link: Link, how: int, is_hop: bool) -> str:
    if how & REQUISITES:
        return ""
    if not link.followable:
        return "element"
    if (link.nofollow or how & SAYS_NOFOLLOW) and not how & FOLLOWS_ALL:
        return "nofollow"
    if is_hop and how & NO_HOP:
        return "redirect_limit"
    if how & IS_REQUISITE:
        return "on_requisite"
    return "similar" if how & IS_SIMILAR else ""


class Plain:
    """The reader, page after page."""

    def __init__(self) -> None:
        self.sent: dict[bytes, int] = {}
        self.pages = 0

    def answer(self, page: Page) -> tuple[bytes, dict[bytes, int]]:
        """Return rows and counts of a page, as `driver.c` writes them, and the places of the URLs to hand on."""
        self.pages += 1
        links = read_links(page.links)
        hops = {link.href for link in links if link.element in {"meta", "sitemap"}}
        rows: list[tuple[bytes, ...]] = []
        bits, rejected, sent = list[bool](), dict.fromkeys(RULES, 0), dict[bytes, int]()
        for number, link in enumerate(links):
            url, bar = _target(link.href, page.folder), _bar(link, page.how, link.href in hops)
            followed = url is not None and not bar and _verdict(url)
            rule = "invalid" if url is None else bar or ("accepted" if followed else "scope")
            if page.how & REQUISITES and link.element in TO_PAGES.values() and not followed:
                continue
            rejected[rule] += not followed
            if url is not None and followed:
                sent.setdefault(url, number)
            if url is not None and (followed or link.element != "robots"):
                bits.append(followed and not page.how & REQUISITES)
                rows.append((url, *map(_octets, (link.anchor, link.rel, link.element, rule))))
        return _block(rows, bits) + struct.pack("9I", *rejected.values()), sent


def _block(rows: Sequence[tuple[bytes, ...]], bits: Sequence[bool]) -> bytes:
    """Columns as Arrow lays them out."""
    parts = [
        struct.pack("I", len(rows)),
        SOURCE * len(rows),
        *(row[0][:20].ljust(20, b"\0") for row in rows),
    ]
    for place in range(5 if rows else 0):
        if place == 4:
            eights = (bits[start : start + 8] for start in range(0, len(bits), 8))
            parts += [
                sum(bit << at for at, bit in enumerate(eight)).to_bytes(1, "little")
                for eight in eights
            ]
        ends = [0]
        for row in rows:
            ends.append(ends[-1] + len(row[place]))
        parts += [struct.pack(f"{len(ends)}i", *ends), *(row[place] for row in rows)]
    return b"".join(parts)


def _handed_on(data: bytes) -> tuple[dict[bytes, int], bytes]:
    """What an answer says is handed on, and what follows."""
    sent, at = dict[bytes, int](), 0
    while (link := int.from_bytes(data[at : at + 4], "little")) != LEFT - 1:
        length = int.from_bytes(data[at + 8 : at + 12], "little")
        sent[data[at + 12 : at + 12 + length]] = link
        at += 12 + length
    return sent, data[at + 4 :]


def check(driver: Driver, seeds: Sequence[int]) -> None:
    """Fail where C and Python do not agree on a page."""
    pages = [page(seed) for seed in seeds]
    plain, places = Plain(), dict[bytes, int]()
    for number, (seed, one, answer) in enumerate(
        zip(seeds, pages, driver.rows(pages), strict=True), start=1
    ):
        expected, followed = plain.answer(one)
        sent, rows = _handed_on(answer.data)
        assert rows == expected, (seed, one)
        # Handed on before from here or an earlier place, or now: nothing else, and by the first link to it.
        for url, link in followed.items():
            assert sent.get(url, link) == link, (seed, url)
            assert url in sent or places[url] <= number ^ 3, (seed, url)
        assert sent.keys() <= followed.keys(), (seed, sent)
        for url in sent:
            places[url] = min(places.get(url, LEFT), number ^ 3)


def in_runs(first: int, count: int) -> Iterator[range]:
    """The seeds of one run of the program each."""
    for start in range(first, first + count, PAGES_OF_A_RUN):
        yield range(start, min(start + PAGES_OF_A_RUN, first + count))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1000, help="how many pages")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        driver = Driver(compiled(Path(folder), *SANITIZERS))
        for seeds in in_runs(options.first, options.seeds):
            check(driver, seeds)
    print(f"{options.seeds} pages: the rows of C and of Python are equal")


if __name__ == "__main__":
    main()
