"""`krake_airflow.executor`: the scheduler waits for ends of tasks, not for the end of a sleep."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.executors.local_executor import LocalExecutor
from krake_airflow import executor
from krake_airflow.executor import PromptExecutor
from krake_airflow.settings import centre_environment, environment


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each round would wait at most."""
    seen: list[float] = []
    monkeypatch.setattr(executor, "wait", lambda readers, timeout_s: seen.append(timeout_s))
    return seen


def test_the_round_after_an_end_does_not_wait(
    waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    prompt = PromptExecutor(parallelism=1)
    monkeypatch.setattr(prompt, "result_queue", multiprocessing.SimpleQueue(), raising=False)
    monkeypatch.setattr(
        LocalExecutor, "sync", lambda self: self.event_buffer.update(dict.fromkeys(ended))
    )
    rounds = []
    for ended_now in ([], ["task"], [], []):
        ended[:] = ended_now
        prompt.sync()
        prompt.get_event_buffer()
        rounds.append(len(waits))
    assert rounds == [1, 2, 2, 3]
    assert set(waits) == {executor.LOOK_S}


def test_the_round_that_begins_the_next_tasks_waits_for_their_ends(
    waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round in between would cost 20 ms of CPU a level. Ends wake the scheduler, so it looks seldom meanwhile."""
    events: list[str] = []
    prompt = PromptExecutor(parallelism=1)
    monkeypatch.setattr(prompt, "result_queue", multiprocessing.SimpleQueue(), raising=False)
    monkeypatch.setattr(
        LocalExecutor, "sync", lambda self: self.event_buffer.update(dict.fromkeys(events))
    )
    monkeypatch.setattr(LocalExecutor, "_process_workloads", lambda self, workloads: None)
    begun: list[list[str]] = [["a", "b"], [], [], ["c"], [], []]
    ended: list[list[str]] = [[], ["a"], ["b"], [], ["c"], []]
    for keys, gone in zip(begun, ended, strict=True):
        prompt._process_workloads([SimpleNamespace(key=key) for key in keys])
        events[:] = gone
        prompt.sync()
        prompt.get_event_buffer()
    busy_s, quick_s = executor.BUSY_LOOK_S, executor.LOOK_S
    assert waits == [busy_s, busy_s, quick_s, quick_s, busy_s], (
        "the last round has nothing to wait for"
    )


def test_only_a_scheduler_whose_executor_waits_does_not_sleep(tmp_path: Path) -> None:
    """A scheduler that neither sleeps nor waits takes a whole core."""
    sleep_s = "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME"
    alone = environment(tmp_path, tmp_path / "krake.yml")
    assert (
        alone["AIRFLOW__CORE__EXECUTOR"] == f"{PromptExecutor.__module__}.{PromptExecutor.__name__}"
    )
    assert float(alone[sleep_s]) == 0
    centre = centre_environment(
        tmp_path, tmp_path / "krake.yml", port=1, database="sqlite://", log_port=2
    )
    assert float(centre[sleep_s]) > 0
