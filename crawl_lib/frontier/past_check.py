"""Which of the lines that other nodes handed on have their way past the key check.

They have it because their keys are in already, and nothing but the line has their URL. That is not so of a URL that
waits in this queue: it came by two ways, such as from a queue that was divided anew and once more when the node was
retired as lost. Such a line is dropped.

A node that takes in everything anew (`take_in_anew`, a queue that was lost) looks for URLs that nothing holds any more.
Whole queues that it once got from others would be queued again, most of it fetched long ago. So of sources that it has
taken in before (`Record.again`) a line is dropped, too, if its page was crawled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from hashlib import sha1
from typing import TYPE_CHECKING

from crawl_lib.frontier.directory import NodeDirectory
from crawl_lib.frontier.outlinks import HANDED_ON_MARK, key_of_line, some_lines
from crawl_lib.frontier.queue import Queue, QueueReader
from crawl_lib.frontier.source import Source, file_lines
from crawl_lib.keys import KeyStore
from crawl_lib.states import KeyState

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

DROPPED = b""
"""Stands for a line that is dropped: an intake counts the lines of its sources, to go on where it was killed."""
_CHUNK = 50_000


class PastCheck:
    """The sources of one intake. `queue`: ours, without an open move or take."""

    def __init__(self, queue: Queue, keys: KeyStore) -> None:
        self._queue, self._keys = queue, keys
        self._read_before = queue.record().again
        self._here: npt.NDArray[np.bytes_] | None = None
        self._passed: set[bytes] = set()

    def of(self, source: Source) -> Source:
        """The source, with `DROPPED` in place of some lines handed on.

        Reading one that was taken in before raises KeyServerDownError too: no server, no decision.
        """
        return replace(source, open=lambda: self._lines(source))

    def _lines(self, source: Source) -> Iterator[bytes]:
        read_before = (source.folder, source.node) in self._read_before
        lines = source.open()
        try:
            for some in some_lines(lines, _CHUNK):
                handed = {line: key_of_line(line) for line in some if HANDED_ON_MARK in line}
                yield from self._chosen(some, handed, read_before=read_before) if handed else some
        finally:
            if hasattr(lines, "close"):
                lines.close()

    def _chosen(self, some: list[bytes], handed: dict[bytes, bytes], *, read_before: bool) -> Iterator[bytes]:
        keys = set(handed.values())
        wanted = self._not_here(self._not_crawled(keys) if read_before else keys)
        for line in some:
            key = handed.get(line)
            if key is None or key in wanted:
                wanted.discard(key or b"")
                yield line
            else:
                yield DROPPED

    def _not_crawled(self, keys: Collection[bytes]) -> list[bytes]:
        states = self._keys.states(list(keys))
        return [key for key, state in states.items() if state is None or state is KeyState.QUEUED]

    def _not_here(self, keys: Collection[bytes]) -> set[bytes]:
        """Those whose URLs do not wait in this queue; each once in an intake."""
        if not keys:
            return set()
        import numpy as np  # noqa: PLC0415 - fetching processes import this package, and have no use for it

        if self._here is None:
            here = bytearray()
            for key in self._keys_here():
                here += key
            self._here = np.unique(np.frombuffer(here, "S20"))
        asked = list(keys)
        there: list[bool] = np.isin(np.array(asked, "S20"), self._here).tolist()
        found = {key for key, is_there in zip(asked, there, strict=True) if not is_there} - self._passed
        self._passed |= found
        return found

    def _keys_here(self) -> Iterator[bytes]:
        """Keys of all that waits in this queue, that this intake has taken already, and that leaves with a segment.

        Not of candidates: whoever was killed before the journal spoke of them reads them again.
        """
        for url, _ in QueueReader(self._queue, self._queue.state()).lines():
            yield sha1(url).digest()
        for name in (NodeDirectory.new, NodeDirectory.handed_on):
            for line in file_lines(self._queue.directory / name):
                yield key_of_line(line)
