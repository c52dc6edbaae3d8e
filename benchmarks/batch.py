"""Export, linker and finalizer over a generated crawl: one segment, pages of about 26 KB, 250 links a page."""

from __future__ import annotations

import os
import random
from hashlib import sha1
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from isal import igzip

from benchmarks.report import Measured, Row, ahead, measure
from crawl_lib import Config, from_mapping, stages
from crawl_lib.crawldir import FileName
from crawl_lib.dfsfiles import write_json_bytes
from crawl_lib.sealed import MANIFEST_FILE
from crawl_lib.segment import LINKS_NAME, LINKS_SCHEMA, PAGES_NAME, PAGES_SCHEMA, Manifest
from crawl_lib.stores import open_stores

PAGES = 20_000
LINKS_PER_PAGE = 250
PAGE_BYTES = 26_000
FOLDER, NODE, WARC = "1000000000", "node", "bench-00000.warc.gz"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
BLOCK = 500
CORES = 2
"""The budgets by the clock are for a machine of so many."""


def make_segment(config: Config) -> None:
    """Write the segment as a node would have left it."""
    folder = Path(config.dfs_primary) / "crawl" / FOLDER
    place = folder / NODE
    place.mkdir(parents=True)
    rng = random.Random(1)
    words = [rng.randbytes(rng.randint(1, 5)).hex().encode() for _ in range(5000)]
    urls = [f"http://site{number % 97}.example/page/{number}" for number in range(PAGES)]
    with (place / WARC).open("wb") as file:
        rows = [(url, file.tell(), file.write(_record(url, _text(rng, words)))) for url in urls]
    _write_pages(place, rows)
    _write_links(place, np.array([sha1(url.encode()).digest() for url in urls], dtype=object), urls)
    counts = {
        "taken": PAGES,
        "deferred": 0,
        "pages": PAGES,
        "links": PAGES * LINKS_PER_PAGE,
        "outcomes": {"ok": PAGES},
    }
    facts: dict[str, Any] = dict.fromkeys(
        ("krake_version", "config_digest", "user_agent", "robots_policy"), ""
    )
    own: dict[str, Any] = {
        "take_id": "bench",
        "run_id": "bench",
        "iteration": 1,
        "folder": FOLDER,
        "node": NODE,
    }
    manifest = Manifest(**own, **facts, counts=counts, started="1970-01-01T00:00:00Z")
    (place / MANIFEST_FILE).write_bytes(manifest.to_bytes())
    iteration: dict[str, Any] = {
        "run_id": "bench", "iteration": 1, "nodes": [NODE], "routing": "host", "config_digest": "",
        "batch_sizes": {}, "taken_before": 0, "summed": [], "seeds": [], "kind": "crawl",
    }  # fmt: skip
    (folder / FileName.ITERATION).write_bytes(write_json_bytes(iteration))


def _text(rng: random.Random, words: list[bytes]) -> bytes:
    text = b" ".join(rng.choices(words, k=PAGE_BYTES // 7))
    return text[:PAGE_BYTES]


def _record(url: str, body: bytes) -> bytes:
    block = HEAD + body
    head = (
        f"WARC/1.1\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:{sha1(url.encode()).hexdigest()}>\r\n"
        f"WARC-Date: 2001-09-09T01:46:40Z\r\nWARC-Target-URI: {url}\r\n"
        f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    return bytes(igzip.compress(head.encode() + block + b"\r\n\r\n", 2))


def _write_pages(place: Path, rows: list[tuple[str, int, int]]) -> None:
    count = len(rows)
    known: dict[str, Any] = {
        "key": [sha1(url.encode()).digest() for url, _, _ in rows],
        "url": [url for url, _, _ in rows],
        "host": [url.split("/")[2] for url, _, _ in rows],
        "time": [1_000_000_000_000_000] * count,
        "outcome": ["ok"] * count,
        "status": [200] * count,
        "mime_detected": ["text/html"] * count,
        "depth": [1] * count,
        "attempts": [1] * count,
        "duration_ms": [1] * count,
        "warc_file": [WARC] * count,
        "warc_offset": [offset for _, offset, _ in rows],
        "warc_length": [length for _, _, length in rows],
    }
    columns = [
        pa.array(known.get(field.name, [None] * count), field.type) for field in PAGES_SCHEMA
    ]
    pq.write_table(
        pa.Table.from_arrays(columns, schema=PAGES_SCHEMA), place / PAGES_NAME, compression="zstd"
    )


def _write_links(place: Path, keys: np.ndarray[Any, Any], urls: list[str]) -> None:
    """Half of the links lead to pages of the crawl, by a power law; the others to pages that were not fetched."""
    chooser = np.random.default_rng(1)
    texts = np.array(urls)
    with pq.ParquetWriter(place / LINKS_NAME, LINKS_SCHEMA, compression="zstd") as writer:
        for first in range(0, PAGES, BLOCK):
            count = BLOCK * LINKS_PER_PAGE
            to = np.minimum((PAGES * chooser.random(count) ** 3).astype(np.int64), PAGES - 1)
            outside = chooser.random(count) < 0.5
            foreign = chooser.bytes(20 * count)
            targets = [
                foreign[20 * index : 20 * index + 20] if away else key
                for index, (away, key) in enumerate(zip(outside, keys[to].tolist(), strict=True))
            ]
            sources = np.repeat(keys[first : first + BLOCK], LINKS_PER_PAGE).tolist()
            known: dict[str, Any] = {
                "source": sources,
                "target": targets,
                "target_url": texts[to].tolist(),
                "anchor": ["next page"] * count,
                "element": ["a"] * count,
                "followed": [True] * count,
                "rule": ["accepted"] * count,
            }
            columns = [
                pa.array(known.get(field.name, [None] * count), field.type)
                for field in LINKS_SCHEMA
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=LINKS_SCHEMA))


def _export(config: Config) -> dict[str, Any]:
    return stages.export_pages(open_stores(config), label="bench")


def _link(config: Config) -> dict[str, Any]:
    return stages.link_export(open_stores(config), export="bench")


def _finalize(config: Config) -> dict[str, Any]:
    return stages.finalize_export(open_stores(config), export="bench")


def _row(name: str, what: str, count: int, done: Measured, least: int) -> Row:
    """By the clock, and by the CPU."""
    rate = count / done.wall_s
    value = f"{rate:,.0f} {what}/s, {count / done.cpu_s:,.0f} a CPU-second ({count:,} {what})"
    return Row(
        name,
        value,
        f"{least:,}/s on {CORES} cores",
        rate >= least if os.cpu_count() == CORES else None,
    )


def run(directory: Path) -> list[Row]:
    """Make the segment, then the three stages."""
    config = from_mapping(
        {"servers": [NODE], "dfs_primary": "dfs", "scratch": {"directory": "scratch"}},
        base=directory,
    )
    measure(make_segment, config)
    export = measure(_export, config)
    with ahead():
        link, finalize = measure(_link, config), measure(_finalize, config)
    pages = PAGES / export.cpu_s
    peaks = [step.peak_mb for step in (export, link, finalize)]
    return [
        Row(
            "export",
            f"{pages:,.0f} pages/s per core ({PAGE_BYTES // 1000} KB each)",
            "2,000",
            pages >= 2000,
        ),
        _row("linker", "links", PAGES * LINKS_PER_PAGE, link, 2_000_000),
        _row("finalizer", "arcs", finalize.result["arcs"], finalize, 2_000_000),
        Row(
            "export, linker, finalizer: peak memory",
            f"{', '.join(f'{peak:,.0f}' for peak in peaks)} MB",
        ),
    ]
