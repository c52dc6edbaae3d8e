"""A stage that is asked to stop, wherever it looks, ends with StoppedError; run again it ends as if nothing was."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from crawl_lib import stages, stores
from crawl_lib.config import Config
from crawl_lib.config.model import DfsConfig
from crawl_lib.errors import StoppedError
from crawl_lib.export import ExportFolder
from crawl_lib.keys import check, open_key_store
from crawl_lib.node.retire import retire_lost
from crawl_lib.rounds import start_iteration
from crawl_lib.states import KeyState
from crawl_lib.stopping import Progress, Work
from crawl_lib.storage import DfsAccess, LocalStorage
from crawl_lib.stores import Secrets, open_stores
from crawl_lib.urls import Owners
from tests.e2e.crawl import make_config
from tests.export.crawls import Capture, CrawlMaker, key
from tests.harms import files_of

LOOKS = (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89)
URLS = [f"http://h.example/{number}" for number in range(40)]


class AtLook(Event):
    """Is set when it is looked at for the n-th time, and from then on."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.left = number

    def is_set(self) -> bool:
        self.left -= 1
        return self.left < 0


def stopped_everywhere(
    stage: Callable[[Event], object], after: Callable[[], object] = lambda: None
) -> int:
    """Run a stage with a stop at each of `LOOKS` until it gets through; how often it was stopped."""
    for times, number in enumerate(LOOKS):
        try:
            stage(AtLook(number))
        except StoppedError:
            after()
        else:
            return times
    stage(Event())
    return len(LOOKS)


@pytest.fixture
def crawled(config: Config) -> Config:
    """A config whose crawl has two segments, as export reads them."""
    root = Path(config.dfs_primary)
    root.mkdir()
    crawl = CrawlMaker(root)
    for node in ("node-a", "node-b"):
        captures = [
            Capture(url, url.encode() * 9, links=URLS[:: number + 1])
            for number, url in enumerate(URLS)
        ]
        crawl.segment("1", node, captures[node == "node-b" :: 2])
    return config


ARGUMENTS: dict[str, dict[str, Any]] = {
    "inject": {"run_id": "run", "seeds": "http://h.example/"},
    "crawl_node": {"run_id": "run", "iteration": 1, "node": "node-a"},
    "commit_iteration": {"run_id": "run", "iteration": 1},
    "settle_node": {"node": "node-a"},
    "retire_node": {"node": "gone"},
    "maintain_keys": {},
    "export_pages": {"label": "x", "folders": ["1"]},
    "link_export": {"export": "x"},
    "finalize_export": {"export": "x"},
    "generate": {"run_id": "run", "iteration": 1},
    "update_crawldb": {},
    "rank_export": {"export": "x"},
    "invert_links": {},
    "update_score": {"export": "x"},
    "mark_duplicates": {},
    "retry_now": {"run_id": "run"},
    "make_output": {"output": "text"},
    "make_statistics": {},
    "collect_realtime": {},
}
OF_CRAWLDB = {"generate", "update_crawldb", "update_score", "mark_duplicates"}


def config_for(name: str, config: Config) -> Config:
    return (
        replace(config, frontier=replace(config.frontier, order="crawldb"))
        if name in OF_CRAWLDB
        else config
    )


def test_every_stage_can_be_stopped() -> None:
    assert set(stages.__all__) - {"status_of", "ended_before", "require_usable"} == set(ARGUMENTS)
    assert all(
        next(iter(inspect.signature(getattr(stages, name)).parameters)) == "stores"
        for name in ARGUMENTS
    )


@pytest.mark.parametrize("name", [name for name in ARGUMENTS if name[-5:] != "_node"])
def test_a_stage_that_is_stopped_before_it_begins_touches_nothing(
    name: str, config: Config, tmp_path: Path
) -> None:
    stop = Event()
    stop.set()
    with pytest.raises(StoppedError, match="run it again"):
        getattr(stages, name)(
            stores.open_stores(config_for(name, config), stop=stop), **ARGUMENTS[name]
        )
    assert list(tmp_path.iterdir()) == []


def test_links_ranks_and_scores_that_are_stopped_go_on(crawled: Config) -> None:
    folder = Path(crawled.dfs_primary) / crawled.export.directory
    stages.export_pages(open_stores(crawled), label="x")
    stages.link_export(open_stores(crawled), export="x")
    stages.finalize_export(open_stores(crawled), export="x")
    with_crawldb = config_for("generate", crawled)
    stages.update_crawldb(open_stores(with_crawldb))
    for name in ("invert_links", "rank_export", "update_score", "mark_duplicates"):
        config = config_for(name, crawled)

        def stage(stop: Event, name: str = name, config: Config = config) -> object:
            return getattr(stages, name)(open_stores(config, stop=stop), **ARGUMENTS[name])

        assert stopped_everywhere(stage) >= 2
        before = files_of(folder)
        stage(Event())
        assert files_of(folder) == before


def test_inject_that_is_stopped_leaves_no_seeds(config: Config, tmp_path: Path) -> None:
    seeds = tmp_path / "seeds.txt"
    seeds.write_text("\n".join([*URLS, "garbage", "", *URLS]))
    folder = Path(config.dfs_primary) / config.crawl.directory / "seeds"

    def nothing_is_there() -> None:
        assert not folder.exists() or list(folder.iterdir()) == []

    whole = stages.inject(
        open_stores(replace(config, dfs_primary=str(tmp_path / "other"))),
        run_id="run",
        seeds=str(seeds),
    )
    times = stopped_everywhere(
        lambda stop: stages.inject(open_stores(config, stop=stop), run_id="run", seeds=str(seeds)),
        nothing_is_there,
    )
    assert times >= 10
    again = stages.inject(open_stores(config), run_id="run", seeds=str(seeds))
    assert again == whole
    assert files_of(folder) == files_of(tmp_path / "other" / config.crawl.directory / "seeds")


def test_start_and_commit_that_are_stopped_go_on(config: Config) -> None:
    for number in (1, 2, 3):
        start_iteration(open_stores(config), run_id="run", iteration=number)
        for node in config.servers:
            stages.crawl_node(open_stores(config), run_id="run", iteration=number, node=node)
    for number in (1, 2, 3):
        arguments: dict[str, Any] = {"run_id": "run", "iteration": number}
        assert (
            stopped_everywhere(
                lambda stop, given=arguments: stages.commit_iteration(
                    open_stores(config, stop=stop), **given
                )
            )
            >= 2
        )
    assert (
        stopped_everywhere(
            lambda stop: start_iteration(open_stores(config, stop=stop), run_id="run", iteration=4)
        )
        >= 2
    )
    folders = [
        path
        for path in (Path(config.dfs_primary) / config.crawl.directory).iterdir()
        if path.name.isdecimal()
    ]
    assert len(folders) == 4


def test_retiring_a_lost_node_that_is_stopped_sends_its_urls_once(config: Config) -> None:
    stages.inject(open_stores(config), run_id="run", seeds="\n".join(URLS))
    gone = Owners(config.servers).owner("h.example")
    left = replace(config, servers=tuple(node for node in config.servers if node != gone))
    assert (
        stopped_everywhere(lambda stop: retire_lost(stores.open_stores(left, stop=stop), node=gone))
        >= 8
    )
    assert stages.settle_node(open_stores(left), node=left.servers[0])["new"] == len(URLS)


def test_maintenance_of_keys_that_is_stopped_is_repeated(tmp_path: Path) -> None:
    servers = {"servers": ["keys/0.sqlite", "keys/1.sqlite"], "replication": 2}
    config = make_config(tmp_path, nodes=1, key_storage=servers)
    keys = [key(url) for url in URLS]
    with open_key_store(config.key_storage) as store:
        store.create()
        store.servers[0].insert(sorted(keys), KeyState.QUEUED)
    assert (
        stopped_everywhere(lambda stop: stages.maintain_keys(open_stores(config, stop=stop))) >= 10
    )
    with open_key_store(config.key_storage) as store:
        assert stopped_everywhere(lambda stop: check(store, work=Work(stop=stop))) >= 10
        assert store.servers[1].known(sorted(keys)) == set(keys)


def test_export_linker_and_finalizer_that_are_stopped_end_in_the_same_bytes(
    crawled: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Progress, "INTERVAL_S", 0.0)
    exports = Path(crawled.dfs_primary) / crawled.export.directory
    scratch = Path(crawled.scratch.directory)

    def nothing_is_left() -> None:
        assert [path for path in scratch.glob("*") if path.suffix != ".lock"] == []
        assert [path.name for path in exports.glob("*/.*")] == []

    def run(name: str, label: str, **work: Any) -> object:
        arguments = {**ARGUMENTS[name], "label" if name == "export_pages" else "export": label}
        return getattr(stages, name)(stores.open_stores(crawled, **work), **arguments)

    names = ("export_pages", "link_export", "finalize_export")
    for name in names:
        run(name, "whole")
        times = stopped_everywhere(
            lambda stop, name=name: run(name, "stopped", stop=stop), nothing_is_left
        )
        assert times >= 4, name
    whole = files_of(exports / "whole")
    assert len(whole) == 9
    assert files_of(exports / "stopped") == whole
    for name in names:  # and in the middle, by what is told of the progress
        stop, told = Event(), []

        def on_progress(event: object, stop: Event = stop, told: list[object] = told) -> None:
            told.append(event)
            if len(told) == 2:
                stop.set()

        with pytest.raises(StoppedError):
            run(name, "middle", stop=stop, on_progress=on_progress)
        nothing_is_left()
        run(name, "middle")
    assert files_of(exports / "middle") == whole


@pytest.mark.parametrize("name", ["export_pages", "link_export", "finalize_export"])
def test_stages_use_the_hdfs_of_the_secrets(
    name: str, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who says how HDFS is reached (Airflow's connection) says it to the store and to Spark alike."""
    seen: list[Config] = []

    class ReachedError(Exception):
        pass

    def opened(
        given: Config, stop: Event | None, *, make: bool, credentials: object
    ) -> LocalStorage:
        seen.append(given)
        return LocalStorage.open(tmp_path)

    def engine(given: Config, room: object) -> None:
        seen.append(given)
        raise ReachedError

    def called(given: stores.Stores, **more: Any) -> None:
        ExportFolder(given, "x").engine(tmp_path)

    monkeypatch.setattr(stores, "open_storage", opened)
    monkeypatch.setattr("crawl_lib.export.folder.open_engine", engine)
    monkeypatch.setattr(
        f"crawl_lib.{'export' if name == 'export_pages' else 'graph'}.{name}", called
    )
    (tmp_path / config.crawl.directory / "1").mkdir(parents=True)
    elsewhere = replace(
        config, dfs_primary="http://of-config:1/root", dfs=DfsConfig(user="of-config")
    )
    secrets = Secrets(dfs=DfsAccess(namenodes=("http://nn1:7",), user="anna"))
    with pytest.raises(ReachedError):
        getattr(stages, name)(stores.open_stores(elsewhere, secrets), **ARGUMENTS[name])
    assert [(given.dfs_primary, given.dfs.user) for given in seen] == [
        ("http://nn1:7/root", "anna")
    ] * 2
