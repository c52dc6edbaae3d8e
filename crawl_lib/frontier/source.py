"""Where the URLs of an intake come from, and a reader of several such sources that knows its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from crawl_lib.frontier.outlinks import encode_line, read_outlinks
from crawl_lib.records import QueuedUrl


@dataclass(frozen=True)
class Source:
    """Where URLs for this node come from: the part of one segment (or of injected seeds).

    `open` streams outlink lines (bytes without newline), always the same ones; see `part_source`, `lines_of`.
    `nodes`: among which its lines were divided; none: among those by which the queue was filled.
    """

    folder: str
    node: str
    open: Callable[[], Iterator[bytes]]
    nodes: tuple[str, ...] = ()


def part_source(
    folder: str,
    node: str,
    open_part: Callable[[], BinaryIO],
    count: int | None = None,
    nodes: tuple[str, ...] = (),
) -> Source:
    """A source that reads one part of an `outlinks` file.

    `open_part`: opens a stream of just that part's bytes. `count`: lines in it, as its manifest says. `nodes`: see
    `Source`.
    """
    return Source(folder, node, lambda: read_outlinks(open_part(), f"outlinks of {folder}/{node}", count), nodes)


def lines_of(urls: Iterable[QueuedUrl], flags: str = "") -> Iterator[bytes]:
    """Outlink lines of URLs, for a source that is made in memory."""
    return (encode_line(queued, flags) for queued in urls)


class SourceLines:
    """The lines of all sources of a plan, in order, from a place on; knows the place.

    `plan`: names (folder, node) of `sources`. `at`, `line`: the source, and its line, that comes next.
    """

    def __init__(
        self, plan: Sequence[tuple[str, str]], sources: dict[tuple[str, str], Source], at: int, line: int
    ) -> None:
        self._plan, self._sources = plan, sources
        self.at, self.line = at, line
        self._open: Iterator[bytes] | None = None

    def take(self, count: int) -> list[bytes]:
        """The next lines, fewer only at the very end."""
        lines: list[bytes] = []
        while len(lines) < count and self.at < len(self._plan):
            if self._open is None:
                self._open = self._sources[self._plan[self.at]].open()
                next(islice(self._open, self.line, self.line), None)
            wanted = count - len(lines)
            some = list(islice(self._open, wanted))
            lines += some
            self.line += len(some)
            if len(some) < wanted:
                self.close()
                self.at, self.line = self.at + 1, 0
        return lines

    def close(self) -> None:
        """Close the source that is open."""
        closer = getattr(self._open, "close", None)
        if closer:
            closer()
        self._open = None


def file_lines(path: Path, offset: int = 0) -> Iterator[bytes]:
    """Stream the lines of a local file, from a byte on."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            for line in file:
                yield line.rstrip(b"\n")
    except FileNotFoundError:
        return
