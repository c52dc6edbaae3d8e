"""The DAGs parse, and their edges hold what the protocol needs; asked over all ancestors, not only direct ones."""

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from krake_airflow.settings import PROJECT, environment

NODES = ["node-a", "node.b"]
SERVERS = ["db1", "db2:3307", "[::1]:3306"]
MAINTAINS = [f"maintain_keys.server_{number}" for number in range(1, len(SERVERS) + 1)]
MOST = 4


GOOD = ["krake", "a.crawl_1", "other-crawl"]
CONFIGS: dict[str, dict[str, Any]] = {
    "usual": {},
    "scheduled": {"crawl": {"schedule": "17 3 * * *", "max_iterations": 1}},
    "unknown option": {"servres": ["a"]},
    "goes on": {"crawl": {"min_nodes": 0.5, "max_iterations": MOST}},
    "again": {
        "frontier": {"order": "crawldb"},
        "crawl": {"schedule": "17 3 * * *", "max_iterations": MOST},
    },
    "requisites": {
        "parse": {"requisites": "all"},
        "crawl": {"max_iterations": 2, "requisite_rounds": 2},
    },
    "requisites again": {
        "frontier": {"order": "crawldb"},
        "parse": {"requisites": "all"},
        "crawl": {"max_iterations": 2, "requisite_rounds": 2},
    },
    "no cron": {"crawl": {"schedule": "whenever"}},
    "large": {
        "servers": [f"node-{number}" for number in range(100)],
        "key_storage": {"servers": [f"node-{number}" for number in range(100)], "replication": 2},
        "crawl": {"max_iterations": 50},
    },
}


def parse(directory: Path, configs: Sequence[object]) -> list[dict[str, Any]]:
    """What `tests.dags.parse` says of each config, in one process."""
    variables = {**os.environ, **environment(directory / "home", directory)}
    command = [sys.executable, "-m", "tests.dags.parse", str(PROJECT / "dags"), *map(str, configs)]
    done = subprocess.run(
        command, env=variables, cwd=PROJECT, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line[6:]) for line in done.stdout.splitlines() if line.startswith("RESULT")]


def write(file: Path, options: dict[str, Any]) -> None:
    mapping: dict[str, Any] = {
        "servers": NODES,
        "dfs_primary": "dfs",
        "crawl": {"max_iterations": MOST},
    }
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump(mapping | {"key_storage": {"servers": SERVERS}, **options}))


@pytest.fixture(scope="module")
def bags(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The DAGs of each config, of a config that is not there, and of a folder without one."""
    directory = tmp_path_factory.mktemp("parse")
    files = {name: directory / f"{name.replace(' ', '-')}.yml" for name in [*CONFIGS, "nowhere"]}
    for name, options in CONFIGS.items():
        write(files[name], options)
    (directory / "empty").mkdir()
    files["empty"] = directory / "empty"
    return dict(zip(files, parse(directory, list(files.values())), strict=True))


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The DAGs of a folder of configs, and of tasks for which it is parsed."""
    directory = tmp_path_factory.mktemp("several")
    folder = directory / "configs"
    write(folder / "krake-config.yml", {})
    write(folder / "one.yml", {"crawl": {"name": GOOD[1], "max_iterations": 1}})
    write(folder / GOOD[2] / f"{GOOD[2]}.yml", {"crawl": {"name": GOOD[2]}})
    write(folder / "broken.yml", {"servres": [], "crawl": {"name": "gone"}, "batch": {"size": 0}})
    for name in ("twin-1", "twin-2"):
        write(folder / f"{name}.yml", {"crawl": {"name": "twin"}})
    (folder / "notes.txt").write_text("no config")
    tasks = [f"{name}_{kind}" for name in [*GOOD, "twin"] for kind in ("crawl", "process")] + [
        "gone_crawl"
    ]
    return dict(
        zip(
            ["all", *tasks],
            parse(directory, [folder, *(f"{task}@{folder}" for task in tasks)]),
            strict=True,
        )
    )


@pytest.fixture(scope="module")
def parsed(bags: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return bags["usual"]


@pytest.fixture(scope="module")
def crawl(parsed: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = parsed["dags"]["krake_crawl"]["tasks"]
    return found


def ancestors(tasks: dict[str, Any], task_id: str) -> set[str]:
    found: set[str] = set()
    waiting = list(tasks[task_id]["upstream"])
    while waiting:
        upstream = waiting.pop()
        if upstream not in found:
            found.add(upstream)
            waiting += tasks[upstream]["upstream"]
    return found


def test_no_import_errors_and_both_dags(parsed: dict[str, Any]) -> None:
    assert parsed["errors"] == {}
    assert set(parsed["dags"]) == {"krake_crawl", "krake_process"}


def test_airflow_has_krake_before_it_forks_tasks(parsed: dict[str, Any]) -> None:
    """By the entry point of the package (`airflow.policy`), which each process of Airflow asks for when it begins."""
    assert parsed["has_krake"]


def test_one_task_per_node_and_iteration(crawl: dict[str, Any]) -> None:
    iterations = range(1, MOST + 1)
    expected = {"inject", "committed", "export", "linker", "finalizer", *MAINTAINS}
    expected |= {f"settle.{node}" for node in NODES}
    expected |= {f"iteration_{i}.commit" for i in iterations}
    expected |= {f"iteration_{i}.crawl.{node}" for i in iterations for node in NODES}
    assert set(crawl) == expected


def test_every_task_runs_in_order(crawl: dict[str, Any]) -> None:
    chain = [["inject"]]
    for i in range(1, MOST + 1):
        chain += [[f"iteration_{i}.crawl.{node}" for node in NODES], [f"iteration_{i}.commit"]]
    chain += [["committed"], [*(f"settle.{node}" for node in NODES), *MAINTAINS]]
    chain += [["export"], ["linker"], ["finalizer"]]
    before: set[str] = set()
    for level in chain:
        for task_id in level:
            assert ancestors(crawl, task_id) == before
        before |= set(level)
    assert len(chain) == 2 * MOST + 6, "12 levels of three iterations, one of them without work"


def test_rounds_of_requisites_wait_for_all_iterations_and_commits_can_skip_them(
    bags: dict[str, dict[str, Any]],
) -> None:
    tasks = bags["requisites"]["dags"]["krake_crawl"]["tasks"]
    commits = [
        f"{group}_{number}.commit" for group in ("iteration", "requisites") for number in (1, 2)
    ]
    assert tasks["iterated"]["upstream"] == commits[:2]
    assert tasks["iterated"]["trigger_rule"] == "none_failed"
    for node in NODES:
        assert tasks[f"requisites_1.crawl.{node}"]["upstream"] == ["iterated"]
        assert tasks[f"requisites_2.crawl.{node}"]["upstream"] == ["requisites_1.commit"]
    assert set(tasks["committed"]["upstream"]) == set(commits)


def test_with_a_crawldb_lists_end_the_rounds_of_requisites(bags: dict[str, dict[str, Any]]) -> None:
    tasks = bags["requisites again"]["dags"]["krake_recrawl"]["tasks"]
    assert tasks["iterated"]["upstream"] == ["iteration_1.update", "iteration_2.update"]
    assert tasks["requisites_1.generate"]["upstream"] == ["iterated"]
    assert tasks["requisites_2.generate"]["upstream"] == ["requisites_1.update"]
    later = [task for task in tasks if task.startswith("iteration_2.")]
    rounds = {task for task in tasks if task.startswith("requisites_")}
    assert {*tasks["iteration_1.update"]["later"]["2"]} == {*later}
    for task_id in ("iteration_2.generate", "requisites_1.generate"):
        skipped = {task for ids in tasks[task_id]["requisites"].values() for task in ids}
        assert skipped == rounds - {"requisites_1.generate"} | (
            {*rounds} if "iteration" in task_id else set()
        )


def edges_of_the_picture() -> set[tuple[str, str]]:
    """The arrows of the first picture of docs/architecture.md; a node's label begins with its name."""
    text = (PROJECT / "docs" / "architecture.md").read_text()
    picture = text.split("```mermaid\n")[1].split("```")[0]
    labels = dict(re.findall(r"^ *(\w+)(?:\(\[|\[)\"?(\w+)", picture, re.MULTILINE))
    assert labels
    assert all(name == word for name, word in labels.items())
    chains = [
        re.split(r" -->(?:\|[^|]*\|)? ", line.strip())
        for line in picture.splitlines()
        if "-->" in line
    ]
    return {edge for chain in chains for edge in itertools.pairwise(chain)}


def test_the_picture_in_the_docs_is_the_dag(crawl: dict[str, Any]) -> None:
    """Tasks of one kind are one box: `commit` those of all iterations, `crawl` and `settle` those of all nodes."""

    def box(task_id: str) -> str:
        return next(part for part in task_id.split(".") if not part.startswith("iteration_"))

    edges = {
        (box(upstream), box(task_id))
        for task_id, task in crawl.items()
        for upstream in task["upstream"]
    }
    assert edges_of_the_picture() == edges


def test_the_page_for_operators_has_the_numbers_of_the_dag(bags: dict[str, dict[str, Any]]) -> None:
    text = (PROJECT / "docs" / "operating.md").read_text()
    tasks = [bags[config]["dags"]["krake_crawl"]["tasks"] for config in ("usual", "goes on")]
    usual, fewer = (found[f"settle.{NODES[0]}"]["retries"] for found in tasks)
    others = tasks[0]["export"]["retries"]
    assert (
        f"have {usual} more tries ({fewer} with `crawl.min_nodes` below 1), other tasks {others}."
        in text
    )


AFTER_COMMITS = {"committed", *(f"settle.{node}" for node in NODES), *MAINTAINS}


@pytest.mark.parametrize(
    ("config", "kind", "end"),
    [
        ("usual", "crawl", "commit"),
        ("goes on", "crawl", "commit"),
        ("large", "crawl", "commit"),
        ("again", "recrawl", "update"),
    ],
)
def test_all_iterations_meet_in_one_task_that_what_follows_waits_for(
    bags: dict[str, dict[str, Any]], config: str, kind: str, end: str
) -> None:
    """The end of a skipped iteration is done at once, so the last one alone would not hold back what follows."""
    tasks = bags[config]["dags"][f"krake_{kind}"]["tasks"]
    ends = {task_id for task_id in tasks if task_id.endswith(f".{end}")}
    assert set(tasks["committed"]["upstream"]) == ends
    after = {task_id for task_id in tasks if task_id.startswith(("settle.", "maintain_keys."))}
    assert set(tasks["committed"]["downstream"]) == after
    assert all(tasks[task_id]["upstream"] == ["committed"] for task_id in after)
    assert {tasks[task_id]["trigger_rule"] for task_id in [*after, "committed"]} == {"none_failed"}


def test_no_other_task_runs_after_a_failure(crawl: dict[str, Any]) -> None:
    others = [task for task_id, task in crawl.items() if task_id not in AFTER_COMMITS]
    assert {task["trigger_rule"] for task in others} == {"all_success"}


def test_with_min_nodes_only_what_follows_all_nodes_runs_after_a_failure(
    bags: dict[str, dict[str, Any]],
) -> None:
    """`all_done` would run a commit of a skipped iteration, or after an `inject` that failed.

    Of the nodes, and of the key servers, one each has to succeed before export begins.
    """
    tasks = bags["goes on"]["dags"]["krake_crawl"]["tasks"]
    joins = {f"iteration_{i}.commit" for i in range(1, MOST + 1)} | {"settled", "maintained"}
    assert tasks["export"]["upstream"] == ["maintained", "settled"]
    assert tasks["settled"]["upstream"] == [f"settle.{node}" for node in NODES]
    assert tasks["maintained"]["upstream"] == MAINTAINS
    for task_id, task in tasks.items():
        if task_id not in AFTER_COMMITS:
            assert task["trigger_rule"] == (
                "all_done_min_one_success" if task_id in joins else "all_success"
            ), task_id
    assert tasks["finalizer"]["downstream"] == []
    leaves = [task_id for task_id, task in tasks.items() if not task["downstream"]]
    assert leaves == ["finalizer"], "the run's state is that of its leaves"
    assert {tasks[f"iteration_1.crawl.{node}"]["retries"] for node in NODES} == {3}


def test_inject_and_every_commit_can_skip_all_later_iterations(crawl: dict[str, Any]) -> None:
    for task_id, first in [
        ("inject", 1),
        *((f"iteration_{i}.commit", i + 1) for i in range(1, MOST + 1)),
    ]:
        skippable = {task for tasks in crawl[task_id]["later"].values() for task in tasks}
        wanted = {
            task
            for task in crawl
            for i in range(first, MOST + 1)
            if task.startswith(f"iteration_{i}.")
        }
        assert skippable == wanted


@pytest.mark.parametrize("dag_id", ["krake_crawl", "krake_process"])
def test_every_task_has_owner_retries_and_limit(parsed: dict[str, Any], dag_id: str) -> None:
    for task_id, task in parsed["dags"][dag_id]["tasks"].items():
        assert task["owner"] == "krake", task_id
        assert task["retries"] >= (5 if ".crawl." in task_id else 1), task_id
        assert 0 < task["retry_delay_s"] <= 30, task_id
        assert task["timeout_s"], task_id


def test_a_node_s_tasks_are_in_its_queue_and_outlast_two_batches(crawl: dict[str, Any]) -> None:
    for task_id, task in crawl.items():
        node = next((node for node in NODES if task_id.endswith(f".{node}")), None)
        assert task["queue"] == (node or "default"), task_id
        if ".crawl." in task_id:
            assert task["timeout_s"] > 2 * 600 + 900, "two batches and the wait for the lock"


@pytest.mark.parametrize("dag_id", ["krake_crawl", "krake_process"])
def test_queues_are_all_that_places_a_task_so_celery_workers_do_too(
    parsed: dict[str, Any], dag_id: str
) -> None:
    """`airflow celery worker --queues NODE` on each node, and one with `--queues default`, serve every task.

    No task names an executor, and Celery, which takes a list with commas, reads each queue's name as one queue.
    """
    served = {queue for queues in [*NODES, "default"] for queue in queues.split(",")}
    tasks = parsed["dags"][dag_id]["tasks"]
    assert {task["executor"] for task in tasks.values()} == {None}
    assert {task["queue"] for task in tasks.values()} <= served
    for node in NODES:
        own = {task_id for task_id, task in tasks.items() if task["queue"] == node}
        assert own == {task_id for task_id in tasks if task_id.endswith(f".{node}")}


def test_process_is_the_tail_of_crawl(parsed: dict[str, Any]) -> None:
    tasks = parsed["dags"]["krake_process"]["tasks"]
    chain = [MAINTAINS, ["export"], ["linker"], ["finalizer"]]
    for number, level in enumerate(chain):
        before = {task for earlier in chain[:number] for task in earlier}
        assert all(ancestors(tasks, task) == before for task in level)
    assert set(tasks) == {task for level in chain for task in level}


@pytest.mark.parametrize("dag_id", ["krake_crawl", "krake_process"])
def test_each_key_server_has_a_task_that_shows_its_short_name(
    parsed: dict[str, Any], dag_id: str
) -> None:
    tasks = parsed["dags"][dag_id]["tasks"]
    assert [(tasks[task_id]["server"], tasks[task_id]["shown"]) for task_id in MAINTAINS] == [
        (f"server_{number}", task_id) for number, task_id in enumerate(MAINTAINS, start=1)
    ]


@pytest.mark.parametrize("dag_id", ["krake_crawl", "krake_process"])
def test_the_form_and_the_page_explain_themselves(parsed: dict[str, Any], dag_id: str) -> None:
    dag = parsed["dags"][dag_id]
    assert "When it failed" in dag["doc"]
    assert dag["tags"] == ["krake"]
    assert dag["max_active_runs"] == 1
    assert dag["catchup"] is False
    for name, param in dag["params"].items():
        assert param["title"], name
        assert param["description_md"], name
        assert param["type"], name
        assert f"*{name}*" in dag["doc"]


def test_the_form_states_the_rules_of_its_fields(parsed: dict[str, Any]) -> None:
    """What a field refuses, Airflow answers with "Bad Request" alone."""
    crawl, process = (parsed["dags"][f"krake_{kind}"]["params"] for kind in ("crawl", "process"))
    for params in (crawl, process):
        label = params["label"]["description_md"]
        assert (
            "letters (a to z, A to Z), digits, dot, underscore and hyphen, beginning with a letter or digit"
            in label
        )
        assert re.fullmatch(params["label"]["pattern"], "My-label_1.2")
        assert not re.fullmatch(params["label"]["pattern"], "-x")
    assert f"a whole number, 1 to {MOST}" in crawl["iterations"]["description_md"]
    assert "a whole number, at least 1" in crawl["batch_size"]["description_md"]
    assert all(
        word in crawl["seeds"]["description_md"]
        for word in ("http://", "https://", "(# ", "inject.directory")
    )
    folders = process["folders"]
    for entry, text in (
        ("1795000000", "all digits"),
        ("1..2", "*A..B*"),
        ("newest 3", "*newest 3*"),
    ):
        assert re.search(folders["items"]["pattern"], entry)
        assert text in folders["description_md"]
    assert not re.search(folders["items"]["pattern"], "yesterday")


def test_iterations_are_bounded_by_the_config(parsed: dict[str, Any]) -> None:
    iterations = parsed["dags"]["krake_crawl"]["params"]["iterations"]
    assert (iterations["minimum"], iterations["maximum"]) == (1, MOST)


def test_schedule_comes_from_the_config(bags: dict[str, dict[str, Any]]) -> None:
    assert bags["scheduled"]["errors"] == {}
    assert bags["scheduled"]["dags"]["krake_crawl"]["schedule"] == "17 3 * * *"
    assert bags["usual"]["dags"]["krake_crawl"]["schedule"] is None


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("unknown option", "servres: unknown option; the nearest option is servers"),
        ("no cron", "crawl.schedule: 'whenever' is not a cron expression"),
        ("nowhere", "nowhere.yml: cannot be read"),
        ("empty", "has no config: put one into it, named *.yml"),
    ],
)
def test_a_bad_config_is_a_paused_dag_whose_text_says_what_is_wrong(
    bags: dict[str, dict[str, Any]], config: str, says: str
) -> None:
    [(file, error)] = bags[config]["errors"].items()
    assert file.endswith("dags/krake_config_errors.py")
    assert says in error, "the red banner on Home"
    [(dag_id, dag)] = bags[config]["dags"].items()
    assert dag_id == f"{config.replace(' ', '-')}_config_error"
    assert dag["paused"] is True
    assert says in " ".join(dag["doc"].split())
    assert max(map(len, dag["doc"].splitlines())) <= 88, "Airflow's page would cut it"


def test_each_config_of_a_folder_makes_its_own_dags(several: dict[str, dict[str, Any]]) -> None:
    [error] = several["all"]["errors"].values()
    for words in (
        "broken.yml: servres: unknown",
        "broken.yml: batch.size: must be",
        "twin-1.yml",
        "twin-2.yml",
    ):
        assert words in error, "all mistakes of all configs are in the import error"
    dags = several["all"]["dags"]
    good = {f"{name}_{kind}" for name in GOOD for kind in ("crawl", "process")}
    assert set(dags) == good | {"broken_config_error", "twin-1_config_error", "twin-2_config_error"}
    for dag_id in good:
        assert dags[dag_id]["crawls"] == [dag_id.rpartition("_")[0]]
        assert dags[dag_id]["paused"] is not True
    assert [dags[f"{name}_crawl"]["assets"] for name in GOOD] == [
        [f"{name}_exports", f"{name}_segments"] for name in GOOD
    ]
    assert dags["a.crawl_1_crawl"]["params"]["iterations"]["maximum"] == 1


def test_a_bad_one_takes_only_its_own_dags_away_and_all_its_mistakes_are_said(
    several: dict[str, dict[str, Any]],
) -> None:
    text = " ".join(several["all"]["dags"]["broken_config_error"]["doc"].split())
    assert "broken.yml: servres: unknown option" in text
    assert "broken.yml: batch.size: must be at least 1" in text
    for one, other in (("twin-1", "twin-2"), ("twin-2", "twin-1")):
        text = " ".join(several["all"]["dags"][f"{one}_config_error"]["doc"].split())
        assert "crawl.name: 'twin' is also the name of" in text
        assert f"{other}.yml" in text


@pytest.mark.parametrize("name", [*GOOD, "twin"])
@pytest.mark.parametrize("kind", ["crawl", "process"])
def test_a_task_builds_its_own_dag_alone(
    several: dict[str, dict[str, Any]], name: str, kind: str
) -> None:
    found = several[f"{name}_{kind}"]
    assert found["errors"] == {}
    assert set(found["dags"]) == {f"{name}_{kind}"}


def test_a_task_whose_config_is_not_on_its_machine_says_so(
    several: dict[str, dict[str, Any]],
) -> None:
    [error] = several["gone_crawl"]["errors"].values()
    assert "has no config of the crawl 'gone' that can be used (crawl.name)" in error
    assert "servres: unknown option" in error, "its own config may be the broken one"


def test_of_twenty_configs_a_task_reads_its_own_only(tmp_path: Path) -> None:
    """What reading one costs, and finding it among twenty, `make bench` measures."""
    default = (PROJECT / "config" / "krake-config.yml").read_text()
    for number in range(20):
        (tmp_path / f"{number}.yml").write_text(
            default.replace("  name: krake ", f"  name: crawl-{number} ")
        )
    [found] = parse(tmp_path, [f"crawl-13_crawl@{tmp_path}"])
    assert set(found["dags"]) == {"crawl-13_crawl"}
    assert found["read"] == [str(tmp_path / "13.yml")]


def test_a_hundred_nodes_and_fifty_iterations_parse_in_time(
    bags: dict[str, dict[str, Any]],
) -> None:
    """Airflow's limit is 30 s, and each task start pays it again; `make bench` prints what it takes.

    Edges grow as tasks do. Params are copied into each task, at each level of its class, if the DAG has them then.
    """
    tasks = bags["large"]["dags"]["krake_crawl"]["tasks"]
    assert sum(len(task["upstream"]) for task in tasks.values()) < 2.1 * len(tasks)
    assert {task["own_params"] for task in tasks.values()} == {0}
    assert bags["large"]["dags"]["krake_crawl"]["params"].keys() == {
        "seeds",
        "iterations",
        "batch_size",
        "retry_now",
        "label",
    }
    assert len(bags["large"]["dags"]["krake_crawl"]["tasks"]) == 100 * 52 + 50 + 5
    assert bags["large"]["parse_s"] < 15
