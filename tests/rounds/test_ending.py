"""A run ends its iterations when nothing waits, or nothing that is due; the index of the last one says so for ever."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.crawldir import FolderIndex, FolderState, Iteration, Kind
from crawl_lib.dfsfiles import write_json_bytes
from crawl_lib.rounds.ending import ended, ended_before, what_is_left
from crawl_lib.stores import open_stores
from demo import Serving, SynthWeb
from tests.e2e.crawl import Result, make_config, run_iteration
from tests.ports import free_port

WEB = SynthWeb(seed=3, sites=2, pages_per_site=5, specials=False)
RUN = "run-1"
MOST = 30


def make(directory: Path, **sections: Any) -> Config:
    return make_config(directory, nodes=2, **{"fetch": {"host_delay_s": 0.0}, **sections})


def inject(config: Config, seeds: list[str], run: str = RUN) -> None:
    stages.inject(open_stores(config), run_id=run, seeds="\n".join(seeds))


def until_ended(config: Config, run: str = RUN) -> tuple[int, str]:
    """Iterations until a commit ends them: the last one's number, and why."""
    for number in range(1, MOST):
        commit = run_iteration(config, run, number)
        if "ended" in commit:
            return number, str(commit["ended"])
    raise AssertionError(f"not ended after {MOST} iterations")


def commit_again(config: Config, number: int, run: str = RUN) -> str:
    return str(
        stages.commit_iteration(open_stores(config), run_id=run, iteration=number).get("ended", "")
    )


def index_of(config: Config, number: int, run: str = RUN) -> dict[str, Any]:
    own = open_stores(config).crawl.find(run, number)
    assert own is not None
    found: dict[str, Any] = json.loads(
        (Result(config).crawl_dir / own.folder / "index.json").read_text()
    )
    return found


def segment(**more: Any) -> dict[str, Any]:
    return {"queue_after": 0, "undecided": 0, "next_due": None, **more}


@pytest.mark.parametrize(
    ("manifests", "left"),
    [
        ([segment(), segment()], segment()),
        (
            [segment(queue_after=2, undecided=1), segment(queue_after=3)],
            segment(queue_after=5, undecided=1),
        ),
        (
            [segment(queue_after=2, next_due=9), segment(queue_after=1, next_due=7)],
            segment(queue_after=3, next_due=7),
        ),
        ([segment(queue_after=2, next_due=9), segment()], segment(queue_after=2, next_due=9)),
        (
            [segment(queue_after=2, next_due=0), segment(queue_after=1, next_due=7)],
            segment(queue_after=3, next_due=0),
        ),
        ([segment(queue_after=2, next_due=9), segment(queue_after=1)], segment(queue_after=3)),
        ([segment(), {}], segment(queue_after=None, undecided=None)),
    ],
)
def test_an_index_sums_up_what_the_manifests_say_is_left(
    manifests: list[Any], left: dict[str, Any]
) -> None:
    """Of a segment that was made again they say nothing: then no one knows."""
    assert what_is_left(manifests) == left


def index(**more: Any) -> dict[str, Any]:
    quiet = {"missing": [], "counts": {"taken": 0}, "outlinks": {"node-0": {}}}
    return {**quiet, **segment(), **more}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (index(), "nothing is queued"),
        (index(queue_after=3, next_due=1001), "nothing is due before 1970-01-01T00:16:41Z"),
        (index(queue_after=3, next_due=1000), ""),
        (index(queue_after=3), ""),
        (index(undecided=1), ""),
        (index(queue_after=None), ""),
        (index(counts={"taken": 1}), ""),
        (index(missing=["node-1"]), ""),
        (index(outlinks={"node-0": {"node-1": {"offset": 0, "length": 9, "count": 1}}}), ""),
        ({name: value for name, value in index().items() if name not in segment()}, ""),
        (index(queue_after=3, share=0), "crawl.max_pages leaves nothing to take"),
        (index(queue_after=3, share=0, undecided=1), ""),
        (None, ""),
    ],
)
def test_only_an_index_that_knows_of_nothing_to_do_ends_the_iterations(
    said: dict[str, Any] | None, why: str, tmp_path: Path
) -> None:
    crawl = open_stores(make(tmp_path)).crawl
    folder = crawl.folder("1000")
    share = (said or {}).get("share", 9)
    shares = {"node-0": share}
    own = Iteration("1000", RUN, 1, ("node-0",), "host", "", shares, 0, (), (), "", Kind.CRAWL)
    crawl.storage.write_bytes(f"{folder.path}/iteration.json", write_json_bytes(vars(own)))
    read = None if said is None else FolderIndex(said["counts"], said["outlinks"], said=said)
    assert ended(FolderState(folder, index=read, present=["node-0"])) == why


def test_a_run_ends_after_the_first_iteration_that_found_nothing_to_do(tmp_path: Path) -> None:
    config = make(tmp_path)
    with Serving(WEB) as serving:
        inject(config, serving.seeds)
        last, why = until_ended(config)
        assert why == "nothing is queued"
        assert set(Result(config).visited()) == set(serving.truth().visits)
    assert index_of(config, last)["counts"]["taken"] == 0
    assert index_of(config, last - 1)["counts"]["taken"] > 0
    assert commit_again(config, last - 1) == "", "the one before did not end it, and never will"


def test_a_run_ends_where_the_limit_of_pages_is_reached(tmp_path: Path) -> None:
    config = make(tmp_path, crawl={"max_pages": 3})
    with Serving(WEB) as serving:
        inject(config, serving.seeds)
        number, why = until_ended(config)
    assert why == "crawl.max_pages leaves nothing to take"
    taken = [index_of(config, one)["counts"]["taken"] for one in range(1, number + 1)]
    assert (sum(taken), taken[-1], 0 in taken[:-1]) == (3, 0, False)
    assert index_of(config, number)["queue_after"] > 0


def test_manifests_say_what_the_queue_holds_once_it_has_moved_on(tmp_path: Path) -> None:
    """Also with failures that pass, and with what a host's share left behind."""
    config = make(tmp_path, batch={"size": 4}, retry={"max": 2})
    with Serving(WEB) as serving:
        inject(config, [*serving.seeds, f"http://127.0.0.1:{free_port()}/"])
        for number in (1, 2, 3):
            run_iteration(config, RUN, number)
            queues = open_status(config)
            assert index_of(config, number)["queue_after"] == sum(queues.values())


def open_status(config: Config) -> dict[str, int]:
    """The length of each node's queue."""
    return {node: queue["length"] for node, queue in stages.status_of(config)["queues"].items()}


def test_what_is_not_due_yet_ends_a_run_and_it_says_when_the_first_is(tmp_path: Path) -> None:
    config = make(tmp_path, retry={"max": 5})
    inject(config, [f"http://127.0.0.1:{free_port()}/{number}" for number in range(3)])
    last, why = until_ended(config)
    assert last == 2
    assert why.startswith("nothing is due before ")
    left = index_of(config, last)
    assert left["queue_after"] == 3
    assert left["next_due"] > time.time()
    assert commit_again(config, last) == why


def test_what_comes_later_changes_nothing_of_it(tmp_path: Path) -> None:
    """Cleared with its downstream, or a skipped task alone; with another run's seeds in between, or all of it."""
    config = make(tmp_path)
    with Serving(WEB) as serving:
        inject(config, serving.seeds[:1])
        last, why = until_ended(config)
        inject(config, serving.seeds, "backfill")
        stores = open_stores(config)
        for _ in range(2):
            assert [commit_again(config, number) for number in range(1, last + 1)] == [""] * (
                last - 1
            ) + [why]
            for later in (last + 1, last + 2):
                assert ended_before(stores, run_id=RUN, iteration=later) == why
            for own in range(1, last + 1):
                assert ended_before(stores, run_id=RUN, iteration=own) == "", "it has its folder"
            assert until_ended(config, "backfill")[1] == why
        assert set(Result(config).visited()) == set(serving.truth().visits)


def test_a_node_that_was_missing_ends_nothing_and_its_late_segment_does_not_either(
    tmp_path: Path,
) -> None:
    config = make(tmp_path, crawl={"min_nodes": 0.5, "max_iterations": MOST})
    stages.crawl_node(open_stores(config), run_id=RUN, iteration=1, node="node-0")
    assert commit_again(config, 1) == ""
    stages.crawl_node(open_stores(config), run_id=RUN, iteration=1, node="node-1")
    assert commit_again(config, 1) == ""
    assert ended_before(open_stores(config), run_id=RUN, iteration=2) == ""
    assert run_iteration(config, RUN, 2)["ended"] == "nothing is queued"
