"""`SynthWeb`: the whole web as a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from crawl_lib.errors import InputError
from demo.model import PORT_MARK, Link, Resource, Target
from demo.ordinary import OrdinaryPages, made_busy
from demo.rules import CRAWL_DELAY_S, RobotsKind, kind_of, robots_resources
from demo.special import INDEX, SpecialResources
from demo.spelling import absolute, address
from demo.truth import Truth, TruthOptions, find_truth

_CALENDAR = "/calendar?month="


@dataclass(frozen=True)
class SynthWeb:
    """A web of `sites` sites with `pages_per_site` ordinary pages each, made from `seed`; equal values, equal webs.

    `specials`: each site has one of everything odd (`special`), some 80 URLs more. `calendar`: site 0 has a calendar
    without end; crawl it with a limit of depth. `agent`: the token that robots.txt rules for us are written for.
    `busy`: how many requests some ordinary pages answer with 503 or 429 at first; some more always do. 0: none.
    """

    seed: int = 1
    sites: int = 12
    pages_per_site: int = 100
    specials: bool = True
    calendar: bool = False
    agent: str = "krake"
    busy: int = 0

    def __post_init__(self) -> None:
        if self.sites < 1 or self.pages_per_site < 1:
            raise InputError("a synthetic web needs at least one site and one page per site")
        if self.sites > 200 * 200:
            raise InputError(f"{self.sites} sites: a synthetic web has at most 40000")

    @cached_property
    def _resources(self) -> dict[Target, Resource]:
        found: dict[Target, Resource] = {}
        for site in range(self.sites):
            found.update((Target(site, path), made) for path, made in self._site(site).items())
        return found

    def _site(self, site: int) -> dict[str, Resource]:
        extra: list[tuple[Target, str]] = [(Target((site + 1) % self.sites, "/"), "next site")]
        if self.specials:
            extra.append((Target(site, INDEX), "odd things"))
        if self.calendar and site == 0:
            extra.append((Target(0, f"{_CALENDAR}1"), "calendar"))
        made = OrdinaryPages(self.seed, site, self.sites, self.pages_per_site).make(extra)
        if self.busy:
            made = made_busy(made, self.busy)
        if self.specials:
            made |= SpecialResources(self.seed, site, self.sites, self.pages_per_site).make()
        return made | robots_resources(site, self.agent)

    def resource(self, target: Target) -> Resource | None:
        """What `target` (a host and a path of this web) answers; None: 404."""
        found = self._resources.get(target)
        if (
            found is None
            and self.calendar
            and target.site == 0
            and target.path.startswith(_CALENDAR)
        ):
            return _month(target.path.removeprefix(_CALENDAR))
        return found

    def targets(self) -> list[Target]:
        """Every URL that answers something other than 404 by default, without the endless calendar."""
        return list(self._resources)

    def addresses(self) -> list[str]:
        """The loopback addresses of the sites, in order."""
        return [address(site) for site in range(self.sites)]

    def url(self, target: Target, port: int) -> str:
        """The canonical URL of a target."""
        return absolute(target).replace(PORT_MARK, str(port))

    def locate(self, url: str, port: int) -> Target:
        """The target of a canonical URL of this web. Raises InputError for another URL."""
        scheme, _, rest = url.partition("//")
        authority, slash, path = rest.partition("/")
        host, _, number = authority.partition(":")
        if (
            scheme == "http:"
            and slash
            and number == str(port)
            and host in (known := self.addresses())
        ):
            return Target(known.index(host), f"/{path}")
        raise InputError(f"{url}: is no URL of this synthetic web on port {port}")

    def seeds(self, port: int) -> list[str]:
        """The root of every site."""
        return [self.url(Target(site, "/"), port) for site in range(self.sites)]

    def delay_s(self, host: str) -> float:
        """The Crawl-delay that a site's robots.txt asks for, in seconds; 0 if none. `host`: address without port."""
        asks = kind_of(self.addresses().index(host)) is RobotsKind.CRAWL_DELAY
        return CRAWL_DELAY_S if asks else 0.0

    def truth(
        self, port: int, seeds: Sequence[str] | None = None, options: TruthOptions | None = None
    ) -> Truth:
        """What a crawl of this web must find.

        `port`: the server's. `seeds`: canonical URLs of this web; None: the roots of all sites. Raises InputError if
        the limits make the result a matter of chance (see `truth`).
        """
        chosen = self.seeds(port) if seeds is None else seeds
        return find_truth(
            self, port, [self.locate(url, port) for url in chosen], options or TruthOptions()
        )


def _month(number: str) -> Resource | None:
    if not number.isascii() or not number.isdigit() or number.startswith("0"):
        return None
    following = f"{_CALENDAR}{int(number) + 1}"
    link = Link(Target(0, following), following, anchor="next month")
    body = (
        f'<!DOCTYPE html><title>Month {number}</title><p><a href="{following}">next month</a></p>\n'
    )
    return Resource(body=body, links=(link,))
