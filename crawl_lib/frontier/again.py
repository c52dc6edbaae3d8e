"""Sources that are read once more: what was handed on in them had its way past the key check the first time.

A node that takes in everything anew (`take_in_anew`, a queue that was lost) looks for URLs that nothing holds any more.
Lines of `outlinks` that are known are dropped, as ever. Handed-on lines would all be queued again: whole queues that
nodes got from others, most of it fetched long ago. So of sources that the node has taken in before (`Record.again`) a
handed-on line is one like others, and is dropped as known, if its page was crawled, or if its URL waits in this queue.
It keeps its way past the check if its key is unknown, or is queued and its URL is not here: then it is what is looked
for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha1
from itertools import islice
from typing import TYPE_CHECKING

from crawl_lib.frontier.journal import CLAIM_FILE, NEW_FILE
from crawl_lib.frontier.outlinks import HANDED_ON_MARK
from crawl_lib.frontier.queue import Queue, QueueReader
from crawl_lib.frontier.source import Source, file_lines
from crawl_lib.frontier.take import HANDED_ON_FILE
from crawl_lib.keys import KeyStore
from crawl_lib.states import KeyState

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_CHUNK = 50_000


class Again:
    """The sources of one intake that are read once more. `queue`: ours, without an open move or take."""

    def __init__(self, queue: Queue, keys: KeyStore) -> None:
        self._queue, self._keys = queue, keys
        self._sources = queue.record().again
        self._here: npt.NDArray[np.bytes_] | None = None
        self._passed: set[bytes] = set()

    def of(self, source: Source) -> Source:
        """The source itself, or, if it is read once more, with fewer lines handed on. Its lines stay as many.

        Reading it raises KeyServerDownError too: no server, no decision.
        """
        if (source.folder, source.node) not in self._sources:
            return source
        return replace(source, open=lambda: self._lines(source))

    def _lines(self, source: Source) -> Iterator[bytes]:
        lines = source.open()
        try:
            while some := list(islice(lines, _CHUNK)):
                handed = {line: sha1(line[: line.find(b"\t")]).digest() for line in some if HANDED_ON_MARK in line}
                wanted = self._wanted(list(handed.values())) if handed else set()
                for line in some:
                    key = handed.get(line)
                    if key is None or key in wanted:
                        wanted.discard(key or b"")
                        yield line
                    else:
                        yield line.replace(HANDED_ON_MARK, b"\t\t", 1)
        finally:
            if hasattr(lines, "close"):
                lines.close()

    def _wanted(self, keys: list[bytes]) -> set[bytes]:
        """Those that are in no queue and in no segment, as far as this node can know; each once."""
        states = self._keys.states(keys)
        open_ = [key for key, state in states.items() if state is None or state is KeyState.QUEUED]
        if not open_:
            return set()
        import numpy as np  # noqa: PLC0415 - fetching processes import this package, and have no use for it

        if self._here is None:
            self._here = np.unique(np.frombuffer(b"".join(self._keys_here()), "S20"))
        there: list[bool] = np.isin(np.array(open_, "S20"), self._here).tolist()
        found = {key for key, is_there in zip(open_, there, strict=True) if not is_there} - self._passed
        self._passed |= found
        return found

    def _keys_here(self) -> Iterator[bytes]:
        """Keys of all that waits in this queue, that this intake has taken already, and that leaves with a segment."""
        for url, _ in QueueReader(self._queue, self._queue.state()).lines():
            yield sha1(url).digest()
        for name in (NEW_FILE, CLAIM_FILE, HANDED_ON_FILE):
            for line in file_lines(self._queue.path(name)):
                yield sha1(line.partition(b"\t")[0]).digest()
