"""The crawl: real documentation trees, served on loopback, crawled to the end by one node in one process, no delays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import checkpoints
from benchmarks.report import Measured, Row, ahead, measure
from crawl_lib import Config, from_mapping, stages
from crawl_lib.rounds import start_iteration
from crawl_lib.stores import open_stores
from demo import Serving, SynthWeb
from tests.web.files import FileServing

DOC = Path("/usr/share/doc")
TREES = [
    ("python3.11-doc", DOC / "python3.11-doc/html", "/index.html"),
    ("postgresql-doc-15", DOC / "postgresql-doc-15/html", "/index.html"),
    ("libstdc++-12-doc", DOC / "gcc-12-base/libstdc++", "/index.html"),
    ("libboost1.74-doc", DOC / "libboost1.74-doc/doc/html", "/index.html"),
    ("qtbase5-doc-html", Path("/usr/share/qt5/doc"), "/qtcore/qtcore-index.html"),
]
"""Debian's packages, their trees and first pages. Those that are not installed are left out; without any, the synthetic
web is crawled."""


def make_config(directory: Path, **sections: dict[str, Any]) -> Config:
    """One node, one process, no delays. `sections`: in place of those set here."""
    own: dict[str, Any] = {
        "servers": ["node"],
        "dfs_primary": "dfs",
        "key_storage": {"servers": ["keys/0.sqlite"]},
        "queue": {"local_dir": "queue"},
        "scratch": {"directory": "scratch"},
        "crawl": {"max_iterations": 50},
        "batch": {"size": 1_000_000, "time_limit_s": 3600},
        "urls": {"scope": "hosts"},
        "fetch": {
            "host_delay_s": 0.0,
            "ip_delay_s": 0.0,
            "processes": 1,
            "connections": 64,
            "connections_per_host": 16,
            "allow_networks": ["127.0.0.0/8"],
            "contact": "bench@localhost",
        },
    }
    return from_mapping(own | sections, base=directory)


def crawl_to_the_end(config: Config, seeds: list[str]) -> int:
    """Inject and iterate until nothing is queued; returns the URLs fetched."""
    stages.inject(open_stores(config), run_id="bench", seeds="\n".join(seeds))
    total = 0
    for iteration in range(1, config.crawl.max_iterations + 1):
        start_iteration(open_stores(config), run_id="bench", iteration=iteration)
        counts: dict[str, Any] = stages.crawl_node(
            open_stores(config), run_id="bench", iteration=iteration, node="node"
        )
        stages.commit_iteration(open_stores(config), run_id="bench", iteration=iteration)
        if counts["taken"] == 0:
            break
        total += counts["pages"]
    return total


@dataclass
class Web:
    """What is served: its seeds, what it is made of, and the servers of the trees."""

    seeds: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    servers: list[FileServing] = field(default_factory=list)

    def pages(self) -> list[str]:
        """The HTML files of the trees as URLs."""
        return [
            server.url(f"/{file.relative_to(server.root)}")
            for server in self.servers
            for file in sorted(server.root.rglob("*.html"))
        ]


@contextmanager
def served() -> Iterator[Web]:
    """Serve the trees that are installed."""
    web = Web()
    with ExitStack() as stack:
        for number, (package, tree, first) in enumerate(TREES, start=1):
            if (tree / first[1:]).is_file():
                server = stack.enter_context(FileServing(tree, f"127.0.8.{number}"))
                web.servers.append(server)
                web.seeds.append(server.url(first))
                web.names.append(package)
        if not web.seeds:
            web.seeds += stack.enter_context(Serving(SynthWeb(sites=8, pages_per_site=500))).seeds
            web.names.append("synthetic web")
        yield web


def run(directory: Path) -> list[Row]:
    """Crawl once."""
    config = make_config(directory)
    log = directory / "checkpoints"
    with served() as web, ahead(), checkpoints.watched(log):
        crawled = measure(crawl_to_the_end, config, web.seeds)
    # The budgets are for all five trees: of fewer, start-up would be a larger part.
    whole = len(web.names) == len(TREES)
    urls = crawled.result
    cpu_ms, per_core = 1000 * crawled.cpu_s / urls, urls / crawled.cpu_s
    return [
        Row("crawl: web", f"{urls:,} URLs: {', '.join(web.names)}"),
        Row("crawl: wall", f"{urls / crawled.wall_s:,.0f} URLs/s"),
        Row(
            "crawl: CPU",
            f"{cpu_ms:.2f} ms a URL, start-up included",
            "0.70",
            cpu_ms <= 0.7 if whole else None,
        ),
        Row(
            "crawl: per core",
            f"{per_core:,.0f} URLs/s of CPU",
            "1,400",
            per_core >= 1400 if whole else None,
        ),
        Row(
            "crawl: peak memory of a process",
            f"{crawled.peak_mb:,.0f} MB",
            "400",
            crawled.peak_mb < 400,
        ),
        _checkpoints(checkpoints.spent(log), crawled, config.segment.sync_interval_s),
    ]


def _checkpoints(spent: checkpoints.Spent, crawled: Measured, interval_s: float) -> Row:
    """At most what waits and what computes is lost to throughput, if no two of them happen at the same time."""
    waited, cpu = spent.waited_s / crawled.wall_s, spent.cpu_s / crawled.cpu_s
    return Row(
        f"crawl: checkpoints, every {interval_s:g} s",
        f"{cpu:.2%} of the crawl's CPU, {waited:.2%} of its time waited ({spent.checkpoints} checkpoints)",
        "under 2 %",
        waited + cpu < 0.02 if spent.checkpoints else None,
    )
