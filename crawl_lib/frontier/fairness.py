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
"""The first position of a row of positions, and the position after the last."""
_NOT_NOW, _TAKEN, _PASSED, _PASSED_OF_LIST = 0, 1, 1, 4
"""Marks of lines. A passed-over line has its turn (1 to 3) added: see `_Rooms.turn`."""
_TURNS = range(1, 4)
_ZERO_OR_ONE = bytes([_NOT_NOW, _TAKEN]).ljust(256, bytes([_NOT_NOW]))
Line = TypeVar("Line", bound=tuple[bytes, ...])


@dataclass(frozen=True)
class Shares:
    """The limits of a batch: at most `size` URLs, and at most `of_host` URLs of a host.

    `of_host` is called once for a host with more than one URL. `of_domain`: for all hosts of a registered domain; None:
    no limit. `look_ahead`: the most lines to look at, from the first due line on; see `look_ahead_of`. `now`: POSIX
    seconds; later lines are passed over in any case, unless a line would wait for longer than `max_wait_s`: its time
    then comes from a clock that was ahead. `new`: the most URLs without a list; None: no limit. Hosts in `back_off` are
    passed over too, until the given time. `only_requisites`: looking ends at the first line of a page; requisites come
    before pages (`Rewrites.bring_forward`).
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
    """Return the most lines that a take looks at.

    `size`: the size of the take.
    """
    return max(LOOK_AHEAD_LINES, LOOK_AHEAD_BATCHES * size)


def share_of_domain(size: int, of_host: int | None) -> int:
    """Return one domain's share of a take: a quarter.

    The share holds while other domains wait.

    `of_host`: the chosen limit of a host; a domain gets no fewer URLs, and at least one.
    """
    return max(1, ceil(size / 4), of_host or 0)


def choose(lines: Iterable[tuple[bytes, bytes]], shares: Shares) -> bytearray:
    """Choose lines, from the queue's head: 1 is taken, 0 not.

    Looking ends at a full batch. A batch with room left at the end is filled with passed-over lines, another share for
    each domain in turn, each in order: so a crawl of one site is as fast as its delay allows. If no line of the whole
    queue is due, at most `look_ahead` lines are passed over. `lines`: of data and meta.
    """
    taken, left, rooms, more = bytearray(), shares.size, _Rooms(shares), shares.look_ahead
    new, latest = left if shares.new is None else shares.new, shares.now + shares.max_wait_s
    for url, meta in lines if left else ():
        if shares.only_requisites and not is_requisite(meta, is_meta=True):
            break
        host, is_bare = (
            host_of_line(url),
            meta.count(b"\t") <= BARE_META_TABS,
        )  # most lines are bare: decoding costs time
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
        # Lines before the first taken URL cost nothing. Neither do requisites, so that pages come into view.
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
    """Take the first passed-over lines of a kind; return the number."""
    done, at = 0, taken.find(passed)
    while done < count and at >= 0:
        taken[at] = _TAKEN
        done, at = done + 1, taken.find(passed, at + 1)
    return done


class _Rooms:
    """The room that hosts and domains have left in a batch."""

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._hosts: Counter[bytes] = Counter()
        self._domains: Counter[str] = Counter()
        self._limits: dict[bytes, int] = {}

    def turn(self, host: bytes) -> int:
        """Return the turn of a host's next URL.

        0: now; 1 to 3: after other lines of this turn. A domain's first share has turn 0, its second share turn 1, and
        so on.
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
    """Return ascending positions as runs."""
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
    """Interleave hosts: the first line of each host, then the second lines, and so on.

    The lines of a host keep their order.

    `lines`: a canonical URL first. A take then seldom has to look far.
    """
    seen: Counter[bytes] = Counter()
    turns = []
    for url, *_ in lines:
        host = host_of_line(url)
        turns.append(seen[host])
        seen[host] += 1
    return [line for _, line in sorted(zip(turns, lines, strict=True), key=itemgetter(0))]
