"""`krake_airflow.executor`: the scheduler waits for ends of tasks, not for the end of a sleep."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

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


def test_the_round_after_an_end_does_not_wait(waits: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    prompt = PromptExecutor(parallelism=1)
    monkeypatch.setattr(prompt, "result_queue", multiprocessing.SimpleQueue(), raising=False)
    monkeypatch.setattr(LocalExecutor, "sync", lambda self: self.event_buffer.update(dict.fromkeys(ended)))
    rounds = []
    for ended_now in ([], ["task"], [], []):
        ended[:] = ended_now
        prompt.sync()
        prompt.get_event_buffer()
        rounds.append(len(waits))
    assert rounds == [1, 2, 2, 3]
    assert set(waits) == {executor.LOOK_S}


def test_only_a_scheduler_whose_executor_waits_does_not_sleep(tmp_path: Path) -> None:
    """A scheduler that neither sleeps nor waits takes a whole core."""
    sleep_s = "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME"
    alone = environment(tmp_path, tmp_path / "krake.yml")
    assert alone["AIRFLOW__CORE__EXECUTOR"] == f"{PromptExecutor.__module__}.{PromptExecutor.__name__}"
    assert float(alone[sleep_s]) == 0
    centre = centre_environment(tmp_path, tmp_path / "krake.yml", port=1, database="sqlite://", log_port=2)
    assert float(centre[sleep_s]) > 0
