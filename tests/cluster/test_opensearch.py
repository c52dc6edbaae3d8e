"""Pushes to a real OpenSearch of two nodes: all pages, changes, a node that dies, a ranking that is near to ours."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from benchmarks.known import Web, read_entries, read_web
from benchmarks.search import LANGUAGES, PACKAGES
from crawl_lib.errors import SearchServerError
from crawl_lib.index import IndexedPage
from crawl_lib.push import PUSH_OUTPUT, push_index
from crawl_lib.push.bulk import Bulk
from crawl_lib.search import IndexVersions, Sites, ranked
from crawl_lib.stores import Stores
from tests.cluster.hdfs import why_not
from tests.cluster.opensearch import OTHER, OpenSearch, resolve_opensearch
from tests.push.made import NOW, seal_pages, stores_below

QUERIES = 100
DOCS = Path(__file__).resolve().parents[2] / "docs" / "search.md"
SOME = 300


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenSearch]:
    if missing := why_not():
        pytest.fail(f"OpenSearch cannot run: {missing}")
    resolve_opensearch()
    with OpenSearch(tmp_path_factory.mktemp("opensearch")) as found:
        yield found


@pytest.fixture(scope="module")
def web() -> Web:
    """The pages of three packages of documentation."""
    if missing := [docs.host for docs in PACKAGES if not docs.folder.exists()]:
        pytest.skip(f"packages of documentation are needed: {', '.join(missing)}")
    return read_web(PACKAGES)


@pytest.fixture(scope="module")
def pages(web: Web) -> list[IndexedPage]:
    return web.linked()


@pytest.fixture(scope="module")
def pushed(
    cluster: OpenSearch,
    web: Web,
    pages: list[IndexedPage],
    tmp_path_factory: pytest.TempPathFactory,
) -> Stores:
    """A crawl whose pages were pushed."""
    stores = stores_below(tmp_path_factory.mktemp("docs"), cluster.url, index="docs")
    seal_pages(stores, pages, boosts=web.boosts(), languages=LANGUAGES)
    found = push_index(stores)
    assert (found.sent, found.pages) == (len(pages), len(pages))
    return stores


def documented_query(text: str) -> dict[str, Any]:
    """The query of docs/search.md, for a text."""
    [found] = re.findall(r"```json\n(\{\n *\"size\".*?)```", DOCS.read_text(), re.DOTALL)
    query: dict[str, Any] = json.loads(found.replace('"volcano lava"', json.dumps(text)))
    return query


def test_the_documented_query_finds_about_the_pages_that_krake_finds(
    cluster: OpenSearch, pushed: Stores, web: Web
) -> None:
    assert cluster.count("docs") == len(web.pages)
    entries = [entry.text for docs in PACKAGES[:2] for entry in read_entries(docs)]
    index, common = IndexVersions(pushed).open(1), []
    for text in entries[:: len(entries) // QUERIES][:QUERIES]:
        answer = cluster.ask(
            "POST", "/docs/_search?search_type=dfs_query_then_fetch", documented_query(text)
        )
        theirs = {hit["_id"] for hit in answer["hits"]["hits"]}
        common.append(
            len(theirs & {one.fact.key.hex() for one in ranked(index, text, Sites({}))[:10]})
        )
    assert median(common) >= 5


def test_a_second_push_sends_nothing_and_a_later_one_what_differs(
    cluster: OpenSearch, pushed: Stores, web: Web, pages: list[IndexedPage]
) -> None:
    assert push_index(pushed).sent == 0
    changed = replace(pages[0], text="an unheardofword")
    rest = [changed, *pages[2:]]
    seal_pages(pushed, rest, boosts=web.boosts(), now=NOW + timedelta(hours=1), languages=LANGUAGES)
    gone = {pages[1].key: ["1/node-0"]}
    assert [place.path for place in PUSH_OUTPUT.places_of(pushed, gone)] == [f"{cluster.url}/docs"]
    found = push_index(pushed)
    assert (found.sent, found.deleted, found.is_anew) == (1, 1, False)
    assert cluster.count("docs") == len(rest)
    [hit] = cluster.ask("POST", "/docs/_search", documented_query("unheardofword"))["hits"]["hits"]
    assert hit["_id"] == changed.key.hex()
    assert list(PUSH_OUTPUT.places_of(pushed, gone)) == []


def some_pages(stores: Stores, pages: list[IndexedPage]) -> int:
    seal_pages(stores, pages[:SOME], languages=LANGUAGES)
    return len(pages[:SOME])


def test_an_emptied_cluster_is_filled_again(
    cluster: OpenSearch, pages: list[IndexedPage], tmp_path: Path
) -> None:
    stores = stores_below(tmp_path, cluster.url, index="some")
    count = some_pages(stores, pages)
    index = push_index(stores).index
    cluster.ask("DELETE", f"/{index}")
    assert push_index(stores).sent == count
    assert cluster.count("some") == count


def test_two_nodes_of_which_one_dies_in_the_middle(
    cluster: OpenSearch, pages: list[IndexedPage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The push waits or fails clearly, and ends well when it is repeated."""
    stores = stores_below(
        tmp_path, cluster.url, index="shaken", batch_bytes=1 << 18, timeout_s=30.0
    )
    count, batches = some_pages(stores, pages), 0

    def killing(flush: Callable[[Bulk], None]) -> Callable[[Bulk], None]:
        def flushed(bulk: Bulk) -> None:
            nonlocal batches
            batches += 1
            if batches == 3:
                cluster.kill(OTHER)
            flush(bulk)

        return flushed

    monkeypatch.setattr(Bulk, "flush", killing(Bulk.flush))
    with suppress(SearchServerError):
        push_index(stores)
    assert batches > 3
    push_index(stores)
    assert cluster.count("shaken") == count
    cluster.start(OTHER)
    cluster.wait_for_nodes(2)
    assert push_index(stores).sent == 0
    assert cluster.count("shaken") == count
