"""Graphs of an export as an output: made once, whole or not at all, found by what they were made of."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

import pytest

from crawl_lib.commoncrawl import GRAPHS_OUTPUT, make_graphs
from crawl_lib.config import Config
from crawl_lib.config.model import GraphsConfig
from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.errors import (
    DamagedFileError,
    NoExportError,
    OutputConflictError,
    PathNotFoundError,
    StoppedError,
)
from crawl_lib.export import export_pages
from crawl_lib.graph import link_export
from crawl_lib.storage import Storage
from crawl_lib.stores import Stores, open_stores
from tests.commoncrawl.webs import random_web
from tests.export.crawls import Capture, CrawlMaker
from tests.forked import run_forked
from tests.harms import files_of
from tests.stores import stores_on

NOW = datetime(2026, 1, 2, tzinfo=UTC)
ALL = ("hosts", "domains", "bv")
TEXTS = [f"{what}.txt.gz" for what in ("edges", "ranks", "vertices")]
STEPS = ("commoncrawl.written", "commoncrawl.renamed")


@pytest.fixture
def stores(storage: Storage, config: Config, crawl: CrawlMaker) -> Stores:
    config = replace(config, graphs=GraphsConfig(make=ALL))
    links = random_web(seed=2, pages=40)
    crawl.segment("1", "node-a", [Capture(url, b"page", links=some) for url, some in links.items()])
    found = stores_on(storage, config)
    export_pages(found, name="1", segments=crawl.segments)
    link_export(found, name="1")
    return found


def graphs_of(stores: Stores) -> dict[str, bytes]:
    """All files of graphs, hidden ones too."""
    return files_of(Path(stores.config.dfs_primary) / "graphs")


def test_each_graph_is_there_with_its_files(stores: Stores) -> None:
    report = make_graphs(stores, name="1")
    assert (report.path, report.complete_already) == ("graphs/1", False)
    stem = f"1/{stores.config.crawl.name}-1"
    bv = [f"{stem}-{kind}{t}.{suffix}" for kind in ("page", "host", "domain") for t in ("", "-t")
          for suffix in ("graph", "offsets", "properties")]  # fmt: skip
    texts = [f"{stem}-{kind}-{text}" for kind in ("host", "domain") for text in TEXTS]
    assert sorted(graphs_of(stores)) == sorted(["1/inputs", *bv, *texts])
    assert GRAPHS_OUTPUT.check(stores, full=True) == []
    assert report.counts.keys() == {
        f"{kind}_{what}" for kind in ("page", "host", "domain") for what in ("nodes", "arcs")
    }


@pytest.mark.parametrize(
    ("make", "kinds"),
    [
        (("hosts",), {"host"}),
        (("bv",), {"page"}),
        (("bv", "domains"), {"page", "domain"}),
        (("domains",), {"domain"}),
    ],
)
def test_only_what_is_asked_for_is_made(
    stores: Stores, make: tuple[str, ...], kinds: set[str]
) -> None:
    asked = replace(stores, config=replace(stores.config, graphs=GraphsConfig(make=make)))
    assert {name.split("_")[0] for name in make_graphs(asked, name="1").counts} == kinds
    names = {
        name.removeprefix(f"1/{stores.config.crawl.name}-1-") for name in graphs_of(stores)
    } - {"1/inputs"}
    assert {name.split("-")[0].split(".")[0] for name in names} == kinds
    assert any(name.endswith(".graph") for name in names) is ("bv" in make)


def test_made_again_it_is_found(stores: Stores) -> None:
    first = make_graphs(stores, name="1")
    files = graphs_of(stores)
    assert make_graphs(stores, name="1") == replace(first, complete_already=True)
    assert GRAPHS_OUTPUT.make(stores, now=NOW).complete_already
    assert graphs_of(stores) == files


def test_made_of_something_else_it_is_an_error_that_says_what_to_do(stores: Stores) -> None:
    make_graphs(stores, name="1")
    files = graphs_of(stores)
    other = replace(stores, config=replace(stores.config, graphs=GraphsConfig(make=("hosts",))))
    with pytest.raises(
        OutputConflictError, match=r"graphs/1: .* other options \(see inputs in it\); move it away"
    ):
        make_graphs(other, name="1")
    (Path(stores.config.dfs_primary) / "graphs" / "1" / "inputs").unlink()
    with pytest.raises(OutputConflictError, match="move it away"):
        make_graphs(stores, name="1")
    assert graphs_of(stores).keys() == files.keys() - {"1/inputs"}


def test_without_an_export_or_its_arcs_there_is_a_clear_error(
    stores: Stores, config: Config
) -> None:
    with pytest.raises(PathNotFoundError, match="no such export"):
        make_graphs(stores, name="2")
    stores.storage.delete(f"{config.export.directory}/1/arcs-in.parquet")
    with pytest.raises(PathNotFoundError, match="krake graph link"):
        make_graphs(stores, name="1")
    with pytest.raises(NoExportError):
        GRAPHS_OUTPUT.make(stores, now=NOW)


def killed(config: Config, step: str) -> None:
    os.environ[KILL_VARIABLE] = step
    make_graphs(open_stores(config), name="1")


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_any_step_and_run_again_the_bytes_are_the_same(stores: Stores, step: str) -> None:
    make_graphs(stores, name="1")
    whole = graphs_of(stores)
    GRAPHS_OUTPUT.delete(stores)
    assert run_forked(killed, stores.config, step) == -signal.SIGKILL
    assert bool(GRAPHS_OUTPUT.paths(stores)) is (step == STEPS[1])
    assert make_graphs(stores, name="1").complete_already is (step == STEPS[1])
    assert graphs_of(stores) == whole


def test_stopped_anywhere_it_leaves_nothing(stores: Stores) -> None:
    make_graphs(stores, name="1")
    whole = graphs_of(stores)
    GRAPHS_OUTPUT.delete(stores)
    for reports in range(1, 9):
        stop, told = Event(), []

        def on_progress(
            event: object, stop: Event = stop, told: list[object] = told, most: int = reports
        ) -> None:
            told.append(event)
            if len(told) == most:
                stop.set()

        with pytest.raises(StoppedError):
            make_graphs(
                stores_on(stores.storage, stores.config, stop=stop, on_progress=on_progress),
                name="1",
            )
        assert graphs_of(stores) == {}
    make_graphs(stores, name="1")
    assert graphs_of(stores) == whole


def test_another_attempt_that_was_faster_is_success(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, rename = open_stores(stores.config), stores.storage.rename
    reports = []

    def late(source: str, target: str) -> None:
        if target == "graphs/1":
            reports.append(make_graphs(other, name="1"))
        rename(source, target)

    monkeypatch.setattr(stores.storage, "rename", late)
    assert make_graphs(stores, name="1").complete_already
    assert [report.complete_already for report in reports] == [False]
    assert all(name.startswith("1/") for name in graphs_of(stores)), "nothing is left"


def test_a_folder_of_another_crawl_is_not_ours(stores: Stores) -> None:
    make_graphs(stores, name="1")
    other = replace(stores.config, crawl=replace(stores.config.crawl, name="another"))
    assert GRAPHS_OUTPUT.paths(stores_on(stores.storage, other)) == []


def test_inputs_that_are_damaged_are_named(stores: Stores) -> None:
    make_graphs(stores, name="1")
    inputs = Path(stores.config.dfs_primary) / "graphs" / "1" / "inputs"
    inputs.write_bytes(inputs.read_bytes().replace(b'"hosts"', b'"hoasts"', 1))
    with pytest.raises(DamagedFileError, match="graphs/1/inputs: does not say"):
        make_graphs(stores, name="1")
    [finding] = GRAPHS_OUTPUT.check(stores, full=False)
    assert (finding.where, finding.repair) == ("graphs/1", GRAPHS_OUTPUT.again)
