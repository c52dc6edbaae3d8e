"""Eleven sites that make URLs without end: each answers a million URLs, and more.

    with TrapServing() as traps:
        traps.url("calendar")

A site has its own address, by its place in `SITES`, and a page for any path. There is no robots.txt. What a page links
to depends on its URL only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import Callable, Iterator
from hashlib import md5
from pathlib import Path

from demo import ServerProcess, Target
from demo.answers import Answer, make_answer
from demo.server import bind, serve

MISSING = make_answer(404, [("Content-Type", "text/html")], b"<p>404</p>")
FACETS, VALUES, PAGES = 6, 10, 50


def segments(path: str) -> Iterator[str]:
    """A menu whose links are relative by mistake, and a server that looks at the end of the path only."""
    yield from ("news/", "team/", "shop/", "help/", "blog/")


def depth(path: str) -> Iterator[str]:
    """Each folder has another one in it, and a page."""
    level = path.count("/")
    yield from (f"{level}/", f"page-{level}.html")


def calendar(path: str) -> Iterator[str]:
    """Months that link to those around them and to their days; days that link to the next one."""
    match = re.fullmatch(r"/(\d+)/(\d+)/(?:(\d+)/)?", path)
    year, month, day = (int(number or 0) for number in match.groups()) if match else (2026, 11, 0)
    if day:
        yield f"/{year}/{month:02}/{day % 28 + 1:02}/"
        return
    for step in range(-12, 13):
        later = year * 12 + month - 1 + step
        yield f"/{later // 12}/{later % 12 + 1:02}/"
    yield from (f"/{year}/{month:02}/{day:02}/" for day in range(1, 29))


def sessions(path: str) -> Iterator[str]:
    """A shop of fifty pages that knows its visitors by an id in each link, and each request is a new visitor's."""
    for page in range(PAGES):
        yield f"/page-{page}.html;jsessionid={md5(f'{path} {page}'.encode()).hexdigest()}"


def facets(path: str) -> Iterator[str]:
    """A list of goods with six filters of ten values, each of which is a link."""
    chosen = dict(re.findall(r"(\w+)=(\d)", path)) or {f"f{facet}": "0" for facet in range(FACETS)}
    for name in chosen:
        for value in range(VALUES):
            yield "/list?" + "&amp;".join(
                f"{a}={b}" for a, b in {**chosen, name: str(value)}.items()
            )


def refreshes(path: str) -> Iterator[str]:
    """A page that asks to wait, for ever; the link is for those who do not want to."""
    yield f"/wait?n={int(path.partition('=')[2] or 0) + 1}"


def offers(path: str) -> Iterator[str]:
    """A page of nothing new that leads to twenty others like it, whose names are random."""
    for number in range(20):
        yield f"/offers/{md5(f'{path} {number}'.encode()).hexdigest()}.html"


def letters(text: str) -> str:
    """A name without a digit."""
    return md5(text.encode()).hexdigest().translate(str.maketrans("0123456789", "ghijklmnop"))


def folders(path: str) -> Iterator[str]:
    """The same page, word for word, in ever new folders of letters."""
    for number in range(20):
        yield f"/{letters(f'{path} {number}')[:8]}/{letters(path)[:8]}/"


def queries(path: str) -> Iterator[str]:
    """The same page under ever new names in the query."""
    for number in range(20):
        yield f"/?{letters(f'{path} {number}')[:8]}=x"


def mixed(path: str) -> Iterator[str]:
    """Both at once, with another number of links on each page; every fourth page is an error."""
    for number in range(10 + len(path) % 7):
        name = letters(f"{path} {number}")
        yield f"/{name[:8]}/" if number % 2 else f"/{name[:6]}?{name[6:12]}"


def pictures(path: str) -> Iterator[str]:
    """Pages without a word, and a first page with a thousand links."""
    for number in range(1000 if path == "/" else 20):
        yield f"/{letters(f'{path} {number}')[:8]}/"


SITES: dict[str, Callable[[str], Iterator[str]]] = {
    "segments": segments,
    "depth": depth,
    "calendar": calendar,
    "sessions": sessions,
    "facets": facets,
    "refreshes": refreshes,
    "offers": offers,
    "folders": folders,
    "queries": queries,
    "mixed": mixed,
    "pictures": pictures,
}
EQUAL = ("folders", "queries", "mixed", "pictures")
WORDS = "Sorry, this offer is over. But there is more to see, so look at what our shop has: lamps, chairs, tables."


def address(site: str) -> str:
    return f"127.0.11.{list(SITES).index(site) + 1}"


class TrapAnswers:
    """A page for each URL."""

    def site(self, address: str) -> int:
        return int(address.rpartition(".")[2]) - 1

    def answer(self, target: Target, accepted: str) -> Answer:
        if target.path == "/robots.txt":
            return MISSING
        name, links = list(SITES.items())[target.site]
        hrefs = list(links(target.path))
        body = (
            f'<meta http-equiv="refresh" content="0; url={hrefs[0]}">'
            if name == "refreshes"
            else ""
        )
        if name == "offers":
            body += f"<p>{WORDS} {target.path}</p>"
        elif name not in EQUAL:
            body += f"<p>{' '.join(letters(f'{target.path} {word}') for word in range(20))}</p>"
        text = "" if name == "pictures" else "go on"
        body += "".join(f'<a href="{href}">{text}</a>\n' for href in hrefs)
        is_error = name == "mixed" and int(md5(target.path.encode()).hexdigest(), 16) % 4 == 0
        return make_answer(404 if is_error else 200, [("Content-Type", "text/html")], body.encode())


class TrapServing(ServerProcess):
    """Serves all of them while its `with` block runs."""

    def __init__(self) -> None:
        super().__init__(["tests.web.traps"], address("segments"))

    def url(self, site: str) -> str:
        """The first page of a site."""
        return f"http://{address(site)}:{self.port}/"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--until-eof", action="store_true")
    parser.add_argument("--log", type=Path)
    given = parser.parse_args()
    with given.log.open("a", encoding="utf-8") as log:
        asyncio.run(
            serve(
                TrapAnswers(),
                bind([address(site) for site in SITES]),
                log=log,
                until_eof=given.until_eof,
                on_ready=lambda port: print(json.dumps({"port": port}), flush=True),
            )
        )


if __name__ == "__main__":
    main()
