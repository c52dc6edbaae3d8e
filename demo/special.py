"""A site's special resources: one of each oddity of the web. The page `/x/` links to all of these."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import replace

from demo.model import Link, Resource, Target
from demo.ordinary import page_path
from demo.render import frameset, page, repeatable, words
from demo.spelling import ANYWHERE, IN_SITE, absolute, relative

LONG_CHAIN = 13
SLOW_BODY_S = 0.3
BIG_PAGE_WORDS = 45_000
INDEX = "/x/"


def png(shade: int) -> bytes:
    """Return a valid grey PNG of one pixel (PNG specification, 11.2)."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    pixel = zlib.compress(bytes([0, shade]))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixel) + chunk(b"IEND", b"")
    )


_PDF = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[]/Count 0>>endobj\n"
    b"trailer<</Root 1 0 R>>\n%%EOF\n"
)


class SpecialResources:
    """Makes the special resources of one site.

    `sites`, `pages`: sizes of the whole web. Only site 0 makes a crawler wait (failures, a slow body).
    """

    def __init__(self, seed: int, site: int, sites: int, pages: int) -> None:
        self._seed, self._site, self._sites, self._pages = seed, site, sites, pages
        self._rng = repeatable(f"{seed}:{site}:special")
        self._made: dict[str, Resource] = {}
        self._listed: list[Link] = []

    def make(self) -> dict[str, Resource]:
        """Make all special resources by path, with the list `/x/`."""
        makers: list[Callable[[], None]] = [
            self._files,
            self._statuses,
            self._redirects,
            self._robots_and_nofollow,
            self._charsets,
            self._codings,
            self._elements,
            self._bases,
            self._duplicates,
            self._spellings,
            self._texts,
        ]
        if self._site == 0:
            makers += [self._waiting, self._long_chain]
        for maker in makers:
            maker()
        self._made[INDEX] = self._html("The odd things", self._listed)
        return self._made

    # -- helpers

    def _here(self, path: str) -> Target:
        return Target(self._site, path)

    def _ordinary(self, site: int | None = None) -> Target:
        """Return an ordinary page, another page each time."""
        where = self._site if site is None else site
        return Target(where, page_path(self._seed, where, self._rng.randrange(self._pages)))

    def _html(
        self, title: str, links: list[Link], *, extra: str = "", **fields: object
    ) -> Resource:
        text = page(self._rng, f"{title} (site {self._site})", links, extra=extra)
        return replace(Resource(body=text, links=tuple(links)), **fields)  # type: ignore[arg-type]

    def _to(
        self, target: Target, element: str = "a", rel: str = "", *, followed: bool = True
    ) -> Link:
        return Link(target, absolute(target), element, rel, words(self._rng, 2), followed)

    def _add(self, path: str, resource: Resource, *, listed: bool = True) -> None:
        self._made[path] = resource
        if listed:
            self._listed.append(Link(self._here(path), relative(INDEX, path), anchor=path))

    def _redirect(
        self, path: str, status: int, to: Target, location: str = "", *, listed: bool = True
    ) -> None:
        headers = (("Location", location or absolute(to)),)
        self._add(path, Resource(status, None, headers=headers, redirect=to), listed=listed)

    # -- the kinds

    def _files(self) -> None:
        for number in range(4):
            self._add(
                f"/img/{number}.png",
                Resource(mime="image/png", body=png(number)),
                listed=number == 0,
            )
        self._add(
            "/style.css", Resource(mime="text/css", body="body { color: teal }\n"), listed=False
        )
        self._add(
            "/script.js", Resource(mime="text/javascript", body="var ink = 8;\n"), listed=False
        )
        self._add("/x/paper.pdf", Resource(mime="application/pdf", body=_PDF))
        notes = "Plain text.\nIn it is <a href='/x/not-a-link.html'>what looks like a link</a>.\n"
        self._add("/x/notes.txt", Resource(mime="text/plain; charset=utf-8", body=notes))

    def _statuses(self) -> None:
        for status in (404, 410, 403):
            self._add(f"/x/status-{status}.html", Resource(status, body=f"<p>{status}</p>"))
        self._add("/x/no-content", Resource(204, None))
        self._add("/x/empty.html", Resource())

    def _redirects(self) -> None:
        for status in (301, 302, 307, 308):
            self._redirect(f"/x/moved-{status}", status, self._ordinary())
        target = self._ordinary()
        self._redirect(
            "/x/moved-relative", 302, target, relative("/x/moved-relative", target.path) + "#part"
        )
        self._redirect("/x/chain-1", 301, self._here("/x/chain-2"))
        self._redirect("/x/chain-2", 302, self._here("/x/chain-3"), listed=False)
        self._redirect("/x/chain-3", 307, self._here("/x/chain-end.html"), listed=False)
        self._add(
            "/x/chain-end.html",
            self._html("End of the chain", [self._to(self._ordinary())]),
            listed=False,
        )
        self._redirect("/x/loop-a", 302, self._here("/x/loop-b"))
        self._redirect("/x/loop-b", 302, self._here("/x/loop-a"), listed=False)
        self._redirect("/x/loop-self", 302, self._here("/x/loop-self"))
        neighbour = (self._site + 1) % self._sites
        self._redirect("/x/away", 302, Target(neighbour, "/x/arrived.html"))
        self._add(
            "/x/arrived.html", self._html("Arrived", [self._to(self._ordinary())]), listed=False
        )
        self._redirect("/x/lost", 302, self._here("/x/nowhere-at-all.html"))
        self._add("/x/no-location", Resource(302, None))

    def _robots_and_nofollow(self) -> None:
        self._add(
            "/private/secret.html",
            self._html("Secret", [self._to(self._here("/private/deeper.html"))]),
        )
        self._add("/private/deeper.html", self._html("Deeper", []), listed=False)
        self._add("/private/open/page.html", self._html("Open", [self._to(self._ordinary())]))
        self._add("/x/run.cgi", self._html("Run", [self._to(self._ordinary())]))
        one = [
            self._to(self._here("/x/only-nofollow.html"), rel="nofollow", followed=False),
            self._to(self._ordinary()),
        ]
        self._add("/x/some-nofollow.html", self._html("One link is not endorsed", one))
        self._add("/x/only-nofollow.html", self._html("Not followed", []), listed=False)
        meta = '<meta name="robots" content="noarchive, NoFollow">'
        hidden = [self._to(self._here("/x/only-meta-nofollow.html")), self._to(self._ordinary())]
        self._add(
            "/x/meta-nofollow.html",
            self._html("No link is endorsed", hidden, extra=meta, nofollow=True),
        )
        self._add("/x/only-meta-nofollow.html", self._html("Not followed", []), listed=False)

    def _charsets(self) -> None:
        title = "Caf\u00e9"
        latin = self._html(title, [self._to(self._ordinary())])
        self._add(
            "/x/latin-1.html",
            replace(latin, charset="iso-8859-1", mime="text/html; charset=ISO-8859-1"),
        )
        wide = self._html(title, [self._to(self._ordinary())])
        self._add("/x/utf-16.html", replace(wide, charset="utf-16", mime="text/html"))
        links = [self._to(self._ordinary())]
        japanese = page(
            self._rng, "\u30af\u30e9\u30fc\u30b1\u30f3", links, extra='<meta charset="shift_jis">'
        )
        body = "".join(letter for letter in japanese if letter < "\x80" or letter > "\u3000")
        declared = Resource(mime="text/html", body=body, charset="shift_jis", links=tuple(links))
        self._add("/x/shift-jis.html", declared)
        self._add(
            "/x/no-type", replace(self._html("No type", [self._to(self._ordinary())]), mime=None)
        )

    def _codings(self) -> None:
        for coding in ("gzip", "br", "deflate"):
            for chunked in (False, True):
                path = f"/x/{coding}{'-chunked' if chunked else ''}.html"
                coded = self._html(
                    path, [self._to(self._ordinary())], coding=coding, chunked=chunked
                )
                self._add(path, coded)
        self._add(
            "/x/chunked.html", self._html("Chunked", [self._to(self._ordinary())], chunked=True)
        )

    def _elements(self) -> None:
        followed = [
            self._to(self._here("/x/by-area.html"), "area"),
            self._to(self._here("/x/by-iframe.html"), "iframe"),
        ]
        recorded = [
            self._to(self._here("/img/1.png"), "img", followed=False),
            self._to(self._here("/script.js"), "script", followed=False),
            self._to(self._here("/style.css"), "link", "stylesheet", followed=False),
            self._to(self._here("/img/2.png"), "link", "icon", followed=False),
        ]
        nowhere = [
            Link(None, "javascript:void(0)", anchor="do"),
            Link(None, "tel:+4930", anchor="call"),
        ]
        rels = [
            self._to(self._here(f"/x/by-{rel}.html"), "link", rel)
            for rel in ("next", "alternate", "license")
        ]
        refresh = [self._to(self._here("/x/by-refresh.html"), "meta")]
        links = [*rels, *refresh, *recorded, *followed, *nowhere]
        self._add("/x/elements.html", self._html("Elements", links))
        frames = [
            self._to(self._here(f"/x/by-frame-{side}.html"), "frame") for side in ("left", "right")
        ]
        self._add("/x/frames.html", Resource(body=frameset("Frames", frames), links=tuple(frames)))
        for link in [*followed, *rels, *refresh, *frames]:
            assert link.target is not None
            self._add(
                link.target.path,
                self._html(link.target.path, [self._to(self._ordinary())]),
                listed=False,
            )

    def _bases(self) -> None:
        target = self._here("/other/place/found.html")
        links = [
            Link(target, "found.html", anchor="by base"),
            Link(self._here("/x/empty.html"), "/x/empty.html"),
        ]
        self._add("/x/base.html", self._html("Base", links, extra='<base href="/other/place/">'))
        self._add(
            target.path, self._html("Found by base", [self._to(self._ordinary())]), listed=False
        )
        there = (self._site + 1) % self._sites
        base = f'<base href="{absolute(Target(there, "/other/"))}">'
        away = [Link(Target(there, target.path), "place/found.html", anchor="elsewhere")]
        self._add("/x/base-away.html", self._html("Base elsewhere", away, extra=base))

    def _duplicates(self) -> None:
        twin = self._html("Twins", [self._to(self._ordinary())])
        for path in ("/x/twin-1.html", "/x/twin-2.html", "/twins/3.html"):
            self._add(path, twin)

    def _spellings(self) -> None:
        """Spell one target in every way: many rows of links, one URL."""
        target = self._here("/x/~caf%C3%A9/a%20b/spelled.html")
        links = [Link(target, way(target), anchor=way.__name__) for way in IN_SITE + ANYWHERE]
        links.append(Link(self._here("/x/spellings.html"), "#top", anchor="itself"))
        self._add("/x/spellings.html", self._html("Spellings", links))
        self._add(target.path, self._html("Spelled", [self._to(self._ordinary())]), listed=False)

    def _texts(self) -> None:
        links = [self._to(self._ordinary()) for _ in range(3)]
        body = page(self._rng, "A big page", links, size_words=BIG_PAGE_WORDS)
        self._add("/x/big.html", Resource(body=body, links=tuple(links)))
        hidden = [self._to(self._here("/x/only-header-nofollow.html"))]
        tagged = self._html(
            "X-Robots-Tag", hidden, nofollow=True, headers=(("X-Robots-Tag", "nofollow"),)
        )
        self._add("/x/header-nofollow.html", tagged)
        self._add("/x/only-header-nofollow.html", self._html("Not followed", []), listed=False)

    def _waiting(self) -> None:
        self._add("/x/status-500.html", Resource(500, body="<p>500</p>"))
        busy = self._html("Busy at first", [self._to(self._ordinary())], first_status=503)
        self._add("/x/busy-once.html", busy)
        self._add(
            "/x/slow.html",
            self._html("Slow", [self._to(self._ordinary())], chunked=True, drip_s=SLOW_BODY_S),
        )
        # an address without a server: only a crawl without a scope asks there
        self._redirect("/x/dead", 302, Target(self._sites, "/"))

    def _long_chain(self) -> None:
        for number in range(1, LONG_CHAIN):
            path, to = f"/x/long-{number}", self._here(f"/x/long-{number + 1}")
            self._redirect(path, 301, to, listed=number == 1)
        self._add(f"/x/long-{LONG_CHAIN}", self._html("After a long chain", []), listed=False)
