"""`krake show`: a page by URL, key or NodeID, with the pages at the other end of its arcs."""

from __future__ import annotations

import json

import pytest

from crawl_lib.config import Config
from crawl_lib.errors import InputError, PathNotFoundError
from crawl_lib.export import export_pages
from crawl_lib.export.show import show_page
from crawl_lib.graph import finalize_export, link_export
from crawl_lib.storage import Storage
from tests.export.crawls import Capture, CrawlMaker, key
from tests.stores import stores_on

A, B, C = "http://a.example/", "http://b.example/~x", "http://c.example/"
ORDER = sorted([A, B, C], key=key)


@pytest.fixture
def exported(storage: Storage, config: Config, crawl: CrawlMaker) -> None:
    crawl.segment(
        "1",
        "node-a",
        [Capture(A, b"page a", links=[B, C]), Capture(B, b"b", links=[A]), Capture(C)],
    )
    export_pages(stores_on(storage, config), name="x", segments=crawl.segments)


@pytest.mark.usefixtures("exported")
@pytest.mark.parametrize(
    "page",
    [B, "HTTP://b.example:80/%7ex#f", key(B).hex(), key(B).hex().upper(), str(ORDER.index(B))],
)
def test_a_page_is_found_by_url_key_or_node_id(storage: Storage, config: Config, page: str) -> None:
    link_export(stores_on(storage, config), name="x")
    finalize_export(stores_on(storage, config), name="x")
    found = show_page(stores_on(storage, config), name="x", page=page)
    json.dumps(vars(found))
    assert (found.url, found.key, found.node_id) == (B, key(B).hex(), ORDER.index(B))
    assert found.row["status"] == 200
    assert found.row["time"] == "1970-01-01T00:16:40+00:00"
    linked = {"node_id": ORDER.index(A), "url": A}
    assert (found.in_degree, found.out_degree) == (1, 1)
    assert (found.in_links, found.out_links) == ([linked], [linked])


@pytest.mark.usefixtures("exported")
def test_only_so_many_links_are_shown_and_all_are_counted(storage: Storage, config: Config) -> None:
    link_export(stores_on(storage, config), name="x")
    finalize_export(stores_on(storage, config), name="x")
    found = show_page(stores_on(storage, config), name="x", page=A, limit=1)
    assert (found.out_degree, len(found.out_links)) == (2, 1)


@pytest.mark.usefixtures("exported")
def test_without_a_graph_there_are_no_links(storage: Storage, config: Config) -> None:
    found = show_page(stores_on(storage, config), name="x", page=A)
    assert (found.in_links, found.out_links, found.in_degree) == (None, None, None)


@pytest.mark.usefixtures("exported")
def test_what_is_not_there_is_said(storage: Storage, config: Config) -> None:
    for page in ("http://unknown.example/", "0" * 40, "3"):
        with pytest.raises(InputError, match="3 crawled pages of export 'x'"):
            show_page(stores_on(storage, config), name="x", page=page)
    with pytest.raises(
        InputError,
        match=r"no url: is neither a URL that Krake crawls \(.*\) nor a key of 40 digits",
    ):
        show_page(stores_on(storage, config), name="x", page="no url")
    with pytest.raises(PathNotFoundError, match="export/y: there is no such export"):
        show_page(stores_on(storage, config), name="y", page=A)
