"""WebGraph itself (Java) reads our BV graphs and lists of arcs; its jars come by Maven into `webgraph/target`, once."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from crawl_lib.commoncrawl import FORMATS, export_graph_files
from crawl_lib.config import Config
from crawl_lib.export import export_pages
from crawl_lib.graph import BV_SUFFIXES, Neighbours, link_export, write_bv
from crawl_lib.ranks import harmonic_centrality, starts_of
from crawl_lib.storage import open_storage
from crawl_lib.stores import open_stores
from tests.commoncrawl.webs import random_web
from tests.export.crawls import Capture, CrawlMaker
from tests.ranks.graphs import cnr_2000, counting, inlinks_of

HERE = Path(__file__).parent / "webgraph"
JARS = HERE / "target" / "dependency"
RANKS = Path(__file__).parents[1] / "ranks" / "cnr-2000.harmonic.tsv"
Java = Callable[..., list[str]]


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Java:
    """What runs a program of this folder, and returns its lines."""
    if missing := [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]:
        pytest.skip(
            f"{' and '.join(missing)} not installed (Debian: openjdk-17-jdk-headless, maven)"
        )
    with (HERE / "pom.xml").open("rb") as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        if not any(JARS.glob("webgraph-3*.jar")):
            command = ["mvn", "-q", "-B", "-ntp", "dependency:copy-dependencies"]
            done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, (
                f"Maven cannot resolve WebGraph:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
            )
    classes = tmp_path_factory.mktemp("classes")
    path = f"{classes}:{JARS}/*"
    subprocess.run(
        ["javac", "-cp", path, "-d", str(classes), str(HERE / "ReadGraph.java")], check=True
    )

    def run(*words: object) -> list[str]:
        command = ["java", "-Xmx1g", "-cp", path, *map(str, words)]
        found = subprocess.run(command, capture_output=True, text=True)
        assert found.returncode == 0, found.stderr
        return found.stdout.split()

    return run


def written(stem: Path, degrees: np.ndarray, successors: np.ndarray) -> None:
    """A BV graph, and the lists that it should have, for Java."""
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(Path(f"{stem}.{name}").open("wb")) for name in BV_SUFFIXES
        }
        write_bv(files, degrees, Neighbours(iter([successors])), counting())
    starts = starts_of(degrees)
    words = np.empty(len(degrees) + len(successors), ">i4")
    heads = starts[:-1] + np.arange(len(degrees))
    is_head = np.zeros(len(words), bool)
    is_head[heads] = True
    words[is_head], words[~is_head] = degrees, successors
    Path(f"{stem}.lists").write_bytes(words.tobytes())


def sorted_arcs(arcs: np.ndarray, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Degrees and successors of a graph of rows (source, target)."""
    keys = np.unique(arcs[:, 0].astype(np.int64) * nodes + arcs[:, 1])
    return np.bincount(keys // nodes, minlength=nodes), (keys % nodes).astype(np.int32)


def random_arcs(nodes: int, arcs: int) -> np.ndarray:
    """No node links to itself; a few link to many."""
    chance = np.random.default_rng(nodes)
    pairs = np.stack([chance.zipf(1.8, arcs) % nodes, chance.integers(0, nodes, arcs)], axis=1)
    return pairs[pairs[:, 0] != pairs[:, 1]]


@pytest.mark.parametrize(("nodes", "arcs"), [(0, 0), (1, 0), (2000, 40_000), (1 << 20, 3_000_000)])
def test_java_reads_graphs_of_any_size(java: Java, tmp_path: Path, nodes: int, arcs: int) -> None:
    found = (
        sorted_arcs(random_arcs(nodes, arcs), nodes)
        if arcs
        else (np.zeros(nodes, int), np.empty(0, np.int32))
    )
    written(tmp_path / "graph", *found)
    assert java("ReadGraph", "lists", tmp_path / "graph", tmp_path / "graph.lists") == [
        str(nodes),
        "0",
    ]


def test_java_reads_a_real_web_graph_both_ways(java: Java, testdata: Path, tmp_path: Path) -> None:
    arcs, nodes = cnr_2000(testdata)
    for name, rows in (("graph", arcs), ("graph-t", arcs[:, ::-1])):
        written(tmp_path / name, *sorted_arcs(rows, nodes))
        assert java("ReadGraph", "lists", tmp_path / name, tmp_path / f"{name}.lists") == [
            str(nodes),
            "0",
        ]
    bits = (tmp_path / "graph.graph").stat().st_size * 8 / len(arcs)
    assert 7 < bits < 8


def test_a_wrong_list_would_be_noticed(java: Java, tmp_path: Path) -> None:
    written(tmp_path / "graph", np.array([1, 0, 1]), np.array([2, 0]))
    lists = np.frombuffer((tmp_path / "graph.lists").read_bytes(), ">i4").copy()
    lists[1] = 1
    (tmp_path / "graph.lists").write_bytes(lists.tobytes())
    assert java("ReadGraph", "lists", tmp_path / "graph", tmp_path / "graph.lists")[1] != "0"


@pytest.mark.parametrize("of", ["hosts", "domains", "pages"])
def test_the_lists_of_arcs_are_the_bv_graphs(
    java: Java, config: Config, tmp_path: Path, of: str
) -> None:
    crawl = CrawlMaker(Path(config.dfs_primary))
    open_storage(config)
    crawl.segment(
        "1",
        "node-a",
        [Capture(url, b"page", links=some) for url, some in random_web(seed=4).items()],
    )
    stores = open_stores(config)
    export_pages(stores, name="x", segments=crawl.segments)
    link_export(stores, name="x")
    for form in FORMATS:
        now = datetime(2026, 1, 2, tzinfo=UTC)
        report = export_graph_files(stores, tmp_path / "web", form=form, of=of, name="x", now=now)
    stem = tmp_path / f"web-{of.removesuffix('s')}"
    assert java("ReadGraph", "arcs", stem, f"{stem}-edges.txt.gz") == [str(report.nodes), "0"]


def test_harmonic_centralities_have_the_order_of_webgraphs_own(testdata: Path) -> None:
    """WebGraph 3.6.12 took minutes for its own (`webgraph/Harmonic.java`), so some of the values are kept."""
    lines = [
        line.split("\t") for line in RANKS.read_text().splitlines() if not line.startswith("#")
    ]
    nodes, expected = (
        np.array([int(node) for node, _ in lines]),
        np.array([float(value) for _, value in lines]),
    )
    assert len(nodes) == 2000
    found = harmonic_centrality(inlinks_of(*cnr_2000(testdata))[0], counting()).values[nodes]
    ours, theirs = (
        np.argsort(np.argsort(values, kind="stable"), kind="stable") for values in (found, expected)
    )
    assert np.corrcoef(ours, theirs)[0, 1] > 0.99
    assert np.median(np.abs(found - expected) / expected) < 0.1
