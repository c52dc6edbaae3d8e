"""The list of outputs: all derived data is in it, and each entry answers what fsck, sweep and drop ask of it."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import crawl_lib
from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.config.model import OUTPUT_TASKS
from crawl_lib.curate import drop_pages, merge_indexes
from crawl_lib.derived import SEGMENTS, Output, Pages
from crawl_lib.duplicates import find_near
from crawl_lib.index import INDEX, newest_index
from crawl_lib.outputs import MADE_BY_TASKS, OUTPUTS
from crawl_lib.ranks import update_linkrank
from crawl_lib.repair import sweep
from crawl_lib.statistics import update_statistics
from crawl_lib.stores import Stores, open_stores
from crawl_lib.terms import update_terms
from crawl_lib.versions import TableOutput, Versions
from demo import Serving, SynthWeb
from tests.e2e.crawl import Result, make_config

NOW = datetime(2026, 1, 2, tzinfo=UTC)
ID = "0123456789abcdef" * 2
RUN = "one"
LEFT = {
    "text": "text/1/node-0/text-0.parquet",
    "exports": "export/out/.inputs." + ID,
    "cdxj": "crawl/.index.cdxj." + ID,
    "graphs": "graphs/.out." + ID,
    "commoncrawl": "cc-wet/.{}." + ID,
    "statistics": "crawl/statistics/2026-01-01/.23-1.parquet." + ID,
}
"""A path of each output that is left over, but of tables with versions, where it is the same for all."""
OPTIONS: dict[str, dict[str, Any]] = {
    "linkdb": {"within_host": True},
    "scoring": {"plugins": ["opic"]},
    "commoncrawl": {"make": ["index", "wet"]},
    "graphs": {"make": ["hosts", "bv"]},
}
WITH_FILES = [output for output in OUTPUTS if output.name != "push"]
"""Outputs with files of the crawl: the pages of a push are in OpenSearch (`tests/push`)."""
HOLDING = {
    "text",
    "outlinks",
    "linkdb",
    "terms",
    "exports",
    "cdxj",
    "index",
    "commoncrawl",
    "graphs",
}
"""Outputs that repeat content of a page."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A crawl with every output."""
    directory = tmp_path_factory.mktemp("made")
    config = make_config(directory, nodes=1, frontier={"order": "crawldb"}, **OPTIONS)
    with Serving(SynthWeb(seed=3, sites=2, pages_per_site=4, specials=False)) as web:
        stages.inject(open_stores(config), run_id=RUN, seeds="\n".join(web.seeds))
        for iteration in (1, 2):
            stages.generate(open_stores(config), run_id=RUN, iteration=iteration)
            stages.crawl_node(open_stores(config), run_id=RUN, iteration=iteration, node="node-0")
            stages.commit_iteration(open_stores(config), run_id=RUN, iteration=iteration)
            stages.update_crawldb(open_stores(config))
    stores = open_stores(config)
    stages.export_pages(stores, label="out")
    stages.invert_links(stores)
    update_linkrank(stores, now=NOW)
    find_near(stores, now=NOW)
    update_terms(stores, now=NOW)
    merge_indexes(stores)
    stages.make_output(stores, output="captures")
    stages.make_output(stores, output="index")
    stages.link_export(stores, export="out")
    stages.make_output(stores, output="commoncrawl")
    stages.make_output(stores, output="graphs")
    update_statistics(stores, hour=NOW - timedelta(hours=1), now=NOW)
    return config


@pytest.fixture
def stores(made: Config, tmp_path: Path) -> Stores:
    """A copy of it."""
    root = shutil.copytree(made.dfs_primary, tmp_path / "dfs")
    return open_stores(replace(made, dfs_primary=str(root)))


def place(stores: Stores, path: str) -> Path:
    found = stores.storage.local_path(path)
    assert found is not None
    return found


def test_the_list_has_all_tables_in_order_and_its_tasks_are_those_of_the_config() -> None:
    sources = "".join(file.read_text() for file in Path(crawl_lib.__file__).parent.rglob("*.py"))
    assert sum(isinstance(output, TableOutput) for output in OUTPUTS) == len(
        re.findall(r"^\w+ = Family\(", sources, re.M)
    )
    names = [output.name for output in OUTPUTS]
    assert len({*names, SEGMENTS}) == len(names) + 1
    for number, output in enumerate(OUTPUTS):
        assert set(output.inputs) <= {SEGMENTS, *names[:number]}, output.name
    assert tuple(MADE_BY_TASKS) == OUTPUT_TASKS


@pytest.mark.parametrize("output", WITH_FILES, ids=lambda output: str(output.name))
def test_damage_of_each_is_found(output: Output, stores: Stores) -> None:
    assert output.paths(stores)
    assert output.check(stores, full=True) == []
    files = [
        file for path in output.paths(stores) for file in [place(stores, path)] if file.is_file()
    ]
    files += [
        file
        for path in output.paths(stores)
        for file in place(stores, path).rglob("*")
        if file.is_file()
    ]
    file = max(files, key=lambda file: file.stat().st_size)
    data = bytearray(file.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 64] = bytes(64)
    file.write_bytes(data)
    assert output.check(stores, full=True) != []


@pytest.mark.parametrize("output", WITH_FILES, ids=lambda output: str(output.name))
def test_what_is_left_over_of_each_is_swept(output: Output, stores: Stores) -> None:
    assert sweep(stores, dry_run=True).deleted == []
    name = output.paths(stores)[0].rpartition("/")[2]
    left = (
        LEFT.get(output.name, "").format(name)
        or f"crawl/{output.paths(stores)[0].rpartition('/')[2]}/.1-{ID}"
    )
    place(stores, left).parent.mkdir(parents=True, exist_ok=True)
    place(stores, left).write_bytes(b"")
    [deleted] = sweep(stores).deleted
    assert left.startswith(deleted)
    assert all(place(stores, path).exists() for path in output.paths(stores))


def one_page(config: Config) -> dict[str, Any]:
    """A page that other pages link to."""
    rows = Result(config).rows("pages", ["url", "key", "outcome", "depth", "mime_detected"])
    return next(
        row
        for row in rows
        if row["outcome"] == "ok" and row["mime_detected"] == "text/html" and row["depth"]
    )


@pytest.mark.parametrize("output", OUTPUTS, ids=lambda output: str(output.name))
def test_each_says_which_of_its_places_have_a_page(output: Output, stores: Stores) -> None:
    names = [str(segment) for segment in stores.crawl.segments()]
    pages: Pages = {one_page(stores.config)["key"]: names}
    found = list(output.places_of(stores, pages))
    assert bool(found) is (output.name in HOLDING)
    assert all(one.until and place(stores, one.path).exists() for one in found)
    if output.name not in {"exports", "commoncrawl", "graphs"}:  # which go by segments
        assert list(output.places_of(stores, {b"\0" * 20: names})) == []


def test_a_drop_names_all_places_until_they_are_made_again(stores: Stores) -> None:
    url = one_page(stores.config)["url"]
    folders = {
        one.path.split("/")[-1 if "." in one.path else -2]
        for one in drop_pages(stores, [url]).places
    }
    assert {"outlinks", "linkdb", "index.cdxj", "export"} <= folders
    stages.make_output(stores, output="text")
    stages.update_crawldb(stores)
    stages.invert_links(stores)
    merge_indexes(stores)
    stages.make_output(stores, output="index")
    again = [one.path for one in drop_pages(stores, [url]).places]
    newest = [f"crawl/{kind}/2" for kind in ("outlinks", "linkdb")]
    assert not [
        path
        for path in again
        if path.startswith("text/") or path == "crawl/index.cdxj" or path in newest
    ]
    assert {"crawl/outlinks/1", "crawl/linkdb/1", "export/out"} <= set(again)


def test_plug_ins_say_what_the_index_boosts(stores: Stores) -> None:
    version = newest_index(Versions(stores, INDEX))
    assert version is not None
    assert version.manifest["boosts"].startswith("opic of CrawlDb ")
    boosts = [
        row["boost"]
        for row in pq.read_table(place(stores, f"{version.path}/pages.parquet")).to_pylist()
    ]
    assert sum(boosts) / len(boosts) == pytest.approx(1)
    assert len(set(boosts)) > 1


@pytest.mark.parametrize("output", WITH_FILES, ids=lambda output: str(output.name))
def test_each_is_deleted_and_nothing_else_with_it(output: Output, stores: Stores) -> None:
    others = {other.name: other.paths(stores) for other in OUTPUTS if other is not output}
    output.delete(stores)
    assert output.paths(stores) == []
    assert output.check(stores, full=True) == []
    assert {other.name: other.paths(stores) for other in OUTPUTS if other is not output} == others
    if output.name in MADE_BY_TASKS:
        stages.make_output(stores, output=output.name)
        assert output.paths(stores)


def test_texts_are_looked_at_wherever_they_are_and_not_those_of_another_crawl(
    stores: Stores,
) -> None:
    """With `crawldb.signature: content` too, but only where the note of the place names this crawl."""
    assert stores.config.crawldb.signature == "content"
    text = next(output for output in OUTPUTS if output.name == "text")
    place(stores, LEFT["text"]).parent.mkdir(parents=True)
    assert [path for path, _ in text.leftovers(stores)] == ["text/1/node-0"]
    crawl = replace(stores.config.crawl, name="another")
    other = open_stores(replace(stores.config, crawl=crawl))
    assert (text.paths(other), list(text.leftovers(other)), text.check(other, full=True)) == (
        [],
        [],
        [],
    )
    place(stores, "text/_crawl").unlink()
    assert text.paths(stores) == [], "nothing says whose they are"
    asks = open_stores(
        replace(stores.config, outputs=replace(stores.config.outputs, tasks=("text",)))
    )
    assert text.paths(asks)
