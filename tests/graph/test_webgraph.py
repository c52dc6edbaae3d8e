"""The web graph's writer and reader: golden bytes, round trips, a real graph, damaged files."""

from __future__ import annotations

import gzip
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crawl_lib.config import Config
from crawl_lib.errors import DamagedFileError
from crawl_lib.export import ExportFolder, export_pages
from crawl_lib.graph import WebGraph, finalize_export
from crawl_lib.graph.finalizer import Neighbours, arc_column, graph_words
from crawl_lib.storage import LocalStorage, Storage
from tests.stores import stores_on

GOLDEN = b"".join(
    bytes.fromhex(words)
    for words in (
        "00000003",  # three nodes
        "00000003 00000001 00000002 00000001 00000002",  # 0: 3 edges, 1 in; in from 2, out to 1 and 2
        "00000001 00000001 00000000",  # 1: 1 edge, 1 in; in from 0
        "00000002 00000001 00000000 00000000",  # 2: 2 edges, 1 in; in from 0, out to 0
    )
)
GOLDEN_ARCS = [(0, 1), (0, 2), (2, 0)]


def write_arcs(folder: Path, pairs: list[tuple[int, int]] | np.ndarray) -> None:
    """Both arc files of distinct arcs, as the linker leaves them."""
    arcs = np.array(pairs, dtype=np.int32).reshape(-1, 2)
    for name, first, second, columns in (
        ("arcs-out.parquet", 0, 1, ["source", "target"]),
        ("arcs-in.parquet", 1, 0, ["target", "source"]),
    ):
        order = np.lexsort((arcs[:, second], arcs[:, first]))
        table = pa.table(
            [pa.array(arcs[order, first]), pa.array(arcs[order, second])], names=columns
        )
        pq.write_table(table, folder / name)


def export_of(storage: Storage, config: Config, nodes: int) -> Path:
    """An export that the finalizer takes for one of so many pages."""
    export_pages(stores_on(storage, config), name="x", segments=[])
    folder = Path(config.dfs_primary) / ExportFolder(stores_on(storage, config), "x").path
    (folder / "urlmapping").write_bytes(struct.pack(">i", nodes) + bytes(20 * nodes))
    return folder


def test_golden_bytes_written_and_read(storage: Storage, config: Config) -> None:
    folder = export_of(storage, config, 3)
    write_arcs(folder, GOLDEN_ARCS)
    finalize_export(stores_on(storage, config), name="x")
    assert (folder / "webgraph").read_bytes() == GOLDEN
    assert (folder / "webgraph-index").read_bytes() == struct.pack(">qqq", 4, 24, 36)
    with WebGraph(folder / "webgraph", folder / "webgraph-index") as graph:
        assert vars(graph.stats()) == {
            "nodes": 3,
            "arcs": 3,
            "dangling": 1,
            "isolated": 0,
            "max_in_degree": 1,
            "max_out_degree": 2,
            "average_degree": 1.0,
            "in_degrees": {"0": 0, "1": 3},
            "out_degrees": {"0": 1, "1": 1, "2-3": 1},
        }


def test_an_empty_graph_has_stats(tmp_path: Path) -> None:
    (tmp_path / "webgraph").write_bytes(bytes(4))
    (tmp_path / "index").write_bytes(b"")
    with WebGraph(tmp_path / "webgraph", tmp_path / "index") as graph:
        assert list(graph) == []
        assert vars(graph.stats()) == {
            "nodes": 0,
            "arcs": 0,
            "dangling": 0,
            "isolated": 0,
            "max_in_degree": 0,
            "max_out_degree": 0,
            "average_degree": 0.0,
            "in_degrees": {},
            "out_degrees": {},
        }


def slow_bytes(nodes: int, arcs: set[tuple[int, int]]) -> bytes:
    """The file by its description, page by page."""
    words = [nodes]
    for node in range(nodes):
        ins = sorted(source for source, target in arcs if target == node)
        outs = sorted(target for source, target in arcs if source == node)
        words += [len(ins) + len(outs), len(ins), *ins, *outs]
    return struct.pack(f">{len(words)}i", *words)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, set[tuple[int, int]]]:
    nodes = draw(st.integers(0, 12))
    if nodes < 2:
        return nodes, set()
    node = st.integers(0, nodes - 1)
    arcs = draw(st.sets(st.tuples(node, node), max_size=60))
    return nodes, {(source, target) for source, target in arcs if source != target}


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(graph=graphs(), block_words=st.integers(1, 40))
def test_every_graph_is_written_and_read_in_blocks_of_any_size(
    tmp_path: Path, graph: tuple[int, set[tuple[int, int]]], block_words: int
) -> None:
    nodes, arcs = graph
    write_arcs(tmp_path, sorted(arcs))
    pairs = np.array(sorted(arcs), dtype=np.int64).reshape(-1, 2)
    outs, ins = (np.bincount(pairs[:, side], minlength=nodes).astype(np.int32) for side in (0, 1))
    store = LocalStorage.open(tmp_path)
    sources = Neighbours(arc_column(store, "arcs-in.parquet", "source", nodes))
    targets = Neighbours(arc_column(store, "arcs-out.parquet", "target", nodes))
    blocks = list(graph_words(ins, outs, sources, targets, block_words))
    data = b"".join(words.astype(">i4").tobytes() for words, _ in blocks)
    assert data == slow_bytes(nodes, arcs)
    assert sum(count for _, count in blocks) == nodes
    assert all(len(words) <= block_words + 2 for words, _ in blocks)
    (tmp_path / "webgraph").write_bytes(data)
    ends = np.cumsum(8 + 4 * (ins.astype(np.int64) + outs))
    (tmp_path / "index").write_bytes((4 + ends - 8 - 4 * (ins + outs)).astype(">i8").tobytes())
    with WebGraph(tmp_path / "webgraph", tmp_path / "index") as read:
        assert {(n.node_id, target) for n in read for target in n.out_neighbours.tolist()} == arcs
        assert {(source, n.node_id) for n in read for source in n.in_neighbours.tolist()} == arcs
        assert (len(read), read.stats().arcs) == (nodes, len(arcs))
        for node_id in range(nodes):
            assert read.node(node_id).out_neighbours.tolist() == sorted(
                t for s, t in arcs if s == node_id
            )
            assert read.node(node_id).in_neighbours.tolist() == sorted(
                s for s, t in arcs if t == node_id
            )


def test_a_real_web_graph_comes_back(storage: Storage, config: Config, testdata: Path) -> None:
    """cnr-2000 of LAW, 325,557 pages: written and read, it is what it was."""
    file = testdata / "graphs" / "cnr-2000.graph-txt.gz"
    if not file.is_file():
        pytest.skip(f"{file.name} is not there: it is third-party data, kept next to the project")
    with gzip.open(file) as lines:
        nodes = int(next(lines))
        rows = [np.fromstring(line, dtype=np.int32, sep=" ") for line in lines]
    assert len(rows) == nodes == 325557
    sources = np.repeat(np.arange(nodes, dtype=np.int32), [len(row) for row in rows])
    arcs = np.stack([sources, np.concatenate(rows)], axis=1)
    arcs = arcs[arcs[:, 0] != arcs[:, 1]]  # our graph has no self links, and cnr-2000 has some
    folder = export_of(storage, config, nodes)
    write_arcs(folder, arcs)
    report = finalize_export(stores_on(storage, config), name="x")
    assert (report.nodes, report.arcs) == (nodes, len(arcs))
    with WebGraph(folder / "webgraph", folder / "webgraph-index") as graph:
        ins, outs = (np.concatenate(parts) for parts in zip(*graph.degrees(), strict=True))
        assert (np.bincount(arcs[:, 0], minlength=nodes) == outs).all()
        assert (np.bincount(arcs[:, 1], minlength=nodes) == ins).all()
        found = np.concatenate([node.out_neighbours for node in graph])
        assert (found == arcs[np.lexsort((arcs[:, 1], arcs[:, 0])), 1]).all()
        for node_id in range(0, nodes, 9973):
            mine = np.sort(arcs[arcs[:, 1] == node_id, 0])
            assert (graph.node(node_id).in_neighbours == mine).all()


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"", "byte 0: the file ends at byte 0"),
        (b"\xff\xff\xff\xff", "byte 0: a count of -1"),
        (GOLDEN[:-4], "byte 44: the file ends"),
        (GOLDEN + b"\0\0\0\0", "byte 52: .*goes on"),
        (GOLDEN[:8] + b"\0\0\0\4" + GOLDEN[12:], "byte 4: a page with 3 edges, 4 of them in-edges"),
        (GOLDEN[:12] + b"\0\0\0\3" + GOLDEN[16:], "byte 12: a neighbour of page 0 is outside"),
    ],
)
def test_a_damaged_graph_is_named_with_its_place(tmp_path: Path, data: bytes, place: str) -> None:
    path = tmp_path / "webgraph"
    path.write_bytes(data)
    with pytest.raises(DamagedFileError, match=f"webgraph: {place}"):
        list(WebGraph(path))


def test_a_damaged_index_is_named(tmp_path: Path) -> None:
    path, index = tmp_path / "webgraph", tmp_path / "webgraph-index"
    path.write_bytes(GOLDEN)
    index.write_bytes(bytes(16))
    with pytest.raises(DamagedFileError, match="webgraph-index: byte 16: "):
        WebGraph(path, index)
    index.write_bytes(struct.pack(">qqq", 4, 24, 4000))
    with WebGraph(path, index) as graph:
        with pytest.raises(DamagedFileError, match="webgraph: byte "):
            graph.stats()
        with pytest.raises(DamagedFileError, match="webgraph: byte 4000: "):
            graph.node(2)
        with pytest.raises(IndexError, match="there are 3 pages"):
            graph.node(3)


@pytest.mark.parametrize(
    ("name", "columns", "problem"),
    [
        (
            "arcs-out.parquet",
            {"source": [2, 0], "target": [0, 1]},
            "arcs-out.parquet: is not sorted by source",
        ),
        (
            "arcs-out.parquet",
            {"source": [0, 3], "target": [1, 0]},
            "arcs-out.parquet: source has a NodeID outside",
        ),
        (
            "arcs-out.parquet",
            {"source": [0, 0], "target": [1, -1]},
            "arcs-out.parquet: target has a NodeID outside",
        ),
        (
            "arcs-in.parquet",
            {"target": [1], "source": [0]},
            "arcs-in.parquet: does not hold as many arcs",
        ),
        ("arcs-in.parquet", None, "arcs-in.parquet: cannot be read as a table"),
    ],
)
def test_damaged_arcs_are_named(
    storage: Storage, config: Config, name: str, columns: dict[str, list[int]] | None, problem: str
) -> None:
    folder = export_of(storage, config, 3)
    write_arcs(folder, [(0, 1), (0, 2)])
    if columns is None:
        (folder / name).write_bytes(b"no table")
    else:
        pq.write_table(
            pa.table({c: pa.array(ids, pa.int32()) for c, ids in columns.items()}), folder / name
        )
    with pytest.raises(DamagedFileError, match=problem):
        finalize_export(stores_on(storage, config), name="x")
    assert not (folder / "webgraph").exists()


def test_the_bytes_do_not_depend_on_memory(storage: Storage, config: Config) -> None:
    folder = export_of(storage, config, 3)
    write_arcs(folder, GOLDEN_ARCS)
    small = replace(config, scratch=replace(config.scratch, memory_bytes=64 << 20))
    finalize_export(stores_on(storage, small), name="x")
    assert (folder / "webgraph").read_bytes() == GOLDEN
