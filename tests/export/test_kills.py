"""Kill export, linker and finalizer at every durable step: run again, they end in the same bytes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from crawl_lib.config import Config
from tests.export.crawls import Capture, CrawlMaker

FILES = [
    "inputs",
    "pages.parquet",
    "urlmapping",
    "offsets",
    "content",
    "arcs-out.parquet",
    "arcs-in.parquet",
    "webgraph-index",
    "webgraph",
]
STEPS = [f"export.{name}.{done}" for name in FILES for done in ("written", "published")] + [
    "export.buckets.written"
]
PROJECT = Path(__file__).resolve().parents[2]


def test_killed_at_any_step_and_run_again_the_bytes_are_the_same(
    config: Config, crawl: CrawlMaker, tmp_path: Path
) -> None:
    urls = [f"http://h.example/{number}" for number in range(40)]
    for node in range(2):
        captures = [
            Capture(url, url.encode() * 9, links=urls[:: number + 1])
            for number, url in enumerate(urls)
        ]
        crawl.segment("1", f"node-{node}", captures[node::2])
    Path(config.dfs_primary).mkdir(exist_ok=True)
    work = tmp_path / "work.json"
    segments = [(segment.folder, segment.node, segment.path) for segment in crawl.segments]
    work.write_text(json.dumps({"config": config.to_mapping(), "segments": segments}))
    command = [sys.executable, "-m", "tests.export.killed", str(work), *STEPS]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    exports = Path(config.dfs_primary) / "export"
    assert len(list(exports.iterdir())) == len(STEPS) + 1
    whole = files_of(exports / "whole")
    assert sorted(whole) == sorted(FILES)
    for number, step in enumerate(STEPS):
        assert files_of(exports / f"step-{number}") == whole, step


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file, hidden leftovers too."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}
