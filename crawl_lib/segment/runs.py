"""Sorted runs of lines: how the CDXJ index and the outlinks are sorted in bounded memory.

A run is a file of lines in ascending byte order. Runs are merged by `heapq.merge`, one line of each in memory.

A segment hands on each URL once, at the first place where it was found in batch order, then link order. Pages are
fetched in any order by several processes; so that the file does not depend on it, each worker keeps the first place of
a URL it knows of (`OutlinkRuns`, bounded), and `merge_outlinks` finds the first of all: the runs are merged by URL, the
first place of each is kept, and these are sorted by owner and place, in bounded memory.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

from crawl_lib.durable import fsync_file
from crawl_lib.errors import os_errors
from crawl_lib.urlfiles import OutlinkWriter


def merge_runs(paths: Iterable[Path]) -> Iterator[bytes]:
    """Merge runs into one ascending sequence of lines.

    Each line keeps its newline. Raises StorageError naming the file.
    """
    with ExitStack() as stack:
        with os_errors("runs"):
            files = [stack.enter_context(path.open("rb")) for path in paths]
        yield from files[0] if len(files) == 1 else heapq.merge(*files)


RUNS_AT_ONCE = 200
"""The number of runs that are open at once: a process may have 1,024 files."""


def merge_many(runs: Sequence[Path], room: Path) -> Iterator[bytes]:
    """Merge any number of runs, in several passes if necessary.

    `room`: a folder for larger runs; a run in that folder is deleted once it was merged.
    """
    rest = list(runs)
    while len(rest) > RUNS_AT_ONCE:
        few, larger = rest[:RUNS_AT_ONCE], room / f"merge-{runs[0].name}.{len(rest):07d}"
        with os_errors(larger, "cannot be written"), larger.open("wb") as file:
            file.writelines(merge_runs(few))
        for path in few:
            if path.parent == room:
                path.unlink()
        rest = [*rest[RUNS_AT_ONCE:], larger]
    return merge_runs(rest)


RUN_BYTES = 48 << 20
"""Memory for the lines of one run."""
_LINE_BYTES, _FOUND_BYTES = 50, 300
"""Memory of a line besides its text, and of a found URL besides its texts."""
_BLOCK_LINES = 4096


class _Runs:
    """Runs on the disk. `stem`: their path without number."""

    def __init__(self, stem: Path) -> None:
        self._stem = stem
        self._bytes = 0
        self.paths: list[Path] = []

    def merged(self, room: Path) -> Iterator[bytes]:
        """Merge the runs, as `merge_many` does."""
        return merge_many(self.paths, room)

    def _write(self, lines: list[bytes]) -> None:
        """Sort lines and write them durably as a run.

        Lines have no newlines in them. No lines make no run. Raises StorageError.
        """
        self._bytes = 0
        if lines:
            lines.sort()
            path = self._stem.with_name(f"{self._stem.name}.{len(self.paths):05d}")
            with os_errors(path, "cannot be written"), path.open("wb") as file:
                for start in range(0, len(lines), _BLOCK_LINES):
                    file.write(b"\n".join(lines[start : start + _BLOCK_LINES]) + b"\n")
                fsync_file(file)
            self.paths.append(path)


class RunWriter(_Runs):
    """Collects lines and writes a run whenever `limit` of them are there, or `RUN_BYTES` of memory are used up."""

    def __init__(self, stem: Path, limit: int) -> None:
        super().__init__(stem)
        self._limit = limit
        self._lines: list[bytes] = []

    def add(self, line: str | bytes) -> None:
        """Add one line, without a newline."""
        data = line if isinstance(line, bytes) else line.encode("utf-8", "replace")
        self._lines.append(data)
        self._bytes += _LINE_BYTES + len(data)
        if len(self._lines) >= self._limit or self._bytes >= RUN_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the lines that are left, if any."""
        lines, self._lines = self._lines, []
        self._write(lines)


RUN_URLS = 200_000
OWNER_DIGITS, POSITION_DIGITS, INDEX_DIGITS = 5, 10, 9
PLACE_LENGTH = POSITION_DIGITS + INDEX_DIGITS + 1  # "position \t index"


class OutlinkRuns(_Runs):
    """The URLs one part found; a run whenever `limit` of them are there, or `RUN_BYTES` of memory are used up.

    A line of a run is `url \\t position \\t index \\t owner \\t rest of the line`."""

    def __init__(self, stem: Path, limit: int = RUN_URLS) -> None:
        super().__init__(stem)
        self._limit = limit
        self._found: dict[str, str] = {}

    def add(
        self,
        owner: int,
        position: int,
        index: int,
        queued: tuple[str, bytes | None, int, int | str, str],
        flags: str = "",
    ) -> None:
        """Add a place of a URL; the first place counts.

        `owner`: index of its node. `position`: of the page in its batch, from 1; 0: handed on past the key check.
        `index`: the link's place on the page. `queued`: URL, via, depth and redirects of a line (of a requisite with
        its steps, `hops_text`), and its end.
        """
        url, via, depth, redirects, metadata = queued
        line = (
            f"{position:010d}\t{index:09d}\t{owner:05d}\t{via.hex() if via else ''}\t{depth}\t{redirects}"
            f"\t{flags}\t{metadata}"
        )
        before = self._found.get(url)
        if before is None or line < before:
            self._found[url] = line
            if before is None:
                self._bytes += _FOUND_BYTES + len(url) + len(line)
                if len(self._found) >= self._limit or self._bytes >= RUN_BYTES:
                    self.flush()

    def flush(self) -> None:
        """Write the URLs that are held, if any."""
        lines, found = [], self._found
        while found:  # each is freed as its line is made
            url, line = found.popitem()
            lines.append(f"{url}\t{line}".encode("utf-8", "replace"))
        self._write(lines)


def merge_outlinks(
    file: BinaryIO, runs: Sequence[Path], nodes: Sequence[str], scratch: Path
) -> OutlinkWriter:
    """Write the file `outlinks` of all runs.

    `nodes`: the owners, by index. `scratch`: a folder for runs in between. An owner to whom nothing goes has no part.
    """
    places = RunWriter(scratch / "outlinks-by-place", RUN_URLS)
    for line in _first_places(runs, scratch):
        places.add(line)
    places.flush()
    writer = OutlinkWriter(file)
    for owner, lines in groupby(places.merged(scratch), key=lambda line: line[:OWNER_DIGITS]):
        writer.add_part(
            nodes[int(owner)], (line[OWNER_DIGITS + PLACE_LENGTH + 2 : -1] for line in lines)
        )
    return writer


def _first_places(runs: Sequence[Path], scratch: Path) -> Iterator[bytes]:
    """Yield the first place of each URL as a line.

    The line is `owner \\t position \\t index \\t` and the outlink line.
    """
    previous = b""
    for line in merge_many(runs, scratch):
        url, _, rest = line[:-1].partition(b"\t")
        if url == previous:
            continue
        previous = url
        place, owner = rest[:PLACE_LENGTH], rest[PLACE_LENGTH + 1 : PLACE_LENGTH + 1 + OWNER_DIGITS]
        fields = rest[PLACE_LENGTH + OWNER_DIGITS + 2 :]
        yield b"\t".join((owner, place, url, fields))
