"""Leases of fetchers on parts of hosts: at each moment at most one fetcher may ask a host.

All leases are in a table of the first key server, and all their times are by that server's clock. A fetcher says its
own time; after that the scheduler takes and renews the fetcher's leases for `LEASE_S`, and grants them until the
fetcher's time + `GRANT_S`. A grant therefore ends before its lease, and two grants of one part never overlap, whatever
the clocks of fetchers show. Only a clock that runs a tenth slower than the server's breaks this.

While the first key server is away, no lease is renewed, and all fetchers stop when their grants end.

Several schedulers may serve; each line to a fetcher is another lessee. The newest line alone renews, with new epochs.
A late write of an earlier line is therefore older than each write of the newest line.
"""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache, partial
from hashlib import sha1
from secrets import token_hex
from typing import TypeVar

from crawl_lib.config import KeyStorageConfig
from crawl_lib.realtime.pages import PARTS, PageServer
from crawl_lib.realtime.store import connect_pages

LEASE_S = 2.5
GRANT_S = 2.2
SEEN_S = 4.0
"""A fetcher that no scheduler has heard for so long is no member: others get its parts."""
MEET_S = 0.25
"""The time from a new line's word that its fetcher is there to the first lease. Fetchers that start together would take
parts from each other otherwise, and the hosts of such parts were seen to wait for 3 s.
"""
_T = TypeVar("_T")


@dataclass
class Lessee:
    """A line to a fetcher.

    `unowned`: the parts that no fetcher had had before this renewal. `asked`: the parts that the fetcher may ask now;
    None while the scheduler cannot know.
    """

    fetcher: str
    line: str = field(default_factory=lambda: token_hex(8))
    has_begun: bool = False
    unowned: frozenset[int] = frozenset()
    asked: frozenset[int] | None = None

    @property
    def words(self) -> dict[str, str]:
        """Values for the SQL of leases."""
        return {"fetcher": f"'{self.fetcher}'", "line": f"'{self.line}'"}


@lru_cache(64)
def wanted_parts(fetcher: str, members: frozenset[str]) -> tuple[int, ...]:
    """Return the parts where a fetcher's hash is the highest.

    A member more or less moves its own parts only (rendezvous hashing).
    """
    known = sorted(members)
    return tuple(
        part for part in range(PARTS) if max(known, key=lambda name: _weight(name, part)) == fetcher
    )


def _weight(fetcher: str, part: int) -> bytes:
    return sha1(f"{fetcher} {part}".encode()).digest()


def ranges_of(parts: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return ascending ranges, both ends included, of numbers."""
    ranges: list[tuple[int, int]] = []
    for part in sorted(parts):
        if ranges and ranges[-1][1] == part - 1:
            ranges[-1] = (ranges[-1][0], part)
        else:
            ranges.append((part, part))
    return tuple(ranges)


class LeaseTable:
    """The leases, by a connection to the first key server; for one thread at a time.

    Each method may be repeated, and raises KeyStoreError.
    """

    def __init__(self, server: PageServer) -> None:
        self.server = server
        self._is_there = False

    def announce(self, lessee: Lessee) -> None:
        """Make the fetcher of a new line a member, so that others leave its parts."""
        self._ensure()
        self.server.run("lease_begin.sql", **lessee.words)

    def renew(self, lessee: Lessee) -> dict[int, int]:
        """Take and renew a fetcher's leases; return parts and epochs.

        A lease on a part that another member should have ends once the fetcher is known to ask the part's hosts no
        more, else by itself. A line that another line has replaced gets nothing; if the replaced line is alive, the
        next call makes it the newest line again.
        """
        self._ensure()
        begins, lessee.has_begun = not lessee.has_begun, True
        lessee.unowned = frozenset()
        if begins:
            lessee.unowned = frozenset(int(part) for (part,) in self.server.ask("lease_free.sql"))
            self.server.run("lease_begin.sql", **lessee.words)
        self.server.run("lease_seen.sql", **lessee.words)
        lines = {
            _text(name): _text(line)
            for name, line in self.server.ask("lease_members.sql", seen=_ms(SEEN_S))
        }
        if lines.get(lessee.fetcher) != lessee.line:
            lessee.has_begun = False
            return {}
        wanted = wanted_parts(lessee.fetcher, frozenset(lines))
        if wanted:
            parts = ",".join(map(str, wanted))
            self.server.run(
                "lease_take.sql",
                **lessee.words,
                lease=_ms(LEASE_S),
                parts=parts,
                begins=int(begins),
            )
        held = {
            int(part): int(epoch)
            for part, epoch in self.server.ask("lease_held.sql", **lessee.words)
        }
        if lessee.asked is not None and (left := held.keys() - lessee.asked - set(wanted)):
            self.server.run(
                "lease_leave.sql", **lessee.words, parts=",".join(map(str, sorted(left)))
            )
        return {part: held[part] for part in wanted if part in held}

    def give_back(self, lessee: Lessee) -> None:
        """Free the parts of a fetcher that sends nothing more."""
        self.server.run("lease_end.sql", **lessee.words)

    def _ensure(self) -> None:
        if not self._is_there:
            self.server.ensure()
            if not self.server.ask(f"lease_columns{self.server.SUFFIX}"):
                self.server.run("lease_drop.sql")
            self.server.run(
                f"create_leases{self.server.SUFFIX}",
                rows=",".join(f"({part},'',0,0)" for part in range(PARTS)),
            )
            self._is_there = True


def _ms(seconds: float) -> int:
    return round(1000 * seconds)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else bytes(value).decode()


class Leases:
    """The leases for a service on a running loop. `connect`: connects to the first key server."""

    def __init__(self, connect: Callable[[], PageServer]) -> None:
        self._table = LeaseTable(connect())
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="krake-leases")

    @classmethod
    def of(cls, config: KeyStorageConfig, password: str | None) -> "Leases":
        """Return the leases on the first key server of a config.

        Raises ConfigError.
        """
        return cls(lambda: connect_pages(config, password, config.servers[0]))

    async def renew(self, lessee: Lessee) -> dict[int, int]:
        """See `LeaseTable.renew`. A new line's fetcher is announced first."""
        if not lessee.has_begun:
            await self._in_thread(partial(self._table.announce, lessee))
            await asyncio.sleep(MEET_S)
        return await self._in_thread(partial(self._table.renew, lessee))

    async def give_back(self, lessee: Lessee) -> None:
        """See `LeaseTable.give_back`."""
        await self._in_thread(partial(self._table.give_back, lessee))

    async def _in_thread(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    def close(self) -> None:
        """Close the connection, after the current call."""
        self._pool.submit(self._table.server.close)
        self._pool.shutdown(wait=False)
