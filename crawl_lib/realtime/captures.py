"""Full captures in segments: a visit again refers to the last full capture of its page, as a crawl's visit does.

A document says where its capture lies in the fetcher's spool. `collect` keeps the names of WARC files, so the segment
that has the file of that name, in one of the first folders after the capture, has the capture. Until then a visit has
conditions only, and refers to nothing.
"""

import logging
import threading
import time
from collections.abc import Callable

from crawl_lib.crawldir import Kind
from crawl_lib.errors import KrakeError
from crawl_lib.realtime.documents import Document
from crawl_lib.records import Earlier
from crawl_lib.segment import SegmentReader
from crawl_lib.stores import Stores

MOST_FOLDERS = 16
"""Folders after a capture in which its file is looked for: each fetcher has a folder an hour."""
MOST_FILES = 20_000
"""The most names of files in memory."""
KEEP_S = 3600.0
"""The files of segments are looked up again after so long: `krake segment compact` may have changed segments."""
PAUSE_S = 30.0
"""After a file that is in no segment, no folder is looked at for so long."""
log = logging.getLogger(__name__)


class NewestCaptures:
    """Finds captures; any thread may ask."""

    def __init__(self, stores: Stores, clock: Callable[[], float] = time.monotonic) -> None:
        self._stores, self._clock = stores, clock
        self._segments: dict[str, str] = {}
        self._next_look_s = self._until_s = 0.0
        self._lock = threading.Lock()

    def earlier(self, document: Document) -> str:
        """Return the capture of a document, as `QueuedUrl.earlier`.

        "": the capture is in no segment.
        """
        place, captured_ms = document.warc, document.captured_ms
        if place is None or captured_ms is None:
            return ""
        with self._lock:
            segment = self._segment_of(place.warc, captured_ms // 1000)
        if not segment:
            return ""
        digest = "" if document.truncated else document.digest or ""
        validators = document.etag, document.last_modified
        return Earlier(
            segment, place.warc, place.offset, captured_ms / 1000, digest, *validators
        ).to_text()

    def _segment_of(self, file: str, since_s: int) -> str:
        if self._clock() >= self._until_s:
            self._segments, self._until_s = {}, self._clock() + KEEP_S
        if file not in self._segments and self._clock() >= self._next_look_s:
            try:
                self._look(since_s)
            except KrakeError as error:
                log.warning("captures in segments cannot be looked up: %s", error)
            if file not in self._segments:
                self._next_look_s = self._clock() + PAUSE_S
        return self._segments.get(file, "")

    def _look(self, since_s: int) -> None:
        """Note the first folders' files since a time, in POSIX seconds."""
        crawl = self._stores.crawl
        for folder in [name for name in crawl.folders() if int(name) >= since_s][:MOST_FOLDERS]:
            if crawl.iteration(folder).kind != Kind.LIVE:
                continue
            for node in crawl.folder(folder).segments():
                reader = SegmentReader(self._stores.storage, crawl.segment(folder, node).path)
                if (
                    len(reader.manifest.history) == 1
                ):  # `compact` and repairs give records new places
                    self._segments |= dict.fromkeys(reader.warc_files, f"{folder}/{node}")
        while len(self._segments) > MOST_FILES:
            del self._segments[next(iter(self._segments))]
