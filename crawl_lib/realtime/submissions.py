"""The log of submissions: who submitted which URL, what was decided, and how long the answer took.

Submissions wait in bounded memory. Each second the service appends the waiting ones to a file, a JSON array a line. A
kill loses the last second. A file is closed, by another name, with the fetcher's parts; `collect` then makes
`submissions.parquet` of all closed files, in the segment of the parts.
"""

import errno
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from io import FileIO
from itertools import islice
from pathlib import Path
from secrets import token_hex
from threading import Lock
from typing import NamedTuple

import msgspec
import pyarrow as pa

from crawl_lib.durable import fsync_dir
from crawl_lib.errors import os_errors
from crawl_lib.segment import SUBMISSIONS_SCHEMA, write_parquet
from crawl_lib.urls import budget_domain_of

MOST = 50_000
"""The most submissions in memory; more of a second are counted, and left out."""
FLUSH_S = 1.0
FILE_S = 300.0
"""Seconds after which a file is closed, ready for `collect`."""
OPEN_SUFFIX, CLOSED_SUFFIX = ".open", ".jsonl"
_GROUP = 50_000


class SubmissionLine(NamedTuple):
    """A submission, as a line of the log has it. `key`: in hex; `token`: its name; `answer_ms`: until the answer."""

    time_ms: int
    key: str | None
    host: str
    token: str
    decision: str
    answer_ms: int


_encoder, _decoder = msgspec.json.Encoder(), msgspec.json.Decoder(SubmissionLine)


class SubmissionLog:
    """The log of a service. `folder`: where files are; None keeps nothing. `left_out`: submissions beyond `MOST`.

    `note` belongs to the loop; `flush` may run in other threads.
    """

    def __init__(
        self, folder: Path | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        """Close the files that a killed service left open. Raises OSError."""
        self.left_out = 0
        self.folder, self._clock = folder, clock
        self._waiting: list[SubmissionLine] = []
        self._file: FileIO | None = None
        self._began_s = 0.0
        self._writing, self._turn = Lock(), Lock()
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            for path in folder.glob(f"*{OPEN_SUFFIX}"):
                _close(path)

    def note(self, lines: Iterable[SubmissionLine]) -> None:
        """Keep submissions for the next second."""
        if self.folder is None:
            return
        with self._turn:
            before = len(self._waiting)
            self._waiting += lines
            if len(self._waiting) > MOST:
                self.left_out += len(self._waiting) - max(before, MOST)
                del self._waiting[max(before, MOST) :]

    def flush(self, *, ends: bool = False) -> None:
        """Write what waits, and close a file that is due.

        A file is due when it is old enough, or at the end of the service. Raises OSError; what waits then waits on.
        """
        with self._writing:
            with self._turn:
                waiting, self._waiting = self._waiting, []
            try:
                if waiting:
                    self._append(_encoder.encode_lines(waiting))
            except OSError:
                with self._turn:
                    self._waiting = waiting + self._waiting
                raise
            if self._file is not None and (ends or self._clock() - self._began_s >= FILE_S):
                self._end()

    def _append(self, data: bytes) -> None:
        """Write lines; those of a failed write are cut off again."""
        if self._file is None:
            assert self.folder is not None
            self._began_s = self._clock()
            name = f"{round(1000 * self._began_s):015d}-{token_hex(4)}{OPEN_SUFFIX}"  # a clock may be set back
            self._file = (self.folder / name).open("ab", buffering=0)
        size = self._file.tell()
        try:
            if self._file.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            self._file.truncate(size)
            raise

    def _end(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with file:
                os.fsync(file.fileno())
            _close(Path(str(file.name)))


def _close(path: Path) -> None:
    path.rename(path.with_suffix(CLOSED_SUFFIX))
    fsync_dir(path.parent)


def closed_logs(folder: Path) -> list[str]:
    """Return the names of closed files, the oldest first.

    There may be no folder.
    """
    return sorted(path.name for path in folder.glob(f"*{CLOSED_SUFFIX}"))


def write_submissions(paths: Iterable[Path], target: Path) -> Counter[str]:
    """Write `submissions.parquet` of closed files.

    Returns `submissions`, and `unreadable` lines, such as torn ones. Raises StorageError.
    """
    counts = Counter[str]()
    with os_errors(target, "cannot be made"):
        write_parquet(target, SUBMISSIONS_SCHEMA, _batches(paths, counts))
    return counts


def _batches(paths: Iterable[Path], counts: Counter[str]) -> Iterator[pa.RecordBatch]:
    lines = _lines(paths, counts)
    while some := [*islice(lines, _GROUP)]:
        counts["submissions"] += len(some)
        yield pa.RecordBatch.from_pylist([_row(line) for line in some], SUBMISSIONS_SCHEMA)


def _lines(paths: Iterable[Path], counts: Counter[str]) -> Iterator[SubmissionLine]:
    for path in paths:
        with path.open("rb") as file:
            for text in file:
                try:
                    line = _decoder.decode(text)
                    bytes.fromhex(line.key or "")
                except ValueError:  # msgspec's errors are such
                    counts["unreadable"] += 1
                else:
                    yield line


def _row(line: SubmissionLine) -> dict[str, int | float | str | bytes | None]:
    return {
        "time": line.time_ms * 1000,
        "key": bytes.fromhex(line.key) if line.key else None,
        "domain": budget_domain_of(line.host) if line.host else None,
        "token": line.token,
        "decision": line.decision,
        "answer_ms": line.answer_ms,
    }
