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
    """The progress of one node.

    Reports `node`, `phase` (waiting, intake, fetch, commit, paused, failed, done), `reason` (of a pause or failure),
    `taken` and `fetched` (URLs), `errors` (URLs without a response), `bytes` (of answers, as they came), `pages_per_s`
    (since the fetching began) and `queue` (URLs). `fetched` includes the fetches of earlier attempts; rate and bytes do
    not. The file is no durable state: only `krake status` reads the file.
    """

    def __init__(self, node: str, directory: Path, on_progress: OnProgress | None) -> None:
        self._path = NodeDirectory(directory).progress
        self._on_progress = on_progress
        self._last_s = float("-inf")
        self._started_s = time.monotonic()
        self._now: dict[str, Any] = {
            "node": node, "phase": "waiting", "taken": 0, "fetched": 0, "errors": 0, "bytes": 0, "pages_per_s": 0.0,
            "queue": 0,
        }  # fmt: skip

    def enter(self, phase: str, reason: str = "", **facts: int) -> None:
        """Begin a phase, and always report the phase.

        `reason`: of a pause or failure, in one sentence.
        """
        self._now.pop("reason", None)
        self._now.update(facts, phase=phase, **({"reason": reason} if reason else {}))
        if phase not in {"paused", "failed"}:
            self._started_s = time.monotonic()
        with (
            suppress(OSError) if phase == "failed" else nullcontext()
        ):  # the full disk may be this disk
            self._report()

    def waiting(self, holder: str) -> None:
        """Report once a second who holds the node.

        The file is left to the holder.
        """
        self._now["phase"] = f"waiting for {holder}"
        if time.monotonic() - self._last_s >= INTERVAL_S:
            self._tell()

    def fetched(self, workers: list[Mapping[str, Any]]) -> None:
        """Count all workers' newest lines, and report once a second.

        Reports begin once each worker has sent a line. The next phase reports the last counts.
        """
        if not all(workers):
            return
        outcomes: Counter[str] = Counter()
        for worker in workers:
            outcomes.update(worker["outcomes"])
        elapsed_s = time.monotonic() - self._started_s
        new = outcomes.total() - sum(worker["kept"] for worker in workers)
        rate = round(new / elapsed_s, 1) if elapsed_s > 0 else 0.0
        self._now.update(
            _counts(outcomes), bytes=sum(worker["bytes"] for worker in workers), pages_per_s=rate
        )
        if time.monotonic() - self._last_s >= INTERVAL_S:
            self._report()

    def begin_fetch(self, kept: Counter[str], *, taken: int, queue: int) -> None:
        """Begin to fetch a take. `kept`: fetches of earlier attempts, by outcome."""
        self._now.update(_counts(kept), bytes=0)
        self.enter("fetch", taken=taken, queue=queue)

    def _report(self) -> None:
        written = self._path.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps({**self._now, "time": time.time()}))
        written.replace(self._path)
        self._tell()

    def _tell(self) -> None:
        self._last_s = time.monotonic()
        if self._on_progress is not None:
            self._on_progress(dict(self._now))


def _counts(outcomes: Counter[str]) -> dict[str, int]:
    answered = sum(number for outcome, number in outcomes.items() if outcome in WITH_RESPONSE)
    return {"fetched": outcomes.total(), "errors": outcomes.total() - answered}
