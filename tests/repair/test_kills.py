"""Repairs that are killed after any durable step, and run again: the same as if nothing had happened."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from crawl_lib.config import Config
from crawl_lib.crawldir import SegmentRef
from crawl_lib.curate.compact import compact_segment
from crawl_lib.curate.drop import drop_pages
from crawl_lib.curate.importing import import_archives
from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.repair.fsck import fsck
from crawl_lib.repair.segments.known import lost_and_not_queued, requeue_urls
from crawl_lib.repair.segments.salvage import salvage_segment
from crawl_lib.repair.segments.swap import finish_swaps
from crawl_lib.states import KeyState
from crawl_lib.urls import key_of
from tests.e2e.crawl import Result, settle
from tests.forked import run_forked
from tests.repair.archives import page, pages_archive, write
from tests.repair.crawled import copy_of, cut, largest, problems, rows, stores_of, zero

ROOT = Path(__file__).resolve().parents[2]
STEPS = {
    "salvage": [
        "repair.salvage.built",
        *(f"repair.swap.{step}" for step in ("uploaded", "decided", "aside", "placed", "indexed")),
        "rounds.index.aside",
        "rounds.index.written",
    ],
    "drop": ["curate.drop.marked", "curate.drop.written"],
    "compact": ["curate.compact.built", "repair.swap.placed"],
    "import": [
        "segment.part.log_synced:2",  # in the second archive
        "segment.part.closed:2",
        "curate.import.file",
        "segment.publish.renamed",
        "curate.import.marked",
    ],
}
MODULES = (
    "repair/segments/salvage",
    "curate/drop",
    "curate/compact",
    "curate/importing",
    "repair/segments/swap",
)


def pages_to_drop(segment: Path) -> list[str]:
    return sorted(row["url"] for row in rows(segment) if row["status"] == 200)[:2]


def salvage(config: Config, name: SegmentRef, home: Path) -> None:
    stores = stores_of(config)
    finish_swaps(stores, name.folder)
    if problems(config, name):
        salvage_segment(stores, name)
    requeue_urls(stores, name, lost_and_not_queued(stores, name))


def drop(config: Config, name: SegmentRef, home: Path) -> None:
    drop_pages(stores_of(config), (home / "to-drop").read_text().split())


def compact(config: Config, name: SegmentRef, home: Path) -> None:
    compact_segment(stores_of(config), name)


def bring(config: Config, name: SegmentRef, home: Path) -> None:
    import_archives(stores_of(config), [str(home / "a.warc.gz"), str(home / "b.warc.gz")])


TOOLS: dict[str, Callable[[Config, SegmentRef, Path], None]] = {
    "salvage": salvage,
    "drop": drop,
    "compact": compact,
    "import": bring,
}


def child(tool: str, config: Config, name: str, home: Path, step: str) -> None:
    os.environ[KILL_VARIABLE] = step
    TOOLS[tool](config, stores_of(config).crawl.segment_named(name), home)


def killed_at(tool: str, config: Config, name: SegmentRef, home: Path, step: str) -> bool:
    """Run a tool in a process of its own that dies at a step; False if it came to its end."""
    return run_forked(child, tool, config, str(name), home, step) != 0


def prepare(tool: str, crawl: Result, home: Path) -> SegmentRef:
    """Bring a copy of the crawl to where the tool has something to do."""
    segment, name = largest(crawl)
    if tool == "salvage":
        zero(next(segment.glob("*.warc.gz")), 0.3, 9000)
        cut(segment / "outlinks")
    elif tool in {"drop", "compact"}:
        (home / "to-drop").write_text("\n".join(pages_to_drop(segment)))
        if tool == "compact":
            drop(crawl.config, name, home)
    else:
        write(home / "a.warc.gz", pages_archive(range(4)))
        write(home / "b.warc.gz", pages_archive(range(3, 7)))
    return name


def outcome(tool: str, crawl: Result, name: SegmentRef, home: Path) -> object:
    """What is the same after an unbroken run and after a killed one that was run again."""
    stores = stores_of(crawl.config)
    assert [
        finding.to_text()
        for finding in fsck(stores, full=False).findings
        if finding.room != "export"
    ] == []
    assert problems(crawl.config, name) == []
    folder = crawl.crawl_dir / name.folder
    leftovers = [
        path.name for path in crawl.crawl_dir.glob("*/.*") if not path.name.startswith(".damaged-")
    ]
    assert leftovers == []
    assert len(list(folder.glob(".damaged-*"))) == (tool == "salvage")
    places = {"warc_file", "warc_offset", "warc_length"}
    found = [
        {column: value for column, value in row.items() if column not in places}
        for path in crawl.segments()
        for row in rows(path)
    ]
    with stores.keys() as keys:
        imported = [key_of(page(number)[0]) for number in range(7)]
        states = list(keys.states(imported).values())
    assert states == [KeyState.CRAWLED if tool == "import" else None] * 7
    queued = [one["queue"] for one in settle(crawl.config)]
    return found, queued


@pytest.fixture(scope="module")
def unbroken(crawled: Result, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    found = {}
    for tool, run in TOOLS.items():
        home = tmp_path_factory.mktemp(tool)
        crawl = copy_of(crawled, home / "crawl")
        name = prepare(tool, crawl, home)
        run(crawl.config, name, home)
        found[tool] = outcome(tool, crawl, name, home)
    return found


@pytest.mark.parametrize(
    ("tool", "step"), [(tool, step) for tool, steps in STEPS.items() for step in steps]
)
def test_killed_and_run_again(
    tool: str, step: str, crawled: Result, unbroken: dict[str, object], tmp_path: Path
) -> None:
    crawl = copy_of(crawled, tmp_path / "crawl")
    name = prepare(tool, crawl, tmp_path)
    assert killed_at(tool, crawl.config, name, tmp_path, step), (
        f"{step} was not reached, so nothing was tested"
    )
    TOOLS[tool](crawl.config, name, tmp_path)
    assert outcome(tool, crawl, name, tmp_path) == unbroken[tool]


def test_every_step_of_repairs_is_tested() -> None:
    """A new one cannot be forgotten here."""
    tested = {step.partition(":")[0] for steps in STEPS.values() for step in steps}
    found = {
        step
        for module in MODULES
        for step in re.findall(
            r'reached\("([a-z._]+)"\)',
            (ROOT / "crawl_lib" / f"{module}.py").read_text(encoding="utf-8"),
        )
    }
    assert len(found) > 10
    assert found <= tested
