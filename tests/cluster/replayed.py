"""A site whose page needs each kind of requisite; what a browser shows of it depends on all of them."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

HTML, CSS, PNG, SVG = "text/html; charset=utf-8", "text/css", "image/png", "image/svg+xml"
FONTS = sorted(Path("/usr/share/fonts/truetype").glob("*/*.ttf"))
BOX = '<svg xmlns="http://www.w3.org/2000/svg"><rect id="box" width="300" height="90" fill="teal"/></svg>'
HOME = r"""<!doctype html><html><head><title>Requisites</title>
<link rel="stylesheet" href="/sheets/wide.css"><link rel="icon" href="/icon.png">
<style>@import url("sheets/a.css"); .escaped { background: url(im\61 ge\ one.png) } div { height: 90px }</style>
<script src="/paint.js" defer></script></head><body>
<img src="w400.png" srcset="w400.png 400w, w800.png 800w, w1200.png 1200w" sizes="100vw" width="1100" height="120">
<picture><source media="(min-width: 1000px)" srcset="wide.png"><source media="(max-width: 999px)" srcset="narrow.png">
<img src="fallback.png" width="500" height="90"></picture>
<svg width="700" height="100"><use href="/sprite.svg#box"></use>
<image href="/in-svg.png" x="320" width="300" height="90"></image></svg>
<div class="escaped"></div><div class="nested"></div><div class="wide"></div><div class="text">The font of a sheet</div>
<div style="background: url('inline.png')"></div><div id="painted"></div>
<iframe src="/frame.html" width="500" height="120"></iframe>
<object data="/object.svg" type="image/svg+xml" width="300" height="90"></object>
<embed src="/embed.svg" type="image/svg+xml" width="300" height="90">
<input type="image" src="/button.png" width="200" height="60">
<video poster="/poster.png" width="300" height="90"></video>
</body></html>"""
WIDE = (
    "@font-face { font-family: Own; src: url(/own.ttf) } .text "
    "{ font: 40px Own } .wide { background: url(/far.png) }"
)
NAMES = (
    *(
        "icon",
        "w400",
        "w800",
        "w1200",
        "wide",
        "narrow",
        "fallback",
        "in-svg",
        "image%20one",
        "nested",
        "inline",
    ),
    *("far", "framed", "button", "poster"),
)


def coloured(number: int) -> bytes:
    """A picture of one colour, 40 pixels wide and high."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    row = b"\0" + bytes([40 * number % 256, 90 * number % 256, 160 * number % 256]) * 40
    head = struct.pack(">IIBBBBB", 40, 40, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(row * 40))
        + chunk(b"IEND", b"")
    )


def made_site() -> dict[str, tuple[str, bytes]]:
    """What the site answers, by path: the MIME type and the content."""
    site = {f"/{name}.png": (PNG, coloured(number)) for number, name in enumerate(NAMES, 1)}
    site |= {path: (SVG, BOX.encode()) for path in ("/sprite.svg", "/object.svg", "/embed.svg")}
    return site | {
        "/": (HTML, HOME.encode()),
        "/frame.html": (HTML, b"<body style='background: url(framed.png)'>framed"),
        "/sheets/a.css": (CSS, b"@import 'b.css';"),
        "/sheets/b.css": (CSS, b"@import url(a.css); .nested { background: url(../nested.png) }"),
        "/sheets/wide.css": (CSS, f"\ufeff{WIDE}".encode("utf-16-le")),
        "/paint.js": (
            "text/javascript",
            b"document.getElementById('painted').style.background = 'navy'",
        ),
        **({"/own.ttf": ("font/ttf", FONTS[0].read_bytes())} if FONTS else {}),
    }
