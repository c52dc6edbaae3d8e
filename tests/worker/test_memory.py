"""A fetching process, with what reads large pages for it, stays under 400 MB whatever comes."""

from __future__ import annotations

import gzip
import os
import random
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import brotli
import pytest

from crawl_lib import stages
from crawl_lib.rounds import start_iteration
from crawl_lib.stores import open_stores
from tests.e2e.crawl import Result, make_config
from tests.torture.children import children_of
from tests.web.hostile import HostileWeb

MOST_BYTES = 400_000_000
HTML = b"Content-Type: text/html\r\n"
LIMIT = 16 << 20
MOST_GROWTH_BYTES = 220_000_000


class Watch(threading.Thread):
    """Samples the memory of this process's descendants: of the one that fetches its peak, of its own what they add."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self.fetching: dict[int, int] = {}
        self.aside = 0

    def run(self) -> None:
        while not self.over.wait(0.01):
            for server in children_of(os.getpid()):
                for worker in children_of(server):
                    with suppress(OSError, StopIteration):
                        self.fetching[worker] = max(self.fetching.get(worker, 0), field(worker, "status", "VmHWM"))
                        self.aside = max(self.aside, sum(map(private, below(worker))))

    def stop(self) -> int:
        """End; returns the most bytes."""
        self.over.set()
        self.join()
        return max(self.fetching.values(), default=0) + self.aside


def below(pid: int) -> list[int]:
    return [found for child in children_of(pid) for found in (child, *below(child))]


def field(pid: int, file: str, name: str) -> int:
    """A line of a file of /proc, in bytes."""
    lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1]) * 1024


def private(pid: int) -> int:
    with suppress(OSError, StopIteration):
        return field(pid, "smaps_rollup", "Private_Clean") + field(pid, "smaps_rollup", "Private_Dirty")
    return 0


def bombs() -> dict[str, tuple[bytes, bytes]]:
    """Headers and bodies of answers that are large, or become large."""
    rng = random.Random(1)
    noise = rng.randbytes(1 << 20) * 16
    links = b"".join(b"<a href='/%d'>%d</a>\n" % (number, number) for number in range(700_000))[:LIMIT]
    return {
        "zero": (HTML + b"Content-Encoding: gzip\r\n", gzip.compress(bytes(64 << 20), 1)),
        "tags": (HTML + b"Content-Encoding: gzip\r\n", gzip.compress(b"<b id=1>" * (8 << 20), 1)),
        "links": (HTML + b"Content-Encoding: gzip\r\n", gzip.compress((links * 4)[: 64 << 20], 1)),
        "brotli": (HTML + b"Content-Encoding: br\r\n", brotli.compress(b"<p>" * (20 << 20), quality=1)),
        "twice": (
            HTML + b"Content-Encoding: gzip, gzip\r\n",
            gzip.compress(gzip.compress(b" " * (64 << 20), 1)),
        ),
        "plain": (HTML, links),
        "noise": (b"Content-Type: image/png\r\n", noise),
        "legacy": (b"Content-Type: text/html; charset=gb18030\r\n", b"\xd6\xd0" * (LIMIT // 2)),
    }


def test_a_fetching_process_stays_under_400_mb_whatever_comes(tmp_path):
    kinds = bombs()
    fetch = {"host_delay_s": 0.0, "connections_per_host": 64, "robots": "ignore", "time_limit_s": 60}
    config = make_config(tmp_path, nodes=1, urls={"scope": "hosts", "max_depth": 0}, fetch=fetch)
    with HostileWeb() as web:
        for name, (headers, body) in kinds.items():
            for number in range(12 if name == "noise" else 1):
                web.on(f"/{name}{number}", lambda talk, h=headers, b=body: talk.reply(headers=h, body=b))
        seeds = [web.url(path) for path in web._handlers]
        (tmp_path / "seeds").write_text("\n".join(seeds))
        stages.inject(open_stores(config), run_id="run", seeds=str(tmp_path / "seeds"))
        start_iteration(open_stores(config), run_id="run", iteration=1)
        watch = Watch()
        watch.start()
        stages.crawl_node(open_stores(config), run_id="run", iteration=1, node="node-0")
        most = watch.stop()
    rows = Result(config).rows("pages", ["url", "outcome", "length", "parse_error"])
    assert len(rows) == len(seeds)
    assert {row["outcome"] for row in rows} == {"ok"}
    assert {row["parse_error"] for row in rows} == {None}, "even such pages are read whole"
    assert watch.fetching
    assert watch.aside
    assert most < MOST_BYTES, most


LONG = "abcdefghij" * 128
HREFS = {
    "long links": "/{n}-{i}/" + LONG,
    "queries of one page": "?{n}-{i}",
}
WORK = """
import resource, sys
from pathlib import Path
from types import SimpleNamespace
from crawl_lib.config import SegmentConfig
from crawl_lib.frontier import read_outlinks
from crawl_lib.parse import Links, Page
from crawl_lib.records import QueuedUrl, TakenUrl
from crawl_lib.segment.parts import Part, LINKS_SUFFIX
from crawl_lib.segment.runs import merge_outlinks
from crawl_lib.segment.schema import LINKS_SCHEMA
from crawl_lib.segment.spool import OpenPart
from crawl_lib.segment.tables import read_blocks, write_parquet
from crawl_lib.urls import UrlFilter, key_of
from crawl_lib.worker.discovery import Discovery
from tests.e2e.crawl import make_config
room, href, rel = Path(sys.argv[1]), *sys.argv[2:]
config = make_config(room, nodes=1, urls={"scope": "any"})
part = OpenPart(Part(room / "part-00000"), config.segment)
found = Discovery(config, ["node-0"], 0, UrlFilter(config.urls, [], config.traps), SimpleNamespace(part=part),
                  seeds_widen_scope=False)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
count = 4096
for n in range(12):
    page = f"http://a.test/{n}"
    links = Links([href.format(n=n, i=i) for i in range(count)], [""] * count, [rel] * count, ["a"] * count,
                  [True] * count, [False] * count)
    found.links(TakenUrl(n, key_of(page), QueuedUrl(page, None, 0)),
                Page("utf-8", None, None, None, None, page, links, nofollow=False, links_cut=0), False)
part.links.close()
part.outlinks.flush()
write_parquet(room / "links", LINKS_SCHEMA, read_blocks(part.part.path(LINKS_SUFFIX)))
with (room / "outlinks").open("wb") as file:
    merge_outlinks(file, part.outlinks.paths, ["node-0"], room)
lines = sum(1 for line in read_outlinks((room / "outlinks").open("rb")))
assert lines >= 12 * count, lines
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.parametrize(("href", "rel"), [*((href, "") for href in HREFS.values()), ("/{n}-{i}", "r" * 1300)])
def test_links_take_no_more_memory_the_longer_they_are(tmp_path: Path, href: str, rel: str) -> None:
    """What a fetching process and its task do with them, one after the other: 12 x 4,096 links, up to 64 MB."""
    arguments = [sys.executable, "-c", WORK, str(tmp_path), href, rel]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < MOST_GROWTH_BYTES, int(done.stdout)
