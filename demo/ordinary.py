"""A site's ordinary pages: a tree of links to all pages, and more links with power-law degrees."""

from __future__ import annotations

from dataclasses import replace

from demo.model import Link, Resource, Target
from demo.render import page, repeatable, words
from demo.spelling import spell

_FORMS = (
    "/p{n}.html",
    "/p{n}.html",
    "/section{k}/p{n}.html",
    "/section{k}/deep/er/p{n}/",
    "/~user{k}/p{n}.html",
    "/a%20b/p{n}.html",
    "/caf%C3%A9/p{n}.html",
    "/view?id={n}&sort=up",
    "/list/?page={n}",
)
_COPY_SHARE = 0.04
_MAX_OUT_DEGREE = 60


_BUSY_EVERY, _ALWAYS_BUSY = 5, 11


def made_busy(pages: dict[str, Resource], times: int) -> dict[str, Resource]:
    """Make some pages answer 503 or 429 to the first requests.

    `times`: number of these requests. Every eleventh page answers 503 to all requests.
    """
    found = dict(pages)
    for number, (path, made) in enumerate(pages.items()):
        if number % _ALWAYS_BUSY == _ALWAYS_BUSY - 1:
            found[path] = Resource(503, body="<p>503</p>")
        elif number % _BUSY_EVERY == _BUSY_EVERY - 2:
            status = 429 if number % 2 else 503
            found[path] = replace(made, first_status=status, first_times=times, first_wait_s=0)
    return found


def page_path(seed: int, site: int, number: int) -> str:
    """Return the canonical path of an ordinary page; page 0 is `/`."""
    if number == 0:
        return "/"
    rng = repeatable(f"{seed}:{site}:{number}:path")
    return rng.choice(_FORMS).format(n=number, k=number % 5)


class OrdinaryPages:
    """Makes the ordinary pages of one site. `sites`, `pages`: sizes of the whole web."""

    def __init__(self, seed: int, site: int, sites: int, pages: int) -> None:
        self._seed, self._site, self._sites, self._pages = seed, site, sites, pages
        self._rng = repeatable(f"{seed}:{site}:ordinary")
        self._paths = [page_path(seed, site, number) for number in range(pages)]
        # A copy repeats the bytes of an earlier page, so the links of both must not depend on the place of the page.
        self._original = list(range(pages))
        for number in range(4, pages):
            if self._rng.random() < _COPY_SHARE:
                self._original[number] = self._original[self._rng.randrange(3, number)]
        self._portable = {first for number, first in enumerate(self._original) if first != number}

    def make(self, extra_root_links: list[tuple[Target, str]]) -> dict[str, Resource]:
        """Make all pages by path.

        `extra_root_links`: more links of page 0 (target, anchor).
        """
        children = self._tree()
        made: list[Resource] = []
        for number, first in enumerate(self._original):
            if first != number:
                made.append(made[first])
                continue
            extra = extra_root_links if number == 0 else []
            made.append(self._page(number, children[number], extra))
        return dict(zip(self._paths, made, strict=True))

    def _tree(self) -> list[list[int]]:
        """Return the children of each page.

        The parent of a page is an earlier original, so links lead from `/` to every page.
        """
        children: list[list[int]] = [[] for _ in range(self._pages)]
        for number in range(1, self._pages):
            parent = self._original[int(number * self._rng.random() ** 1.5)]
            children[parent].append(number)
        return children

    def _page(self, number: int, children: list[int], extra: list[tuple[Target, str]]) -> Resource:
        rng = self._rng
        here = Target(self._site, self._paths[number])
        portable = number in self._portable
        links = [
            self._link(here, Target(self._site, self._paths[child]), portable) for child in children
        ]
        links += [self._link(here, target, portable, anchor) for target, anchor in extra]
        links += [
            self._strewn(here, portable)
            for _ in range(min(_MAX_OUT_DEGREE, int(rng.paretovariate(1.1)) + 1))
        ]
        rng.shuffle(links)
        links.append(
            Link(
                Target(self._site, "/style.css"), "/style.css", "link", "stylesheet", followed=False
            )
        )
        charset = "iso-8859-1" if rng.random() < 0.06 else "utf-8"
        size = min(2500, int(rng.paretovariate(1.2) * 60))
        text = page(
            rng, f"Page {number} of site {self._site}: {words(rng, 3)}", links, size_words=size
        )
        return Resource(
            mime=f"text/html; charset={charset}",
            body=text,
            charset=charset,
            links=tuple(links),
            coding=rng.choices(("", "gzip", "br", "deflate"), (55, 30, 10, 5))[0],
            chunked=rng.random() < 0.15,
        )

    def _link(self, here: Target, target: Target, portable: bool, anchor: str = "") -> Link:
        href = spell(self._rng, here, target, portable=portable)
        return Link(target, href, anchor=anchor or words(self._rng, 2))

    def _strewn(self, here: Target, portable: bool) -> Link:
        """Make one more link: to a popular page, another site, or an odd target."""
        rng = self._rng
        kind = rng.random()
        if kind < 0.03:
            return self._link(
                here, Target(self._site, f"/missing/{rng.randrange(20)}.html"), portable
            )
        if kind < 0.05:
            return Link(None, f"mailto:kraken{rng.randrange(9)}@example.com", anchor="write")
        if kind < 0.08:
            name = f"/img/{rng.randrange(4)}.png"
            return Link(Target(self._site, name), name, "img", followed=False)
        site = rng.randrange(self._sites) if kind < 0.2 else self._site
        # the cube makes few pages popular: in-degrees follow a power law
        number = int(self._pages * rng.random() ** 3)
        target = Target(site, page_path(self._seed, site, number))
        link = self._link(here, target, portable)
        return replace(link, rel="nofollow", followed=False) if kind > 0.97 else link
