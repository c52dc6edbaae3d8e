"""Near duplicates: pages whose words, counted, have a cosine of at least `duplicates.cosine`, in groups.

Candidates have a band of their MinHash signatures in common (A. Z. Broder: On the resemblance and containment of
documents, 1997): `BANDS` of `ROWS` values, so two pages that share 7 of 10 words are found with a chance of 0.99, and
such that share 1 of 5 are compared with one of 0.003. Each pair is compared exactly. Of a band that many pages share
each is compared with the next `NEXT` by key, so that the work grows with the pages only. Pages with the very same words
are one for all of this.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from importlib.metadata import version
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rensa import RMinHash

from crawl_lib.duplicates.texts import Captures, Row
from crawl_lib.stores import Stores
from crawl_lib.versions import GROUP_ROWS, Family, Version, Versions, Work, columns, write_version

BANDS, ROWS, NEXT = 42, 6, 50
PAIR_ROWS = 1_000
"""Pairs that are read at once, with the words of both."""
REVISION, _SEED = 1, 42
"""The first is raised where equal inputs may give other rows."""
_MIX = np.uint64(0x9E3779B97F4A7C15)
DUPLICATES_SCHEMA = columns("key key!, url text!, group_key key!, cosine number!, nearest key!")
"""Pages that have a near duplicate. `group_key`: the smallest key of the group; `nearest`: the page of the group that
is most like it (of equal ones the smallest key), and `cosine` how much."""
DUPLICATES = Family(
    folder="duplicates",
    name="the near duplicates",
    schema=DUPLICATES_SCHEMA,
    remedy="move its folder away, and run `krake duplicates near`",
)
"""A manifest has `now` (POSIX seconds), `cosine`, `pages` (that were compared), `groups`, and `of`, a digest."""
_VECTORS = columns("key bytes, url text, words bytes, same bytes, squares int64, bands text")
_FOUND = columns("key key, group_key key, cosine number, nearest key")


def find_near(stores: Stores, *, now: datetime) -> Version:
    """Make the table of groups of near duplicates, or find the one that was made of the same. `now`: for the manifest.

    Raises InputError where there is nothing to read, DamagedFileError, StorageError, NoRoomError, StoppedError,
    ConfigError.
    """
    versions, least = Versions(stores, DUPLICATES), stores.config.duplicates.cosine
    limits = f"{least} {BANDS} {ROWS} {NEXT} {stores.config.text.max_chars}"
    made_by = f"rensa {version('rensa')} resiliparse {version('resiliparse')} {REVISION} {limits}"
    while True:
        newest, number = versions.newest(), versions.next_number()
        with Work.of(versions, number) as work:
            captures = Captures.of(work)
            of = sha256(f"{captures.digest()} {made_by}".encode()).hexdigest()
            if newest is not None and newest.manifest["of"] == of:
                return newest
            facts: dict[str, Any] = {"now": int(now.timestamp()), "of": of, "cosine": least}
            if made := write_version(versions, number, _rows(captures, least, facts), facts):
                return made


def _rows(captures: Captures, least: float, facts: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """The rows of a version in order of keys; how many there are of what is noted in `facts`."""
    engine = captures.work.engine
    captures.work.keep("vectors", _VECTORS, _vectors(captures.read("terms")))
    engine.values("places", pa.table({"band": pa.array(range(BANDS), pa.int32())}))
    engine.values("next_ones", pa.table({"places": pa.array([NEXT], pa.int32())}))
    engine.view("same", "duplicates/same")
    engine.view("bands", "duplicates/bands")
    groups = Groups()
    for batch in engine.stream("duplicates/pairs", PAIR_ROWS, "duplicates.pairs"):
        for one, other, *vectors in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if (near := cosine(*vectors)) >= least:
                groups.join(one, other, near)
    engine.values("found", pa.Table.from_pylist(groups.rows(), _FOUND))
    facts |= {"pages": engine.value("duplicates/count"), "groups": 0}
    for batch in engine.stream("duplicates/groups", GROUP_ROWS, "duplicates.groups"):
        facts["groups"] += pc.equal(batch.column("key"), batch.column("group_key")).true_count
        yield batch


def _vectors(batches: Iterable[list[Row]]) -> Iterator[pa.Table]:
    """What is compared of each page: its words, and the bands of its signature."""
    for batch in batches:
        pages = [row for row in batch if row["terms"]]
        for row, bands in zip(pages, bands_of([[word for word, _ in row["terms"]] for row in pages]), strict=True):
            row["words"] = "\n".join(f"{word} {count}" for word, count in row["terms"]).encode()
            row["same"], row["bands"] = sha256(row["words"]).digest(), bands
            row["squares"] = sum(count * count for _, count in row["terms"])
        yield pa.Table.from_pylist(pages, _VECTORS)


def bands_of(word_sets: list[list[str]]) -> list[str]:
    """The bands of the MinHash signatures of sets of words, as 16 hex digits each."""
    if not word_sets:
        return []
    rows = RMinHash.digest_matrix_from_token_sets(word_sets, BANDS * ROWS, _SEED).to_rows()
    values = np.array(rows, np.uint64).reshape(len(word_sets), BANDS, ROWS)
    mixed = np.zeros((len(word_sets), BANDS), np.uint64)
    for row in range(ROWS):
        mixed = (mixed ^ values[:, :, row]) * _MIX
        mixed ^= mixed >> np.uint64(29)
    return [line.astype(">u8").tobytes().hex() for line in mixed]


def cosine(one: bytes, other: bytes, one_squares: int, other_squares: int) -> float:
    """The cosine of two vectors of word counts, as `_vectors` writes them, with the sums of their squares."""
    parts = [words.decode().split() for words in (one, other)]
    counts, others = (dict(zip(words[::2], map(int, words[1::2]), strict=True)) for words in parts)
    dot = sum(count * others.get(word, 0) for word, count in counts.items())
    return dot / math.sqrt(one_squares * other_squares)


@dataclass
class Groups:
    """Groups of keys that pairs connect, in whatever order these come. Memory: some 400 bytes a key."""

    parents: dict[bytes, bytes] = field(default_factory=dict)
    nearest: dict[bytes, tuple[float, bytes]] = field(default_factory=dict)

    def join(self, one: bytes, other: bytes, near: float) -> None:
        """Take in a pair and its cosine."""
        roots = sorted({self.root(one), self.root(other)})
        self.parents[roots[-1]] = roots[0]
        for key, neighbour in ((one, other), (other, one)):
            best = self.nearest.get(key)
            if best is None or (-near, neighbour) < (-best[0], best[1]):
                self.nearest[key] = (near, neighbour)

    def root(self, key: bytes) -> bytes:
        """The smallest key of its group."""
        while (parent := self.parents.setdefault(key, key)) != key:
            self.parents[key] = self.parents[parent]
            key = parent
        return key

    def rows(self) -> list[Row]:
        """A row for each key."""
        return [
            {"key": key, "group_key": self.root(key), "cosine": near, "nearest": neighbour}
            for key, (near, neighbour) in sorted(self.nearest.items())
        ]
