"""Vectors of weighted words: packed for the engine, cut into bands of bits, and compared.

A word is 8 bytes of its SHA-1. Its weight is a whole number, so that sums are exact and equal on every machine.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from hashlib import sha1, sha256
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crawl_lib.engine import keys_of
from crawl_lib.parse import native_library
from crawl_lib.versions import columns

BANDS, BAND_BITS = 60, 20
"""Bands of the bits that the hyperplanes of `crawl_lib/parse/native/planes.c` give a page."""
PLAIN_WEIGHT = 100
"""The number for the weight 1, the least weight."""
MOST_COUNT = (1 << 14) - 1
"""The limit of the count of a word: with this limit, products of long texts fit into 64 bits."""
COUNTS = columns("key bytes, host text, word int64, count int32")
"""A row for each word of a page, and one with a count of 0 for each page."""
VECTORS = columns(
    "key bytes, host text, words bytes, counts bytes, weights bytes, same bytes, bands text"
)
LONE = columns(
    "one bytes, other bytes, dot int64, one_squares int64, other_squares int64, of_one flag, host text, word int64,"
    " count int32, weight int32"
)
_PLANES = BANDS * BAND_BITS
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_NIBBLE = np.array([8, 4, 2, 1], np.uint8)
Ints = npt.NDArray[np.int64]


def word_counts(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Make rows of `COUNTS` of pages.

    A page has `key`, `host`, and `terms` (pairs of a word and its count).
    """
    pages = [row for row in rows if row["terms"]]
    ids = {word: _word_id(word) for word in {word for row in pages for word, _ in row["terms"]}}
    lengths = [1 + len(row["terms"]) for row in pages]
    words = (word for row in pages for word in (0, *(ids[term] for term, _ in row["terms"])))
    counts = (
        count for row in pages for count in (0, *(min(n, MOST_COUNT) for _, n in row["terms"]))
    )
    places = np.repeat(np.arange(len(pages), dtype=np.int32), lengths)
    found: dict[str, Any] = {
        name: pa.array([row[name] for row in pages], COUNTS.field(name).type).take(pa.array(places))
        for name in ("key", "host")
    }
    found |= {"word": pa.array(words, pa.int64()), "count": pa.array(counts, pa.int32())}
    return pa.table(found, COUNTS)


def _word_id(word: str) -> int:
    return int.from_bytes(
        sha1(word.encode("utf-8", "replace"), usedforsecurity=False).digest()[:8], signed=True
    )


def vectors_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Make a row of `VECTORS` for each page.

    `batches`: rows of `COUNTS` with a `weight`, by key, then by word.
    """
    rest: list[pa.RecordBatch] = []
    for batch in batches:
        table = pa.Table.from_batches([*rest, batch]).combine_chunks()
        last = int(_starts_of(table)[-1])
        rest = table.slice(last).to_batches()
        if last:
            yield _packed(table.slice(0, last))
    if rest:
        yield _packed(pa.Table.from_batches(rest))


def _starts_of(table: pa.Table) -> Ints:
    """Find where the rows of each page begin."""
    keys = keys_of(table["key"].cast(pa.binary(20)))
    return np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))


def _packed(table: pa.Table) -> pa.Table:
    starts = _starts_of(table)
    words, counts, weights = (table[name].to_numpy() for name in ("word", "count", "weight"))
    ends = np.r_[starts, len(words)]
    packed = {
        "words": words.astype("<i8"),
        "counts": counts.astype("<u2"),
        "weights": weights.astype("<u2"),
    }
    found: dict[str, Any] = {name: table[name].take(starts) for name in ("key", "host")}
    for name, column in packed.items():
        found[name] = [column[start:end].tobytes() for start, end in pairwise(ends)]
    found["same"] = [
        sha256(one + n).digest() for one, n in zip(found["words"], found["counts"], strict=True)
    ]
    found["bands"] = bands_of(ends, words, counts * weights)
    return pa.table(found, VECTORS)


def bands_of(ends: Ints, words: Ints, weights: Ints) -> list[str]:
    """Cut each vector's bits into `BANDS` bands.

    A band is 5 hex digits.

    `ends`: where in `words` and `weights` each vector begins, and where the last one ends.
    """
    ends, words = np.ascontiguousarray(ends, np.int64), np.ascontiguousarray(words, np.int64)
    values, rows = np.ascontiguousarray(weights, np.float32), len(ends) - 1
    bits = np.empty((rows, _PLANES), np.uint8)
    native_library().krake_planes(
        ends.ctypes.data, rows, words.ctypes.data, values.ctypes.data, bits.ctypes.data
    )
    digits = _HEX[bits.reshape(rows, -1, 4) @ _NIBBLE]
    return [line.tobytes().decode() for line in digits]


@dataclass(frozen=True)
class Vector:
    """The words of a page, in ascending order, with their counts and weights. `host`: the page's."""

    key: bytes
    host: str
    words: Ints
    counts: Ints
    weights: Ints

    @classmethod
    def unpacked(cls, key: bytes, host: str, words: bytes, counts: bytes, weights: bytes) -> Self:
        """Read the columns of a row of `VECTORS`."""
        parts = ((words, "<i8"), (counts, "<u2"), (weights, "<u2"))
        return cls(key, host, *(np.frombuffer(data, kind).astype(np.int64) for data, kind in parts))


@dataclass(frozen=True)
class Products:
    """The scalar products of two vectors, by twice their mean weights: of both, and of each with itself."""

    dot: int
    one: int
    other: int

    @property
    def cosine(self) -> float:
        """The cosine of the two vectors."""
        return self.dot / math.sqrt(self.one * self.other)


def _places_but(places: Ints, vector: Vector) -> Ints:
    return np.delete(np.arange(len(vector.words)), places)


class Pair:
    """Two pages that are compared, by twice the mean of the weights of each word on the hosts of both.

    A page has the weights of its own host. For a word that only one page has, the weight on the other page's host is
    unknown here.
    """

    def __init__(self, one: Vector, other: Vector) -> None:
        """Find the words that both pages have."""
        self.one, self.other = one, other
        _, in_one, in_other = np.intersect1d(
            one.words, other.words, assume_unique=True, return_indices=True
        )
        self._lone = [(one, _places_but(in_one, one)), (other, _places_but(in_other, other))]
        doubled = one.weights[in_one] + other.weights[in_other]
        first, second = one.counts[in_one] * doubled, other.counts[in_other] * doubled
        self.shared = Products(int(first @ second), int(first @ first), int(second @ second))

    @property
    def is_exact(self) -> bool:
        """Whether all weights are known."""
        return self.one.host == self.other.host or not any(len(lone) for _, lone in self._lone)

    @property
    def products(self) -> Products:
        """Products of all words.

        Unless the pair is exact, unknown weights count as the least weight.
        """
        is_one_host, sums = self.one.host == self.other.host, []
        for vector, lone in self._lone:
            weights = vector.weights[lone]
            values = vector.counts[lone] * (weights + (weights if is_one_host else PLAIN_WEIGHT))
            sums.append(int(values @ values))
        return Products(self.shared.dot, self.shared.one + sums[0], self.shared.other + sums[1])

    def lone_words(self) -> pa.Table:
        """Make a row of `LONE` for each word of one page only."""
        tables = []
        for (vector, lone), other in zip(self._lone, (self.other, self.one), strict=True):
            same_of_all = (
                self.one.key,
                self.other.key,
                *astuple(self.shared),
                vector is self.one,
                other.host,
            )
            found: dict[str, Any] = {
                name: [value] * len(lone)
                for name, value in zip(LONE.names, same_of_all, strict=False)
            }
            found |= {
                "word": vector.words[lone],
                "count": vector.counts[lone],
                "weight": vector.weights[lone],
            }
            tables.append(pa.table(found, LONE))
        return pa.concat_tables(tables)
