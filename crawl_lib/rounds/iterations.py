"""The iterations of a crawl for people: the one reader of `krake status`, of the report and of pages.

An iteration that is complete does not change unless somebody repairs the iteration or drops pages of it. So each
complete iteration is read once and kept, and asked for signs of a change at most once in `ASK_AGAIN_S` seconds.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from crawl_lib.crawldir import FileName, FolderState
from crawl_lib.errors import KrakeError
from crawl_lib.rounds.commit import budgets_reached, few_answers
from crawl_lib.rounds.shown import IterationStatus
from crawl_lib.segment import SegmentReader
from crawl_lib.stores import Stores

ASK_AGAIN_S = 60.0


@dataclass(frozen=True)
class Span:
    """When an iteration fetched: from the first begin of a node to the last end. `seconds`: at least a millisecond."""

    begun: datetime
    seconds: float


@dataclass
class _KeptIteration:
    """A complete iteration. `mark`: differs after a change; `asked_s`: when the mark was looked at."""

    mark: tuple[str | None, bool]
    asked_s: float
    entry: IterationStatus
    span: Span | None = None
    size_bytes: int | None = None


class Iterations:
    """Reads the iterations of one crawl, and keeps complete ones. One object is used by one thread at a time.

    `clock`: a monotonic clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[str, _KeptIteration] = {}
        self.unread = 0
        """The number of iterations that the last look left out."""

    def entries(self, stores: Stores, *, read_s: float = math.inf) -> list[IterationStatus]:
        """Return the entries of `krake status --json`'s `iterations`.

        Without sizes, the oldest first.

        `read_s`: read no further iteration after so many seconds. Iterations are read from the newest to the oldest;
        `unread` iterations are left out. An iteration that cannot be read has an `error`. Raises StorageError if the
        crawl directory cannot be listed.
        """
        until_s, found = self._clock() + read_s, list[IterationStatus]()
        folders = stores.crawl.folders()
        self._kept = {folder: self._kept[folder] for folder in folders if folder in self._kept}
        for folder in stores.until_stopped(reversed(folders)):
            kept = self._kept.get(folder)
            if not found or self._clock() < until_s:
                found.append(self._entry(stores, folder))
            elif kept:
                found.append(kept.entry)
        self.unread = len(folders) - len(found)
        return found[::-1]

    def with_bytes(self, stores: Stores, entry: IterationStatus) -> IterationStatus:
        """Add the `bytes` of its segments to an entry.

        Each segment is listed for this.
        """
        kept = self._kept.get(entry["folder"])
        try:
            size_bytes = kept.size_bytes if kept else None
            if size_bytes is None:
                paths = [
                    stores.crawl.segment(entry["folder"], node).path
                    for node in entry.get("segments", ())
                ]
                size_bytes = sum(
                    file.size_bytes for path in paths for file in stores.storage.list(path)
                )
        except KrakeError as error:
            return {**entry, "error": str(error)}
        if kept:
            kept.size_bytes = size_bytes
        return {**entry, "bytes": size_bytes}

    def span(self, stores: Stores, entry: IterationStatus) -> Span | None:
        """Return when an iteration fetched, or None.

        By the manifests of its segments; None: there is no segment. Raises StorageError or DamagedFileError naming a
        manifest.
        """
        kept = self._kept.get(entry["folder"])
        if kept and kept.span:
            return kept.span
        manifests = [
            stores.crawl.segment(entry["folder"], node).manifest()
            for node in entry.get("segments", ())
        ]
        if not manifests:
            return None
        begun, ended = (
            [datetime.fromisoformat(one[name]) for one in manifests]
            for name in ("started", "finished")
        )
        span = Span(min(begun), max(0.001, (max(ended) - min(begun)).total_seconds()))
        if kept:
            kept.span = span
        return span

    def _entry(self, stores: Stores, folder: str) -> IterationStatus:
        kept, now_s = self._kept.get(folder), self._clock()
        if kept and now_s - kept.asked_s < ASK_AGAIN_S:
            return kept.entry
        try:
            mark = _mark(
                stores, folder
            )  # before anything is read: a change meanwhile is found at the next look
            if kept and kept.mark == mark:
                kept.asked_s = now_s
                return kept.entry
            entry = _read(stores, folder, has_dropped=mark[1])
        except KrakeError as error:
            self._kept.pop(folder, None)
            return {"folder": folder, "error": str(error)}
        if entry["complete"] and "dropped" not in entry:
            self._kept[folder] = _KeptIteration(mark, now_s, entry)
        else:
            self._kept.pop(folder, None)
        return entry


def _mark(stores: Stores, folder: str) -> tuple[str | None, bool]:
    """Return a mark that repairs and dropped pages change.

    Raises StorageError.
    """
    where = stores.crawl.folder(folder)
    return stores.storage.stamp(where.at(FileName.INDEX)), stores.storage.exists(
        where.at(FileName.DROPPED)
    )


def _read(stores: Stores, folder: str, *, has_dropped: bool) -> IterationStatus:
    """Read an iteration.

    `has_dropped`: somebody dropped pages of it. Raises StorageError or DamagedFileError.
    """
    state = FolderState.read(stores.crawl, folder)
    iteration, dropped = state.folder.iteration(), 0
    if has_dropped:  # these pages are still in the files, and in `counts`
        dropped = sum(
            len(SegmentReader(stores.storage, state.folder.at(node)).dropped)
            for node in state.present
        )
    entry: IterationStatus = {
        "folder": folder,
        "run_id": iteration.run_id,
        "iteration": iteration.iteration,
        "segments": state.present,
        "missing": [node for node in iteration.nodes if node not in state.present],
        "committed": state.index is not None,
        "late": state.awaited,
        "complete": state.is_complete,
        "counts": {**state.counts, "urls": state.urls},
    }
    if dropped:
        entry["dropped"] = dropped
    if warning := few_answers(stores, state):
        entry["warning"] = warning
    if budgets := budgets_reached(stores, state):
        entry["budgets"] = budgets
    return entry
