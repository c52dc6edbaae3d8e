"""A task that somebody marks as a success without its work: what comes next says what it misses, or goes on without it.

Cleared with its downstream, it does its work after all; nothing is lost, and nothing is fetched twice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.errors import KrakeError
from crawl_lib.stores import open_stores
from demo import Serving, SynthWeb, TruthOptions
from tests.e2e.crawl import Result, check_counts, make_config

WEB = SynthWeb(seed=12, sites=2, pages_per_site=6, specials=False)
ROUNDS = 3
MISSES = {
    "inject": "",
    "iteration_2.crawl": "has no folder",
    "iteration_2.crawl.node-1": "no segment of node-1",
    "iteration_2.commit": "",
    "export": "run `krake export`",
}
"""The task that is marked, or all of a group, and what the first one after that which misses something says; "": no one
does."""


def tasks_of(config: Config, seeds: str, run: str) -> dict[str, Callable[[], object]]:
    """The tasks of a run, in the order in which they run; its export has its name."""
    tasks: dict[str, Callable[[], object]] = {
        "inject": partial(stages.inject, open_stores(config), run_id=run, seeds=seeds)
    }
    for number in range(1, ROUNDS + 1):
        which = {"run_id": run, "iteration": number}
        for node in config.servers:
            tasks[f"iteration_{number}.crawl.{node}"] = partial(
                stages.crawl_node, open_stores(config), node=node, **which
            )
        tasks[f"iteration_{number}.commit"] = partial(
            stages.commit_iteration, open_stores(config), **which
        )
    for node in config.servers:
        tasks[f"settle.{node}"] = partial(
            stages.settle_node, open_stores(config), node=node, run_id=run
        )
    tasks["maintain_keys"] = partial(stages.maintain_keys, open_stores(config))
    tasks["export"] = partial(stages.export_pages, open_stores(config), label=run)
    tasks["linker"] = partial(stages.link_export, open_stores(config), export=run)
    tasks["finalizer"] = partial(stages.finalize_export, open_stores(config), export=run)
    return tasks


def first_error(tasks: list[Callable[[], object]]) -> str:
    """Run tasks until one fails; what it said, "" if none did."""
    for task in tasks:
        try:
            task()
        except KrakeError as error:
            return str(error)
    return ""


@pytest.mark.parametrize("marked", MISSES)
def test_a_task_marked_as_a_success_is_missed_and_done_when_cleared(
    marked: str, tmp_path: Path
) -> None:
    config = make_config(tmp_path, nodes=2, fetch={"host_delay_s": 0.0})
    with Serving(WEB) as serving:
        tasks = tasks_of(config, "\n".join(serving.seeds), "one")
        names = list(tasks)
        done = [name for name in names if name == marked or name.startswith(f"{marked}.")]
        place = names.index(done[0])
        assert first_error([tasks[name] for name in names[:place]]) == ""
        said = first_error([tasks[name] for name in names[place + len(done) :]])
        assert MISSES[marked] in said
        assert bool(said) == bool(MISSES[marked]), said
        assert first_error([tasks[name] for name in names[place:]]) == ""
        if (
            marked == "inject"
        ):  # its iterations were done, with nothing to fetch: the seeds wait for the next run
            assert not serving.log().counts()
            assert first_error(list(tasks_of(config, "", "two").values())) == ""
        asked = serving.log().counts()
        truth = serving.truth(options=TruthOptions(rounds=ROUNDS))
    result = Result(config)
    assert set(asked.values()) == {1}
    assert set(result.visited().values()) == {1}
    assert set(result.visited()) == set(truth.visits)
    check_counts(result)
