"""Near duplicates: pages whose weighted words have a cosine of at least `duplicates.cosine`, in groups.

The count of a word is multiplied by the word's smoothed idf among the pages of the host: so words of a template, which
nearly all pages have, weigh little. A pair of two hosts takes the mean of both idfs. Hosts with fewer than
`LEAST_PAGES` pages have bare counts; with `duplicates.weights: counts` all hosts have bare counts.

Candidates share a band of bits. A bit tells on which side of a random hyperplane a page lies. Two pages with a cosine
of 0.9 share one of 60 bands of 20 bits with a chance of 0.94; the chance grows with the cosine. Each pair is compared
exactly. In a band that many pages share, each page is compared with the next `NEXT` pages by key, so that the work is
linear in the pages. Pages with exactly the same words count as one page here.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from importlib.metadata import version
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crawl_lib.captures import Captures, Row
from crawl_lib.duplicates.vectors import (
    BAND_BITS,
    BANDS,
    COUNTS,
    LONE,
    PLAIN_WEIGHT,
    VECTORS,
    Pair,
    Products,
    Vector,
    vectors_of,
    word_counts,
)
from crawl_lib.engine import Engine
from crawl_lib.stores import Stores
from crawl_lib.versions import (
    GROUP_ROWS,
    Family,
    TableOutput,
    Version,
    Versions,
    VersionWork,
    columns,
    write_version,
)

NEXT = 50
LEAST_PAGES = 20
"""Least number of pages of a host with weights for its words."""
_NO_HOST = 1 << 31
PAIR_ROWS = 1_000
"""Number of pairs in one batch, with the words of both pages."""
WORD_ROWS = 1 << 16
REVISION = 3
"""Raise this number when equal inputs may give other rows."""
DUPLICATES_SCHEMA = columns("key key!, url text!, group_key key!, cosine number!, nearest key!")
"""Pages with a near duplicate. `group_key`: the smallest key of the group; `nearest`: the most similar page of the
group (among equally similar pages the smallest key); `cosine`: their similarity."""
DUPLICATES = Family(
    folder="duplicates",
    name="the near duplicates",
    schema=DUPLICATES_SCHEMA,
    made_again="`krake duplicates near` makes it again",
)
"""A manifest has `now` (POSIX seconds), `cosine`, `pages` (compared ones), `groups`, and `of`, a digest."""
DUPLICATES_OUTPUT = TableOutput("duplicates", ("text", "crawldb"), DUPLICATES)
_FOUND = columns("key key, group_key key, cosine number, nearest key")


def find_near(stores: Stores, *, now: datetime) -> Version:
    """Make or find the table of groups of near duplicates.

    `now`: for the manifest. Raises InputError without captures, DamagedFileError, StorageError,
    NoRoomError, StoppedError, ConfigError.
    """
    versions, config = Versions(stores, DUPLICATES), stores.config.duplicates
    limits = f"{config.cosine} {config.weights} {BANDS} {BAND_BITS} {NEXT} {LEAST_PAGES} {stores.config.text.max_chars}"
    made_by = f"resiliparse {version('resiliparse')} {REVISION} {limits}"
    while True:
        newest, number = versions.newest(), versions.next_number()
        with VersionWork.of(versions, number) as work:
            captures = Captures.of(work)
            of = sha256(f"{captures.digest()} {made_by}".encode()).hexdigest()
            if newest is not None and newest.manifest["of"] == of:
                return newest
            facts: dict[str, Any] = {"now": int(now.timestamp()), "of": of, "cosine": config.cosine}
            if made := write_version(versions, number, _rows(captures, facts), facts):
                return made


def _rows(captures: Captures, facts: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """Make a version's rows in key order, and count them.

    `facts` gets the numbers of pages and groups.
    """
    engine, config = captures.work.engine, captures.work.stores.config.duplicates
    _keep_vectors(captures, has_weights=config.weights == "idf")
    engine.values("places", pa.table({"band": pa.array(range(BANDS), pa.int32())}))
    engine.values("next_ones", pa.table({"places": pa.array([NEXT], pa.int32())}))
    engine.view("same", "duplicates/same")
    engine.view("bands", "duplicates/bands")
    groups = Groups()
    captures.work.keep("lone", LONE, _lone_words(engine, config.cosine, groups))
    for one, other, *products in _tuples(
        engine.stream("duplicates/lone", PAIR_ROWS, "duplicates.lone")
    ):
        if (near := Products(*products).cosine) >= config.cosine:
            groups.join(one, other, near)
    engine.values("found", pa.Table.from_pylist(groups.rows(), _FOUND))
    facts |= {"pages": engine.value("duplicates/count"), "groups": 0}
    for batch in engine.stream("duplicates/groups", GROUP_ROWS, "duplicates.groups"):
        facts["groups"] += pc.equal(batch.column("key"), batch.column("group_key")).true_count
        yield batch


def _keep_vectors(captures: Captures, *, has_weights: bool) -> None:
    """Make the table `vectors` and the table of weights.

    `vectors` has a row for each page with words.
    """
    work, least = captures.work, LEAST_PAGES if has_weights else _NO_HOST
    work.keep("counts", COUNTS, map(word_counts, captures.read("terms")))
    limits = {"least": pa.array([least], pa.int64()), "plain": pa.array([PLAIN_WEIGHT], pa.int32())}
    work.engine.values("limits", pa.table(limits))
    work.engine.keep("hosts", "duplicates/hosts", "duplicates.hosts")
    work.engine.keep("weights", "duplicates/weights", "duplicates.weights")
    words = work.engine.stream("duplicates/weighted", WORD_ROWS, "duplicates.words")
    work.keep("vectors", VECTORS, vectors_of(words))


def _lone_words(engine: Engine, least: float, groups: "Groups") -> Iterator[pa.Table]:
    """Compare the candidates; yield lone words of undecided pairs.

    The rows of `LONE` are the words that decide the cosine of such a pair.
    """
    for batch in engine.stream("duplicates/pairs", PAIR_ROWS, "duplicates.pairs"):
        doubtful = []
        for row in _tuples([batch]):
            pair = Pair(Vector.unpacked(*row[:5]), Vector.unpacked(*row[5:]))
            if (near := pair.products.cosine) < least:
                continue
            if pair.is_exact:
                groups.join(pair.one.key, pair.other.key, near)
            else:
                doubtful.append(pair.lone_words())
        if doubtful:
            yield pa.concat_tables(doubtful)


def _tuples(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


@dataclass
class Groups:
    """Groups of keys that pairs connect, in any order of pairs. Memory: about 400 bytes a key."""

    parents: dict[bytes, bytes] = field(default_factory=dict)
    nearest: dict[bytes, tuple[float, bytes]] = field(default_factory=dict)

    def join(self, one: bytes, other: bytes, near: float) -> None:
        """Add a pair and its cosine."""
        roots = sorted({self.root(one), self.root(other)})
        self.parents[roots[-1]] = roots[0]
        for key, neighbour in ((one, other), (other, one)):
            best = self.nearest.get(key)
            if best is None or (-near, neighbour) < (-best[0], best[1]):
                self.nearest[key] = (near, neighbour)

    def root(self, key: bytes) -> bytes:
        """Return the smallest key of a key's group."""
        while (parent := self.parents.setdefault(key, key)) != key:
            self.parents[key] = self.parents[parent]
            key = parent
        return key

    def rows(self) -> list[Row]:
        """Return a row for each key."""
        return [
            {"key": key, "group_key": self.root(key), "cosine": near, "nearest": neighbour}
            for key, (near, neighbour) in sorted(self.nearest.items())
        ]
