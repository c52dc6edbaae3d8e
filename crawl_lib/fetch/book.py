"""The hosts and authorities that a run has to do with now, and what the node remembers of them."""

from __future__ import annotations

from collections.abc import Callable

from crawl_lib.config import FetchConfig
from crawl_lib.fetch.hosts import Site, Slot
from crawl_lib.fetch.hoststore import HostRow, HostStore
from crawl_lib.fetch.limits import limits_by_host
from crawl_lib.fetch.robots import Rules
from crawl_lib.states import Outcome
from crawl_lib.urls import refused_port


def port_error(port: int) -> str:
    """What a URL with a refused port ends with."""
    return f"port {port} is one that browsers refuse"


class HostBook:
    """Slots by host and sites by authority: made at their first use, freed when they are done, made again if needed.

    `clock`: the loop's, seconds; `wall`: POSIX seconds. A new slot is owed what is left of its delay since its last
    response in an earlier run, or since the last unclean stop was found. Raises StorageError as `HostStore` does.
    """

    def __init__(
        self, config: FetchConfig, hosts: HostStore, clock: Callable[[], float], wall: Callable[[], float]
    ) -> None:
        self.slots: dict[str, Slot] = {}
        self._sites: dict[str, Site] = {}
        self._config = config
        self._hosts = hosts
        self._clock = clock
        self._wall = wall
        self._hold_from = hosts.hold_from()
        self._limits_of = limits_by_host(config)

    def site(self, authority: str) -> Site:
        """The site of `scheme://host[:port]`."""
        site = self._sites.get(authority)
        if site is None:
            site = self._sites[authority] = Site(authority)
            self.slot(site.host).sites.append(site)
            port = refused_port(authority, site.host)
            if port is not None:
                site.rules = Rules.refusing(Outcome.PORT_REFUSED, port_error(port), float("inf"))
            elif self._config.robots == "ignore":
                site.rules = Rules(None, "", float("inf"))
        return site

    def slot(self, host: str) -> Slot:
        """The slot of a host."""
        slot = self.slots.get(host)
        if slot is None:
            slot = self.slots[host] = self._remembered(host)
        return slot

    def _remembered(self, host: str) -> Slot:
        limits, last_end = self._limits_of(host), self._hold_from
        slot = Slot(host, limits.delay_s, limits.connections)
        row = self._hosts.host(host)
        if row is not None:
            slot.rest_s = min(row.delay_s, self._config.max_crawl_delay_s)
            last_end = max(row.last_end, last_end)
        ago_s = self._wall() - last_end
        if ago_s < slot.owed_s():
            # A wall clock that was set back never means more than one delay.
            slot.ended_at = self._clock() - max(0.0, ago_s)
        return slot

    def save(self) -> None:
        """Write down the hosts that were asked since the last call."""
        rows = []
        for slot in self.slots.values():
            if slot.changed:
                slot.changed = False
                rows.append(HostRow(slot.host, slot.asked, slot.owed_s()))
        if rows:
            self._hosts.save_hosts(rows)

    def free(self) -> list[Site]:
        """Forget the hosts that have nothing to do and owe no delay, and return their sites. To follow `save`.

        A host that is asked for again comes back with what `save` and the answers to robots.txt have left.
        """
        now = self._clock()
        done = [slot for slot in self.slots.values() if slot.is_done(now)]
        freed = [site for slot in done for site in slot.sites]
        for slot in done:
            del self.slots[slot.host]
        for site in freed:
            del self._sites[site.authority]
        return freed
