"""Runs of nothing: an iteration that took no URL leaves a few small files, and every command bears that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from demo import Serving
from tests.cli.conftest import Krake
from tests.scopes import shared_scopes

NODES = ("node-a", "node-b")
EXPORT = (("export", "--label", "e"), ("graph", "link"), ("graph", "finalize"))
TABLES = (
    *(
        ("linkdb", "update"),
        ("linkdb", "rank"),
        ("crawldb", "update"),
        ("crawldb", "stats"),
        ("crawldb", "hosts"),
    ),
    *(("duplicates", "mark"), ("duplicates", "near")),
)
"""Needs a CrawlDb."""


def folders(krake: Krake) -> list[Path]:
    return sorted((krake.directory / "dfs" / "crawl").glob("[0-9]*"))


def crawl_and_nothing(krake: Krake, web: Serving) -> Path:
    """A crawl of all there is, then a run that finds nothing to do; returns the newest folder.

    With a CrawlDb a run of nothing makes no folder: there the newest has a node that no URL was listed for.
    """
    krake.ok("inject", "\n".join(web.seeds), "--run-id", "one")
    krake.ok("crawl", "--run-id", "one", "--iterations", "8")
    krake.ok("crawl", "--run-id", "two", "--iterations", "1")
    newest = max((krake.directory / "dfs" / "crawl").glob("[0-9]*"))
    assert idle(newest)
    return newest


def idle(folder: Path) -> list[Path]:
    """The segments of nodes that took no URL."""
    manifests = sorted(folder.glob("*/manifest.json"))
    return [
        path.parent for path in manifests if not json.loads(path.read_text())["counts"]["taken"]
    ]


NO_URL = {"manifest.json", "iteration.json", "scope"}
"""The files of a segment without URLs."""


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_an_iteration_that_took_nothing_has_a_manifest_of_each_node_and_no_table(
    krake: Krake, serving: Serving
) -> None:
    folder = crawl_and_nothing(krake, serving)
    segments = {f"{node}/{name}" for node in NODES for name in NO_URL}
    assert names(folder) == {"iteration.json", "index.json", *segments}
    krake.ok("crawl", "--run-id", "three", "--iterations", "1")
    assert len(shared_scopes(folder.parent)) == 1, "iterations of equal scopes have one file"


@pytest.mark.parametrize("order", ["fifo", "crawldb"])
def test_every_command_bears_segments_of_nodes_that_took_nothing(
    krake: Krake, serving: Serving, order: str
) -> None:
    krake.configure(
        frontier={"order": order},
        crawldb={"signature": "text" if order == "crawldb" else "content"},
    )
    for segment in idle(crawl_and_nothing(krake, serving)):
        assert names(segment) == NO_URL
    krake.ok("settle")
    for words in (*EXPORT, *(TABLES if order == "crawldb" else TABLES[:2])):
        krake.ok(*words)
    page = krake.ok("show", "0", "--export", "e", "--json").json["url"]
    assert "clean" in krake.ok("fsck").out
    assert "clean" in krake.ok("fsck", "--repair").out
    assert krake.status()["iterations"][-1]["complete"]
    for words in (("why", page), ("cat", page), ("segment", "list"), ("segment", "get", page)):
        krake.ok(*words)
    krake.ok("index", "cdxj")
    krake.ok("sweep")
    krake.ok("segment", "drop", page, "--yes")
    for words in (
        ("segment", "compact", "--yes"),
        ("index", "cdxj"),
        ("export", "--label", "after"),
        ("settle",),
    ):
        krake.ok(*words)
    krake.ok("crawl", "--run-id", "three", "--iterations", "1")
    assert "clean" in krake.ok("fsck").out


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_a_manifest_that_is_lost_is_made_again(krake: Krake, serving: Serving, damage: str) -> None:
    """It is all that the segment has: its folder stays, as an empty one."""
    folder = crawl_and_nothing(krake, serving)
    path = folder / "node-a" / "manifest.json"
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:100])
    assert "manifest_" in krake("fsck", "--json").out
    krake.ok("fsck", "--repair")
    assert "clean" in krake.ok("fsck").out
    assert names(folder / "node-a") == NO_URL
