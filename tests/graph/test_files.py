"""`krake graph export`: the arcs of an export as tsv, GraphML and a sparse matrix, between pages and between hosts."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from crawl_lib.config import Config
from crawl_lib.errors import InputError, PathNotFoundError, StoppedError
from crawl_lib.export import export_pages
from crawl_lib.graph import files, link_export
from crawl_lib.graph.files import FORMATS, Arcs, export_graph
from crawl_lib.storage import Storage
from crawl_lib.stores import Stores
from tests.export.crawls import Capture, CrawlMaker, key
from tests.stores import stores_on

A1, A2, B, C = (
    "http://a.example/",
    "http://a.example/2?x=1&y=2",
    "http://b.example/",
    "http://c.example/",
)
LINKS = {A1: [A2, B, C], A2: [B], B: [A1], C: []}
ORDER = sorted(LINKS, key=key)
ARCS = [(source, target) for source in ORDER for target in sorted(LINKS[source], key=key)]
HOST_ARCS = [
    ("a.example", "b.example", 2),
    ("a.example", "c.example", 1),
    ("b.example", "a.example", 1),
]
GRAPHML = "{http://graphml.graphdrawing.org/xmlns}"


@pytest.fixture
def stores(storage: Storage, config: Config, crawl: CrawlMaker) -> Stores:
    pages = [Capture(url, b"page", links=links) for url, links in LINKS.items()]
    crawl.segment("1", "node-a", pages)
    found = stores_on(storage, config)
    export_pages(found, name="x", segments=crawl.segments)
    link_export(found, name="x")
    return found


def test_tsv_of_pages_and_of_hosts(stores: Stores, tmp_path: Path) -> None:
    report = export_graph(stores, tmp_path / "pages", name="x", form="tsv", of="pages")
    assert (report.nodes, report.arcs) == (4, 5)
    assert (tmp_path / "pages").read_text() == "".join(
        f"{source}\t{target}\n" for source, target in ARCS
    )
    report = export_graph(stores, tmp_path / "hosts", name="x", form="tsv", of="hosts")
    assert (report.nodes, report.arcs) == (3, 3)
    assert (tmp_path / "hosts").read_text() == "".join(
        f"{one}\t{other}\t{n}\n" for one, other, n in HOST_ARCS
    )


@pytest.mark.parametrize("of", ["pages", "hosts"])
def test_graphml_has_labels_and_weights(stores: Stores, tmp_path: Path, of: str) -> None:
    export_graph(stores, tmp_path / "x.graphml", name="x", form="graphml", of=of)
    graph = ET.parse(tmp_path / "x.graphml").getroot().find(f"{GRAPHML}graph")
    assert graph is not None
    nodes = {node.get("id"): [data.text for data in node] for node in graph.iter(f"{GRAPHML}node")}
    arcs = [
        (
            nodes[str(arc.get("source"))][0],
            nodes[str(arc.get("target"))][0],
            *(int(str(data.text)) for data in arc),
        )
        for arc in graph.iter(f"{GRAPHML}edge")
    ]
    assert arcs == (HOST_ARCS if of == "hosts" else ARCS)
    hosts = [["a.example", "2"], ["b.example", "1"], ["c.example", "1"]]
    assert list(nodes.values()) == (hosts if of == "hosts" else [[url] for url in ORDER])


@pytest.mark.parametrize("of", ["pages", "hosts"])
def test_npz_is_the_matrix_that_scipy_reads(stores: Stores, tmp_path: Path, of: str) -> None:
    export_graph(stores, tmp_path / "x.npz", name="x", form="npz", of=of)
    with np.load(tmp_path / "x.npz") as found:
        assert found["format"].item() == b"csr"
        labels = found["labels"].tobytes().decode().splitlines()
        assert found["shape"].tolist() == [len(labels)] * 2
        rows = np.repeat(np.arange(len(labels)), np.diff(found["indptr"]))
        cells = zip(rows.tolist(), found["indices"].tolist(), found["data"].tolist(), strict=True)
        arcs = [(labels[row], labels[column], weight) for row, column, weight in cells]
    assert arcs == (HOST_ARCS if of == "hosts" else [(*arc, 1) for arc in ARCS])


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("of", ["pages", "hosts"])
def test_a_crawl_without_pages_has_an_empty_graph(
    storage: Storage, config: Config, crawl: CrawlMaker, tmp_path: Path, form: str, of: str
) -> None:
    crawl.segment("1", "node-a", [])
    stores = stores_on(storage, config)
    export_pages(stores, name="none", segments=crawl.segments)
    link_export(stores, name="none")
    assert export_graph(stores, tmp_path / "none", name="none", form=form, of=of).nodes == 0


def test_arcs_of_hosts_are_summed_in_parts_as_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    host_of = random.integers(0, 7, 100)
    batches = [Arcs(random.integers(0, 100, 50), random.integers(0, 100, 50)) for _ in range(20)]
    whole = files._between_groups(batches, host_of, 7)
    monkeypatch.setattr(files, "MERGE_ARCS", 10)
    for one, other in zip(whole, files._between_groups(batches, host_of, 7), strict=True):
        assert one is not None
        assert (one == other).all()


def test_what_is_there_is_kept_and_what_is_missing_is_named(
    stores: Stores, config: Config, tmp_path: Path
) -> None:
    (tmp_path / "there").write_text("mine")
    with pytest.raises(InputError, match="there: is there already"):
        export_graph(stores, tmp_path / "there", name="x", form="tsv", of="pages")
    stores.storage.delete(f"{config.export.directory}/x/arcs-out.parquet")
    with pytest.raises(PathNotFoundError, match="run `krake graph link`"):
        export_graph(stores, tmp_path / "new", name="x", form="tsv", of="pages")


def test_stopped_in_the_middle_it_leaves_nothing(stores: Stores, tmp_path: Path) -> None:
    stores.stop.set()
    with pytest.raises(StoppedError):
        export_graph(stores, tmp_path / "new", name="x", form="tsv", of="hosts")
    assert list(tmp_path.rglob("*new*")) == []
