"""The plain records of the model: a link with its known target, and the resource behind a URL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

PORT_MARK = "@PORT@"
"""The place of the port in texts of the model; replaced when a resource is rendered."""


class Target(NamedTuple):
    """A URL of the web: the site's number, and the path with its query in canonical form."""

    site: int
    path: str


@dataclass(frozen=True, slots=True)
class Link:
    """A link in a page: its target and its spelling.

    `target`: None without a web page as the target (`mailto:`). `href`: as written, before HTML escaping. `followed`:
    whether a crawler with respect for nofollow follows the link (apart from the page's own nofollow).
    """

    target: Target | None
    href: str
    element: str = "a"
    rel: str = ""
    anchor: str = ""
    followed: bool = True

    @property
    def nofollow(self) -> bool:
        """Whether `rel` says nofollow."""
        return "nofollow" in self.rel.split()


@dataclass(frozen=True, slots=True)
class Resource:
    """The resource behind one URL.

    `mime`: Content-Type, None: no such header. `body`: the content before codings, with `PORT_MARK`. `charset`: of the
    sent bytes. `links`: in the order of the body. `redirect`: the target of Location. `coding`: Content-Encoding, if
    the client accepts this coding. `first_status`: the status of the first `first_times` answers, with a Retry-After of
    `first_wait_s`. `drip_s`: seconds for the body. `nofollow`: the whole page has nofollow (meta robots or
    X-Robots-Tag).
    """

    status: int = 200
    mime: str | None = "text/html; charset=utf-8"
    body: str | bytes = ""
    charset: str = "utf-8"
    headers: tuple[tuple[str, str], ...] = ()
    links: tuple[Link, ...] = ()
    redirect: Target | None = None
    coding: str = ""
    chunked: bool = False
    first_status: int | None = None
    first_times: int = 1
    first_wait_s: int = 1
    drip_s: float = 0.0
    nofollow: bool = False

    def content(self, port: int) -> bytes:
        """Return the content on a port, before content and transfer codings."""
        if isinstance(self.body, bytes):
            return self.body
        return self.body.replace(PORT_MARK, str(port)).encode(self.charset)
