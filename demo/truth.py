"""The truth: the necessary results of a crawl of the synthetic web, from the model alone.

A crawl goes in rounds: round 1 fetches the seeds, and each later round fetches the URLs found before. Each round
fetches all waiting URLs, so a crawl with smaller batches equals the truth only at its end (`rounds=None`).

Two pages of one round may find the same URL at different depths (a redirect keeps the depth and costs a round). The
depth of the URL is then a matter of chance. So with a limit of depth the truth is computed twice, for the least and for
the greatest depth. If the results differ, the truth is uncertain, and this is an error.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from crawl_lib.errors import InputError
from crawl_lib.states import WITH_RESPONSE, Outcome
from demo.model import Link, Resource, Target
from demo.rules import RobotsKind, is_denied, kind_of

if TYPE_CHECKING:
    from demo.web import SynthWeb


@dataclass(frozen=True)
class TruthOptions:
    """The options of the crawl that change the truth.

    `rounds`: iterations; None: to the end. `scope`: `hosts` (of the seeds, and of redirect targets of seeds) or
    `any`; the domain of an address is the address, so `domains` is `hosts`. `max_depth`: links from a seed.
    `max_redirects`: hops since the last link. `robots`: `obey` or `ignore`. `requisites`: images and style sheets of
    pages are fetched, too, from any host.
    """

    rounds: int | None = None
    scope: str = "hosts"
    max_depth: int | None = None
    max_redirects: int = 10
    robots: str = "obey"
    follow_nofollow: bool = False
    requisites: bool = False


@dataclass(frozen=True, slots=True)
class Visit:
    """One URL's fetch. `digest`: SHA-1 of the content with codings undone, None without content in the model."""

    url: str
    outcome: Outcome
    status: int | None
    digest: bytes | None
    depth: int
    round: int


@dataclass(frozen=True)
class Truth:
    """The necessary results of a crawl.

    `visits`: by URL, each exactly once. `arcs`: pairs of URLs (source, target): all links between pages with status
    200, followed or not, without links of a page to itself. `rounds`: number of rounds with fetches.
    """

    visits: Mapping[str, Visit]
    arcs: frozenset[tuple[str, str]]
    rounds: int

    def outcomes(self) -> dict[str, Outcome]:
        """Return the outcome of each URL."""
        return {url: visit.outcome for url, visit in self.visits.items()}

    def counts(self) -> Counter[Outcome]:
        """Count the URLs of each outcome."""
        return Counter(visit.outcome for visit in self.visits.values())

    def contents(self) -> dict[str, bytes]:
        """Return the SHA-1 of the content of each URL with status 200."""
        return {
            url: v.digest
            for url, v in self.visits.items()
            if v.status == 200 and v.digest is not None
        }


_REQUISITES = frozenset({"img", "link"})
"""The elements of `Link` that name requisites."""


class _Waiting(NamedTuple):
    """The way of a URL into the queue; of several ways, the least or the greatest counts (see above)."""

    depth: int
    redirects: int


class _Walk:
    """One walk through the model; `worst`: ties go to the greatest depth."""

    def __init__(
        self, web: SynthWeb, seeds: Sequence[Target], options: TruthOptions, *, worst: bool
    ) -> None:
        self._web, self._options = web, options
        self._choose = max if worst else min
        self._scope = {target.site for target in seeds}
        self._queue: dict[Target, _Waiting] = dict.fromkeys(seeds, _Waiting(0, 0))
        self.done: dict[Target, tuple[int, int, Outcome]] = {}
        self.rounds = 0

    def run(self) -> None:
        limit = self._options.rounds
        while self._queue and (limit is None or self.rounds < limit):
            self.rounds += 1
            self._round()

    def _round(self) -> None:
        found: dict[Target, _Waiting] = {}
        added: set[int] = set()
        for target, waiting in self._queue.items():
            self.done[target] = (waiting.depth, self.rounds, self._outcome(target))
            for next_target, following in self._discovered(target, waiting):
                if waiting.depth == 0 and following.redirects:
                    added.add(next_target.site)
                elif not self._in_scope(next_target, following):
                    continue
                if self._within_limits(following):
                    known = found.get(next_target)
                    found[next_target] = (
                        following if known is None else self._choose(known, following)
                    )
        # redirect targets of seeds add hosts after the round: earlier links to these hosts stay out of scope
        self._scope |= added
        self._queue = {
            target: waiting for target, waiting in found.items() if target not in self.done
        }

    def requisites(self) -> dict[Target, tuple[int, int, Outcome]]:
        """Return unlinked requisites of fetched pages, in the form of `done`."""
        pages = (target for target, facts in self.done.items() if facts[2] is Outcome.OK)
        links = (
            link for page in pages for link in self._links(page) if link.element in _REQUISITES
        )
        needed = {link.target for link in links if link.target is not None} - self.done.keys()
        return {target: (1, self.rounds, self._outcome(target)) for target in needed}

    def _links(self, page: Target) -> Sequence[Link]:
        resource = self._web.resource(page)
        return resource.links if resource is not None else ()

    def _in_scope(self, target: Target, waiting: _Waiting) -> bool:
        return self._options.scope == "any" or target.site in self._scope

    def _within_limits(self, waiting: _Waiting) -> bool:
        deep = self._options.max_depth is not None and waiting.depth > self._options.max_depth
        return not deep and waiting.redirects <= self._options.max_redirects

    def _outcome(self, target: Target) -> Outcome:
        if target.site >= self._web.sites:
            return Outcome.CONNECT_FAILED
        if self._options.robots == "obey":
            if kind_of(target.site) is RobotsKind.FAILING:
                return Outcome.ROBOTS_UNREACHABLE
            if is_denied(target):
                return Outcome.ROBOTS_DENIED
        return outcome_of(self._web.resource(target))

    def _discovered(self, target: Target, waiting: _Waiting) -> Iterator[tuple[Target, _Waiting]]:
        resource = self._web.resource(target)
        if resource is None or self.done[target][2] not in (Outcome.OK, Outcome.REDIRECT):
            return
        if resource.redirect is not None:
            yield resource.redirect, _Waiting(waiting.depth, waiting.redirects + 1)
        for link in resource.links:
            if link.target is not None and self._follows(resource, link):
                yield link.target, _Waiting(waiting.depth + 1, 0)

    def _follows(self, resource: Resource, link: Link) -> bool:
        if self._options.follow_nofollow:
            return link.followed or link.nofollow
        return link.followed and not resource.nofollow


def outcome_of(resource: Resource | None) -> Outcome:
    """Return the outcome of an allowed fetch; None: a URL with status 404."""
    status = 404 if resource is None else resource.status
    if 200 <= status < 300:
        return Outcome.OK
    if 300 <= status < 400:
        redirects = resource is not None and resource.redirect is not None
        return Outcome.REDIRECT if redirects else Outcome.UNEXPECTED_STATUS
    if status in (404, 410):
        return Outcome.GONE
    return Outcome.CLIENT_ERROR if status < 500 else Outcome.SERVER_ERROR


def find_truth(web: SynthWeb, port: int, seeds: Sequence[Target], options: TruthOptions) -> Truth:
    """Walk the model; see `SynthWeb.truth`.

    Raises InputError for options under which the truth is not certain.
    """
    walk = _Walk(web, seeds, options, worst=False)
    walk.run()
    if options.max_depth is not None:
        other = _Walk(web, seeds, options, worst=True)
        other.run()
        if other.done.keys() != walk.done.keys():
            raise InputError(
                f"max_depth {options.max_depth}: which pages it cuts off is a matter of chance here"
            )
    found = walk.done | (walk.requisites() if options.requisites else {})
    visits = (
        _visit(web.url(target, port), web.resource(target), port, facts)
        for target, facts in found.items()
    )
    return Truth(
        {visit.url: visit for visit in visits}, frozenset(_arcs(web, port, walk)), walk.rounds
    )


def _visit(
    url: str, resource: Resource | None, port: int, facts: tuple[int, int, Outcome]
) -> Visit:
    depth, number, outcome = facts
    if outcome not in WITH_RESPONSE:
        return Visit(url, outcome, None, None, depth, number)
    if resource is None:
        return Visit(url, outcome, 404, None, depth, number)
    return Visit(
        url, outcome, resource.status, hashlib.sha1(resource.content(port)).digest(), depth, number
    )


def _arcs(web: SynthWeb, port: int, walk: _Walk) -> Iterator[tuple[str, str]]:
    crawled = {
        target
        for target, facts in walk.done.items()
        if facts[2] is Outcome.OK and _answers_200(web, target)
    }
    for source in crawled:
        resource = web.resource(source)
        assert resource is not None
        targets = {
            link.target
            for link in resource.links
            if link.target is not None and link.target != source
        }
        for target in targets & crawled:
            yield web.url(source, port), web.url(target, port)


def _answers_200(web: SynthWeb, target: Target) -> bool:
    resource = web.resource(target)
    return resource is not None and resource.status == 200
