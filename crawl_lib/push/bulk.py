"""Batches of documents: sent by `_bulk`, with a look at each item of the answer, and with bounded repeats."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from crawl_lib.errors import SearchServerError
from crawl_lib.push.cluster import (
    MAX_REASON_CHARS,
    OVERLOADED,
    Cluster,
    OpenSearchAnswer,
    Patience,
    error_of,
)
from crawl_lib.push.documents import Document

MAX_ROWS = 500
MAX_PROBLEMS = 5
"""Refused pages in a message."""
TOO_LARGE, NEWER, MISSING = 413, 409, 404
_SHOWN = "filter_path=errors,items.*._id,items.*.status,items.*.error.type,items.*.error.reason"
_NO_INDEX = "index_not_found_exception"
log = logging.getLogger(__name__)


class TargetGoneError(SearchServerError):
    """The index for the pages is gone, or another push has taken the index over."""


@dataclass
class PushCounts:
    """Counts of a push. `newer`: pages with a newer version in OpenSearch."""

    sent: int = 0
    deleted: int = 0
    newer: int = 0
    refused: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class _Item:
    """A page on the way to OpenSearch."""

    key: str
    is_delete: bool
    lines: bytes


@dataclass
class Bulk:
    """Sends pages to an alias, in batches of `push.batch_bytes` and `MAX_ROWS` at most.

    `made_ms`: the version of all documents. The server keeps a document with a higher version. `shards_s`: how long the
    server waits for a missing shard, less than the client waits for the server. `problems`: reasons for
    the first `MAX_PROBLEMS` refused pages.
    """

    cluster: Cluster
    alias: str
    made_ms: int
    batch_bytes: int
    shards_s: int
    counts: PushCounts = field(default_factory=PushCounts)
    problems: list[str] = field(default_factory=list)
    _waiting: list[_Item] = field(default_factory=list)
    _waiting_bytes: int = 0

    def add(self, key: bytes, document: Document | None) -> None:
        """Send a page with the next batch; None deletes the page.

        Raises as `flush` does.
        """
        item = self._item(key.hex(), document)
        if self._waiting and self._waiting_bytes + len(item.lines) > self.batch_bytes:
            self.flush()
        self._waiting.append(item)
        self._waiting_bytes += len(item.lines)
        if len(self._waiting) >= MAX_ROWS:
            self.flush()

    def flush(self) -> None:
        """Send the waiting pages. Raises TargetGoneError, SearchServerError, StoppedError."""
        if self._waiting:
            self._send(self._waiting, self.cluster.patience())
        self._waiting, self._waiting_bytes = [], 0

    def _item(self, key: str, document: Document | None) -> _Item:
        action = "delete" if document is None else "index"
        lines: list[Any] = [
            {action: {"_id": key, "version": self.made_ms, "version_type": "external_gte"}}
        ]
        lines += [] if document is None else [document]
        text = "".join(
            f"{json.dumps(line, ensure_ascii=False, separators=(',', ':'))}\n" for line in lines
        )
        return _Item(key, document is None, text.encode())

    def _send(self, items: Sequence[_Item], patience: Patience) -> None:
        """Send items until the server has taken or refused every item."""
        while items:
            data = b"".join(item.lines for item in items)
            path = f"/{self.alias}/_bulk?require_alias=true&timeout={self.shards_s}s&{_SHOWN}"
            answer = self.cluster.ask(
                "POST", path, lines=data, accept=(TOO_LARGE,), patience=patience
            )
            if answer.status == TOO_LARGE:
                self._send_halves(items, patience)
                return
            self.counts.bytes += len(data)
            items, problem = self._looked_at(items, answer)
            if items and not patience.wait(
                f"{self.cluster.url} refuses {len(items)} pages for now: {problem}"
            ):
                raise SearchServerError(
                    f"{self.cluster.url}: refuses {len(items)} pages for longer than push.wait_s: {problem}"
                )

    def _send_halves(self, items: Sequence[_Item], patience: Patience) -> None:
        middle = len(items) // 2
        if not middle:
            self._refuse(
                items[0], f"{len(items[0].lines)} bytes are more than the server takes (413)"
            )
            return
        log.warning(
            "%s takes no batch of %d pages (413); sending halves", self.cluster.url, len(items)
        )
        self._send(items[:middle], patience)
        self._send(items[middle:], patience)

    def _looked_at(
        self, items: Sequence[_Item], answer: OpenSearchAnswer
    ) -> tuple[list[_Item], str]:
        """Count the server's results; return items to send again.

        The last reason comes with them.
        """
        again, last = [], ""
        for item, (status, kind, reason) in zip(
            items, self._results(answer, len(items)), strict=True
        ):
            problem = f"{kind}: {reason}"[:MAX_REASON_CHARS]
            if kind == _NO_INDEX:
                raise TargetGoneError(
                    f"{self.cluster.url}: {self.alias}: is gone; run the push again"
                )
            if status in OVERLOADED:
                again.append(item)
                last = problem
            else:
                self._count(item, status, problem)
        return again, last

    def _results(self, answer: OpenSearchAnswer, count: int) -> list[tuple[int, str, str]]:
        """Return status, type and reason for each page of a batch."""
        try:
            results = [next(iter(item.values())) for item in answer.body["items"]]
            found = [(int(result["status"]), *error_of(result)) for result in results]
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, StopIteration):
            found = []
        if len(found) != count:
            raise SearchServerError(
                f"{self.cluster.url}: an answer to _bulk does not name each page"
            )
        return found

    def _count(self, item: _Item, status: int, problem: str) -> None:
        if status == NEWER:
            self.counts.newer += 1
        elif 200 <= status < 300:
            self.counts.deleted += item.is_delete
            self.counts.sent += not item.is_delete
        elif not (item.is_delete and status == MISSING):
            self._refuse(item, problem)

    def _refuse(self, item: _Item, problem: str) -> None:
        self.counts.refused += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(f"{item.key}: {problem}")
            log.warning("OpenSearch refuses the page %s: %s", item.key, problem)
