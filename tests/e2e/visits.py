"""A site that is visited again: validators, pages that change, pages that do not; and lists made by hand for it."""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from crawl_lib.config import Config
from crawl_lib.records import Earlier, QueuedUrl
from crawl_lib.seeds import Division, hand_over
from crawl_lib.segment import SegmentReader
from crawl_lib.stores import open_stores
from crawl_lib.urlfiles import HANDED_ON, encode_line
from tests.e2e.crawl import make_config, run_iteration
from tests.serving import Answering, running

DATE = "Sun, 22 Nov 2026 08:00:00 GMT"
PATHS = ("/", "/both", "/etag", "/date", "/same", "/zipped", "/new", "/liar", "/moved", "/gone")
VALIDATORS: dict[str, tuple[str | None, str | None]] = {
    "/etag": ('"e1"', None),
    "/date": (None, DATE),
    "/both": ('"b"', DATE),
}
ROBOTS: dict[str, tuple[int, dict[str, str], bytes]] = {"/robots.txt": (404, {}, b"")}
LATER = {
    **ROBOTS,
    "/liar": (304, {}, b""),
    "/moved": (301, {"Location": "/etag"}, b"moved"),
    "/gone": (404, {}, b"gone"),
}
LINKED = b"".join(b'<a href="%s">x</a>' % path.encode() for path in PATHS)


class _Page(Answering):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        site: Any = self.server
        site.asked.append((self.path, dict(self.headers.items())))
        etag, date = VALIDATORS.get(self.path, (None, None))
        asks = (self.headers["If-None-Match"], self.headers["If-Modified-Since"])
        status, more, body = site.later.get(self.path, (200, {}, LINKED + self.path.encode()))
        if any(asks) and asks == (etag, date):
            status, body = 304, b""
        if self.path == "/new":
            body += b"%d" % next(site.numbers)
        elif self.path == "/zipped":
            body, more = gzip.compress(body, mtime=0), {"Content-Encoding": "gzip"}
        self.answer(
            status, body, {"ETag": etag, "Last-Modified": date, "Content-Type": "text/html", **more}
        )


class Site:
    """A running site. `asked`: each request's path and headers. `later`: from then on some pages are gone or others."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.root = f"http://127.0.0.1:{server.server_address[1]}"
        self.urls = {path: f"{self.root}{path}" for path in PATHS}

    def later(self) -> None:
        self.server.later = LATER
        self.server.asked.clear()

    @property
    def asked(self) -> list[tuple[str, dict[str, str]]]:
        return list(self.server.asked)


@contextmanager
def running_site() -> Iterator[Site]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    server.asked, server.later, server.numbers = [], ROBOTS, itertools.count()
    with running(server):
        yield Site(server)


def config_for(directory: Path, order: str = "fifo") -> Config:
    return make_config(directory, nodes=1, fetch={"host_delay_s": 0.0}, frontier={"order": order})


def full_captures(config: Config) -> dict[str, Earlier]:
    """The newest full capture of each page that answered 200, as a list's line says it."""
    stores, found = open_stores(config), dict[str, Earlier]()
    for segment in stores.crawl.segments():
        reader = SegmentReader(stores.storage, segment.path)
        for batch in reader.pages():
            for row in batch.to_pylist():
                if row["status"] != 200 or row["refers_to"] is not None:
                    continue
                record = reader.read_record(
                    row["warc_file"], row["warc_offset"], row["warc_length"]
                )
                digest = _hex(record.headers["warc-payload-digest"])
                place = (
                    str(segment),
                    row["warc_file"],
                    row["warc_offset"],
                    row["time"].timestamp(),
                )
                found[row["url"]] = Earlier(*place, digest, row["etag"], row["last_modified"])
    return found


def _hex(digest: str) -> str:
    import base64  # noqa: PLC0415

    return base64.b32decode(digest.removeprefix("sha1:")).hex()


def leave_list(
    config: Config, name: str, urls: Sequence[str], captures: dict[str, Earlier]
) -> None:
    """Leave a list for the nodes, as `generate` does."""
    lines = []
    for url in urls:
        earlier = captures[url].to_text() if url in captures else ""
        lines.append(
            encode_line(
                QueuedUrl(url, metadata='{"a": "b"}', list_name=name, earlier=earlier), HANDED_ON
            )
        )
    crawl = open_stores(config).crawl
    hand_over(crawl, name, lines, Division.of(config), facts={"newest": crawl.newest()}, scope=None)


def visit(
    config: Config, name: str, number: int, captures: dict[str, Earlier] | None = None
) -> dict[str, Any]:
    """One more iteration, in which all pages with a full capture are visited again; returns its counts."""
    found = full_captures(config) if captures is None else captures
    leave_list(config, name, sorted(found), found)
    return run_iteration(config, "run-1", number)


def rows_of(config: Config, number: int) -> dict[str, dict[str, Any]]:
    """Rows of `pages` of the n-th iteration, by path."""
    stores = open_stores(config)
    [segment] = [
        one for one in stores.crawl.segments() if one.folder == stores.crawl.folders()[number - 1]
    ]
    rows = [
        row
        for batch in SegmentReader(stores.storage, segment.path).pages()
        for row in batch.to_pylist()
    ]
    return {"/" + row["url"].split("/", 3)[3]: row for row in rows}
