"""Many keys in little memory: in memory up to a limit, beyond it in files, one for each first byte."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path

import numpy as np

from crawl_lib.keys import KEY_BYTES
from crawl_lib.repair.keys.forgotten import Keys, key_array

MEMORY_BYTES = 64 << 20
_ASKED = 50_000


class KeyHeap:
    """A set of keys that is filled first, and asked then, in ascending order.

    `make_room`: gives an empty folder, once there are more keys than fit into `memory_bytes`. Asking holds one of 256
    parts in memory: 10 MB for 100,000,000 keys.
    """

    def __init__(self, make_room: Callable[[], Path], *, memory_bytes: int = MEMORY_BYTES) -> None:
        self._make_room, self._memory_bytes = make_room, memory_bytes
        self._parts = [bytearray() for _ in range(256)]
        self._size = 0
        self._room: Path | None = None

    def add(self, keys: Iterable[bytes]) -> None:
        """Add keys; they may be there already. Raises what `make_room` does."""
        parts = self._parts
        for key in keys:
            parts[key[0]] += key
            self._size += KEY_BYTES
        if self._size > self._memory_bytes:
            self._spill()

    def _spill(self) -> None:
        self._room = self._room or self._make_room()
        for first, part in enumerate(self._parts):
            if part:
                with (self._room / f"{first:02x}").open("ab") as file:
                    file.write(part)
                part.clear()
        self._size = 0

    def _part(self, first: int) -> Keys:
        """The keys that begin with a byte, ascending."""
        path = self._room / f"{first:02x}" if self._room else None
        spilled = path.read_bytes() if path and path.exists() else b""
        return key_array(spilled + self._parts[first])

    def blocks(self) -> Iterator[bytes]:
        """All keys, one after the other, ascending and each once."""
        for first in range(256):
            if len(part := self._part(first)):
                yield part.tobytes()

    def without(self, keys: Iterable[bytes]) -> Iterator[list[bytes]]:
        """Those of some ascending keys that are not in the heap, some at a time."""
        for first, group in groupby(keys, key=lambda key: key[0]):
            part = self._part(first)
            while some := list(islice(group, _ASKED)):
                if missing := _missing(some, part):
                    yield missing


def _missing(keys: Sequence[bytes], part: Keys) -> list[bytes]:
    held = np.isin(np.array(keys, f"S{KEY_BYTES}"), part)
    return [key for key, is_held in zip(keys, held.tolist(), strict=True) if not is_held]
