"""`NodeProgress`: the numbers that people see of a node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crawl_lib.crawldir import NodeProgress


def test_the_next_phase_reports_the_last_counts_of_the_workers(tmp_path: Path) -> None:
    """Workers say their last lines within a second of the lines before, when no report is due."""
    reports: list[Mapping[str, Any]] = []
    progress = NodeProgress("node-a", tmp_path, reports.append)
    progress.begin_fetch(Counter(), taken=9, queue=1)
    for fetched in (3, 9):
        progress.fetched([{"outcomes": {"ok": fetched - 1, "timeout": 1}, "kept": 0, "bytes": 100}])
    assert [report["phase"] for report in reports] == ["fetch"]
    progress.enter("commit")
    assert (reports[-1]["phase"], reports[-1]["fetched"], reports[-1]["errors"]) == ("commit", 9, 1)


def test_no_count_is_reported_before_each_worker_said_one(tmp_path: Path) -> None:
    reports: list[Mapping[str, Any]] = []
    progress = NodeProgress("node-a", tmp_path, reports.append)
    progress.begin_fetch(Counter(ok=2), taken=9, queue=1)
    progress.fetched([{"outcomes": {"ok": 1}, "kept": 1, "bytes": 100}, {}])
    progress.enter("commit")
    assert reports[-1]["fetched"] == 2
