"""Interval arithmetic: which key servers hold a key; and their tables read at the same time, in the order of keys.

The 2^160 keys are cut into as many intervals as there are servers, in the order of the config. The first server of a
key is its interval's; the replicas are the next servers in the ring.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from crawl_lib.errors import ConfigError
from crawl_lib.states import KeyState

KEY_BYTES = 20
KEY_SPACE = 1 << 160
_STATES = frozenset(KeyState)
_UNHELD_KEYS = 50_000


def interval(key: bytes, n: int) -> int:
    """Return the place of a key's first server among `n`.

    That is floor(key * n / 2^160), from 0, in the order of the config.
    """
    return int.from_bytes(key, "big") * n >> 160


def replicas(key: bytes, n: int, replication: int) -> list[int]:
    """Return the places of the servers that hold a key.

    The first server, then the next ones in the ring of `n`.

    `replication` of them, all distinct; raises ConfigError if there are fewer servers.
    """
    return ring(interval(key, n), n, replication)


def ring(first: int, n: int, replication: int) -> list[int]:
    """Return `replication` places from `first` on around a ring.

    Raises ConfigError if there are not so many servers.
    """
    if not 1 <= replication <= n:
        raise ConfigError(f"key_storage.replication: {replication} replicas on {n} key servers")
    return [(first + step) % n for step in range(replication)]


def bounds(index: int, n: int) -> tuple[bytes, bytes]:
    """Return the lowest and highest key of a server's interval.

    Both belong to the interval of the server at `index` among `n`.
    """
    low = -(-index * KEY_SPACE // n)
    high = -(-(index + 1) * KEY_SPACE // n) - 1
    return low.to_bytes(KEY_BYTES, "big"), high.to_bytes(KEY_BYTES, "big")


def split(sorted_keys: Sequence[bytes], n: int) -> list[Sequence[bytes]]:
    """Cut ascending keys into a part for each first server.

    Parts are in the order of the servers; parts may be empty.
    """
    cuts = [bisect_left(sorted_keys, bounds(index, n)[0]) for index in range(n)]
    cuts.append(len(sorted_keys))
    return [sorted_keys[cuts[index] : cuts[index + 1]] for index in range(n)]


def state_of(keyinfo: int) -> KeyState:
    """Return the state that a keyinfo means.

    A foreign value (an older table, a row by hand) means known only.
    """
    return KeyState(keyinfo) if keyinfo in _STATES else KeyState.QUEUED


def side_by_side(
    scans: Sequence[Iterable[tuple[bytes, int]]],
) -> Iterator[tuple[bytes, dict[int, KeyState]]]:
    """Yield each key of these scans with its states.

    A scan is one of `KeyServer.scan`. Keys ascend; states are by the scan's place.
    """
    streams = [_placed(place, scan) for place, scan in enumerate(scans)]
    for key, rows in groupby(merge(*streams), key=itemgetter(0)):
        yield key, {place: state for _, place, state in rows}


class Behind(NamedTuple):
    """Keys that a table lacks, or has in a lower state than `state`, the highest one of all tables."""

    place: int
    state: KeyState
    is_missing: bool
    keys: list[bytes]


def behind(
    scans: Sequence[Iterable[tuple[bytes, int]]], places: Sequence[int], most: int
) -> Iterator[Behind]:
    """Yield keys that tables at `places` of the scans need.

    Batches have at most `most` keys.
    """
    batches: dict[tuple[int, KeyState, bool], list[bytes]] = {}
    for key, states in side_by_side(scans):
        highest = max(states.values())
        for place in places:
            if (state := states.get(place)) != highest:
                kind = (place, highest, state is None)
                batches.setdefault(kind, []).append(key)
                if len(batches[kind]) == most:
                    yield Behind(*kind, batches.pop(kind))
    for kind, batch in batches.items():
        yield Behind(*kind, batch)


def _placed(place: int, scan: Iterable[tuple[bytes, int]]) -> Iterator[tuple[bytes, int, KeyState]]:
    for key, keyinfo in scan:
        yield key, place, state_of(keyinfo)


class KeyHeap:
    """A set of keys that is filled first, and then read in ascending order, each key once.

    `make_room`: gives an empty folder, once there are more than `most` keys in memory: they go to a file there.
    """

    def __init__(self, make_room: Callable[[], Path], *, most: int = 500_000) -> None:
        self._make_room, self._most = make_room, most
        self._keys: set[bytes] = set()
        self._files: list[Path] = []

    def add(self, keys: Iterable[bytes]) -> None:
        """Add keys; they may be there already. Raises what `make_room` does."""
        self._keys.update(keys)
        if len(self._keys) > self._most:
            room = self._files[0].parent if self._files else self._make_room()
            self._files.append(room / str(len(self._files)))
            self._files[-1].write_bytes(b"".join(sorted(self._keys)))
            self._keys.clear()

    def __iter__(self) -> Iterator[bytes]:
        return (
            key for key, _ in groupby(merge(sorted(self._keys), *map(_keys_of_file, self._files)))
        )


def _keys_of_file(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from iter(lambda: file.read(KEY_BYTES), b"")


def unheld_keys(
    scans: Sequence[Iterable[tuple[bytes, int]]], heap: KeyHeap
) -> Iterator[list[bytes]]:
    """Yield keys that are only queued, and not in a heap."""
    rows = side_by_side([((key, KeyState.QUEUED) for key in heap), *scans])
    unheld = (
        key for key, states in rows if 0 not in states and max(states.values()) is KeyState.QUEUED
    )
    return iter(lambda: list(islice(unheld, _UNHELD_KEYS)), [])
