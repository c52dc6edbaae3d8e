"""Which export a run makes where nothing is new, and which ones `export.keep` leaves."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.errors import ConfigError, PathNotFoundError
from crawl_lib.export import exports, list_exports
from crawl_lib.stores import Stores, open_stores
from demo import Serving, SynthWeb
from tests.e2e.crawl import Result, make_config, run_crawl, run_iteration

WEB = SynthWeb(seed=3, sites=2, pages_per_site=4, specials=False)


def config_in(directory: Path) -> Config:
    return make_config(directory, nodes=2, batch={"size": 2}, fetch={"host_delay_s": 0.0})


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A crawl to its end by two nodes: its last iteration found nothing to take."""
    with Serving(WEB) as web:
        return run_crawl(config_in(tmp_path_factory.mktemp("original")), web.seeds)


@pytest.fixture
def crawled(original: Result, tmp_path: Path) -> Result:
    shutil.copytree(Path(original.config.dfs_primary).parent, tmp_path, dirs_exist_ok=True)
    return replace(original, config=config_in(tmp_path))


@pytest.fixture
def stores(crawled: Result) -> Stores:
    return open_stores(crawled.config)


def empty_iteration(crawled: Result, run_id: str) -> str:
    return str(run_iteration(crawled.config, run_id, 1)["folder"])


def finish(stores: Stores, name: str) -> list[str]:
    stages.link_export(stores, export=name)
    removed: list[str] = stages.finalize_export(stores, export=name)["removed"]
    return removed


def pretend(stores: Stores, *names: str, of: str) -> None:
    """Exports as runs of other days left them."""
    for name in names:
        shutil.copytree(
            Path(stores.config.dfs_primary, "export", of),
            Path(stores.config.dfs_primary, "export", name),
        )


def keeping(stores: Stores, keep: int | None) -> Stores:
    return replace(
        stores, config=replace(stores.config, export=replace(stores.config.export, keep=keep))
    )


def test_an_export_of_nothing_new_is_found_complete(crawled: Result, stores: Stores) -> None:
    """A schedule made a whole new one each day: finding 5."""
    assert int(crawled.export) < int(stores.crawl.newest()), "the last iteration holds nothing"
    for run in ("run-2", "run-3"):
        empty_iteration(crawled, run)
        again = stages.export_pages(stores, run_id=run)
        assert (again["export"], again["complete_already"]) == (crawled.export, True)
        assert finish(stores, again["export"]) == []
    assert list_exports(stores) == [crawled.export]


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        (["FIRST"], [0]),
        (["LAST", "FIRST", "LAST"], [0, -1]),
        (["FIRST..LAST"], "all"),
        (["0..FIRST"], [0]),
        (["newest 1"], [-1]),
        (["newest", "2"], [-2, -1]),  # words of a command line
        (["newest 99"], "all"),
        (["newest 1", "FIRST"], [0, -1]),
    ],
)
def test_iterations_are_named_alone_from_a_to_b_or_as_the_newest(
    stores: Stores, given: list[str], chosen: Any
) -> None:
    there = stores.crawl.folders()
    assert len(there) > 2
    given = [entry.replace("FIRST", there[0]).replace("LAST", there[-1]) for entry in given]
    expected = there if chosen == "all" else [there[place] for place in chosen]
    assert exports._folders_named(stores, given) == expected


@pytest.mark.parametrize(
    "wrong", ["1", "newest 0", "newest", "newest x", "7..3", "a..b", "..", "-1"]
)
def test_what_names_no_iteration_is_told_which_there_are(stores: Stores, wrong: str) -> None:
    there = stores.crawl.folders()
    with pytest.raises(ConfigError) as caught:
        stages.export_pages(stores, folders=[there[0], wrong])
    assert str(caught.value) == (
        f"crawl: no iteration {', '.join(wrong.split())}; there are {', '.join(there[-10:])} ({len(there)} in all);"
        " name some, or give FIRST..LAST, or `newest 3`"
    ).replace("newest, 0", "newest 0")


def test_who_names_no_export_is_told_which_there_are(crawled: Result, stores: Stores) -> None:
    for call in (stages.link_export, stages.finalize_export):
        with pytest.raises(
            PathNotFoundError, match=rf"no such export .*; there are {crawled.export} \(1 in all\)"
        ):
            call(stores, export="mine")


def test_a_segment_that_came_late_is_in_the_next_export_though_nothing_else_is_new(
    crawled: Result, stores: Stores
) -> None:
    """And in one only: the runs after that find it."""
    moved = Path(
        stores.config.dfs_primary, stores.crawl.segment(stores.crawl.folders()[0], "node-1").path
    )
    aside = moved.rename(moved.with_name(".aside"))
    shutil.rmtree(moved.parents[2] / "export" / crawled.export)
    first = stages.export_pages(stores)
    aside.rename(moved)
    newest = empty_iteration(crawled, "run-2")
    second = stages.export_pages(stores, run_id="run-2")
    assert int(first["export"]) < int(second["export"]) <= int(newest)
    assert first["pages"] < second["pages"] == WEB.sites * WEB.pages_per_site
    empty_iteration(crawled, "run-3")
    third = stages.export_pages(stores, run_id="run-3")
    assert (third["export"], third["complete_already"]) == (second["export"], True)


def test_a_crawl_that_found_nothing_yet_has_one_empty_export(tmp_path: Path) -> None:
    config = make_config(tmp_path, nodes=1)
    crawled = Result(config)
    folders = [empty_iteration(crawled, run) for run in ("run-1", "run-2")]
    stores = open_stores(config)
    reports = [stages.export_pages(stores, run_id=run) for run in ("run-1", "run-2")]
    assert [report["export"] for report in reports] == [folders[0]] * 2
    assert [report["pages"] for report in reports] == [0, 0]
    assert finish(stores, folders[0]) == []


@pytest.mark.parametrize("keep", [None, 1, 2, 9])
def test_the_newest_exports_and_those_with_a_label_are_kept(
    crawled: Result, stores: Stores, keep: int | None
) -> None:
    newest = crawled.export
    folders = stores.crawl.folders()
    older = folders[folders.index(newest) - 3 : folders.index(newest)]
    pretend(stores, *older, "autumn", "20261123", of=newest)
    pretend(stores, "99", of=newest)
    (Path(stores.config.dfs_primary) / "export" / older[1] / "webgraph").unlink()
    whole = [newest, older[2], older[0]]
    removed = finish(keeping(stores, keep), newest)
    assert removed == ([] if keep is None else whole[keep:]), (
        "what is not whole is not counted, and not deleted"
    )
    left = {newest, *older, "autumn", "20261123", "99"} - set(removed)
    assert set(list_exports(stores)) == left


def test_an_export_of_an_older_run_survives_its_own_finalizer(
    crawled: Result, stores: Stores
) -> None:
    """Cleared, it is made again; the next run's finalizer deletes it."""
    folder = Path(stores.config.dfs_primary, "crawl", crawled.export)
    younger = str(int(crawled.export) + 100)
    shutil.copytree(folder, folder.with_name(younger))
    pretend(stores, younger, of=crawled.export)
    assert finish(keeping(stores, 1), crawled.export) == []
    assert finish(keeping(stores, 1), younger) == [crawled.export]


def test_an_export_is_known_by_its_iteration_though_that_was_deleted(
    crawled: Result, stores: Stores
) -> None:
    folder = Path(stores.config.dfs_primary, "crawl", crawled.export)
    name = str(int(crawled.export) + 100)
    shutil.move(folder, folder.with_name(name))
    pretend(stores, name, of=crawled.export)
    assert finish(keeping(stores, 1), name) == [crawled.export]
