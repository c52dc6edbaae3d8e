"""Several key tables read at the same time, key by key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import groupby
from operator import itemgetter

from crawl_lib.keys.sharded import state_of
from crawl_lib.states import KeyState


def side_by_side(scans: Sequence[Iterable[tuple[bytes, int]]]) -> Iterator[tuple[bytes, dict[int, KeyState]]]:
    """Each key that any of these scans (`KeyServer.scan`) has, ascending, with its state by the scan's place."""
    streams = [_placed(place, scan) for place, scan in enumerate(scans)]
    for key, rows in groupby(merge(*streams), key=itemgetter(0)):
        yield key, {place: state for _, place, state in rows}


def _placed(place: int, scan: Iterable[tuple[bytes, int]]) -> Iterator[tuple[bytes, int, KeyState]]:
    for key, keyinfo in scan:
        yield key, place, state_of(keyinfo)
