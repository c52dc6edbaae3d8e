"""Progress of a node's task: handed to the caller about once a second, and left in a file for `krake status`."""

import json
import os
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from crawl_lib.frontier import NodeDirectory
from crawl_lib.states import WITH_RESPONSE
from crawl_lib.stopping import OnProgress

INTERVAL_S = 1.0


class NodeProgress:
    """What one node is at.

    Reports `node`, `phase` (waiting, intake, fetch, commit, paused, failed, done), `reason` (why it pauses or failed),
    `taken` and `fetched` (URLs), `errors` (URLs without a response), `pages_per_s` (since the fetching began) and
    `queue` (URLs). The file is no durable state: nothing but `krake status` reads it.
    """

    def __init__(self, node: str, directory: Path, on_progress: OnProgress | None) -> None:
        self._path = NodeDirectory(directory).progress
        self._on_progress = on_progress
        self._last_s = float("-inf")
        self._started_s = time.monotonic()
        self._now: dict[str, Any] = {
            "node": node, "phase": "waiting", "taken": 0, "fetched": 0, "errors": 0, "pages_per_s": 0.0, "queue": 0,
        }  # fmt: skip

    def enter(self, phase: str, reason: str = "", **facts: int) -> None:
        """Begin a phase; always reported. `reason`: why it pauses or failed, in one sentence."""
        self._now.pop("reason", None)
        self._now.update(facts, phase=phase, **({"reason": reason} if reason else {}))
        if phase not in {"paused", "failed"}:
            self._started_s = time.monotonic()
        with suppress(OSError) if phase == "failed" else nullcontext():  # the disk may be what is full
            self._report()

    def waiting(self, holder: str) -> None:
        """Say who holds the node, once a second; the file is left to the holder."""
        self._now["phase"] = f"waiting for {holder}"
        if time.monotonic() - self._last_s >= INTERVAL_S:
            self._tell()

    def fetched(self, workers: list[Mapping[str, Any]]) -> None:
        """The newest lines of all workers; reported once a second."""
        if time.monotonic() - self._last_s < INTERVAL_S:
            return
        outcomes: Counter[str] = Counter()
        for worker in workers:
            outcomes.update(worker.get("outcomes", {}))
        total = sum(outcomes.values())
        answered = sum(number for outcome, number in outcomes.items() if outcome in WITH_RESPONSE)
        elapsed_s = time.monotonic() - self._started_s
        rate = round(total / elapsed_s, 1) if elapsed_s > 0 else 0.0
        self._now.update(fetched=total, errors=total - answered, pages_per_s=rate)
        self._report()

    def _report(self) -> None:
        written = self._path.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps({**self._now, "time": time.time()}))
        written.replace(self._path)
        self._tell()

    def _tell(self) -> None:
        self._last_s = time.monotonic()
        if self._on_progress is not None:
            self._on_progress(dict(self._now))
