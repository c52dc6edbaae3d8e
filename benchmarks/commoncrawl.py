"""Files as Common Crawl has them, of 100,000 pages with 20 links each: WET, index, graphs of hosts and domains, BV.

`COMMONCRAWL_PAGES=1000000` makes ten times as many; the budget is for these. Texts, the export and its arcs are made
before, and not counted. A text has 120 words, as frequent as those of a language (Zipf). A host has 20 pages, a domain
10 hosts, and a node at most 250,000 pages.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha1
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from isal import igzip

from benchmarks.report import Row, measure
from benchmarks.search import zipf_texts
from crawl_lib import Config, from_mapping, stages
from crawl_lib.commoncrawl import make_graphs, make_index, make_wet
from crawl_lib.crawldir import FileName
from crawl_lib.dfsfiles import write_json_bytes
from crawl_lib.sealed import MANIFEST_FILE
from crawl_lib.segment import (
    INDEX_NAME,
    LINKS_NAME,
    LINKS_SCHEMA,
    PAGES_NAME,
    PAGES_SCHEMA,
    Manifest,
    file_entry,
    surt,
    write_parquet,
)
from crawl_lib.stores import Stores, open_stores
from crawl_lib.text import extract_text
from crawl_lib.warc import base32

PAGES = int(os.environ.get("COMMONCRAWL_PAGES", "100000"))
LINKS_PER_PAGE, PAGES_PER_HOST, BLOCK = 20, 20, 5_000
FOLDER, WARC, LABEL, NODE_PAGES = "1000000000", "bench-00000.warc.gz", "bench", 250_000
NODES = [f"node-{number}" for number in range(-(-PAGES // NODE_PAGES))]
TIME = datetime.fromtimestamp(int(FOLDER), UTC)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
MOST_US, MOST_MB = 240, 400
"""CPU a page: 4 minutes for a million pages."""


def _config(root: Path) -> Config:
    options = {"servers": NODES, "dfs_primary": "dfs", "scratch": {"directory": "scratch"}}
    return from_mapping({**options, "graphs": {"make": ["hosts", "domains", "bv"]}}, root)


def _stores(root: Path) -> Stores:
    return open_stores(_config(root))


def make_crawl(root: Path) -> None:
    """Write the iteration as the nodes would have left it, its texts, and an export with arcs."""
    folder = root / "dfs" / "crawl" / FOLDER
    for number, node in enumerate(NODES):
        make_segment(
            folder / node, range(number * NODE_PAGES, min(PAGES, (number + 1) * NODE_PAGES))
        )
    facts = {
        "run_id": "bench",
        "iteration": 1,
        "nodes": NODES,
        "routing": "host",
        "config_digest": "",
    }
    sums = {"batch_sizes": {}, "taken_before": 0, "summed": [], "seeds": [], "kind": "crawl"}
    (folder / FileName.ITERATION).write_bytes(write_json_bytes({**facts, **sums}))
    stores = _stores(root)
    extract_text(stores, [stores.crawl.segment(FOLDER, node) for node in NODES])
    stages.export_pages(stores, label=LABEL)
    stages.link_export(stores, export=LABEL)


def make_segment(place: Path, numbers: range) -> None:
    """Write the segment of a node, with these pages."""
    place.mkdir(parents=True)
    lines, count = list[str](), len(numbers)
    write_parquet(place / PAGES_NAME, PAGES_SCHEMA, _pages(place / WARC, numbers, lines))
    (place / INDEX_NAME).write_text("\n".join(sorted(lines)) + "\n")
    write_parquet(place / LINKS_NAME, LINKS_SCHEMA, _links(numbers))
    own: dict[str, Any] = {
        "take_id": "bench",
        "run_id": "bench",
        "iteration": 1,
        "folder": FOLDER,
        "node": place.name,
    }
    named: dict[str, Any] = dict.fromkeys(
        ("krake_version", "config_digest", "user_agent", "robots_policy"), ""
    )
    counts = {
        "taken": count,
        "deferred": 0,
        "pages": count,
        "links": count * LINKS_PER_PAGE,
        "outcomes": {"ok": count},
    }
    files = [file_entry(place / name) for name in (WARC, PAGES_NAME, LINKS_NAME, INDEX_NAME)]
    manifest = Manifest(**own, **named, counts=counts, files=files, started="1970-01-01T00:00:00Z")
    (place / MANIFEST_FILE).write_bytes(manifest.to_bytes())


def _url(number: int) -> str:
    host = number // PAGES_PER_HOST
    return f"http://h{host}.example{host // 10}.com/page/{number}"


def _pages(warc: Path, numbers: range, lines: list[str]) -> Iterator[pa.RecordBatch]:
    """Write the WARC file, and yield the rows of its pages; a line of the index for each comes into `lines`."""
    texts = zipf_texts(random.Random(numbers.start), len(numbers))
    with warc.open("wb") as file:
        for first in range(numbers.start, numbers.stop, BLOCK):
            rows = list[dict[str, Any]]()
            for number, text in enumerate(islice(texts, BLOCK), first):
                body = f"<html><title>{number}</title><body><main><p>{text}</p></main></body></html>".encode()
                record, offset = _record(_url(number), body), file.tell()
                file.write(record)
                rows.append(_row(number, offset, len(record)))
                digest = base32(sha1(body).digest())
                lines.append(
                    f'{surt(_url(number))} {TIME:%Y%m%d%H%M%S} {{"url": "{_url(number)}", "mime": "text/html",'
                    f' "status": "200", "digest": "sha1:{digest}", "length": "{len(record)}", "offset": "{offset}",'
                    f' "filename": "{WARC}"}}'
                )
            yield pa.RecordBatch.from_pylist(rows, PAGES_SCHEMA)


def _row(number: int, offset: int, length: int) -> dict[str, Any]:
    url = _url(number)
    always = {
        "outcome": "ok",
        "status": 200,
        "depth": 1,
        "attempts": 1,
        "duration_ms": 1,
        "time": TIME,
    }
    mime = {"mime_declared": "text/html", "mime_detected": "text/html", "charset": "utf-8"}
    place = {"warc_file": WARC, "warc_offset": offset, "warc_length": length}
    return {
        "key": sha1(url.encode()).digest(),
        "url": url,
        "host": url.split("/")[2],
        **always,
        **mime,
        **place,
    }


def _record(url: str, body: bytes) -> bytes:
    block = HEAD + body
    head = (
        f"WARC/1.1\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:{sha1(url.encode()).hexdigest()}>\r\n"
        f"WARC-Date: {TIME:%Y-%m-%dT%H:%M:%SZ}\r\nWARC-Target-URI: {url}\r\n"
        f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    return bytes(igzip.compress(head.encode() + block + b"\r\n\r\n", 2))


def _links(pages: range) -> Iterator[pa.RecordBatch]:
    """The links of pages to any pages, by a power law."""
    chooser = np.random.default_rng(pages.start)
    for first in range(pages.start, pages.stop, BLOCK):
        numbers = range(first, min(pages.stop, first + BLOCK))
        targets = (
            (PAGES * chooser.random(len(numbers) * LINKS_PER_PAGE) ** 3).astype(np.int64).tolist()
        )
        sources = [
            sha1(_url(number).encode()).digest()
            for number in numbers
            for _ in range(LINKS_PER_PAGE)
        ]
        urls = list(map(_url, targets))
        always = {"anchor": "next page", "element": "a", "followed": True, "rule": "accepted"}
        given = {
            "source": sources,
            "target": [sha1(url.encode()).digest() for url in urls],
            "target_url": urls,
        }
        columns = [
            pa.array(given[field.name], field.type)
            if field.name in given
            else pa.repeat(pa.scalar(always.get(field.name), field.type), len(targets))
            for field in LINKS_SCHEMA
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=LINKS_SCHEMA)


def wet(root: Path) -> int:
    """Make the WET files; return the number of records."""
    return make_wet(_stores(root), label=LABEL).counts["records"]


def index(root: Path) -> int:
    """Make the index; return the number of rows."""
    return sum(make_index(_stores(root), label=LABEL).counts.values())


def graphs(root: Path) -> int:
    """Make the graphs of hosts and domains, and BV graphs of these and of pages; return the number of page arcs."""
    return make_graphs(_stores(root), name=LABEL).counts["page_arcs"]


def run(directory: Path) -> list[Row]:
    """Return the rows of this part."""
    measure(make_crawl, directory)
    rows, cpu_s, peak_mb = [], 0.0, 0.0
    for step, what in (
        (wet, "WET records"),
        (index, "rows of the index"),
        (graphs, "arcs of pages in BV, and groups"),
    ):
        cost = measure(step, directory)
        cpu_s, peak_mb = cpu_s + cost.cpu_s, max(peak_mb, cost.peak_mb)
        rows.append(
            Row(
                f"Common Crawl: {cost.result:,} {what}",
                f"CPU {cost.cpu_s:.1f} s, {cost.peak_mb:.0f} MB",
            )
        )
    budget = f"under {MOST_US} us a page, {MOST_MB} MB"
    us = 1e6 * cpu_s / PAGES
    is_met = us < MOST_US and peak_mb < MOST_MB
    return [
        *rows,
        Row("Common Crawl: all of these", f"{us:.0f} us a page, {peak_mb:.0f} MB", budget, is_met),
    ]
