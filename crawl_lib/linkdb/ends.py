"""All ends of current links, crawled or not, by numbers in the order of their keys; and the links between them."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from crawl_lib.engine.numbers import Ints, KeyNumbers, Keys, keys_of
from crawl_lib.linkdb.links import OUTLINKS, is_link
from crawl_lib.segment import parquet_batches
from crawl_lib.stopping import Progress
from crawl_lib.versions import GROUP_ROWS, Version, Versions, Work, columns

_ENDS = columns("key key, url text, host text, id int32")
_UNSEEN = columns("key key, url text")


class LinkEnds:
    """The pages that were seen, and the URLs that these link to, with their numbers.

    `work` gets the table `ends` (key, url, host, id). `numbers`: of the keys. In memory are 12 bytes an end; keys lie
    in a mapped file.
    """

    def __init__(self, work: Work, links: Version, stage: str, without: KeyNumbers | None = None) -> None:
        """Number the ends of links, which are a version of `OUTLINKS`. `stage`: the name of progress.

        `without`: pages whose links, and links to which, do not count. Raises what `Versions.give` raises.
        """
        self._work, self._links, self._stage, self._without = work, links, stage, without
        self._versions = Versions(work.stores, OUTLINKS)
        self._versions.give(links, work.engine, "outlinks")
        work.keep("unseen", _UNSEEN, self._unseen(KeyNumbers(work.scratch / "seen", self._seen())))
        self._path = work.keep("ends", _ENDS, self._numbered())
        self.numbers = KeyNumbers(work.scratch / "ends", (keys_of(batch.column(0)) for batch in self.batches("key")))

    def __len__(self) -> int:
        return len(self.numbers)

    def batches(self, *names: str) -> Iterator[pa.RecordBatch]:
        """Read columns of the table `ends` by number. Raises DamagedFileError, StorageError, StoppedError."""
        if self._path is not None:
            found = parquet_batches(self._work.tables, self._path, _ENDS, names)
            yield from self._work.stores.until_stopped(found)

    def arcs(self) -> Iterator[tuple[Ints, Ints]]:
        """Read the links: numbers of sources and targets, in this order. A link with several texts is repeated.

        Raises DamagedFileError, StorageError, StoppedError.
        """
        progress = Progress(self._work.stores, f"{self._stage}.arcs", 0, "links")
        for links in self._read("key", "target", "is_gone"):
            counts = self._counts(links)
            keys, others = (keys_of(links.column(name))[counts] for name in ("key", "target"))
            starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
            sources = np.repeat(self.numbers.of(keys[starts]), np.diff(starts, append=len(keys)))
            targets = self.numbers.of(others)
            known = (sources >= 0) & (targets >= 0)
            progress.add(len(keys))
            yield sources[known], targets[known]
        progress.end()

    def _seen(self) -> Iterator[Keys]:
        for batch in self._read("key", "seen_time"):
            yield keys_of(batch.column("key"))[batch.column("seen_time").is_valid().to_numpy(False)]

    def _unseen(self, seen: KeyNumbers) -> Iterator[pa.Table]:
        """Find what is linked to and was not seen: a row a link."""
        progress, source = (
            Progress(self._work.stores, f"{self._stage}.unseen", 0, "links"),
            ["key"] * bool(self._without),
        )
        for links in self._read("target", "target_url", "is_gone", *source):
            is_new = pa.array(self._counts(links) & (seen.of(keys_of(links.column("target"))) < 0))
            progress.add(len(links))
            yield pa.table([links.column(name).filter(is_new) for name in ("target", "target_url")], _UNSEEN.names)
        progress.end()

    def _numbered(self) -> Iterator[pa.Table]:
        first = 0
        for batch in self._work.engine.stream("linkrank/ends", GROUP_ROWS, f"{self._stage}.ends"):
            numbers = pa.array(np.arange(first, first + len(batch)))
            yield pa.table([*(batch[name] for name in ("key", "url", "host")), numbers], _ENDS.names)
            first += len(batch)

    def _counts(self, links: pa.RecordBatch) -> Ints:
        """Mark the links of pages that are there, by option without duplicates."""
        counts: Ints = is_link(links).to_numpy(False)
        if self._without:
            for name in ("key", "target"):
                counts &= self._without.of(keys_of(links.column(name))) < 0
        return counts

    def _read(self, *names: str) -> Iterator[pa.RecordBatch]:
        """Read columns of the table of links, whose digests `give` has compared."""
        return self._versions.batches(self._links, names, is_compared=True)
