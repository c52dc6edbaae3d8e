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
    """A web of `sites` sites with `pages_per_site` ordinary pages each, made from `seed`. Equal values give equal webs.

    `specials`: each site has one of each oddity (`special`), about 80 more URLs. `calendar`: site 0 has an endless
    calendar; crawl this site with a limit of depth. `agent`: our token in robots.txt rules. `busy`: number of first
    requests that some ordinary pages answer with 503 or 429; some pages always do so. 0: no such pages.
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
        """Return the resource of a target of this web; None: 404."""
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
        """Return all targets with a resource, without the endless calendar."""
        return list(self._resources)

    def addresses(self) -> list[str]:
        """Return the loopback addresses of the sites, in order."""
        return [address(site) for site in range(self.sites)]

    def url(self, target: Target, port: int) -> str:
        """Return the canonical URL of a target."""
        return absolute(target).replace(PORT_MARK, str(port))

    def locate(self, url: str, port: int) -> Target:
        """Return the target of a canonical URL. Raises InputError for other URLs."""
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
        """Return the root of every site."""
        return [self.url(Target(site, "/"), port) for site in range(self.sites)]

    def delay_s(self, host: str) -> float:
        """Return the Crawl-delay of a site in seconds, or 0.

        `host`: address without port.
        """
        asks = kind_of(self.addresses().index(host)) is RobotsKind.CRAWL_DELAY
        return CRAWL_DELAY_S if asks else 0.0

    def truth(
        self, port: int, seeds: Sequence[str] | None = None, options: TruthOptions | None = None
    ) -> Truth:
        """Return the necessary results of a crawl of this web.

        `port`: the server's. `seeds`: canonical URLs of this web; None: the roots of all sites. Raises InputError if
        the limits make the results a matter of chance (see `truth`).
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
