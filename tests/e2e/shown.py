"""A site whose pages need images, style sheets and fonts, on two hosts; what a crawl of it must find."""

from __future__ import annotations

from contextlib import AbstractContextManager
from http.server import ThreadingHTTPServer
from typing import Any

from tests.serving import Answering, running

HTML, CSS, PNG = "text/html", "text/css", "image/png"
HOME = (
    "<link rel=stylesheet href=/s.css><img src=http://localhost:PORT/i.png srcset='/i2.png 2x'><img src=/moved>"
    "<a href=/page>x</a><a href=/i2.png>x</a><iframe src=http://localhost:PORT/frame></iframe>"
)
PAGES: dict[str, tuple[str, bytes]] = {
    "/": (HTML, HOME.encode()),
    "/page": (
        HTML,
        b"<style>@import '/s.css'; @import 'lone.css'</style><img src=/i2.png><img src=/gone>",
    ),
    "/s.css": (CSS, "\ufeff@import 't.css'; a{b:url(im\\61 ge\\.png)}".encode("utf-16-le")),
    "/t.css": (CSS, b"@import 's.css'; @import url(u.css); @font-face{src:url(f.woff2)}"),
    "/u.css": (CSS, b"@import 't.css';"),
    "/lone.css": (CSS, b""),
    "/frame": (HTML, b"<a href=/never>x</a><img src=/in-frame.png>"),
}
IMAGES = {"/i.png", "/i2.png", "/image.png", "/f.woff2", "/in-frame.png", "/moved-to"}
HOPS = {
    "/": "S",
    "/page": "L",
    "/i2.png": "L",
    **dict.fromkeys(["/s.css", "/t.css", "/u.css", "/lone.css", "/frame", "/gone", "/moved"], "E"),
    **dict.fromkeys(["/i.png", "/image.png", "/f.woff2", "/in-frame.png", "/moved-to"], "E"),
}


class _Answer(Answering):
    def do_GET(self) -> None:
        server: Any = self.server
        server.asked.append(self.path)
        kind, body = PAGES.get(self.path, (PNG, b"\x89PNG\r\n\x1a\n"))
        status = (
            200 if self.path in PAGES.keys() | IMAGES else 302 if self.path == "/moved" else 404
        )
        moved = "/moved-to" if status == 302 else None
        body = body.replace(b"PORT", b"%d" % server.server_address[1])
        self.answer(status, body, {"Location": moved, "Content-Type": kind})


def running_pages() -> AbstractContextManager[Any]:
    """Run the site; its attribute `asked` has the path of each request."""
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Answer)
    server.asked = []
    return running(server)
