"""Crawls of a made site with and without requisites, in turn: CPU for each URL that was fetched.

Every page of the site has a style sheet of its own, which imports a shared one, three widths of a picture, a script,
SVG with `use`, and a style attribute.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

from benchmarks.pairs import PAIRS, PROJECT, crawl
from benchmarks.report import Row, ahead
from tests.web.files import FileServing

PAGES = 1000
MOST_RATIO = 1.3
SHARED = {
    "s.css": "@import 't.css'; a{b:url(s.png)}",
    "t.css": "@font-face{src:url(f.woff2)}",
    "j.js": "let a = 1",
}
IMAGES = ("s.png", "f.woff2", "u.svg", "w.png")
WORDS = 200
"""Words of a page, each of which few other pages have: pages with nearly the same words would not be fetched."""


def page(number: int) -> str:
    """Return the text of a page."""
    links = "".join(
        f"<a href={(number * 7 + step) % PAGES}.html>page {step}</a> " for step in range(1, 21)
    )
    words = " ".join(f"word{number * WORDS // 2 + place}" for place in range(WORDS))
    needs = (
        f"<link rel=stylesheet href={number}.css><script src=j.js></script><p style='a:url(w.png)'>"
    )
    pictures = (
        f"<img src={number}.png srcset='{number}.png 1x, {number}-2.png 2x, {number}-3.png 3x'>"
    )
    return f"<title>{number}</title>{needs}{pictures}<svg><use href=u.svg#a /></svg>{words} {links}"


def make_site(directory: Path) -> None:
    """Write the files of the site."""
    directory.mkdir()
    for name, text in SHARED.items():
        (directory / name).write_text(text)
    for number in range(PAGES):
        (directory / f"{number}.html").write_text(page(number))
        (directory / f"{number}.css").write_text(
            f"@import 's.css'; p{{a:url(w.png)}} /* {number} */"
        )
    images = [
        *IMAGES,
        *(f"{number}{width}.png" for number in range(PAGES) for width in ("", "-2", "-3")),
    ]
    for name in images:
        (directory / name).write_bytes(b"\x89PNG\r\n\x1a\n" + name.encode() * 400)


def rows_of(found: list[tuple[float, float]], urls: tuple[int, int]) -> list[Row]:
    """Return the row: `found` has seconds of CPU a URL with and without requisites, `urls` how many were fetched."""
    ratios = sorted(with_them / without for with_them, without in found)
    costs = [
        f"{1000 * median(pair[side] for pair in found):.3f} ms of {urls[side]:,} URLs"
        for side in (0, 1)
    ]
    return [
        Row(
            f"requisites: CPU a URL, all against none, median of {len(found)} pairs",
            f"{median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}); medians {costs[0]} and {costs[1]}",
            f"at most {MOST_RATIO}",
            median(ratios) <= MOST_RATIO,
        )
    ]


def run(directory: Path) -> list[Row]:
    """Crawl in turn; the crawl that begins changes each time."""
    make_site(directory / "site")
    found, urls = [], {"all": 0, "none": 0}
    with FileServing(directory / "site", "127.0.8.9") as site, ahead():
        for number in range(PAIRS):
            costs = {}
            for kind in ("all", "none") if number % 2 else ("none", "all"):
                sections = {"parse": {"requisites": kind}}
                place = directory / f"{number}-{kind}"
                urls[kind], cpu_s = crawl(PROJECT, [site.url("/0.html")], place, sections)
                costs[kind] = cpu_s / urls[kind]
            found.append((costs["all"], costs["none"]))
    return rows_of(found, (urls["all"], urls["none"]))
