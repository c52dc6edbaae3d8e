"""All ends of current links, crawled or not, by numbers in the order of their keys; and the links between them."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from crawl_lib.engine import Ints, KeyNumbers, Keys, column_of, keys_of, values_of
from crawl_lib.errors import os_errors
from crawl_lib.linkdb.links import OUTLINKS, is_link
from crawl_lib.parquet import parquet_batches
from crawl_lib.stopping import Progress
from crawl_lib.versions import GROUP_ROWS, Version, Versions, VersionWork, columns

_ENDS = columns("key key, url text, host text, is_unseen int32, id int32")
_UNSEEN = columns("key key, url text")


class LinkEnds:
    """The seen pages, and the targets of their links, with numbers.

    `work` gets the table `ends` (key, url, host, is_unseen, id). `places`: the numbers of seen pages, then of unseen
    ends; `unseen`: the places of the keys of unseen ends. Memory of both: 4 bytes an end, and 12 more an unseen end.
    Files have 20 bytes a key, 8 a link, and 20 more a link to an unseen end.
    """

    def __init__(
        self, work: VersionWork, links: Version, stage: str, without: KeyNumbers | None = None
    ) -> None:
        """Number the ends of links.

        `links`: a version of `OUTLINKS`. `stage`: the name of progress.

        `without`: links from and to these pages do not count. Raises the errors of `Versions.give`.
        """
        self._work, self._links, self._stage, self._without = work, links, stage, without
        self._versions, self._file = Versions(work.stores, OUTLINKS), work.scratch / "links"
        self._versions.give(links, work.engine, "outlinks")
        work.keep("unseen", _UNSEEN, self._unseen(KeyNumbers(work.scratch / "seen", self._seen())))
        self._path = work.keep("ends", _ENDS, self._numbered())
        marks = [
            np.empty(0, np.int32),
            *(values_of(batch.column(0)) for batch in self.batches("is_unseen")),
        ]
        self.places = [
            np.flatnonzero(np.concatenate(marks) == mark).astype(np.int32) for mark in (0, 1)
        ]
        self.unseen = KeyNumbers(work.scratch / "ends", self._unseen_keys())

    def __len__(self) -> int:
        return sum(map(len, self.places))

    def batches(self, *names: str) -> Iterator[pa.RecordBatch]:
        """Read columns of the table `ends` by number. Raises DamagedFileError, StorageError, StoppedError."""
        if self._path is not None:
            found = parquet_batches(self._work.tables, self._path, _ENDS, names)
            yield from self._work.stores.until_stopped(found)

    def arcs(self) -> Iterator[tuple[Ints, Ints]]:
        """Yield the links as numbers of sources and targets.

        Links are sorted by the number of the source. A link with several texts is repeated. Raises StorageError,
        StoppedError.
        """
        seen, unseen = self.places
        with os_errors(self._file), self._file.open("rb") as file:
            while file.peek(1):
                self._work.stores.go_on()
                sources, targets, keys = (np.load(file) for _ in range(3))
                numbers = seen[targets]
                numbers[targets < 0] = unseen[self.unseen.of(keys)]
                yield seen[sources], numbers

    def _seen(self) -> Iterator[Keys]:
        for batch in self._read("key", "seen_time"):
            yield keys_of(batch.column("key"))[_is_page(batch)]

    def _unseen(self, seen: KeyNumbers) -> Iterator[pa.Table]:
        """Write the links to a file; yield links to unseen URLs.

        Links to seen pages are written by numbers. A row comes for each link to an unseen URL.
        """
        progress, last = (
            Progress(self._work.stores, f"{self._stage}.links", 0, "links"),
            np.int32(-1),
        )
        with os_errors(self._file), self._file.open("wb") as file:
            for links in self._read(
                "target", "target_url", "is_gone", "seen_time", *["key"] * bool(self._without)
            ):
                sources = last + np.cumsum(
                    _is_page(links), dtype=np.int32
                )  # a page's row is ahead of its links
                last, keys, counts = (
                    sources[-1],
                    keys_of(links.column("target")),
                    self._counts(links),
                )
                targets = seen.of(keys)
                is_new = counts & (targets < 0)
                for array in (sources[counts], targets[counts], keys[is_new]):
                    np.save(file, array)
                progress.add(len(links))
                if is_new.any():
                    found = links.select(["target", "target_url"]).filter(column_of(is_new))
                    yield pa.table(found.columns, _UNSEEN.names)
        progress.end()

    def _numbered(self) -> Iterator[pa.Table]:
        first, names = 0, _ENDS.names[:-1]
        for batch in self._work.engine.stream("linkrank/ends", GROUP_ROWS, f"{self._stage}.ends"):
            numbers = column_of(np.arange(first, first + len(batch)))
            yield pa.table([*(batch[name] for name in names), numbers], _ENDS.names)
            first += len(batch)

    def _unseen_keys(self) -> Iterator[Keys]:
        for batch in self.batches("key", "is_unseen"):
            yield keys_of(batch.column("key"))[values_of(batch.column("is_unseen")) == 1]

    def _counts(self, links: pa.RecordBatch) -> Ints:
        """Mark the links of existing pages, by option without duplicates."""
        counts: Ints = values_of(is_link(links))
        if self._without:
            for name in ("key", "target"):
                counts = counts & (self._without.of(keys_of(links.column(name))) < 0)
        return counts

    def _read(self, *names: str) -> Iterator[pa.RecordBatch]:
        """Read columns of the table of links; `give` has compared the digests."""
        return self._versions.batches(self._links, names, is_compared=True)


def _is_page(links: pa.RecordBatch) -> Ints:
    """Mark the rows of pages themselves."""
    return values_of(links.column("seen_time").is_valid())
