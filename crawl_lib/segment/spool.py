"""The writer of one worker: groups of records into WARC files, rows next to them, a new part when a file is full."""

import errno
import os
import time
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from isal import isal_zlib

from crawl_lib.config import SegmentConfig
from crawl_lib.durable import fsync_dir, reached, write_durable
from crawl_lib.errors import DamagedFileError, os_errors
from crawl_lib.records import RETRY_LISTS, Fetched, TakenUrl
from crawl_lib.segment.cdxj import cdxj_line
from crawl_lib.segment.encoder import Position, RecordEncoder, WarcInfo, new_record_id
from crawl_lib.segment.parts import INDEX_RUNS, OUTLINK_RUNS, Part, PartCounts, Spool, file_sum
from crawl_lib.segment.recover import read_groups
from crawl_lib.segment.revisit import revisited
from crawl_lib.segment.runs import OutlinkRuns, RunWriter
from crawl_lib.segment.tables import LinkTable, PageTable
from crawl_lib.warc import FileId

CDXJ_RUN_LINES = 50_000


class _Log:
    """An append-only file that is fsynced every few seconds by a thread of its own."""

    def __init__(self, path: Path, sync_interval_s: float) -> None:
        self._path, self._interval_s = path, sync_interval_s
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="warc-sync")
        self._syncing: Future[None] | None = None
        self._next_sync_s = time.monotonic() + sync_interval_s
        with os_errors(path, "cannot be written"):
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            self.size, self.checksum = file_sum(path)
            fsync_dir(path.parent)

    def append(self, data: bytes) -> int:
        """Append a group by a single write, and return its offset.

        A partial write is cut off again.
        """
        offset = self.size
        with os_errors(self._path, "cannot be written"):
            try:
                if os.write(self._fd, data) != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                os.ftruncate(self._fd, offset)
                raise
        self.size, self.checksum = self.size + len(data), isal_zlib.crc32(data, self.checksum)
        if time.monotonic() >= self._next_sync_s:
            self._start_sync()
        return offset

    def cut(self, size: int) -> None:
        """Cut off, durably, what follows byte `size`."""
        with os_errors(self._path, "cannot be written"):
            os.ftruncate(self._fd, size)
            os.fsync(self._fd)
        self.size, self.checksum = file_sum(self._path)

    def close(self) -> None:
        """Make all durable and close."""
        try:
            self._wait()
            with os_errors(self._path, "cannot be written"):
                os.fsync(self._fd)
        finally:
            self._thread.shutdown()
            os.close(self._fd)

    def _start_sync(self) -> None:
        self._next_sync_s = time.monotonic() + self._interval_s
        self._wait()
        self._syncing = self._thread.submit(os.fsync, self._fd)

    def _wait(self) -> None:
        if self._syncing is not None:
            with os_errors(self._path, "cannot be written"):
                self._syncing.result()


class OpenPart:
    """A part that is being written: its log, the rows of its pages, and what these led to (`counts`).

    Raises StorageError; DamagedFileError at its end if a page has no row.
    """

    def __init__(self, part: Part, config: SegmentConfig) -> None:
        self.part = part
        self.log = _Log(part.warc, config.sync_interval_s)
        self.positions: array[int] = array("Q")
        self.counts = PartCounts()
        self.pages = PageTable(part.path(Part.PAGES_SUFFIX))
        self.links = LinkTable(part.path(Part.LINKS_SUFFIX))
        self.cdxj = RunWriter(part.path(INDEX_RUNS), CDXJ_RUN_LINES)
        self.outlinks = OutlinkRuns(part.path(OUTLINK_RUNS))

    def note(
        self, taken: TakenUrl | None, fetched: Fetched, position: Position, digest: str | None
    ) -> None:
        """Count a group whose bytes are in the log.

        `digest`: of its response's payload, None without a response.
        """
        if taken is None:
            self.counts.robots_captures += 1
        else:
            self.positions.append(taken.position)
            self.counts.outcomes[fetched.outcome] += 1
            if fetched.retry_at is not None or taken.queued.list_name.startswith(RETRY_LISTS):
                self.counts.retried[fetched.outcome] += 1
        if digest is not None:
            self.cdxj.add(cdxj_line(fetched, digest, position))

    @property
    def size(self) -> int:
        """The size of its largest file in bytes.

        Links may take more room than their page.
        """
        return max(self.log.size, self.links.size)

    def close(self) -> None:
        """Make all files whole and durable, the note that says so last."""
        self.counts.pages, self.counts.links = self.pages.rows, self.links.rows
        if self.counts.pages != len(self.positions):
            self.abandon()
            raise DamagedFileError(
                f"{self.part.warc}: {len(self.positions)} fetches, but {self.counts.pages} rows of pages"
            )
        self.log.close()
        reached("segment.part.log_synced")
        self.pages.close()
        self.links.close()
        self.cdxj.flush()
        self.outlinks.flush()
        reached("segment.part.rows_written")
        write_durable(self.part.path(Part.POSITIONS_SUFFIX), self.positions.tobytes())
        self.part.close(self.counts, [self.log.size, self.log.checksum])
        reached("segment.part.closed")

    def abandon(self) -> None:
        """Leave the part as a kill would."""
        self.log.close()
        self.pages.close(sync=False)
        self.links.close(sync=False)


class RowlessPart:
    """A part with a log only; rows are made later from the log. Raises StorageError."""

    def __init__(self, part: Part, config: SegmentConfig) -> None:
        self.part = part
        self.log = _Log(part.warc, config.sync_interval_s)
        self.counts = PartCounts()

    def note(
        self, taken: TakenUrl | None, _fetched: Fetched, _position: Position, _digest: str | None
    ) -> None:
        """Count a group whose bytes are in the log."""
        if taken is None:
            self.counts.robots_captures += 1
        else:
            self.counts.pages += 1

    @property
    def size(self) -> int:
        """Bytes of its log."""
        return self.log.size

    def close(self) -> None:
        """Make the log whole and durable, and say so."""
        self.log.close()
        reached("segment.part.log_synced")
        self.part.close_without_rows([self.log.size, self.log.checksum], self.counts.pages)
        reached("segment.part.closed_without_rows")

    def abandon(self) -> None:
        """Leave the part as a kill would."""
        self.log.close()


class PartWriter:
    """Writes one worker's share of a segment.

    * A group is one write to the system: when `append` returned, a kill of the process does not lose it; a power loss
      may lose the last `config.sync_interval_s` seconds.
    * After a kill: a new writer of the same `directory` and `prefix` continues. First run through `recovered()` and add
      the rows of each group again; `Spool.finished_positions` names what closed parts hold.
    * A page's rows are added after its `append`, before its part is closed: what keeps rows back has `before_close`
      called, which may be set once, before each part is closed. A part may grow to twice `max_warc_bytes` while
      `may_close`, which may be set too, says no.
    * Without rows (`has_rows`) parts have records only. Another writer makes the rows: a writer with rows takes such
      parts for parts left open by a kill, and `recovered` closes them.

    `prefix`: see `Spool.prefix_of`. `clock` gives POSIX seconds, `new_id` record ids. Not for use by several threads.
    Raises StorageError naming the file: the operator looks at the disk. RuntimeError is a mistake of the caller.
    """

    def __init__(
        self,
        directory: Path,
        prefix: str,
        info: WarcInfo,
        config: SegmentConfig,
        *,
        has_rows: bool = True,
        clock: Callable[[], float] = time.time,
        new_id: Callable[[], str] = new_record_id,
    ) -> None:
        with os_errors(directory, "cannot be written"):
            directory.mkdir(parents=True, exist_ok=True)
        self._directory, self._prefix, self._info, self._config, self._clock = (
            directory,
            prefix,
            info,
            config,
            clock,
        )
        self._encoder = RecordEncoder(config.gzip_level, new_id)
        parts = Spool(directory, prefix).parts()
        unfinished = [
            part for part in parts if not part.is_closed and (has_rows or not part.is_rowless)
        ]
        if sum(not part.is_rowless for part in unfinished) > 1:
            raise DamagedFileError(
                f"{directory}: {len(unfinished)} parts of {prefix} are open at once"
            )
        self._kind: type[OpenPart | RowlessPart] = OpenPart if has_rows else RowlessPart
        self._unfinished = sorted(unfinished, key=lambda part: not part.is_rowless)
        self._next_number = int(parts[-1].stem.name.rpartition("-")[2]) + 1 if parts else 0
        self._open: OpenPart | RowlessPart | None = None
        self.before_close: Callable[[], None] = lambda: None
        self.may_close: Callable[[], bool] = lambda: True

    def __enter__(self) -> "PartWriter":
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            self.close()
        elif self._open is not None:
            part, self._open = self._open, None
            part.abandon()

    @property
    def notes_path(self) -> Path:
        """The folder for notes next to the parts."""
        return self._directory / f"{self._prefix}.reading"

    def recovered(
        self, positions: Iterator[int] | None = None
    ) -> Iterator[tuple[TakenUrl | None, Fetched, Position]]:
        """Yield the complete groups of unfinished parts, in file order.

        Unfinished are the open part, and parts without rows. The taken URL is None for a robots.txt capture. Cuts a
        torn tail. The caller adds the rows of each group at once. A part without rows is closed, with rows, before the
        next part is read. `positions`: new numbers for the URLs. Raises DamagedFileError for a damaged part without
        rows.
        """
        while self._unfinished:
            is_whole = self._unfinished[0].is_rowless
            if is_whole:
                self._unfinished[0].require_log()
            yield from self._read_again(self._unfinished[0], positions)
            del self._unfinished[0]
            reached("segment.part.recovered")
            if is_whole:
                self.close_part()

    def _read_again(
        self, unfinished: Part, positions: Iterator[int] | None
    ) -> Iterator[tuple[TakenUrl | None, Fetched, Position]]:
        """Yield the groups of an unfinished part, and reopen the part."""
        unfinished.discard_rows()
        part = self._open = self._kind(unfinished, self._config)
        end, groups, file_id = 0, 0, FileId()
        for found in read_groups(part.part.warc, file_id):
            if isinstance(found, int):
                end = found
                continue
            taken = found.taken
            if taken is not None and positions is not None:
                taken = replace(taken, position=next(positions))
            part.note(taken, found.fetched, found.position, found.digest)
            yield taken, found.fetched, found.position
            end, groups = found.end, groups + 1
        part.log.cut(end)
        # A file of an older version, whose records have no ids, stays without them.
        self._encoder.file_id = part.counts.warcinfo_id = (
            file_id.value if file_id.is_carried or not groups else ""
        )
        self._begin_file(part)

    def append(self, taken: TakenUrl | None, fetched: Fetched) -> Position:
        """Write the records of a fetch.

        Returns the position of its response, or of its metadata if there is no response.

        `taken`: None for a robots.txt capture, which is no row of `pages`. A visit without a change is marked as such
        in `fetched`, and the body is not written.
        """
        if self._unfinished:
            raise RuntimeError("PartWriter.recovered() comes before append()")
        part, limit = self._open, self._config.max_warc_bytes
        if part is None or (part.size >= limit and (self.may_close() or part.size >= 2 * limit)):
            self.close()
            stem = self._directory / f"{self._prefix}-{self._next_number:05d}"
            self._next_number += 1
            part = self._open = self._kind(Part(stem), self._config)
            self._begin_file(part)
        if taken is not None and taken.queued.earlier:
            fetched.revisits = revisited(taken, fetched)
        group = self._encoder.group(fetched, taken)
        offset = part.log.append(group.data)
        position = Position(part.part.warc.name, offset + group.main_offset, group.main_length)
        part.note(taken, fetched, position, group.digest)
        return position

    @property
    def part(self) -> OpenPart:
        """The part for the rows of a page that was appended."""
        if not isinstance(self._open, OpenPart):
            raise RuntimeError("rows come after the append of their page, in a writer with rows")
        return self._open

    def close(self) -> None:
        """Close the open part, so that everything is durable.

        A writer without a record leaves no file. Raises RuntimeError if recovered groups were not asked for before.
        """
        if self._unfinished:
            raise RuntimeError("PartWriter.recovered() comes before close()")
        self.close_part()

    def close_part(self) -> tuple[str, int]:
        """Close the open part; return its name and number of pages.

        The name is "" without a part. `append` begins another one.
        """
        if self._open is None:
            return "", 0
        self.before_close()
        part, self._open = self._open, None
        part.close()
        return part.part.stem.name, part.counts.pages

    def _begin_file(self, part: OpenPart | RowlessPart) -> None:
        if part.log.size == 0:
            part.log.append(self._encoder.warcinfo(part.part.warc.name, self._info, self._clock()))
            part.counts.warcinfo_id = self._encoder.file_id
