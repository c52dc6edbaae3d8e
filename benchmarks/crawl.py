"""The crawl: real documentation trees, served on loopback, crawled to the end by one node in one process, no delays."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.peers import wget_urls_per_cpu_s
from benchmarks.report import Row, measure
from crawl_lib import Config, from_mapping, stages
from crawl_lib.synthweb import Serving, SynthWeb
from tests.web.files import FileServing

DOC = Path("/usr/share/doc")
TREES = [
    (DOC / "python3.11-doc/html", "/index.html"),
    (DOC / "postgresql-doc-15/html", "/index.html"),
    (DOC / "gcc-12-base/libstdc++", "/index.html"),
    (DOC / "libboost1.74-doc/doc/html", "/index.html"),
    (Path("/usr/share/qt5/doc"), "/qtcore/qtcore-index.html"),
]
"""Trees and their first page: the packages python3.11-doc, postgresql-doc-15, libstdc++-12-doc, libboost1.74-doc and
qtbase5-doc-html. Those that are not installed are left out; without any, the synthetic web is crawled."""


OFTEN = 50
"""How much more often than by default records are forced to the disk, where the cost of that is measured."""


def make_config(directory: Path, **sections: dict[str, Any]) -> Config:
    """One node, one process, no delays. `sections`: options of other sections than those set here."""
    return from_mapping(
        sections
        | {
            "servers": ["node"],
            "dfs_primary": "dfs",
            "key_storage": {"servers": ["keys/0.sqlite"]},
            "queue": {"local_dir": "queue"},
            "scratch": {"directory": "scratch"},
            "batch": {"size": 1_000_000, "time_limit_s": 3600},
            "urls": {"scope": "hosts"},
            "fetch": {
                "host_delay_s": 0.0,
                "ip_delay_s": 0.0,
                "processes": 1,
                "connections": 64,
                "connections_per_host": 16,
                "allow_networks": ["127.0.0.0/8"],
            },
        },
        base=directory,
    )


def crawl_to_the_end(config: Config, seeds: list[str]) -> int:
    """Inject and iterate until nothing is queued; returns the URLs fetched."""
    stages.inject(config, run_id="bench", seeds="\n".join(seeds))
    total = 0
    for iteration in range(1, config.crawl.max_iterations + 1):
        stages.start_iteration(config, run_id="bench", iteration=iteration)
        counts: dict[str, Any] = stages.crawl_node(config, run_id="bench", iteration=iteration, node="node")
        stages.commit_iteration(config, run_id="bench", iteration=iteration)
        if counts["taken"] == 0:
            break
        total += counts["pages"]
    return total


def run(directory: Path) -> list[Row]:
    """Crawl; also leaves its segments in `directory`."""
    config = make_config(directory)
    with ExitStack() as stack:
        seeds, names = [], []
        for number, (tree, first) in enumerate(TREES, start=1):
            if (tree / first[1:]).is_file():
                server = stack.enter_context(FileServing(tree, f"127.0.8.{number}"))
                seeds.append(server.url(first))
                names.append(tree.parts[4] if len(tree.parts) > 4 else tree.name)
        if not seeds:
            seeds = stack.enter_context(Serving(SynthWeb(sites=8, pages_per_site=500))).seeds
            names = ["synthetic web"]
        crawled = measure(crawl_to_the_end, config, seeds)
        by_wget = wget_urls_per_cpu_s(seeds, directory)
        often_s = config.segment.sync_interval_s / OFTEN
        (directory / "often").mkdir()
        often = measure(crawl_to_the_end, make_config(directory / "often", segment={"sync_interval_s": often_s}), seeds)
        shutil.rmtree(directory / "often")
    urls = crawled.result
    beside = "wget is not installed" if by_wget is None else f"{urls / crawled.cpu_s / by_wget:.2f} x wget with WARC"
    checkpoints = [often.wall_s / crawled.wall_s - 1, often.cpu_s / crawled.cpu_s - 1]
    return [
        Row("crawl: web", ", ".join(names)),
        Row("crawl: URLs", f"{urls:,}"),
        Row("crawl: wall", f"{urls / crawled.wall_s:,.0f} URLs/s"),
        Row("crawl: CPU", f"{1000 * crawled.cpu_s / urls:.2f} ms a URL, start-up included", "0.70 (all five trees)"),
        Row("crawl: per core", f"{urls / crawled.cpu_s:,.0f} URLs/s of CPU", "1,400 (all five trees)"),
        Row("crawl: beside a peer, per CPU second", beside, "1.8 x wget (all five trees)"),
        Row("crawl: peak memory of a process", f"{crawled.peak_mb:,.0f} MB", "400"),
        Row(
            f"crawl: checkpoints every {config.segment.sync_interval_s:g} s",
            f"{checkpoints[0] / OFTEN:+.2%} wall time, {checkpoints[1] / OFTEN:+.2%} CPU"
            f" (every {often_s:g} s: {checkpoints[0]:+.0%}, {checkpoints[1]:+.0%})",
            "2 %",
        ),
    ]
