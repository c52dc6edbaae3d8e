"""Numbers for keys and names without a join: the place of each in a sorted table."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from crawl_lib.errors import os_errors

KEY_BYTES, STEPS = 20, 8
_BLOCK = 1 << 18
_HOST = r"^[a-z]+://(?P<host>\[[^\]]*\]|[^/:]*)"
Keys = npt.NDArray[np.bytes_]
Ints = npt.NDArray[Any]


class KeyNumbers:
    """The numbers of keys, which are SHA-1 digests in ascending order: the first key has the number 0.

    Digests are evenly spread, so the first bits of a key give its number within a few places. The first 8 bytes find
    the place, and all 20 bytes are compared there. Keys that share 8 bytes, or are spread unevenly, cost a binary
    search, and never a wrong number. In memory are 12 bytes a key; whole keys lie in a mapped file.
    """

    def __init__(self, file: Path, blocks: Iterable[Keys]) -> None:
        """Write the sorted, distinct keys to a local file.

        Raises StorageError naming the file.
        """
        with os_errors(file), file.open("wb") as out:
            for keys in blocks:
                out.write(keys.data)
            count = out.tell() // KEY_BYTES
        # An empty file cannot be mapped.
        self._keys: Keys = (
            np.memmap(file, f"S{KEY_BYTES}", "r").view(np.ndarray) if count else np.empty(0, "S20")
        )
        self._firsts = np.full(count + 1, ~np.uint64(0))  # the last one ends each search
        for start in range(0, count, _BLOCK):
            self._firsts[start : min(count, start + _BLOCK)] = _first_bytes(
                self._keys[start : start + _BLOCK]
            )
        bits = max(1, count.bit_length() - 1)
        self._shift = np.uint64(64 - bits)
        self._starts = np.empty(1 << bits, np.int32)
        for start in range(0, len(self._starts), _BLOCK):
            prefixes = np.arange(start, min(len(self._starts), start + _BLOCK), dtype=np.uint64)
            self._starts[start : start + _BLOCK] = np.searchsorted(
                self._firsts[:-1], prefixes << self._shift
            )

    def __len__(self) -> int:
        return len(self._keys)

    def of(self, keys: Keys) -> Ints:
        """Return each key's number; -1 for an unknown key."""
        if not len(self):
            return np.full(len(keys), -1, np.int32)
        firsts = _first_bytes(keys)
        found = self._places(firsts)
        differs = self._keys[found] != keys
        alike = np.flatnonzero(differs)
        alike = alike[
            self._firsts[found[alike]] == firsts[alike]
        ]  # several keys may share these 8 bytes
        found[alike] = np.minimum(np.searchsorted(self._keys, keys[alike]), len(self) - 1)
        differs[alike] = self._keys[found[alike]] != keys[alike]
        found[differs] = -1
        return found

    def _places(self, firsts: Ints) -> Ints:
        """Find the first key whose 8 bytes are not smaller."""
        found = self._starts[(firsts >> self._shift).astype(np.int64)]
        behind = np.flatnonzero(self._firsts[found] < firsts)
        for _ in range(STEPS):
            found[behind] += np.int32(1)
            behind = behind[self._firsts[found[behind]] < firsts[behind]]
        found[behind] = np.searchsorted(self._firsts, firsts[behind])
        return np.minimum(found, np.int32(len(self) - 1))


def numbered(
    texts: Iterable[str], name_of: Callable[[str], str | None] = str
) -> tuple[list[str], Ints]:
    """Number names in their order.

    Return all names, and the number of each text's name, -1 without a name.

    `name_of`: makes the name of a text, such as the domain of a host, or None.
    """
    found = [name_of(text) for text in texts]
    names = sorted({name for name in found if name is not None})
    numbers: dict[str | None, int] = {
        None: -1,
        **{name: number for number, name in enumerate(names)},
    }
    return names, np.array([numbers[name] for name in found], np.int32)


def numbered_names(
    columns: "Iterable[pa.Array[Any]]", name_of: Callable[[str], str | None] = str
) -> tuple[list[str], Ints]:
    """Number the names of columns of texts, as `numbered` does.

    Each text is looked at once a column.
    """
    places: dict[str, int] = {}  # of texts, as they come up
    parts = [np.empty(0, np.int32)]
    for column in columns:
        found = column.dictionary_encode()
        texts = [places.setdefault(str(text), len(places)) for text in found.dictionary.to_pylist()]
        parts.append(np.array(texts, np.int32)[values_of(found.indices)])
    names, numbers = numbered(places, name_of)
    return names, numbers[np.concatenate(parts)]


def hosts_of(urls: "pa.Array[Any]") -> "pa.Array[Any]":
    """Return the hosts of a column of canonical URLs.

    `urls.host_of` gives the same hosts.
    """
    found: pa.Array[Any] = pc.struct_field(pc.extract_regex(urls, _HOST), "host")
    return found


def count_sorted(counts: Ints, numbers: Ints) -> None:
    """Add each number's frequency among sorted ones to its count."""
    if len(numbers):
        first, last = int(numbers[0]), int(numbers[-1])
        counts[first : last + 1] += np.bincount(numbers - first).astype(counts.dtype)


def keys_of(column: "pa.Array[Any] | pa.ChunkedArray[Any]") -> Keys:
    """Return the keys of a column, of an array without a copy.

    A row has 20 bytes. A null is any key.
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    data, end = array.buffers()[1], array.offset + len(array)
    if data is None:
        return np.zeros(len(array), f"S{KEY_BYTES}")
    return np.frombuffer(memoryview(data), f"S{KEY_BYTES}", end)[array.offset :]


def values_of(column: "pa.Array[Any]") -> Ints:
    """Return the numbers or flags of a column without nulls.

    `to_numpy` would load pandas, which takes 0.3 s.
    """
    if pa.types.is_boolean(column.type):
        return np.from_dlpack(column.cast(pa.uint8())).view(np.bool_)
    return np.from_dlpack(column)


def column_of(values: Ints) -> "pa.Array[Any]":
    """Return a column of numbers or flags.

    `pa.array` of them would load pandas, which takes 0.3 s.
    """
    if values.dtype == np.bool_:
        return column_of(values.view(np.uint8)).cast(pa.bool_())
    kind, data = pa.from_numpy_dtype(values.dtype), pa.py_buffer(np.ascontiguousarray(values).data)
    return pa.Array.from_buffers(kind, len(values), [None, data])


def _first_bytes(keys: Keys) -> Ints:
    """Return keys' first 8 bytes as numbers in order."""
    whole = keys.view(np.uint8).reshape(-1, KEY_BYTES)
    prefixes = np.ascontiguousarray(whole[:, :8])
    return prefixes.view(">u8").ravel().astype(np.uint64)
