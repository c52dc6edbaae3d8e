"""Long work shows one line with a bar and the time left, whatever reports it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from rich.console import Console

from crawl_lib.cli.bar import Bar
from crawl_lib.seeds import parse_seeds
from crawl_lib.stopping import Progress, Work
from demo import Serving
from tests.cli.conftest import Krake
from tests.repair.archives import pages_archive, write
from tests.screens import SIZES, run_in_terminal


def shown(bar: Bar, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(bar)
    [line] = console.export_text().splitlines()
    assert len(line) <= width
    return " ".join(line.replace("━", "").replace("╸", "").replace("╺", "").split())


def test_the_time_left_follows_from_what_was_done() -> None:
    now_s = 0.0
    bar = Bar(lambda: now_s)
    for done in (0, 20, 40):
        bar.take({"stage": "graph.rank", "done": done, "total": 100, "unit": "arcs"})
        now_s += 10.0
    assert shown(bar) == "graph.rank 40/100 arcs 30 s left"
    bar.take({"stage": "graph.rank.write", "done": 0, "total": 7, "unit": "pages"})
    assert shown(bar) == "graph.rank.write 0/7 pages"


@pytest.mark.parametrize(
    ("report", "line"),
    [
        ({"stage": "x", "done": 12, "total": 0, "unit": "arcs"}, "x 12 arcs"),
        ({"stage": "sort", "done": 12, "total": 100, "unit": "percent"}, "sort 12 %"),
        (
            {"checking": "a.gz", "done": 1_500_000, "total": 30_000_000, "unit": "bytes"},
            "checking a.gz 1.5/30.0 MB",
        ),
        ({"reading": "crawl/1795762501/node-a/part-00001.warc.gz"}, "reading crawl…-00001.warc.gz"),
        (
            {"node": "a", "phase": "fetch", "taken": 9, "fetched": 4, "errors": 2},
            "a fetch 4/9 URLs errors 2",
        ),
        ({"checking": "[/x]\x1b]0;t\x07"}, "checking [/x]\\x1b]0;t\\x07"),
        ({"deleting": "日" * 200, "done": 1, "total": 2, "unit": "paths", "more": 10**60}, None),
        ({}, ""),
    ],
)
def test_each_report_is_one_line(report: dict[str, Any], line: str | None) -> None:
    bar = Bar()
    bar.take(report)
    for _, columns in SIZES:
        assert line in (shown(bar, columns), None)


STAGES = """\
import json
import sys

from crawl_lib.cli import common
from crawl_lib.cli.program import run
from crawl_lib.stopping import Progress

common.PROGRESS_INTERVAL_S = Progress.INTERVAL_S = 0.0
told = common.ProgressLine.__init__
common.ProgressLine.__init__ = lambda line, after_s=0.0, stop=None: told(line, 0.0, stop)
config, *commands = json.loads(sys.argv[1])
for command in commands:
    print("$", *command)
    assert run(["--config", config, *command]) == 0, command
"""
"""Commands whose progress is shown however fast they are."""

PARTS = {
    "inject": ("seeds.txt", "MB"),
    "import": ("importing", "MB"),
    "duplicates": ("text", "pages"),
    "export": ("export.content", "pages"),
    "graph link": ("graph.arcs_in", "arcs"),
    "graph rank": ("graph.rank", "arcs"),
    "fsck --repair": ("checking", "MB"),
}
"""A part of each command's work, and what it is counted in."""


def test_long_work_shows_a_bar(krake: Krake, serving: Serving, tmp_path: Path) -> None:
    krake.ok("inject", "\n".join(serving.seeds))
    krake.ok("crawl", "--iterations", "2")
    seeds, archive = tmp_path / "seeds.txt", tmp_path / "x.warc.gz"
    seeds.write_text("".join(f"http://127.0.0.1/{number}\n" for number in range(100)))
    write(archive, pages_archive(range(30)))
    commands = [
        ["inject", str(seeds)],
        ["import", str(archive)],
        ["duplicates", "near"],
        ["export"],
        ["graph", "link"],
        ["graph", "rank"],
        ["fsck", "--repair"],
    ]
    terminal = run_in_terminal(STAGES, [json.dumps([str(krake.file), *commands])], SIZES[1])
    assert terminal.finish() == 0, terminal.written
    for command, written in zip(PARTS, terminal.written.split("$ ")[1:], strict=True):
        assert written.startswith(command), written
        frames = [frame.split("\n")[0] for frame in written.split("\r\x1b[K")]
        name, unit = PARTS[command]
        assert any(name in frame and "━" in frame and unit in frame for frame in frames), "\n".join(
            [command, *frames]
        )
    assert not any("━━" in line for line in terminal.screen.lines), (
        "each bar is gone when its command ends"
    )


def test_seeds_show_how_much_of_them_was_read(tmp_path: Path) -> None:
    """A million of them said nothing for a minute."""
    file, told = tmp_path / "seeds.txt", list[dict[str, Any]]()
    file.write_text("http://a.test/\n" * 1000)
    work = Work(on_progress=lambda report: told.append(dict(report)))
    with patch.object(Progress, "INTERVAL_S", 0.0):
        assert len(list(parse_seeds(str(file), work=work))) == 1
    assert [report["done"] for report in told] == [15 * number for number in range(1001)]
    assert {(report["stage"], report["total"], report["unit"]) for report in told} == {
        (f"seeds {file}", 15000, "bytes")
    }
