"""`make crawl` next to `make ui`: a run that is stopped is ended at once, however slow Airflow is."""

from __future__ import annotations

import json
from contextlib import ExitStack, nullcontext
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any, cast

import pytest
import requests
from krake_airflow import remote, run
from krake_airflow.remote import Airflow, RemoteRun
from rich.console import Console

from crawl_lib.config import from_mapping
from crawl_lib.errors import KrakeError
from crawl_lib.signals import StopSignal


class SlowAirflow:
    """Answers what is asked of the run only once it is told to end the run."""

    def __init__(self, stop: StopSignal) -> None:
        self.stop, self.ended, self.states = stop, Event(), list[str]()

    def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        if method == "POST":
            return {"dag_run_id": "r"}
        if method == "PATCH":
            self.states.append(body["state"])
            self.ended.set()
        elif not path.endswith("offset=0"):
            self.stop.set()  # the user stops while this is asked
            assert self.ended.wait(60), "the run is not ended before Airflow has answered"
        return {"state": "running", "task_instances": []}


def test_a_stop_ends_the_run_while_airflow_has_not_answered_yet() -> None:
    stop, said = StopSignal(), list[str]()
    airflow = SlowAirflow(stop)
    watched = RemoteRun(cast("Airflow", airflow), "krake_crawl", {}, cast("Any", SimpleNamespace()))
    assert watched.watch(stop, said.append) == ""
    assert (airflow.states, said) == (["failed"], ["Stopping ..."])


class LateThread(Thread):
    """Runs only once another thread waits for its end."""

    def start(self) -> None:
        """Begin later."""

    def join(self, timeout: float | None = None) -> None:
        self.run()


def test_a_stop_ends_the_run_if_the_watching_thread_sees_the_stop_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote, "Thread", LateThread)
    stop = StopSignal()
    airflow = SlowAirflow(stop)
    airflow.ended.set()
    watched = RemoteRun(cast("Airflow", airflow), "krake_crawl", {}, cast("Any", SimpleNamespace()))
    assert watched.watch(stop, [].append) == ""
    assert airflow.states == ["failed"]


def test_a_run_that_has_ended_is_left_as_it_is() -> None:
    stop = StopSignal()
    asked = list[str]()

    def ask(method: str, path: str, body: Any = None) -> dict[str, Any]:
        asked.append(method)
        return {"dag_run_id": "r", "state": "success", "task_instances": []}

    watched = RemoteRun(
        cast("Airflow", SimpleNamespace(ask=ask)), "krake_crawl", {}, cast("Any", None)
    )
    assert watched.watch(stop, asked.append) == "success"
    stop.set()
    assert "PATCH" not in asked


def test_where_the_process_has_to_end_before_airflow_answers_the_sentence_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`LastResort` says what the signal has as its text."""
    stop = StopSignal()

    def refused(*_: object) -> None:
        raise KrakeError("Airflow does not answer")

    monkeypatch.setattr(run, "stop_on_signals", lambda: nullcontext(stop))
    monkeypatch.setattr(run, "password_of", lambda home: "")
    monkeypatch.setattr(run, "Airflow", refused)
    config = from_mapping({"servers": ["node"], "dfs_primary": "dfs"}, base=tmp_path)
    crawl = run._Crawl(
        ExitStack(), Console(quiet=True), tmp_path / "krake.yml", config, tmp_path / "log"
    )
    with pytest.raises(KrakeError, match="does not answer"):
        crawl.run_in_ui(tmp_path, "http://127.0.0.1:9", {"seeds": "http://127.0.0.1:8005/"})
    assert stop.text == run.STOPPED


LOCKED = (500, {"detail": {"reason": "Database error", "statement": "hidden"}})


@pytest.mark.parametrize(
    ("refused", "error"),
    [([LOCKED] * 3, ""), ([LOCKED] * 4, "500 .*Database error"), ([(500, {})], "500")],
)
def test_only_what_a_locked_database_refused_is_asked_again(
    refused: list[tuple[int, Any]], error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([(201, {"access_token": "t"}), *refused, (200, {"state": "success"})])

    def answered(*_: object, **__: object) -> requests.Response:
        answer = requests.Response()
        answer.status_code, body = next(answers)
        answer._content = json.dumps(body, separators=(",", ":")).encode()
        return answer

    monkeypatch.setattr(requests.Session, "request", answered)
    airflow = Airflow("http://127.0.0.1:1", "")
    with pytest.raises(KrakeError, match=error) if error else nullcontext():
        assert airflow.ask("PATCH", "/api/v2/dags/krake_crawl") == {"state": "success"}
