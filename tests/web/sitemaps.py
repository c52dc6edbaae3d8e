"""A site whose first page links to nothing: its other pages are in sitemaps and feeds that robots.txt names.

with SitemapServing() as site:
    site.url("/")
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
from pathlib import Path

from demo import ServerProcess, Target
from demo.answers import Answer, make_answer
from demo.server import bind, serve

ADDRESS = "127.0.12.1"
ROBOTS = b"User-agent: *\nSitemap: /index.xml\nSitemap: /list.txt\nSitemap: http://elsewhere.test/sitemap.xml\n"
LISTS = {
    "/index.xml": (
        "application/xml",
        b"<sitemapindex><sitemap><loc>/map.xml.gz</loc></sitemap><sitemap><loc>/rss</loc></sitemap></sitemapindex>",
    ),
    "/map.xml.gz": (
        "application/gzip",
        gzip.compress(b"<urlset><url><loc>/a</loc></url><url><loc>/b</loc></url></urlset>"),
    ),
    "/list.txt": (
        "text/plain",
        b"http://%s:PORT/c\nhttp://%s:PORT/endless?1\n" % ((ADDRESS.encode(),) * 2),
    ),
    "/rss": ("application/rss+xml", b"<rss><channel><item><link>/d</link></item></channel></rss>"),
    "/d": ("text/html", b'<link rel="alternate" type="application/atom+xml" href="/atom">'),
    "/atom": (
        "text/xml",
        b'<feed><entry><link href="/e"/><link rel="enclosure" href="/f"/></entry></feed>',
    ),
    "/notes": ("text/plain", b"see http://nowhere.test/"),
}
PAGES = {"/", "/a", "/b", "/c", "/e", "/f", "/notes"}


class SitemapAnswers:
    """What the site answers. `port`: of the server."""

    port = 0

    def site(self, address: str) -> int:
        return 0

    def answer(self, target: Target, accepted: str) -> Answer:
        path, _, query = target.path.partition("?")
        mime, body = LISTS.get(path, ("text/html", b"<title>A page</title>"))
        if path == "/robots.txt":
            mime, body = "text/plain", ROBOTS
        elif path == "/endless":  # an index that lists an index, and so on
            mime, body = (
                "text/xml",
                b"<sitemapindex><loc>/endless?%d</loc></sitemapindex>" % (int(query) + 1),
            )
        elif path not in PAGES | LISTS.keys():
            return make_answer(404, [], b"")
        return make_answer(
            200, [("Content-Type", mime)], body.replace(b"PORT", str(self.port).encode())
        )


class SitemapServing(ServerProcess):
    """Serves while its `with` block runs."""

    def __init__(self) -> None:
        super().__init__(["tests.web.sitemaps"], ADDRESS)

    def url(self, path: str) -> str:
        return f"http://{ADDRESS}:{self.port}{path}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--until-eof", action="store_true")
    parser.add_argument("--log", type=Path)
    given = parser.parse_args()
    sockets = bind([ADDRESS])
    answers = SitemapAnswers()
    answers.port = sockets[0].getsockname()[1]
    with given.log.open("a", encoding="utf-8") as log:
        on_ready = lambda port: print(json.dumps({"port": port}), flush=True)  # noqa: E731
        asyncio.run(serve(answers, sockets, log=log, until_eof=given.until_eof, on_ready=on_ready))


if __name__ == "__main__":
    main()
