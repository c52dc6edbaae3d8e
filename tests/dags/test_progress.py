"""What the task state store says of a task: a curve of bounded size, and always how the task ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from krake_airflow import operators, progress
from krake_airflow.progress import CURVE_POINTS, KEEP_INTERVAL_S, Curve, KeptProgress
from krake_airflow.watching import Reporter

from crawl_lib import stages
from crawl_lib.errors import ConfigError, StoppedError, StorageError
from crawl_lib.stores import Stores
from tests.dags.crawls import small_config
from tests.dags.test_operators import context, run

LIMIT_BYTES = 8_192
REPORT = {
    "node": "node-0",
    "phase": "intake",
    "taken": 0,
    "fetched": 0,
    "errors": 0,
    "bytes": 0,
    "queue": 7,
}


class KeepingStore:
    """A task state store, and a clock that the test turns."""

    def __init__(self) -> None:
        self.kept: list[dict[str, Any]] = []
        self.now_s = 1e6

    def set(self, key: str, value: dict[str, Any]) -> None:
        assert key == "progress"
        assert len(json.dumps(value, allow_nan=False)) < LIMIT_BYTES
        self.kept.append(json.loads(json.dumps(value)))


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> KeepingStore:
    found = KeepingStore()
    monkeypatch.setattr(progress.time, "monotonic", lambda: found.now_s)
    return found


@pytest.fixture
def config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, path = small_config(tmp_path)
    monkeypatch.setenv("KRAKE_CONFIG_PATH", str(path))


def crawl_that(
    monkeypatch: pytest.MonkeyPatch, store: KeepingStore, end: Exception | dict[str, Any]
) -> None:
    """Run a crawl task that reports once and ends as told."""

    def crawl_node(stores: Stores, **arguments: Any) -> dict[str, Any]:
        assert stores.on_progress is not None
        stores.on_progress(REPORT)
        stores.on_progress({**REPORT, "phase": "fetch", "fetched": 3, "bytes": 99})
        if isinstance(end, Exception):
            raise end
        return end

    monkeypatch.setattr(stages, "crawl_node", crawl_node)
    monkeypatch.setattr(stages, "ended_before", lambda stores, **arguments: "")
    task = operators.CrawlOperator(task_id="crawl", iteration=1, node="node-0")
    run(task, {**context(), "task_state_store": store})


@pytest.mark.usefixtures("config_file")
def test_the_last_state_of_each_of_fifty_short_tasks_is_done_with_its_counts(
    store: KeepingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding 1: each of them said "phase intake, taken 0" for 30 days."""
    for number in range(50):
        counts = {"taken": number, "outcomes": {"ok": number}}
        crawl_that(monkeypatch, store, {**counts, "folder": "17"})
        first, last = store.kept[-2:]
        assert (first["phase"], first["queue"], first["try"]) == ("intake", 7, 1)
        assert (last["phase"], last["fetched"], last["counts"]) == (
            "done",
            3,
            {**counts, "folder": "17"},
        )
        assert last["curve"][-1][1:] == [3, 99, 0, 7]
    assert len(store.kept) == 100, "two requests a task, and no more"


@pytest.mark.usefixtures("config_file")
@pytest.mark.parametrize(
    ("error", "raised", "phase"),
    [
        (StorageError("the disk is away"), AirflowException, "failed"),
        (ConfigError("a\x1b typo"), AirflowFailException, "failed"),
        (StoppedError("as asked"), AirflowException, "stopped"),
        (ValueError(), ValueError, "failed"),
        (AirflowSkipException("not needed"), AirflowSkipException, "skipped"),
    ],
)
def test_a_task_that_ends_otherwise_says_so_last(
    store: KeepingStore,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    raised: type[Exception],
    phase: str,
) -> None:
    with pytest.raises(raised):
        crawl_that(monkeypatch, store, error)
    last = store.kept[-1]
    assert (last["phase"], last["error"], last["fetched"]) == (phase, str(error) or "ValueError", 3)


def test_a_task_that_reports_nothing_says_how_it_ended(store: KeepingStore) -> None:
    with Reporter(object(), store, 3) as report:
        report.take_result({})
    assert [(value["phase"], value["try"]) for value in store.kept] == [("done", 3)]


def test_reports_come_every_few_seconds_and_the_last_one_at_once(store: KeepingStore) -> None:
    kept = KeptProgress(store, 1)
    for half in range(24):
        kept.report({"fetched": half})
        store.now_s += 0.5
    kept.end("done")
    assert [value["fetched"] for value in store.kept] == [0, 10, 20, 23]
    assert [value["seconds"] for value in store.kept] == [0.0, 5.0, 10.0, 12.0]


@pytest.mark.parametrize("reports", [1, 59, 60, 61, 200, 3_000])
def test_a_curve_has_sixty_points_from_the_first_to_the_newest(reports: int) -> None:
    curve = Curve()
    for number in range(reports):
        curve.add(number * KEEP_INTERVAL_S, {"fetched": number})
        assert len(curve.points) <= CURVE_POINTS
        assert curve.points[-1][:2] == [round(number * KEEP_INTERVAL_S), number]
    assert len(curve.points) >= min(reports, CURVE_POINTS // 2)
    assert curve.points[0][1] == 0
    gaps = [
        after[0] - before[0] for before, after in zip(curve.points, curve.points[1:], strict=False)
    ]
    assert len(set(gaps[:-1])) <= 1, "evenly spaced but for the newest one"


@pytest.mark.parametrize("character", ["a", "\0", "ä", "\U0001f600", '"', "\ud800"])
def test_the_value_stays_small_whatever_a_task_reports(store: KeepingStore, character: str) -> None:
    """A week of reports with the largest numbers, and names and texts that strangers chose."""
    most = 10**15
    facts = dict.fromkeys(("fetched", "bytes", "errors", "queue"), most)
    kept = KeptProgress(store, 1)
    for _ in range(300):
        kept.report(
            {
                **facts,
                "reason": character * 100_000,
                character * 10_000: 1,
                "pages_per_s": float("nan"),
            }
        )
        store.now_s += KEEP_INTERVAL_S
    many = {f"{character}{number}": number for number in range(10_000)}
    kept.end(
        "failed", counts={**many, "budgets": many, "examples": ["x"]}, error=character * 100_000
    )
    last = store.kept[-1]
    assert (last["phase"], last["fetched"], last["queue"]) == ("failed", most, most)
    assert last["error"].startswith(character)
    assert last["left_out"] > 0, "what had no room is counted"
