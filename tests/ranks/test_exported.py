"""`krake graph rank`: tables of an export's pages, hosts and domains, made once, and clear errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crawl_lib.config import Config, PageRankConfig
from crawl_lib.errors import DamagedFileError, InputError, PathNotFoundError
from crawl_lib.export import ExportFolder, ExportTable, export_pages
from crawl_lib.graph import check_export, link_export
from crawl_lib.ranks import GRAPHS, page_rank, rank_export
from crawl_lib.ranks.exported import rank_table
from crawl_lib.stores import Stores
from crawl_lib.urls import domain_of, host_of
from tests.export.conftest import crawl, storage
from tests.export.crawls import Capture, CrawlMaker, key
from tests.ranks.graphs import counting, inlinks_of
from tests.stores import stores_on

__all__ = ["crawl", "storage"]

A1, A2, A3 = "http://a.example.org/", "http://a.example.org/2", "http://www.a.example.org/"
B, C = "http://b.example.net/", "http://c.example.com/"
LINKS = {A1: [A2, A3, B], A2: [B, C], A3: [B], B: [A1, C], C: []}


def exported(
    stores: Stores, crawl: CrawlMaker, links: dict[str, list[str]] = LINKS
) -> ExportFolder:
    """An export of these pages, linked."""
    crawl.segment(
        "1", "node-a", [Capture(url, b"page", links=targets) for url, targets in links.items()]
    )
    export_pages(stores, name="x", segments=crawl.segments)
    link_export(stores, name="x")
    return ExportFolder(stores, "x")


@pytest.fixture
def stores(storage: Any, config: Config) -> Stores:
    return stores_on(storage, config)


def path_of(stores: Stores, name: str) -> Path:
    return Path(stores.config.dfs_primary) / ExportFolder(stores, "x").file(name)


def table(stores: Stores, of: str) -> dict[str, float]:
    """Ranks by name; pages are checked to be in order, each with its key."""
    found = pq.read_table(path_of(stores, rank_table(of)))
    assert found.schema.equals(ExportTable.SCHEMAS[rank_table(of)])
    if of == "pages":
        assert found["key"].to_pylist() == [key(str(url)) for url in found["url"].to_pylist()]
        assert found["key"].to_pylist() == sorted(found["key"].to_pylist())
    names = found.column(found.num_columns - 2).to_pylist()
    return dict(zip(names, found["rank"].to_pylist(), strict=True))


def expected(of: str) -> dict[str, float]:
    """The ranks of a graph that is put together by hand."""
    name_of = {"pages": str, "hosts": host_of, "domains": lambda url: domain_of(host_of(url))}[of]
    names = sorted({name_of(url) for url in LINKS}, key=key if of == "pages" else None)
    between = {(name_of(a), name_of(b)) for a, targets in LINKS.items() for b in targets}
    arcs = np.array([(names.index(a), names.index(b)) for a, b in between if a != b])
    return dict(
        zip(
            names,
            page_rank(*inlinks_of(arcs, len(names)), PageRankConfig(), counting()).ranks,
            strict=True,
        )
    )


@pytest.mark.parametrize(
    ("of", "nodes", "arcs"), [("pages", 5, 8), ("hosts", 4, 6), ("domains", 3, 4)]
)
def test_pages_hosts_and_domains_are_ranked(
    stores: Stores, crawl: CrawlMaker, of: str, nodes: int, arcs: int
) -> None:
    """Arcs between hosts and domains count once: from a.example.org, two pages link to b.example.net."""
    exported(stores, crawl)
    report = rank_export(stores, name="x", of=of)
    assert (report.nodes, report.arcs, report.complete_already) == (nodes, arcs, False)
    assert table(stores, of) == pytest.approx(expected(of), abs=1e-15)
    assert check_export(stores, "x") == []


def test_what_is_there_is_made_again_only_with_other_options(
    stores: Stores, crawl: CrawlMaker
) -> None:
    exported(stores, crawl)
    first = rank_export(stores, name="x")
    before = path_of(stores, rank_table("pages")).read_bytes()
    assert rank_export(stores, name="x") == replace(first, complete_already=True)
    other = replace(stores, config=replace(stores.config, pagerank=PageRankConfig(damping=0.5)))
    assert not rank_export(other, name="x").complete_already
    assert table(stores, "pages") != pytest.approx(expected("pages"), abs=1e-3)
    assert not rank_export(stores, name="x").complete_already
    assert path_of(stores, rank_table("pages")).read_bytes() == before


@pytest.mark.parametrize("of", GRAPHS)
def test_a_graph_without_pages_or_arcs_is_named(stores: Stores, crawl: CrawlMaker, of: str) -> None:
    exported(stores, crawl, {})
    with pytest.raises(
        InputError, match=rf"export 'x': has 0 {of}, but no link between two of them"
    ):
        rank_export(stores, name="x", of=of)


def test_pages_of_one_host_are_no_graph_of_hosts(stores: Stores, crawl: CrawlMaker) -> None:
    exported(stores, crawl, {A1: [A2], A2: []})
    assert rank_export(stores, name="x").arcs == 1
    with pytest.raises(InputError, match="has 1 host, but no link"):
        rank_export(stores, name="x", of="hosts")


def test_an_export_that_is_not_there_or_not_linked_is_named(
    stores: Stores, crawl: CrawlMaker
) -> None:
    with pytest.raises(PathNotFoundError, match="no such export"):
        rank_export(stores, name="x")
    crawl.segment("1", "node-a", [Capture(A1, b"page", links=[B]), Capture(B, b"page")])
    export_pages(stores, name="x", segments=crawl.segments)
    with pytest.raises(
        PathNotFoundError, match=r"arcs-out\.parquet: is not there; run `krake graph link`"
    ):
        rank_export(stores, name="x")


@pytest.mark.parametrize("of", GRAPHS)
@pytest.mark.parametrize("data", ["text", "foreign"])
def test_damaged_arcs_are_named(stores: Stores, crawl: CrawlMaker, of: str, data: str) -> None:
    exported(stores, crawl)
    for name, columns in (
        ("arcs-out.parquet", ["source", "target"]),
        ("arcs-in.parquet", ["target", "source"]),
    ):
        path = path_of(stores, name)
        if data == "text":
            path.write_bytes(b"not a table")
        else:
            pq.write_table(
                pa.table(
                    [pa.array([0, 1], pa.int32()), pa.array([1, 9], pa.int32())], names=columns
                ),
                path,
            )
    with pytest.raises(DamagedFileError, match=r"arcs-(in|out)\.parquet: "):
        rank_export(stores, name="x", of=of)
    assert not path_of(stores, rank_table(of)).exists()


def test_a_damaged_table_is_found_and_made_again(stores: Stores, crawl: CrawlMaker) -> None:
    exported(stores, crawl)
    rank_export(stores, name="x")
    path = path_of(stores, rank_table("pages"))
    before = path.read_bytes()
    path.write_bytes(before[:-9])
    [finding] = check_export(stores, "x")
    assert finding.name == "export_table_damaged"
    assert "krake graph rank" in finding.repair
    assert not rank_export(stores, name="x").complete_already
    assert path.read_bytes() == before
