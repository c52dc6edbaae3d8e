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

from crawl_lib import stages
from crawl_lib.rounds import start_iteration
from crawl_lib.stores import open_stores
from tests.e2e.crawl import Result, make_config, write_config
from tests.torture.children import children_of
from tests.web.hostile import HostileWeb

MOST_BYTES = 400_000_000
HTML = b"Content-Type: text/html\r\n"
LIMIT = 16 << 20
MOST_GROWTH_BYTES = 220_000_000


class Watch(threading.Thread):
    """Samples the memory of a task's descendants: of the one that fetches its peak, of its own what they add."""

    def __init__(self, task: int) -> None:
        super().__init__(daemon=True)
        self.task = task
        self.over = threading.Event()
        self.fetching: dict[int, int] = {}
        self.aside = 0

    def run(self) -> None:
        while not self.over.wait(0.01):
            for server in children_of(self.task):
                for worker in children_of(server):
                    with suppress(OSError, StopIteration):
                        self.fetching[worker] = max(
                            self.fetching.get(worker, 0), field(worker, "status", "VmHWM")
                        )
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
        return field(pid, "smaps_rollup", "Private_Clean") + field(
            pid, "smaps_rollup", "Private_Dirty"
        )
    return 0


def bombs() -> dict[str, tuple[bytes, bytes]]:
    """Headers and bodies of answers that are large, or become large."""
    rng = random.Random(1)
    noise = rng.randbytes(1 << 20) * 16
    links = b"".join(b"<a href='/%d'>%d</a>\n" % (number, number) for number in range(700_000))[
        :LIMIT
    ]
    return {
        "zero": (HTML + b"Content-Encoding: gzip\r\n", gzip.compress(bytes(64 << 20), 1)),
        "tags": (HTML + b"Content-Encoding: gzip\r\n", gzip.compress(b"<b id=1>" * (8 << 20), 1)),
        "links": (HTML + b"Content-Encoding: gzip\r\n", gzip.compress((links * 4)[: 64 << 20], 1)),
        "brotli": (
            HTML + b"Content-Encoding: br\r\n",
            brotli.compress(b"<p>" * (20 << 20), quality=1),
        ),
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
    fetch = {
        "host_delay_s": 0.0,
        "connections_per_host": 64,
        "robots": "ignore",
        "time_limit_s": 60,
    }
    config = make_config(tmp_path, nodes=1, urls={"scope": "hosts", "max_depth": 0}, fetch=fetch)
    with HostileWeb() as web:
        for name, (headers, body) in kinds.items():
            for number in range(12 if name == "noise" else 1):
                web.on(
                    f"/{name}{number}",
                    lambda talk, h=headers, b=body: talk.reply(headers=h, body=b),
                )
        seeds = [web.url(path) for path in web._handlers]
        (tmp_path / "seeds").write_text("\n".join(seeds))
        stages.inject(open_stores(config), run_id="run", seeds=str(tmp_path / "seeds"))
        start_iteration(open_stores(config), run_id="run", iteration=1)
        watch = Watch(os.getpid())
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
LINKS = {
    "/long/": f"<a href='/{{n}}/{LONG}'>x</a>",
    "/longer/": f"<a href='/{{n}}/z{LONG}'>x</a>",
    "/rel/": f"<a href='/rel-{{n}}' rel='{LONG}'>x</a>",
    f"/query/{LONG}": "<a href='?{n}'>x</a>",
}
"""By the page that has them: links that are long, that have a long attribute, or that a long URL makes long."""
LINKS_OF_A_PAGE = 22_000
TASK = """
import sys
from pathlib import Path
from crawl_lib import stages
from crawl_lib.config import load_config
from crawl_lib.stores import open_stores
stages.crawl_node(open_stores(load_config(Path(sys.argv[1]))), run_id="run", iteration=1, node="node-0")
status = Path("/proc/self/status").read_text().splitlines()  # `getrusage` would give the peak of this process's parent
print(next(line for line in status if line.startswith("VmHWM:")).split()[1])
"""


def test_pages_of_long_links_take_a_crawl_no_more_than_400_mb(tmp_path: Path) -> None:
    """A task, and what fetches for it, as in a real crawl: pages of 22,000 links of 1.3 KB each."""
    fetch = {"host_delay_s": 0.0, "robots": "ignore", "time_limit_s": 120}
    config = make_config(tmp_path, nodes=1, urls={"scope": "hosts"}, fetch=fetch)
    headers = HTML + b"Content-Encoding: gzip\r\n"
    with HostileWeb() as web:
        for path, link in LINKS.items():
            links = "".join(link.format(n=n) for n in range(LINKS_OF_A_PAGE))
            body = gzip.compress(links.encode(), 1)
            web.on(path, lambda talk, b=body: talk.reply(headers=headers, body=b))
        (tmp_path / "seeds").write_text("\n".join(map(web.url, LINKS)))
        stages.inject(open_stores(config), run_id="run", seeds=str(tmp_path / "seeds"))
        start_iteration(open_stores(config), run_id="run", iteration=1)
        arguments = [sys.executable, "-c", TASK, str(write_config(config, tmp_path))]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as task:
            watch = Watch(task.pid)
            watch.start()
            said, _ = task.communicate()
            fetching = watch.stop()
    assert task.returncode == 0
    assert Result(config).rows("pages", ["outcome", "parse_error"]) == [
        {"outcome": "ok", "parse_error": None}
    ] * len(LINKS)
    followed = [row for row in Result(config).rows("links", ["followed"]) if row["followed"]]
    assert len(followed) == len(LINKS) * LINKS_OF_A_PAGE
    assert watch.fetching
    assert max(fetching, int(said) * 1024) < MOST_BYTES, (fetching, said)
