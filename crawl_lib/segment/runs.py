"""Sorted runs of lines: how the CDXJ index and the outlinks are sorted in bounded memory.

A run is a file of lines in ascending byte order. Runs are merged by `heapq.merge`, one line of each in memory.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

from crawl_lib.durable import fsync_file
from crawl_lib.errors import os_errors


def write_run(path: Path, lines: Iterable[str]) -> None:
    """Sort lines (without newlines in them) and write them, durably. Raises StorageError naming the file."""
    data = sorted(line.encode("utf-8", "replace") for line in lines)
    with os_errors(path, "cannot be written"), path.open("wb") as file:
        if data:
            file.write(b"\n".join(data))
            file.write(b"\n")
        fsync_file(file)


def merge_runs(paths: Iterable[Path]) -> Iterator[bytes]:
    """All lines of all runs, in ascending order, each with its newline. Raises StorageError naming the file."""
    with ExitStack() as stack:
        with os_errors("runs"):
            files = [stack.enter_context(path.open("rb")) for path in paths]
        yield from files[0] if len(files) == 1 else heapq.merge(*files)


class RunWriter:
    """Collects lines and writes a run whenever `limit` of them are there. `stem`: path of the runs without number."""

    def __init__(self, stem: Path, limit: int) -> None:
        self._stem, self._limit = stem, limit
        self._lines: list[str] = []
        self.paths: list[Path] = []

    def add(self, line: str) -> None:
        """One line, without a newline."""
        self._lines.append(line)
        if len(self._lines) >= self._limit:
            self.flush()

    def flush(self) -> None:
        """Write the lines that are left, if any."""
        if self._lines:
            path = self._stem.with_name(f"{self._stem.name}.{len(self.paths):05d}")
            write_run(path, self._lines)
            self.paths.append(path)
            self._lines = []
