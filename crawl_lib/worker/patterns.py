"""Pages that are nearly the same, of a pattern with many URLs (`urls.pattern_of`): the rule `similar`.

The take names large patterns, and the number of fetches of each before the pattern is judged. The host store keeps 64
bytes a page of these and later ones (`parse.sketch`), by the time of the fetch: repeated pages after a kill change
nothing. If too many of the newest are nearly the same, the pattern's other URLs end without being fetched. An eighth of
the pages is looked at if the pattern is large and no trap, since looking costs 0.1 ms.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from crawl_lib.fetch import HostStore
from crawl_lib.parse import HTML_TYPES, SKETCH_BYTES, sketch
from crawl_lib.records import Fetched, TakenUrl
from crawl_lib.states import Outcome
from crawl_lib.urls import Rejection, host_of, pattern_of

SIMILAR = Rejection.SIMILAR.value
"""The error in the rows of such pages."""
_LIKENESS = 0.9
_LOOKED_AT_BYTES = 64 << 10
_ONE_IN = 8
_COMPARED = 16
Rooms = Mapping[str, int | None]
"""Number of fetched URLs of each large pattern before the comparison of pages: 0 for a trap, None for a judged
pattern without a trap."""


def room_of(hosts: HostStore, pattern: str, max_similar: int) -> int | None:
    """Return the room of a large pattern."""
    sketches = hosts.pages.sketches(pattern)
    if _is_trap(sketches, max_similar):
        return 0
    return None if len(sketches) >= 2 * max_similar else max_similar


def _is_trap(sketches: Iterable[bytes], max_similar: int) -> bool:
    """Return whether too many pages are nearly the same as one.

    Up to half of all pages can be so, and a sample suffices.
    """
    pages = [int.from_bytes(one) for one in sketches if len(one) == SKETCH_BYTES]
    some = pages[:: max(1, len(pages) // _COMPARED)]
    for one in some:
        # The sample excludes most pages: half the share is alike that all pages would need.
        is_likely = 2 * _alike(one, some) * len(pages) >= max_similar * len(some)
        if is_likely and _alike(one, pages) >= max_similar:
            return True
    return False


def _alike(one: int, pages: Iterable[int]) -> int:
    return sum(_likeness(one, page) >= _LIKENESS for page in pages)


def _likeness(one: int, other: int) -> float:
    """Estimate the share of common words of two pages.

    The estimate is the Jaccard index of the slots that either sketch has.
    """
    neither = (one | other).to_bytes(SKETCH_BYTES).count(0)
    equal = (one ^ other).to_bytes(SKETCH_BYTES).count(0) - neither
    return equal / (SKETCH_BYTES - neither) if neither < SKETCH_BYTES else 0.0


class Patterns:
    """The large patterns of one worker's share of a take. `folder`: of the host store."""

    def __init__(self, rooms: Rooms, max_similar: int | None, folder: Path) -> None:
        """Set up rooms of patterns.

        Without `max_similar` no pattern has a limit.
        """
        self._rooms = dict(rooms) if max_similar else {}
        self._most = max_similar or 0
        # Whether there is a trap, or a pattern without a verdict yet.
        self._finds_out = any(room is not None for room in self._rooms.values())
        self._folder = folder
        self._hosts = {name.partition("/")[0] for name in self._rooms}
        self._noted: defaultdict[str, dict[int, bytes]] = defaultdict(dict)

    def _name(self, taken: TakenUrl) -> str | None:
        """Return the pattern of a URL, if large.

        Seeds, URLs of lists, and requisites are wanted in any case.
        """
        queued = taken.queued
        host = host_of(queued.url)
        if host not in self._hosts or queued.via is None or queued.list_name or queued.requisite:
            return None
        name = pattern_of(taken.queued.url.encode(), host.encode()).decode()
        return name if name in self._rooms else None

    def note(self, taken: TakenUrl, fetched: Fetched, mime: str | None, html: bytes) -> None:
        """Note the sketch of a page.

        Documents other than pages get an empty sketch.
        """
        is_one = not taken.key[0] % _ONE_IN
        if not (is_one or self._finds_out) or fetched.outcome is Outcome.FILTERED:
            return
        name = self._name(taken)
        if name is None or (self._rooms[name] is None and not is_one):
            return
        is_page = fetched.outcome is Outcome.OK and mime in HTML_TYPES
        noted = self._noted[name]
        noted[round(fetched.time * 1_000_000)] = sketch(html[:_LOOKED_AT_BYTES]) if is_page else b""
        if len(noted) > 2 * self._most:
            del noted[min(noted)]

    def save(self) -> None:
        """Save the noted sketches in the host store.

        Call this before closing the part that holds these pages.
        """
        if self._noted:
            with HostStore(self._folder) as store:
                for name, noted in self._noted.items():
                    store.pages.save_sketches(name, noted, 2 * self._most)
            self._noted.clear()

    def divided(
        self, items: Iterable[TakenUrl]
    ) -> tuple[list[TakenUrl], list[TakenUrl], list[TakenUrl]]:
        """Divide URLs into URLs to fetch now, waiting URLs, and traps.

        A URL waits until pages of its pattern were compared.
        """
        now: list[TakenUrl] = []
        later: list[TakenUrl] = []
        traps: list[TakenUrl] = []
        left = dict(self._rooms) if self._finds_out else {}
        for taken in items:
            name = self._name(taken) if left else None
            if name is None or (room := left[name]) is None:
                now.append(taken)
            elif room:
                now.append(taken)
                left[name] = room - 1
            else:
                (later if self._rooms[name] else traps).append(taken)
        return now, later, traps

    def compare(self, items: Iterable[TakenUrl]) -> None:
        """Compute the rooms of some URLs' patterns again.

        Call `save` first.
        """
        with HostStore(self._folder) as store:
            for name in {name for taken in items if (name := self._name(taken)) is not None}:
                self._rooms[name] = room_of(store, name, self._most)
        self._finds_out = any(room is not None for room in self._rooms.values())
