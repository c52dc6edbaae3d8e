"""The choice of lines from a queue's head: of no host more than its share, while other hosts wait behind it."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from math import ceil
from operator import itemgetter
from typing import TypeVar

from crawl_lib.dataclass import dataclass
from crawl_lib.frontier.hostcounts import host_of_line
from crawl_lib.urlfiles import BARE_META_TABS, due_of, is_listed, is_requisite
from crawl_lib.urls import budget_domain_of

LOOK_AHEAD_LINES = 100_000
LOOK_AHEAD_BATCHES = 20
Run = tuple[int, int]
"""The first position of some that follow each other, and the one after the last."""
_NOT_NOW, _TAKEN, _PASSED, _PASSED_OF_LIST = 0, 1, 1, 4
"""Marks of lines. A line that was passed over has its turn (1 to 3) added: see `_Rooms.turn`."""
_TURNS = range(1, 4)
_ZERO_OR_ONE = bytes([_NOT_NOW, _TAKEN]).ljust(256, bytes([_NOT_NOW]))
Line = TypeVar("Line", bound=tuple[bytes, ...])


@dataclass(frozen=True)
class Shares:
    """The limits of a batch: `size` URLs at most, of a host no more than `of_host` says.

    `of_host` is asked once for a host of which there is more than one URL. `of_domain`: of all hosts of a registered
    domain; None: no limit. `look_ahead`: how many lines are looked at, at most, from the first on that is due; see
    `look_ahead_of`. `now`: POSIX seconds; what is not due then is passed over in any case, unless it would wait for
    longer than `max_wait_s` from then: that was noted by a clock that was ahead. `new`: how many of them may be such
    that no list asked for; None: all. Hosts in `back_off` are passed over, too, until the time that it says.
    `only_requisites`: looking ends at the first line of a page; requisites come before (`Rewrites.bring_forward`).
    """

    size: int
    of_host: Callable[[str], int]
    of_domain: int | None
    look_ahead: int
    now: float
    max_wait_s: float
    new: int | None = None
    back_off: Mapping[bytes, float] = field(default_factory=dict)
    only_requisites: bool = False


def look_ahead_of(size: int) -> int:
    """Return how many lines a take looks at, at most.

    `size`: the URLs that it may have.
    """
    return max(LOOK_AHEAD_LINES, LOOK_AHEAD_BATCHES * size)


def share_of_domain(size: int, of_host: int | None) -> int:
    """Return one domain's share of a take: a quarter.

    The share holds while other domains wait.

    `of_host`: the limit of a host that people chose; a domain gets no fewer, and at least one.
    """
    return max(1, ceil(size / 4), of_host or 0)


def choose(lines: Iterable[tuple[bytes, bytes]], shares: Shares) -> bytearray:
    """Choose lines, from the queue's head: 1 is taken, 0 not.

    Looking ends where the batch is full. A batch that is not full after all was looked at is filled with what was
    passed over, another share for each domain in turn, each in order: so a crawl of one site is as fast as its delay
    allows. If no line of the whole queue is due, at most `look_ahead` lines are passed over. `lines`: of data and meta.
    """
    taken, left, rooms, more = bytearray(), shares.size, _Rooms(shares), shares.look_ahead
    new, latest = left if shares.new is None else shares.new, shares.now + shares.max_wait_s
    for url, meta in lines if left else ():
        if shares.only_requisites and not is_requisite(meta, is_meta=True):
            break
        host, is_bare = (
            host_of_line(url),
            meta.count(b"\t") <= BARE_META_TABS,
        )  # most are: the rest costs time
        is_new = is_bare or not is_listed(meta, is_meta=True)
        is_due = (
            is_bare or not shares.now < due_of(meta) <= latest
        ) and host not in shares.back_off
        if is_due and (new or not is_new):
            turn = rooms.turn(host)
            taken.append(turn + (_PASSED if is_new else _PASSED_OF_LIST) if turn else _TAKEN)
        else:
            taken.append(_NOT_NOW)
        left -= taken[-1] == _TAKEN
        new -= taken[-1] == _TAKEN and is_new
        # Before the first URL nothing was due. Requisites come first, however many one site has: pages are reached.
        more -= left < shares.size and not is_requisite(meta, is_meta=True)
        if not (left and more):
            break
    if left == shares.size:
        return bytearray(min(len(taken), shares.look_ahead))
    for turn in _TURNS:
        left -= _fill(taken, _PASSED_OF_LIST + turn, left)
    for turn in _TURNS:
        filled = _fill(taken, _PASSED + turn, min(left, new))
        left, new = left - filled, new - filled
    return taken.translate(_ZERO_OR_ONE)


def next_due(lines: Iterable[tuple[bytes, bytes]], shares: Shares) -> int | None:
    """Return when the first of these lines is due.

    In POSIX seconds; None without lines.
    """
    dues = (max(due_of(meta), shares.back_off.get(host_of_line(url), 0)) for url, meta in lines)
    due = min(dues, default=None)
    return due if due is None else ceil(due)


def _fill(taken: bytearray, passed: int, count: int) -> int:
    """Take the first lines that were passed over so; returns how many."""
    done, at = 0, taken.find(passed)
    while done < count and at >= 0:
        taken[at] = _TAKEN
        done, at = done + 1, taken.find(passed, at + 1)
    return done


class _Rooms:
    """How much room hosts and domains have left in a batch."""

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._hosts: Counter[bytes] = Counter()
        self._domains: Counter[str] = Counter()
        self._limits: dict[bytes, int] = {}

    def turn(self, host: bytes) -> int:
        """Return the turn of a host's next URL.

        0: now; 1 to 3: once others have had that turn. A domain's first share has turn 0, its second one turn 1, and so
        on.
        """
        taken, of_domain = self._hosts[host], self._shares.of_domain
        if taken:
            if host not in self._limits:
                self._limits[host] = self._shares.of_host(host.decode())
            if taken >= self._limits[host]:
                return _TURNS[0]
        if of_domain is not None:
            domain = budget_domain_of(host.decode())
            turn = self._domains[domain] // of_domain
            self._domains[domain] += 1
            if turn:
                return min(turn, _TURNS[-1])
        self._hosts[host] += 1
        return 0


def runs_of(positions: Iterable[int]) -> list[Run]:
    """Ascending positions as runs."""
    runs: list[Run] = []
    for position in positions:
        if runs and runs[-1][1] == position:
            runs[-1] = (runs[-1][0], position + 1)
        else:
            runs.append((position, position + 1))
    return runs


def positions_of(runs: Iterable[Run]) -> Iterator[int]:
    """Yield the positions in runs."""
    for start, stop in runs:
        yield from range(start, stop)


def interleaved(lines: list[Line]) -> list[Line]:
    """Interleave hosts: first lines first, then second ones, and so on.

    The lines of a host keep their order.

    `lines`: a canonical URL first. A take seldom has to look far.
    """
    seen: Counter[bytes] = Counter()
    turns = []
    for url, *_ in lines:
        host = host_of_line(url)
        turns.append(seen[host])
        seen[host] += 1
    return [line for _, line in sorted(zip(turns, lines, strict=True), key=itemgetter(0))]
