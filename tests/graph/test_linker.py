"""Which rows of `links` become arcs."""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crawl_lib.config import Config
from crawl_lib.engine import first_of_each
from crawl_lib.errors import InputError, OutputConflictError, PathNotFoundError
from crawl_lib.export import export_pages
from crawl_lib.graph import WebGraph, finalize_export, finalizer, link_export, open_web_graph
from crawl_lib.storage import Storage
from tests.export.crawls import Capture, CrawlMaker, key
from tests.stores import stores_on

A, B, C, GONE = (
    "http://a.example/",
    "http://b.example/",
    "http://c.example/",
    "http://gone.example/",
)


def arcs(storage: Storage, config: Config, crawl: CrawlMaker) -> set[tuple[str, str]]:
    """Arcs of the web graph as pairs of URLs, after all three stages."""
    export_pages(stores_on(storage, config), name="x", segments=crawl.segments)
    link_export(stores_on(storage, config), name="x")
    finalize_export(stores_on(storage, config), name="x")
    rows = pq.read_table(Path(config.dfs_primary) / "export/x/pages.parquet").to_pylist()
    urls = {row["node_id"]: row["url"] for row in rows}
    with open_web_graph(stores_on(storage, config), name="x") as graph:
        found = [
            (urls[n.node_id], urls[target]) for n in graph for target in n.out_neighbours.tolist()
        ]
        turned = [
            (urls[source], urls[n.node_id]) for n in graph for source in n.in_neighbours.tolist()
        ]
    assert sorted(found) == sorted(turned)
    assert len(set(found)) == len(found)
    return set(found)


def test_an_arc_for_each_pair_of_crawled_pages_followed_or_not(
    storage: Storage, config: Config, crawl: CrawlMaker
) -> None:
    """No self links, no pages that were not crawled, none twice; every second link of the maker is not followed."""
    crawl.segment(
        "1", "node-a", [Capture(A, links=[B, C, B, A, GONE]), Capture(GONE, status=404, links=[A])]
    )
    crawl.segment("1", "node-b", [Capture(B, links=[A, GONE]), Capture(C)])
    assert arcs(storage, config, crawl) == {(A, B), (A, C), (B, A)}


def test_links_of_the_chosen_capture_only(
    storage: Storage, config: Config, crawl: CrawlMaker
) -> None:
    crawl.segment("1", "node-a", [Capture(A, time=1, links=[B]), Capture(B), Capture(C)])
    crawl.segment("2", "node-a", [Capture(A, time=2, links=[C])])
    crawl.segment("3", "node-a", [Capture(A, time=3, status=500, links=[B])])
    assert arcs(storage, config, crawl) == {(A, C)}


def test_pages_that_mime_types_leave_out_have_no_arcs(
    storage: Storage, config: Config, crawl: CrawlMaker
) -> None:
    narrow = replace(config, export=replace(config.export, mime_types=("text/html",)))
    crawl.segment(
        "1",
        "node-a",
        [Capture(A, links=[B, C]), Capture(B, mime="image/png", links=[A]), Capture(C)],
    )
    assert arcs(storage, narrow, crawl) == {(A, C)}


def test_run_again_it_is_complete_even_without_the_segments(
    storage: Storage, config: Config, crawl: CrawlMaker
) -> None:
    crawl.segment("1", "node-a", [Capture(A, links=[B]), Capture(B)])
    arcs(storage, config, crawl)
    shutil.rmtree(Path(config.dfs_primary) / "crawl")
    assert asdict(link_export(stores_on(storage, config), name="x")) == {
        "name": "x",
        "arcs": 1,
        "complete_already": True,
    }
    assert asdict(finalize_export(stores_on(storage, config), name="x")) == {
        "name": "x",
        "nodes": 2,
        "arcs": 1,
        "complete_already": True,
    }


def test_a_segment_that_is_gone_or_has_changed_is_named(
    storage: Storage, config: Config, crawl: CrawlMaker
) -> None:
    place = crawl.segment("1", "node-a", [Capture(A)])
    export_pages(stores_on(storage, config), name="x", segments=crawl.segments)
    (place / "manifest.json").write_text("{}")
    with pytest.raises(
        OutputConflictError, match=r"'x'.*crawl/1/node-a.*another label.*move export/x away"
    ):
        link_export(stores_on(storage, config), name="x")
    shutil.rmtree(place)
    with pytest.raises(PathNotFoundError, match=r"'x'.*crawl/1/node-a, which is gone"):
        link_export(stores_on(storage, config), name="x")


def test_a_segment_that_came_later_is_not_read(
    storage: Storage, config: Config, crawl: CrawlMaker
) -> None:
    crawl.segment("1", "node-a", [Capture(A, links=[B]), Capture(B)])
    export_pages(stores_on(storage, config), name="x", segments=crawl.segments)
    crawl.segment("2", "node-a", [Capture(B, links=[A])])
    assert link_export(stores_on(storage, config), name="x").arcs == 1


def test_stages_out_of_order_say_what_is_missing(
    storage: Storage, config: Config, crawl: CrawlMaker
) -> None:
    crawl.segment("1", "node-a", [Capture(A)])
    for stage in (link_export, finalize_export):
        with pytest.raises(PathNotFoundError, match="export/x: there is no such export"):
            stage(stores_on(storage, config), name="x")
    export_pages(stores_on(storage, config), name="x", segments=crawl.segments)
    with pytest.raises(PathNotFoundError, match=r"arcs-out.parquet: .*`krake graph link`"):
        finalize_export(stores_on(storage, config), name="x")
    with (
        pytest.raises(PathNotFoundError, match=r"webgraph.*`krake graph finalize`"),
        open_web_graph(stores_on(storage, config), name="x"),
    ):
        pass


def test_a_page_with_too_many_edges_is_refused_before_any_work(
    storage: Storage, config: Config, crawl: CrawlMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl.segment("1", "node-a", [Capture(A, links=[B, C]), Capture(B, links=[A]), Capture(C)])
    export_pages(stores_on(storage, config), name="x", segments=crawl.segments)
    link_export(stores_on(storage, config), name="x")
    monkeypatch.setattr(finalizer, "MAX_EDGES", 2)
    place = sorted([A, B, C], key=key).index(A)
    with pytest.raises(InputError, match=rf"page {place} has 3 edges.*2 at most.*folders"):
        finalize_export(stores_on(storage, config), name="x")
    assert not (Path(config.dfs_primary) / "export/x/webgraph-index").exists()


def test_the_graph_opens_with_its_index(
    storage: Storage, config: Config, crawl: CrawlMaker
) -> None:
    crawl.segment("1", "node-a", [Capture(A, links=[B]), Capture(B)])
    arcs(storage, config, crawl)
    source, target = (sorted([A, B], key=key).index(url) for url in (A, B))
    with open_web_graph(stores_on(storage, config), name="x") as graph:
        assert isinstance(graph, WebGraph)
        assert graph.node(source).out_neighbours.tolist() == [target]
        assert graph.node(target).in_neighbours.tolist() == [source]
        assert graph.node(target).out_neighbours.tolist() == []


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_arcs_are_told_apart_also_where_a_batch_ends(size: int) -> None:
    """Each row once, whatever batches they come in: only both ends together make an arc."""
    rows = [(0, 0), (0, 0), (0, 1), (0, 1), (0, 1), (1, 1), (1, 1), (2, 0), (2, 1)]
    whole = pa.RecordBatch.from_pydict(
        {"source": [row[0] for row in rows], "target": [row[1] for row in rows]}
    )
    batches = [whole.slice(start, size) for start in range(0, len(rows), size)]
    found = pa.Table.from_batches(
        first_of_each([whole.slice(0, 0), *batches], ["source", "target"], 1)
    )
    assert list(zip(*found.to_pydict().values(), strict=True)) == sorted(set(rows))
