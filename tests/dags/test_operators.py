"""What an operator makes of its stage: one call, errors that Airflow understands, results before skips, a stop."""

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from airflow.sdk import DAG
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    DownstreamTasksSkipped,
)
from krake_airflow import connections, operators, progress, watching

from crawl_lib import errors, stages
from crawl_lib.config import load_config
from crawl_lib.stores import Stores
from tests.dags.crawls import small_config


class TaskInstance:
    """As much of a task instance as an operator uses."""

    def __init__(self, pulled: object = None) -> None:
        self.pushed: dict[str, Any] = {}
        self.pulled = pulled
        self.try_number = 1
        self.max_tries = 3

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value

    def xcom_pull(self, task_ids: str) -> object:
        return self.pulled


class RefusingStore:
    """The task state store of an attempt that was cleared."""

    def set(self, key: str, value: object) -> None:
        raise RuntimeError("404")


@pytest.fixture
def config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    _, path = small_config(tmp_path)
    monkeypatch.setenv("KRAKE_CONFIG_PATH", str(path))
    return path


def context(iterations: int = 2, ti: TaskInstance | None = None, **params: Any) -> dict[str, Any]:
    given = {
        "iterations": iterations,
        "seeds": "http://a/",
        "batch_size": None,
        "label": None,
        **params,
    }
    return {"params": given, "run_id": "run-1", "ti": ti or TaskInstance(), "outlet_events": {}}


def run(operator: Any, given: dict[str, Any]) -> Any:
    """Execute as the task runner does, without its guard against calls from elsewhere."""
    return getattr(operator.execute, "__wrapped__", operator.execute.__func__)(operator, given)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, config_file: Path) -> list[dict[str, Any]]:
    """Stages that note their arguments; `crawl_node` waits until it is stopped if the run id says so."""
    calls: list[dict[str, Any]] = []

    def made(name: str) -> Any:
        def called(opened: Stores, **arguments: Any) -> dict[str, Any]:
            calls.append({"stage": name, **arguments, "stop": opened.stop})
            return {"folder": "17", "export": "17"}

        return called

    names = (
        "inject",
        "retry_now",
        "crawl_node",
        "commit_iteration",
        "generate",
        "update_crawldb",
        "settle_node",
        "export_pages",
        "link_export",
        "finalize_export",
        "maintain_keys",
    )
    for name in names:
        monkeypatch.setattr(stages, name, made(name))
    monkeypatch.setattr(stages, "ended_before", lambda stores, **arguments: "")
    return calls


MOST = 4
LATER = {i: [f"iteration_{i}.crawl.node-a", f"iteration_{i}.commit"] for i in range(1, MOST + 1)}


def test_inject_pushes_its_result_and_then_skips_all_that_is_beyond(
    stage: list[dict[str, Any]],
) -> None:
    ti = TaskInstance()
    inject = operators.InjectOperator(task_id="inject", later=LATER)
    with pytest.raises(DownstreamTasksSkipped) as skipped:
        run(inject, context(2, ti))
    assert list(skipped.value.tasks) == [*LATER[3], *LATER[4]]
    assert ti.pushed["return_value"] == {"folder": "17", "export": "17"}
    assert [{**call, "below": None} for call in stage] == [
        {
            "stage": "inject",
            "run_id": "run-1",
            "seeds": "http://a/",
            "below": None,
            "stop": inject._stop,
        }
    ]


def test_inject_has_what_waits_fetched_if_the_run_asks_for_it(stage: list[dict[str, Any]]) -> None:
    inject = operators.InjectOperator(task_id="inject", later={})
    for params in ({}, {"retry_now": False}):
        run(inject, context(**params))
    assert [call["stage"] for call in stage] == ["inject"] * 2
    run(inject, context(retry_now=True))
    assert [call["stage"] for call in stage[2:]] == ["inject", "retry_now"]
    assert stage[3]["run_id"] == "run-1"


@pytest.mark.parametrize(
    "params", [{}, {"any_path": True, "below": None, "inject": {"directory": "/"}}]
)
@pytest.mark.parametrize(
    "seeds", ["OUTSIDE", "../outside", "link", "file://OUTSIDE", "/proc/self/environ", "/dev/zero"]
)
def test_who_triggers_a_dag_reads_no_file_outside_the_directory(
    seeds: str,
    params: dict[str, Any],
    config_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stage itself runs here: no param makes it look elsewhere, and nothing of the file is told."""
    monkeypatch.setenv("KRAKE_TEST_WORD", "http://s3cret.test/")
    text = yaml.safe_load(config_file.read_text())
    text["inject"]["directory"] = str(tmp_path / "seeds")
    config_file.write_text(yaml.safe_dump(text))
    (tmp_path / "seeds").mkdir()
    (tmp_path / "outside").write_text("http://s3cret.test/\ns3cret\n")
    (tmp_path / "seeds" / "link").symlink_to(tmp_path / "outside")
    inject = operators.InjectOperator(task_id="inject", later={})
    with pytest.raises(AirflowFailException) as failed:
        run(inject, context(seeds=seeds.replace("OUTSIDE", str(tmp_path / "outside")), **params))
    assert "s3cret" not in f"{failed.value} {failed.value.__cause__!r}"
    assert not list(tmp_path.rglob("manifest.json"))
    (tmp_path / "seeds" / "list").write_text("http://127.0.0.1/\n")
    assert run(inject, context(seeds="list", **params))["accepted"] == 1


def test_a_commit_skips_again_what_a_clear_brought_back(stage: list[dict[str, Any]]) -> None:
    commit = operators.CommitOperator(
        task_id="commit", iteration=2, later={3: LATER[3], 4: LATER[4]}
    )
    with pytest.raises(DownstreamTasksSkipped) as skipped:
        run(commit, context(2))
    assert list(skipped.value.tasks) == [*LATER[3], *LATER[4]]


def test_a_commit_after_which_nothing_waits_skips_all_later_iterations(
    stage: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        stages,
        "commit_iteration",
        lambda stores, **which: {"folder": "17", "ended": "nothing waits"},
    )
    commit = operators.CommitOperator(
        task_id="commit", iteration=2, later={3: LATER[3], 4: LATER[4]}
    )
    ti = TaskInstance()
    with pytest.raises(DownstreamTasksSkipped) as skipped:
        run(commit, context(MOST, ti))
    assert list(skipped.value.tasks) == [*LATER[3], *LATER[4]]
    assert ti.pushed["return_value"]["ended"] == "nothing waits"


ROUNDS = {5: ["requisites_1.commit"], 6: ["requisites_2.commit"]}


@pytest.mark.parametrize(
    ("iteration", "result", "skipped"),
    [
        (1, {}, [*LATER[3], *LATER[4]]),
        (2, {"requisites": 3}, [*LATER[3], *LATER[4]]),
        (2, {}, [*LATER[3], *LATER[4], *ROUNDS[5], *ROUNDS[6]]),
        (1, {"ended": "nothing waits"}, [*LATER[2], *LATER[3], *LATER[4], *ROUNDS[5], *ROUNDS[6]]),
        (5, {"requisites": 1}, []),
        (5, {}, ROUNDS[6]),
    ],
)
def test_a_commit_that_leaves_no_requisite_skips_their_rounds(
    iteration: int, result: dict[str, Any], skipped: list[str]
) -> None:
    later, rounds = (
        {n: ids for n, ids in all_ids.items() if n > iteration} for all_ids in (LATER, ROUNDS)
    )
    commit = operators.CommitOperator(
        task_id="commit", iteration=iteration, later=later, requisites=rounds
    )
    assert commit.not_needed(context(2), result) == skipped
    inject = operators.InjectOperator(task_id="inject", later=LATER, requisites=ROUNDS)
    assert inject.not_needed(context(2), {}) == [*LATER[3], *LATER[4]]


def test_a_round_of_requisites_is_not_asked_for_by_the_form(stage: list[dict[str, Any]]) -> None:
    more: dict[str, Any] = {"iteration": 5, "of_requisites": True}
    run(operators.CrawlOperator(task_id="node-a", node="node-a", **more), context(2))
    run(operators.CommitOperator(task_id="commit", later={}, **more), context(2))
    assert [call["iteration"] for call in stage] == [5, 5]


def test_a_task_after_the_last_iteration_that_is_cleared_alone_skips_itself(
    stage: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks what the iteration before it left; of the first iteration nothing is asked."""
    asked = []

    def ended_before(stores: Stores, **which: Any) -> str:
        asked.append(which)
        return "nothing waits"

    monkeypatch.setattr(stages, "ended_before", ended_before)
    for number in (1, 2):
        for task in (
            operators.CrawlOperator(task_id="node-a", iteration=number, node="node-a"),
            operators.CommitOperator(task_id="commit", iteration=number, later={}),
        ):
            if number == 1:
                run(task, context())
            else:
                with pytest.raises(
                    AirflowSkipException, match="ended before number 2: nothing waits"
                ):
                    run(task, context())
    assert [call["stage"] for call in stage] == ["crawl_node", "commit_iteration"]
    assert asked == [{"run_id": "run-1", "iteration": 2}] * 2


def test_a_run_of_all_iterations_skips_nothing(stage: list[dict[str, Any]]) -> None:
    inject = operators.InjectOperator(task_id="inject", later=LATER)
    assert run(inject, context(MOST)) == {"folder": "17", "export": "17"}


def test_crawl_and_commit_refuse_an_iteration_that_the_run_does_not_ask_for(
    stage: list[dict[str, Any]],
) -> None:
    with pytest.raises(AirflowSkipException, match="asks for 2 iterations"):
        run(operators.CrawlOperator(task_id="node-a", iteration=3, node="node-a"), context(2))
    with pytest.raises(AirflowSkipException, match="asks for 2 iterations"):
        run(operators.CommitOperator(task_id="commit", iteration=3, later={}), context(2))
    assert stage == []


NODE_TASKS = [
    operators.CrawlOperator(task_id="node-a", iteration=1, node="node-a", queue="node-a"),
    operators.SettleOperator(task_id="node-a", node="node-a", queue="node-a"),
]


@pytest.mark.parametrize("task", NODE_TASKS, ids=lambda task: type(task).__name__)
def test_a_task_runs_on_its_own_node_alone(
    task: Any, stage: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On many machines KRAKE_NODE names the machine; a task that came by a wrong queue touches nothing."""
    monkeypatch.setenv("KRAKE_NODE", "node-b")
    with pytest.raises(
        AirflowFailException, match=r"worker of node-b .*task of node-a: give the queue node-a"
    ):
        run(task, context())
    assert stage == []
    monkeypatch.setenv("KRAKE_NODE", "node-a")
    assert run(task, context())["folder"] == "17"
    monkeypatch.delenv("KRAKE_NODE")
    assert run(task, context())["folder"] == "17"
    assert [call["node"] for call in stage] == ["node-a", "node-a"]
    assert {call["run_id"] for call in stage} == {"run-1"}


MENDED_BY_HAND = {
    "ConfigError",
    "DamagedFileError",
    "FewAnswersError",
    "InputError",
    "KeyAccessError",
    "KeyTablesError",
    "OutputConflictError",
    "QueueError",
}


@pytest.mark.parametrize(
    "name", [name for name in dir(errors) if name.endswith("Error") and name != "UrlError"]
)
def test_every_error_either_fails_at_once_or_is_retried(
    name: str, config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails at once where the error tree says that the operator has to repair something before it can help to retry."""

    def fails(*arguments: object, **named: object) -> None:
        raise getattr(errors, name)("what is wrong\nand what to do")

    monkeypatch.setattr(stages, "maintain_keys", fails)
    with pytest.raises(AirflowException) as raised:
        run(operators.MaintainKeysOperator(task_id="server_1", server="keys/0.sqlite"), context())
    assert isinstance(raised.value, AirflowFailException) == (name in MENDED_BY_HAND)
    assert str(raised.value).endswith("what is wrong and what to do")


ALL_TASKS = [
    operators.InjectOperator(task_id="inject", later={}),
    *NODE_TASKS,
    operators.CommitOperator(task_id="commit", iteration=1, later={}),
    operators.GenerateOperator(task_id="generate", iteration=1, later={}),
    operators.UpdateOperator(task_id="update", iteration=1, later={}),
    operators.MaintainKeysOperator(task_id="keys", server="keys/0.sqlite"),
    operators.ExportOperator(task_id="export", of_run=True),
    operators.LinkOperator(task_id="linker"),
    operators.FinalizeOperator(task_id="finalizer"),
]


@pytest.mark.parametrize("task", ALL_TASKS, ids=lambda task: type(task).__name__)
def test_every_stage_stops_when_its_task_is_killed(task: Any, stage: list[dict[str, Any]]) -> None:
    """Airflow calls `on_kill` for SIGTERM (a cleared task, one marked failed) and after a time limit."""
    run(task, context(ti=TaskInstance({"export": "17"})))
    assert not stage[-1]["stop"].is_set()
    task.on_kill()
    assert stage[-1]["stop"].is_set()


def test_a_stopped_crawl_is_a_failure_that_is_retried(
    config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl = operators.CrawlOperator(task_id="crawl", iteration=1, node="node-0")

    def crawl_node(opened: Stores, **arguments: Any) -> None:
        assert not opened.stop.is_set()
        crawl.on_kill()
        assert opened.stop.is_set()
        raise errors.StoppedError("stopped")

    monkeypatch.setattr(stages, "crawl_node", crawl_node)
    with pytest.raises(AirflowException) as raised:
        run(crawl, context())
    assert not isinstance(raised.value, AirflowFailException)


def test_an_error_is_raised_without_a_chain(
    config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow would log a traceback for each link, and the message would be twenty lines above the last one."""

    def fails(*arguments: object, **named: object) -> None:
        try:
            raise OSError("the disk")
        except OSError as error:
            raise errors.ConfigError("a: is wrong", "b: is wrong too") from error

    monkeypatch.setattr(stages, "maintain_keys", fails)
    with pytest.raises(AirflowFailException) as raised:
        run(operators.MaintainKeysOperator(task_id="server_1", server="keys/0.sqlite"), context())
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__
    assert str(raised.value).splitlines() == ["a: is wrong", "b: is wrong too"]


def last_lines(callbacks: Any, error: BaseException, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the last callback of a task logs, but for the end of Airflow's group."""
    ti = TaskInstance()
    ti.try_number, ti.max_tries = 2, 6
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="krake"):
        callbacks[-1]({"exception": error, "ti": ti})
    assert caplog.records[0].message == "::endgroup::", (
        "Airflow's page folds the group that it opens after a traceback"
    )
    assert {record.levelname for record in caplog.records[1:]} == {"ERROR"}
    return [record.message for record in caplog.records[1:]]


def test_the_last_lines_of_a_log_are_message_and_cure(caplog: pytest.LogCaptureFixture) -> None:
    task = operators.LinkOperator(task_id="linker", on_failure_callback=lambda context: None)
    assert len(task.on_failure_callback) == 2, "a notifier is called before"
    ours = AirflowException("a: is wrong\nb: is wrong too")
    assert last_lines(task.on_failure_callback, ours, caplog) == [
        "a: is wrong",
        "b: is wrong too",
        "Correct the named problem, then clear this task with its downstream to continue.",
    ]
    assert last_lines(task.on_retry_callback, ours, caplog)[2:] == [
        "It is tried again by itself, and continues: try 3 of 7 comes next."
    ]
    assert last_lines(task.on_failure_callback, KeyError("x"), caplog)[0] == "KeyError: 'x'"
    long = AirflowException(f"/{'a' * 120}: " + "some-thing is wrong, " * 12)
    *lines, _ = last_lines(task.on_failure_callback, long, caplog)
    assert lines[0] == f"/{'a' * 120}:", "no path is broken"
    assert " ".join(map(str.strip, lines)) == str(long).strip()
    assert max(map(len, lines[1:])) <= 88, "Airflow's page would cut it"
    caplog.clear()
    watching.say_failure({"ti": TaskInstance()})
    assert caplog.records == [], "a process that died has no error"


@pytest.mark.parametrize(
    ("task", "error"),
    [
        (
            operators.InjectOperator(task_id="inject", later={}),
            errors.InputError("seeds: 'a' is no URL"),
        ),
        (
            operators.ExportOperator(task_id="export", of_run=True),
            errors.OutputConflictError("the name is taken"),
        ),
        (
            operators.ExportOperator(task_id="export", of_run=False),
            errors.InputError("no such iteration"),
        ),
    ],
    ids=["seeds", "label", "folders"],
)
def test_wrong_parameters_ask_for_a_new_run(
    task: Any,
    error: Exception,
    config_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A cleared task has the parameters of its run, so the same would happen again."""

    def fails(*arguments: object, **named: object) -> None:
        raise error

    monkeypatch.setattr(stages, "inject", fails)
    monkeypatch.setattr(stages, "export_pages", fails)
    with pytest.raises(AirflowFailException) as raised:
        run(task, context(folders=["1"]))
    assert last_lines(task.on_failure_callback, raised.value, caplog) == [
        str(error),
        "Trigger a new run: a cleared task keeps its parameters.",
        "If only a file was wrong, correct it, then clear this task with its downstream.",
    ]


def test_unknown_keys_of_a_run_s_conf_are_refused(
    stage: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    """Airflow takes any key, and a run with `seed` would crawl what is queued."""
    with DAG("news_crawl", schedule=None, params={"seeds": "", "label": None}) as dag:
        operators.MaintainKeysOperator(task_id="server_1", server="keys/0.sqlite")
    task: Any = dag.get_task("server_1")
    for conf in (None, {}, {"seeds": "http://a/"}):
        assert run(task, {**context(), "dag_run": SimpleNamespace(conf=conf)})["folder"] == "17"
    with pytest.raises(AirflowFailException) as raised:
        run(
            task,
            {
                **context(),
                "dag_run": SimpleNamespace(conf={"seeds": "", "seed": "http://a/", "Label": 1}),
            },
        )
    assert len(stage) == 3
    assert str(raised.value) == "conf: unknown: 'Label', 'seed'; news_crawl knows label, seeds"
    last = last_lines(task.on_failure_callback, raised.value, caplog)[-1]
    assert last == "Trigger a new run: a cleared task keeps its parameters."


def test_results_are_lines_and_refusals_are_warnings(
    stage: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refused = {
        "rejected": {"invalid": 1, "scheme": 2},
        "examples": ["seeds:1: invalid", "seeds:4: scheme"],
    }
    commit = {"folder": "17", "missing": ["node-b"]}
    monkeypatch.setattr(stages, "inject", lambda *arguments, **named: {"accepted": 3, **refused})
    monkeypatch.setattr(stages, "commit_iteration", lambda *arguments, **named: commit)
    monkeypatch.setattr(
        stages, "crawl_node", lambda *arguments, **named: {"rejected": {"scope": 9}, "outcomes": {}}
    )
    caplog.set_level(logging.INFO, logger="krake")
    run(operators.InjectOperator(task_id="inject", later={}), context())
    run(operators.CommitOperator(task_id="commit", iteration=1, later={}), context())
    run(operators.CrawlOperator(task_id="node-a", iteration=1, node="node-a"), context())
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("INFO", "accepted: 3"),
        ("WARNING", "rejected: invalid 1, scheme 2"),
        ("WARNING", "examples: seeds:1: invalid"),
        ("WARNING", "examples: seeds:4: scheme"),
        ("INFO", "folder: 17"),
        ("WARNING", "missing: node-b"),
        ("INFO", "rejected: scope 9"),
        ("INFO", "outcomes: none"),
    ]


def test_a_short_name_is_the_server_of_that_place_in_the_config(
    config_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        stages, "maintain_keys", lambda stores, *, server: asked.append(server) or {}
    )
    run(operators.MaintainKeysOperator(task_id="server_1", server="server_1"), context())
    (server,) = load_config(config_file).key_storage.servers
    assert asked == [server]
    assert f"server_1 is key server {server}" in capsys.readouterr().out


def test_zeros_are_left_out_of_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    """Day 100 of a crawl has logs of ten lines of nothing."""
    caplog.set_level(logging.INFO, logger="krake")
    counts = {
        "taken": 3,
        "retried": 0,
        "seconds": 0.0,
        "outcomes": {"ok": 3, "gone": 0},
        "rejections": {"scope": 0},
    }
    watching.say_result({**counts, "ended": False, "folder": "0", "examples": []}, ("rejections",))
    watching.say_result({"queue": 0, "undecided": {"a": 0}}, ())
    watching.Reporter(object(), None)({"node": "node-0", "fetched": 3, "links": 0})
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("INFO", "taken: 3"),
        ("INFO", "outcomes: ok 3"),
        ("INFO", "ended: False"),
        ("INFO", "folder: 0"),
        ("INFO", "all counts are 0"),
        ("INFO", "node node-0  fetched 3"),
    ]


def test_progress_is_logged_and_survives_a_refusing_server(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "KEEP_INTERVAL_S", 60.0)
    reporter = watching.Reporter(object(), RefusingStore())
    with caplog.at_level(logging.INFO, logger="krake"):
        reporter({"node": "node-0", "fetched": 3})
        reporter({"node": "node-0", "fetched": 4})
    assert [record.message for record in caplog.records] == [
        "node node-0  fetched 3",
        "progress was not kept: RuntimeError",
    ]


def test_linker_takes_the_name_that_export_returned(stage: list[dict[str, Any]]) -> None:
    run(operators.LinkOperator(task_id="linker"), context(ti=TaskInstance({"export": "17"})))
    assert stage[0]["export"] == "17"
    with pytest.raises(AirflowFailException, match="clear it with its downstream"):
        run(operators.LinkOperator(task_id="linker"), context(ti=TaskInstance(None)))


def test_export_of_process_takes_chosen_folders_and_no_run(stage: list[dict[str, Any]]) -> None:
    run(
        operators.ExportOperator(task_id="export", of_run=False),
        context(folders=["1", "2"], label="mine"),
    )
    run(operators.ExportOperator(task_id="export", of_run=True), context())
    assert (stage[0]["run_id"], stage[0]["folders"], stage[0]["label"]) == (
        None,
        ["1", "2"],
        "mine",
    )
    assert (stage[1]["run_id"], stage[1]["folders"], stage[1]["label"]) == ("run-1", None, None)


def test_the_password_comes_from_the_environment_else_from_the_connection_and_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded, _ = small_config(tmp_path)
    servers, _ = small_config(tmp_path / "servers", key_storage={"servers": ["db1:3306"]})

    class Connection:
        password = "of-connection"

    monkeypatch.delenv("KRAKE_KEY_STORAGE_PASSWORD", raising=False)
    monkeypatch.setattr(connections.BaseHook, "get_connection", lambda name: Connection)
    assert connections.secrets_for(embedded).key_storage_password is None
    found = connections.secrets_for(servers)
    assert found.key_storage_password == "of-connection"
    assert "of-connection" not in repr(found)
    monkeypatch.setenv("KRAKE_KEY_STORAGE_PASSWORD", "of-environment")
    assert connections.secrets_for(servers).key_storage_password == "of-environment"
