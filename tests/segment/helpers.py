"""Fetches of all kinds, a clock and ids that do not change, and a spool written of them."""

from __future__ import annotations

import gzip
import io
import itertools
from contextlib import redirect_stdout
from hashlib import sha1
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
from warcio.archiveiterator import ArchiveIterator
from warcio.checker import Checker

from crawl_lib.config import SegmentConfig
from crawl_lib.records import Earlier, Fetched, QueuedUrl, TakenUrl
from crawl_lib.segment import LINKS_SCHEMA, Manifest, PageRow, PartWriter, Position, WarcInfo
from crawl_lib.states import Outcome
from crawl_lib.warc import utc_text

TIME = 1_795_000_000.123456
INFO = WarcInfo("0.1.0", "c" * 64, "krake/0.1.0", "obey", "1795000000/node-a")
REQUEST = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/html\r\n\r\n"
GZIPPED = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Type: text/html\r\n\r\n"


def key(url: str) -> bytes:
    return sha1(url.encode("utf-8", "backslashreplace")).digest()


def ids():
    """Record ids that count."""
    numbers = itertools.count()
    return lambda: f"<urn:uuid:00000000-0000-4000-8000-{next(numbers):012d}>"


def taken(position: int, url: str | None = None, **queued) -> TakenUrl:
    url = f"http://a.example/{position}" if url is None else url
    return TakenUrl(position, key(url), QueuedUrl(url, **queued))


def answered(url: str, body: bytes = b"<p>hello", head: bytes = HEAD, **more) -> Fetched:
    facts = {
        "time": TIME,
        "outcome": Outcome.OK,
        "status": 200,
        "ip": "192.0.2.7",
        "attempts": 1,
        "duration_ms": 12,
    }
    return Fetched(url, request=REQUEST, head=head, body=body, **(facts | more))


def failed(url: str, outcome: Outcome = Outcome.TIMEOUT, **more) -> Fetched:
    return Fetched(
        url, **({"time": TIME + 1, "outcome": outcome, "attempts": 2, "error": "no answer"} | more)
    )


SEED = '{"a": "x\\\\ny"}'
EARLIER = Earlier("7/node-a", "x.warc.gz", 9, 1.5, "00ff" * 10, '"a\\"').to_text()


def fetches() -> list[tuple[TakenUrl, Fetched]]:
    """One fetch of each kind."""
    return [
        (
            taken(
                0,
                via=b"v" * 20,
                depth=3,
                redirects=1,
                metadata=SEED,
                list_name="retry-1",
                earlier=EARLIER,
            ),
            answered("http://a.example/0"),
        ),
        (taken(1), answered("http://a.example/1", b"", truncated="length")),
        (taken(2), failed("http://a.example/2", error="line one\r\nkrake-outcome: ok\\\nline two")),
        (taken(3), answered("http://a.example/3", b"3\r\nabc\r\n0\r\n\r\n", CHUNKED)),
        (
            taken(4),
            answered(
                "http://a.example/4", gzip.compress(b"<p>zip", mtime=0), GZIPPED, truncated="time"
            ),
        ),
        (
            taken(5),
            answered("http://a.example/5", outcome=Outcome.GONE, status=404, ip="2001:db8::1"),
        ),
        (taken(6), failed("http://a.example/6", Outcome.ROBOTS_DENIED, attempts=0, error="")),
    ]


def robots() -> Fetched:
    return answered("http://a.example/robots.txt", b"User-agent: *\n", duration_ms=3)


def writer(spool: Path, worker: int = 0, *, has_rows: bool = True, **more) -> PartWriter:
    config = SegmentConfig(**({"sync_interval_s": 3600.0} | more))
    return PartWriter(
        spool,
        f"krake-1-node-a-{worker}",
        INFO,
        config,
        clock=lambda: TIME,
        new_id=ids(),
        has_rows=has_rows,
    )


def row(taken_url: TakenUrl, fetched: Fetched, position: Position) -> PageRow:
    return PageRow(
        key=taken_url.key,
        url=fetched.url,
        host="a.example",
        time_us=round(fetched.time * 1_000_000),
        outcome=fetched.outcome,
        depth=taken_url.queued.depth,
        attempts=fetched.attempts,
        duration_ms=fetched.duration_ms,
        warc_file=position.warc_file,
        warc_offset=position.offset,
        warc_length=position.length,
        ip=fetched.ip,
        status=fetched.status,
        via_key=taken_url.queued.via,
        truncated=fetched.truncated,
        metadata=taken_url.queued.metadata or None,
    )


def add_rows(out: PartWriter, taken_url: TakenUrl, fetched: Fetched, position: Position) -> None:
    """What the crawl does with each page: a row, two links, one rejection."""
    out.part.pages.add(row(taken_url, fetched, position))
    urls = (f"http://b.example/{taken_url.position % 3}", "http://c.example/")
    for index, url in enumerate(urls):
        found = (url, taken_url.key, taken_url.queued.depth + 1, 0, "")
        out.part.outlinks.add(index % 2, taken_url.position + 1, index, found)
    rows = [
        (taken_url.key, key(url), url, f"anchor {n}", None, "a", True, "accepted")
        for n, url in enumerate(urls)
    ]
    named = [dict(zip(LINKS_SCHEMA.names, row, strict=True)) for row in rows]
    out.part.links.write(pa.RecordBatch.from_pylist(named, LINKS_SCHEMA))
    out.part.counts.rejections["scope"] += 1


def take_back(out: PartWriter) -> set[int]:
    """Make the rows of recovered groups again; returns their positions."""
    found = set()
    for taken_url, fetched, position in out.recovered():
        if taken_url is not None:
            add_rows(out, taken_url, fetched, position)
            found.add(taken_url.position)
    return found


def fill(out: PartWriter, items: list[tuple[TakenUrl, Fetched]]) -> list[Position]:
    positions = []
    for taken_url, fetched in items:
        position = out.append(taken_url, fetched)
        add_rows(out, taken_url, fetched, position)
        positions.append(position)
    return positions


NODES = ("node-a", "node-b")


def facts(count: int, deferred: int = 0, take_id: str = "take1", **more) -> Manifest:
    base = {
        "take_id": take_id,
        "run_id": "run",
        "iteration": 1,
        "folder": "1",
        "node": "node-a",
        "krake_version": "0.1.0",
        "config_digest": "c" * 64,
        "user_agent": "krake/0.1.0",
        "robots_policy": "obey",
        "started": utc_text(TIME),
        "counts": {"taken": count, "deferred": deferred},
    }
    return Manifest(**(base | more))


def check_with_warcio(paths: list[Path]) -> int:
    """Let `warcio check` read files; returns how many payload digests of chunked bodies it counts as wrong.

    warcio counts the transfer coding in, WARC 1.1 leaves it out. It finds nothing else, and each record has a digest.
    """
    said = io.StringIO()
    with redirect_stdout(said):
        Checker(SimpleNamespace(inputs=[str(path) for path in paths], verbose=True)).process_all()
    assert "no digest to check" not in said.getvalue()
    lines = said.getvalue().splitlines()
    found = [lines[at - 1].split()[3] for at, line in enumerate(lines) if "failed" in line]
    assert all("payload digest failed" in line for line in lines if "failed" in line), (
        said.getvalue()
    )
    chunked = set()
    for path in paths:
        with path.open("rb") as file:
            for record in ArchiveIterator(file):
                coding = record.http_headers and record.http_headers.get_header("Transfer-Encoding")
                if record.rec_type == "response" and coding:
                    chunked.add(record.rec_headers.get_header("WARC-Record-ID"))
    assert set(found) <= chunked, said.getvalue()
    return len(found)
