"""Segments made by hand for the tests of export and graph: WARC files, tables and manifests, as small as they go."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha1
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crawl_lib.export import SegmentInput
from crawl_lib.segment import Manifest
from crawl_lib.segment.schema import LINKS_SCHEMA, PAGES_SCHEMA
from crawl_lib.urls import host_of

PLAIN_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
PAGE_DEFAULTS: dict[str, Any] = {"outcome": "ok", "depth": 0, "attempts": 1, "duration_ms": 1}


def key(url: str) -> bytes:
    """The key of a URL that is canonical already."""
    return sha1(url.encode()).digest()


@dataclass
class Capture:
    """A page to put into a segment. `time`: POSIX seconds. `refers_to`: the segment of the capture it revisits.

    `anchors`: texts of links by URL. `more`: other columns of its row.
    """

    url: str
    body: bytes = b""
    time: float = 1000.0
    status: int | None = 200
    mime: str | None = "text/html"
    head: bytes = PLAIN_HEAD
    links: Sequence[str] = ()
    file: int = 0
    outcome: str = "ok"
    refers_to: str = ""
    retry_at: float | None = None
    anchors: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)


def member(url: str, block: bytes, kind: str = "response") -> bytes:
    """A WARC record as one gzip member."""
    head = f"WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {url}\r\nContent-Length: {len(block)}\r\n\r\n"
    return gzip.compress(head.encode() + block + b"\r\n\r\n", mtime=0)


def manifest(folder: str, node: str, *, pages: int, links: int) -> bytes:
    """The manifest of a segment that has only tables and WARC files."""
    named: dict[str, Any] = dict.fromkeys(
        ("krake_version", "config_digest", "user_agent", "robots_policy"), ""
    )
    counts = {"taken": pages, "deferred": 0, "pages": pages, "links": links, "outcomes": {}}
    own: dict[str, Any] = {
        "take_id": f"{folder} {node}",
        "run_id": "run",
        "iteration": 1,
        "folder": folder,
        "node": node,
    }
    return Manifest(**named, **own, counts=counts, started="1970-01-01T00:00:00Z").to_bytes()


@dataclass
class CrawlMaker:
    """Writes segments below the DFS root `root`, and knows what an export of them takes in."""

    root: Path
    segments: list[SegmentInput] = field(default_factory=list)

    def segment(self, folder: str, node: str, captures: Iterable[Capture]) -> Path:
        """Write a segment; between the records lie others that no one asks for."""
        path = f"crawl/{folder}/{node}"
        place = self.root / path
        place.mkdir(parents=True)
        rows: list[dict[str, Any]] = []
        links: list[dict[str, Any]] = []
        files: dict[str, bytearray] = {}
        for capture in captures:
            name = f"{node}-{capture.file:05d}.warc.gz"
            warc = files.setdefault(name, bytearray(member("", b"software: x\r\n", "warcinfo")))
            warc += member(capture.url, b"GET / HTTP/1.1\r\n\r\n", "request")
            record = member(capture.url, capture.head + capture.body)
            where = {"warc_file": name, "warc_offset": len(warc), "warc_length": len(record)}
            warc += record
            rows.append(
                {
                    **PAGE_DEFAULTS,
                    **where,
                    "key": key(capture.url),
                    "url": capture.url,
                    "host": host_of(capture.url),
                    "time": datetime.fromtimestamp(capture.time, UTC),
                    "status": capture.status,
                    "mime_detected": None if capture.refers_to else capture.mime,
                    "outcome": capture.outcome,
                    "refers_to": {"segment": capture.refers_to, "file": "", "offset": 0}
                    if capture.refers_to
                    else None,
                    "retry_at": capture.retry_at and datetime.fromtimestamp(capture.retry_at, UTC),
                    **capture.more,
                }
            )
            links += [
                {
                    "source": key(capture.url),
                    "target": key(link),
                    "target_url": link,
                    "anchor": capture.anchors.get(link),
                    "followed": number % 2 == 0,
                }
                for number, link in enumerate(capture.links)
            ]
        for name, data in files.items():
            (place / name).write_bytes(data)
        pq.write_table(pa.Table.from_pylist(rows, PAGES_SCHEMA), place / "pages.parquet")
        pq.write_table(pa.Table.from_pylist(links, LINKS_SCHEMA), place / "links.parquet")
        (place / "manifest.json").write_bytes(
            manifest(folder, node, pages=len(rows), links=len(links))
        )
        self.segments.append(SegmentInput(folder, node, path))
        return place
