"""Who asks for robots.txt, follows its redirects, keeps the answers, and says which rules an authority has."""

from __future__ import annotations

from collections.abc import Callable

from crawl_lib.config import FetchConfig
from crawl_lib.errors import UrlError
from crawl_lib.fetch.book import port_error
from crawl_lib.fetch.classify import header_of
from crawl_lib.fetch.hosts import Job, Site, Slot, authority_end
from crawl_lib.fetch.hoststore import HostRow, HostStore
from crawl_lib.fetch.robots import MAX_REDIRECTS, Rules, kept_instead, row_of, rules_of_row
from crawl_lib.records import Fetched
from crawl_lib.states import Outcome
from crawl_lib.urls import refused_port, resolve

MAX_RULES_BYTES = 64 << 20
"""Memory for rules. Beyond it those read first are dropped, and read again from the store where they are needed."""
# What fails here is what every URL of the authority has too: its name, its address, its certificate.
_SHARED_ENDS = (Outcome.DNS_FAILED, Outcome.ADDRESS_REFUSED, Outcome.TLS_FAILED)


class RobotsDesk:
    """The rules of authorities during one run.

    `wall`: POSIX seconds. `site_of`, `slot_of`: the loop's authorities and hosts by name. `schedule`: called with a
    slot that has something to do again. `on_robots`: gets each answer and each final failure.
    """

    def __init__(
        self,
        config: FetchConfig,
        hosts: HostStore,
        *,
        wall: Callable[[], float],
        site_of: Callable[[str], Site],
        slot_of: Callable[[str], Slot],
        schedule: Callable[[Slot], None],
        on_robots: Callable[[Fetched], None],
    ) -> None:
        self._config = config
        self._hosts = hosts
        self._wall = wall
        self._site_of = site_of
        self._slot_of = slot_of
        self._schedule = schedule
        self._on_robots = on_robots
        self._kept: dict[Site, int] = {}
        self._kept_bytes = 0

    def rules_of(self, site: Site) -> Rules | None:
        """The rules in force; None: robots.txt must be asked for first (`job`)."""
        rules = site.rules
        now = self._wall()
        if rules is not None and rules.expires > now:
            return rules
        row = self._hosts.robots(site.authority)
        if row is None or row.expires <= now:
            return None
        rules = rules_of_row(row, self._config.user_agent)
        if rules is not None:
            self._set(site, rules)
        return rules

    def job(self, slot: Slot, site: Site) -> Job:
        """The request for an authority's robots.txt; the host's pages wait for it."""
        slot.waits_for = site
        return Job(f"{site.authority}/robots.txt", site, None, robots_for=site)

    def forget(self, site: Site) -> None:
        """Drop the rules of a site. They are read again from the store when they are asked for."""
        site.rules = None
        self._kept_bytes -= self._kept.pop(site, 0)

    def answered(self, job: Job, fetched: Fetched) -> None:
        """An answer, or the last failure, of a request for robots.txt: follow it, or go by it."""
        self._on_robots(fetched)
        site = job.robots_for
        assert site is not None
        target = _target(job, fetched) if fetched.outcome is Outcome.REDIRECT else None
        if target is None:
            self._go_by(site, fetched, job.hops)
            return
        # The hop is a request to its own host, in that host's turn.
        next_site = self._site_of(target[: authority_end(target)])
        hop = Job(target, next_site, None, site, job.hops + 1)
        port = refused_port(target, next_site.host)
        if port is not None:
            self.answered(hop, Fetched(target, self._wall(), Outcome.PORT_REFUSED, attempts=0, error=port_error(port)))
            return
        self.rules_of(next_site)  # its Crawl-delay, where it is known
        slot = self._slot_of(next_site.host)
        slot.errands.append(hop)
        self._schedule(slot)

    def _go_by(self, site: Site, fetched: Fetched, hops: int) -> None:
        slot = self._slot_of(site.host)
        if hops == 0 and fetched.outcome in _SHARED_ENDS:
            site.rules = Rules.refusing(fetched.outcome, fetched.error, float("inf"))
        else:
            now = self._wall()
            new = row_of(site.authority, fetched, hops, now, self._config)
            row = kept_instead(self._hosts.robots(site.authority), new)
            rules = rules_of_row(row, self._config.user_agent)
            assert rules is not None
            self._set(site, rules)
            self._hosts.save_robots(row, HostRow(slot.host, slot.asked, slot.owed_s()))
        if slot.waits_for is site:
            slot.waits_for = None
        self._schedule(slot)

    def _set(self, site: Site, rules: Rules) -> None:
        site.rules = rules
        slot = self._slot_of(site.host)
        slot.delay_s = max(slot.delay_s, min(rules.crawl_delay_s, self._config.max_crawl_delay_s))
        self._kept_bytes += rules.size_bytes - self._kept.pop(site, 0)
        self._kept[site] = rules.size_bytes
        while self._kept_bytes > MAX_RULES_BYTES and len(self._kept) > 1:
            self.forget(next(iter(self._kept)))


def _target(job: Job, fetched: Fetched) -> str | None:
    """Where a redirect of robots.txt leads; None after the fifth, or if it leads nowhere."""
    if job.hops >= MAX_REDIRECTS:
        return None
    try:
        return resolve(job.url, header_of(fetched.head, b"location"))
    except UrlError:
        return None
