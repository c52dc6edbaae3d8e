"""Turns shared by the processes of a node: a small table in a mapped file, under a lock.

An entry says from when on a name (an IP, or a host) may be asked again. Entries are found by a digest of the name in
a table of fixed size; when a neighbourhood is full of names that still wait, a new name shares the entry of another
one, so crowding makes the crawler slower, never impolite. Times are of the machine's monotonic clock; after a reboot
the table is emptied, and the `HostStore` (unclean stop) keeps the delays.

No time in the file is trusted that is further away than a turn can be (`longest_s`): any larger value, or no number, is
damage, and the name may be asked after one delay. A damaged table, or a table of another size, is emptied, and gives no
turn for one delay. Damage makes the crawler slower for a moment, never for good, and not impolite: hosts that ask for
longer delays are known to the `HostStore`.
"""

import fcntl
import math
import mmap
import os
import struct
import time
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path

from crawl_lib.config import FetchConfig
from crawl_lib.errors import os_errors

TURNS_FILE = "ip-turns"
_ENTRY = struct.Struct("<Qd")
_HEADER_BYTES = 64
_PROBES = 8
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MAGIC = b"krake turns 1 ".ljust(24)


@cache
def boot_id() -> bytes:
    """Return the id of the machine's current start.

    The id is read once: a fetching process cannot read it later.
    """
    try:
        return _BOOT_ID.read_bytes().strip()
    except OSError:
        return b"unknown"


START_S = 0.25
"""How long before the end of a span a request is begun at the latest: it takes time to connect.

The time for which the next turn of an address waits for the request, where nodes share turns.
"""
_MOST_START_S = 8.0
_MOST_SPANS = 10_000


class Spans:
    """The spans of time in which names are ours among all nodes: an address, or a host for one request.

    The task reserves turns for its processes. `ask(name, count, start_s)`: the task asks for a name and `count`
    requests (waiting requests, requests that follow without a delay, and the number of the span before); the last
    request has `start_s` to connect. The task calls `give` with the answer. `end(name, rest_s)` gives a host back,
    whose next request may come after `rest_s`. `addresses`, `hosts`: whether nodes share addresses, and hosts. `given`:
    called with each given name, and the time from which the name is ours.
    """

    def __init__(
        self,
        ask: Callable[[str, int, float], None],
        end: Callable[[str, float], None],
        *,
        addresses: bool,
        hosts: bool,
    ) -> None:
        self.addresses = addresses
        self.hosts = hosts
        self.given: Callable[[str, float], None] = lambda name, begins_s: None
        self._ask = ask
        self._end = end
        self._spans: dict[
            str, list[tuple[float, float]]
        ] = {}  # the newest first, and the one before
        self._asked: set[str] = set()
        self._sent: dict[str, int] = {}  # in the newest span
        self._start_s: dict[str, float] = {}  # of names to which connecting took longer

    def wait_s(self, name: str, now: float, count: int = 1) -> float:
        """Return the seconds until a request may begin, 0.0 for now.

        Infinite: the name was asked for, and will be given.
        """
        start_s = self._start_s.get(name, START_S)
        for begins_s, ends_s in self._spans.get(name, ())[:1]:
            if now <= ends_s - start_s:
                return max(0.0, begins_s - now)
            if name.startswith("host "):
                self.end(name, 0.0)
        if name not in self._asked:
            self._asked.add(name)
            self._ask(name, count + self._sent.pop(name, 0), start_s)
        return math.inf

    def give(self, name: str, begins_s: float, ends_s: float) -> None:
        """Record from when to when a name is this fetcher's."""
        self._asked.discard(name)
        self._spans[name] = [(begins_s, ends_s), *self._spans.get(name, ())[:1]]
        if len(self._spans) > _MOST_SPANS:
            for other in [
                other
                for other, (span, *_) in self._spans.items()
                if span[1] < begins_s - _MOST_START_S
            ]:
                if other.startswith("ip "):
                    del self._spans[other]
        self.given(name, begins_s)

    def may_send(self, name: str, now: float) -> bool:
        """Return whether a begun request may be sent now.

        If it is too late, the next request gets more time.
        """
        spans = self._spans.get(name)
        if spans is None or any(begins_s <= now <= ends_s for begins_s, ends_s in spans):
            self._sent[name] = self._sent.get(name, 0) + 1
            return True
        self._start_s[name] = min(4 * self._start_s.get(name, START_S), _MOST_START_S)
        return False

    def end(self, name: str, rest_s: float) -> None:
        """Record the end of a host's request, and its rest in seconds."""
        if self._spans.pop(name, None):
            self._end(name, rest_s)


class Turns:
    """Turns in the file `path`, made if missing. Several processes may have it open.

    `longest_s`: no turn is further away than that; `delay_s`: how far one is of which nothing can be believed. `clock`:
    seconds, the same for all processes of the machine. `entries`: a power of two, the same for all. `spans`: where
    nodes share turns: only in these does a turn of the table count. Raises StorageError naming the path; the operator
    looks at the disk.
    """

    def __init__(
        self,
        path: Path,
        *,
        longest_s: float,
        delay_s: float,
        clock: Callable[[], float] = time.monotonic,
        entries: int = 1 << 16,
        spans: Spans | None = None,
    ) -> None:
        self.spans = spans
        self._longest_s = longest_s
        self._delay_s = delay_s
        self._clock = clock
        self._mask = entries - 1
        size = _HEADER_BYTES + entries * _ENTRY.size
        with os_errors(path, "cannot be used for turns"):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX)
                size_before = os.fstat(self._file).st_size
                os.ftruncate(self._file, size)
                # Room for all of it: on a full disk a write to a mapped file is no error, but a SIGBUS.
                os.posix_fallocate(self._file, 0, size)
                self._map = mmap.mmap(self._file, size)
                self._start(is_damaged=size_before not in (0, size))
            except BaseException:
                os.close(self._file)
                raise
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _start(self, *, is_damaged: bool) -> None:
        """Empty a table of an earlier start, or a malformed one.

        After damage all names wait.
        """
        header = _MAGIC + boot_id()[:40].ljust(40)
        before = self._map[: len(header)]
        if before == header and not is_damaged:
            return
        is_damaged = is_damaged or before[: len(_MAGIC)] not in (_MAGIC, bytes(len(_MAGIC)))
        self._map[: len(header)] = header
        self._empty(self._delay_s if is_damaged else 0.0)

    def _empty(self, hold_s: float) -> None:
        """Empty all entries; each new name waits for `hold_s` seconds."""
        self._map[_HEADER_BYTES:] = _ENTRY.pack(0, self._clock() + hold_s) * (self._mask + 1)

    @classmethod
    def of(cls, folder: Path, fetch: FetchConfig, spans: Spans | None = None) -> "Turns":
        """Open the turns in a node's folder `hosts`.

        A turn lasts as long as a request may, plus the delay.
        """
        delay_s = max(
            fetch.host_delay_s, fetch.ip_delay_s, *(entry.delay_s or 0.0 for entry in fetch.hosts)
        )
        return cls(
            folder / TURNS_FILE,
            longest_s=2 * fetch.time_limit_s + max(delay_s, fetch.max_crawl_delay_s),
            delay_s=delay_s,
            spans=spans,
        )

    def __enter__(self) -> "Turns":
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file. The turns stay."""
        self._map.close()
        os.close(self._file)

    def reserve(self, name: str, delay_s: float) -> float:
        """Ask for the turn of `name` now.

        Returns 0.0 if it is the caller's: no other one is given for `delay_s` seconds. Otherwise returns the seconds
        until the next try; nothing was reserved.
        """
        return self._change(name, delay_s, wait=True)

    def put(self, name: str, delay_s: float) -> None:
        """Set the next turn of `name` to `delay_s` seconds from now.

        Only the holder of the turn may call this.
        """
        self._change(name, delay_s, wait=False)

    def reset(self, hold_s: float) -> None:
        """Forget all turns; none is given for `hold_s` seconds.

        For the holder of the node's lock after an unclean stop, before its processes start: a killed process leaves
        turns behind, taken for the longest time of a request.
        """
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            self._empty(hold_s)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _change(self, name: str, delay_s: float, *, wait: bool) -> float:
        key = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") or 1
        self._longest_s = max(
            self._longest_s, delay_s
        )  # else what is written here would not be believed
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            now = self._clock()
            offset, entry_key, until = self._find(key, now)
            if (
                not until <= now + self._longest_s
            ):  # too far away to have been written, or no number
                until = now + self._delay_s
                _ENTRY.pack_into(self._map, offset, entry_key, until)
            if wait and until > now:
                return until - now
            # An entry that is shared with another name moves forward only.
            later = now + delay_s if entry_key == key or until <= now else max(until, now + delay_s)
            _ENTRY.pack_into(
                self._map, offset, entry_key if entry_key and until > now else key, later
            )
            return 0.0
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _find(self, key: int, now: float) -> tuple[int, int, float]:
        """Find a name's entry: (offset, key in it, time in it).

        A name without an entry gets an expired one, or else the first neighbour.
        """
        entries = []
        for step in range(_PROBES):
            offset = _HEADER_BYTES + ((key + step) & self._mask) * _ENTRY.size
            entry = (offset, *_ENTRY.unpack_from(self._map, offset))
            if entry[1] == key:
                return entry
            entries.append(entry)
        return next((entry for entry in entries if entry[2] <= now), entries[0])
