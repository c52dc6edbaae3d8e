"""A page with 100,000 links, and one that a million pages link to: limits hold, the smallest keys stay, and memory is
what `scratch.memory_bytes` says, whatever there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from benchmarks.report import measure
from crawl_lib import from_mapping
from crawl_lib.config import LinkRankConfig
from crawl_lib.engine import in_batches
from crawl_lib.linkdb import LINKDB, OUTLINKS_SCHEMA, update_linkdb
from crawl_lib.ranks import LINKRANK, update_linkrank
from crawl_lib.stores import Stores, open_stores
from crawl_lib.versions import GROUP_ROWS
from tests.crawldb.test_update import NOW
from tests.linkdb.tables import leave_links, rows_of

PAGES, LINKS, HOSTS, BLOCK = 1_000_000, 100_000, 1000, 100_000
SORTING_BYTES = 128 << 20
HUB, TARGET = "http://hub.example/", "http://target.example/"


def stores_at(root: Path) -> Stores:
    scratch = {"directory": "scratch", "memory_bytes": SORTING_BYTES}
    return open_stores(
        from_mapping({"servers": ["node"], "dfs_primary": "dfs", "scratch": scratch}, root)
    )


def keys(numbers: np.ndarray) -> pa.Array[Any]:
    """Keys in the order of numbers, spread as digests are."""
    words = np.zeros((len(numbers), 5), ">u4")
    words[:, 0] = (numbers.astype(np.uint64) * np.uint64(2**32 // (PAGES + 2))).astype(np.uint32)
    return pa.Array.from_buffers(pa.binary(20), len(numbers), [None, pa.py_buffer(words.tobytes())])


def urls(numbers: np.ndarray) -> pa.Array[Any]:
    """Of the hub, which has the number 0; of pages in turn of all hosts; of the target, which has the last."""
    parts = [pc.cast(pa.array(part), pa.string()) for part in (numbers % HOSTS, numbers)]
    words = [pa.scalar("http://h"), parts[0], pa.scalar(".example/"), parts[1], pa.scalar("")]
    found: pa.Array[Any] = pc.call_function("binary_join_element_wise", words)
    for number, url in ((0, HUB), (PAGES + 1, TARGET)):
        found = pc.if_else(pa.array(numbers == number), url, found)
    return found


def rows(sources: np.ndarray, targets: np.ndarray | None) -> pa.Table:
    """Rows of links, or of pages."""
    count, none = len(sources), pa.nulls(len(sources))
    seen = pa.repeat(NOW, count) if targets is None else none
    ends = (
        [none, none, none]
        if targets is None
        else [keys(targets), urls(targets), pa.repeat("here", count)]
    )
    gone = pa.repeat(False, count)
    columns = [
        keys(sources),
        urls(sources),
        *ends,
        gone,
        seen,
        none if targets is not None else pa.repeat("1/n", count),
    ]
    return pa.table([*columns, seen], OUTLINKS_SCHEMA.names).cast(OUTLINKS_SCHEMA)


def links(pages: int) -> Iterator[pa.RecordBatch]:
    """The hub with links to the first pages, pages with one to the target, the target; in order of keys."""
    hub = np.zeros(min(LINKS, pages), np.int64)
    tables = [rows(hub[:1], None), rows(hub, np.arange(1, len(hub) + 1))]
    for first in range(1, pages + 1, BLOCK):
        some = np.arange(first, min(first + BLOCK, pages + 1))
        both = pa.concat_tables([rows(some, None), rows(some, np.full(len(some), PAGES + 1))])
        tables.append(both.sort_by([("key", "ascending")]))
    for table in [*tables, rows(np.array([PAGES + 1]), None)]:
        yield from table.combine_chunks().to_batches()


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Crawls with the table of links of few pages, and of all."""
    found = []
    for pages in (HOSTS, PAGES):
        found.append(tmp_path_factory.mktemp(f"links-{pages}"))
        leave_links(stores_at(found[-1]), in_batches(links(pages), GROUP_ROWS))
    return found


def make_linkdb(root: Path) -> int:
    return int(update_linkdb(stores_at(root), now=NOW).manifest["rows"])


def make_ranks(root: Path) -> int:
    return int(update_linkrank(stores_at(root), now=NOW).manifest["rows"])


def cost_mb(make: Callable[[Path], int], roots: list[Path]) -> float:
    """By how much the memory for all pages exceeds that for few."""
    few, all_pages = (measure(make, root).peak_mb for root in roots)
    return all_pages - few


def test_the_linkdb_keeps_the_smallest_keys_in_little_memory(roots: list[Path]) -> None:
    more_mb = cost_mb(make_linkdb, roots)
    stores = stores_at(roots[-1])
    most = stores.config.linkdb
    found = rows_of(stores, LINKDB)
    assert Counter(row["url"] == TARGET for row in found) == {
        True: most.max_inlinks,
        False: most.max_outlinks,
    }
    sources = [row["source_url"] for row in found if row["url"] == TARGET]
    assert sources == urls(np.arange(1, most.max_inlinks + 1)).to_pylist()
    assert [row["url"] for row in found if row["url"] != TARGET] == urls(
        np.arange(1, most.max_outlinks + 1)
    ).to_pylist()
    assert more_mb < SORTING_BYTES / 1e6


def test_linkrank_keeps_the_smallest_key_of_each_domain_in_little_memory(roots: list[Path]) -> None:
    """Each domain's first page has a link of the hub, and is the one that hands on to the target."""
    more_mb = cost_mb(make_ranks, roots)
    found = {row["url"]: row["rank"] for row in rows_of(stores_at(roots[-1]), LINKRANK)}
    options, nodes = LinkRankConfig(), PAGES + 2
    hub = chosen = target = 1.0
    for _ in range(options.rounds):
        handed_on = (0, hub / HOSTS, HOSTS * chosen)
        hub, chosen, target = (
            1 - options.damping + options.damping * (one + 1 / nodes) for one in handed_on
        )
    named = {url: found[url] for url in (HUB, TARGET, *urls(np.arange(1, HOSTS + 2)).to_pylist())}
    expected = dict.fromkeys(named, chosen) | {
        HUB: hub,
        TARGET: target,
        f"http://h1.example/{HOSTS + 1}": hub,
    }
    assert named == pytest.approx(expected, abs=1e-9, rel=0)
    assert len(found) == nodes
    assert more_mb < SORTING_BYTES / 1e6
