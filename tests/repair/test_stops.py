"""Repairs that are killed after any durable step or asked to stop: run again, they do the rest.

Nothing ends a repair that is asked to stop by force: what looks at nothing runs to its end, and fails the test.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.config import Config, load_config
from crawl_lib.crawldir import SegmentRef
from crawl_lib.curate.compact import compact_segment
from crawl_lib.curate.drop import drop_pages
from crawl_lib.curate.importing import import_archives
from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.errors import StoppedError
from crawl_lib.records import QueuedUrl
from crawl_lib.repair.fsck import fsck
from crawl_lib.repair.segments.known import lost_and_not_queued, requeue_urls
from crawl_lib.repair.segments.salvage import salvage_segment
from crawl_lib.repair.segments.swap import finish_swaps
from crawl_lib.states import KeyState
from crawl_lib.stores import open_stores
from crawl_lib.urlfiles import encode_line
from crawl_lib.urls import key_of
from tests.cli.conftest import Done, Krake
from tests.e2e.crawl import Result, settle
from tests.forked import run_forked
from tests.harms import files_of, shorten, zero
from tests.repair.archives import page, pages_archive, write
from tests.repair.checked import REPAIR, found, node_a, visited, waiting
from tests.repair.crawled import copy_of, largest, problems, rows, stores_of
from tests.repair.killed import ROOT, run_killed, run_stopped
from tests.repair.test_damages import DAMAGES, Damage
from tests.repair.test_folders import LEFT_BESIDE, leave

QUEUE_STEPS = sorted(
    {
        "queue.lost",
        "queue.move.written",
        "queue.move.step",
        "queue.move.state",
        "queue.move.record",
        "queue.move.done",
    }
    | {
        step
        for path in (ROOT / "crawl_lib").rglob("*.py")
        for step in re.findall(
            r'reached\("(repair\.queue\.[a-z_]+)"\)', path.read_text(encoding="utf-8")
        )
    }
)


def _handed_on(directory: Path) -> None:
    """An adoption whose move cannot be read, with a URL for another node."""
    line = encode_line(QueuedUrl("http://elsewhere.example/"), "h") + b"\n"
    (node_a(directory) / "adopted.handed_on").write_bytes(line)
    (node_a(directory) / "move").write_bytes(b"{")


BY_STEP = {
    "repair.queue.aside": DAMAGES["leftover: nonsense"],
    "repair.queue.leftover": DAMAGES["positions of a part: cut"],
    "queue.lost": DAMAGES["a data file lost lines"],
    "repair.queue.made": DAMAGES["pages of a built segment: cut"],
    "repair.queue.reopened": DAMAGES["positions of a part: cut"],
    "repair.queue.rescued": DAMAGES["journal: nonsense"],
    "queue.move.written": DAMAGES["move half done: nonsense"],
    "queue.move.step": DAMAGES["journal: gone"],
    "queue.move.state": DAMAGES["state says more"],
    "queue.move.record": Damage("move_damaged", _handed_on),
    "queue.move.done": DAMAGES["a data file is cut within its last line"],
}


def test_every_step_has_a_damage_that_reaches_it() -> None:
    assert sorted(BY_STEP) == QUEUE_STEPS


@pytest.mark.parametrize("step", QUEUE_STEPS)
def test_killed_after_a_step_and_run_again(
    step: str, copy: Callable[..., Krake], whole: tuple[Counter[str], Counter[str]]
) -> None:
    damage = BY_STEP[step]
    krake = copy(damage.kill_at)
    damage.do(krake.directory)
    assert damage.name in found(krake)
    assert run_killed(["--config", str(krake.file), *REPAIR], step).code == -9, (
        f"{step} was not reached"
    )
    krake.ok(*REPAIR)
    if damage.do is _handed_on:
        assert b"http://elsewhere.example/" in (node_a(krake.directory) / "handed_on").read_bytes()
    if damage.kill_at is None:
        krake.ok("settle")
        assert waiting(krake) == whole[1]
    else:
        krake.ok("crawl", "--run-id", "one", "--iterations", "4")
        some = set(visited(krake)) | set(waiting(krake))
        assert some >= set(whole[0]) | set(whole[1])
    assert found(krake) == Counter()


FOLDER_STEPS = {
    "repair.folder.aside": "iteration: nonsense",
    "repair.folder.written": "an iteration and its scope are gone",
    "repair.folder.placed": "the decision of a repair that is none",
    "rounds.index.aside": "an index that says something else",
    "rounds.index.written": "index: nonsense",
}


def test_every_step_of_a_folder_repair_is_killed() -> None:
    texts = [
        (ROOT / "crawl_lib" / name).read_text()
        for name in ("repair/folders/folders.py", "rounds/commit.py")
    ]
    assert set(re.findall(r'reached\("((?:repair|rounds)[a-z._]+)"\)', "".join(texts))) == set(
        FOLDER_STEPS
    )


@pytest.mark.parametrize("step", FOLDER_STEPS)
def test_a_folder_repair_killed_after_a_step_and_run_again(
    step: str, copy: Callable[..., Krake], whole: tuple[Counter[str], Counter[str]]
) -> None:
    damage = DAMAGES[FOLDER_STEPS[step]]
    krake = copy()
    damage.do(krake.directory)
    assert run_killed(["--config", str(krake.file), *REPAIR], step).code == -9, (
        f"{step} was not reached"
    )
    krake.ok(*REPAIR)
    assert found(krake) == Counter()
    krake.ok("settle")
    assert waiting(krake) == whole[1]
    assert visited(krake) == whole[0]


TOOL_STEPS = {
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
        shorten(segment / "outlinks")
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
    ("tool", "step"), [(tool, step) for tool, steps in TOOL_STEPS.items() for step in steps]
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
    tested = {step.partition(":")[0] for steps in TOOL_STEPS.values() for step in steps}
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


def stopped(krake: Krake, words: list[str], step: str) -> Done:
    """Run a command that is asked to stop at a step; it says so, and nothing else."""
    done = run_stopped(["--config", str(krake.file), *words], step)
    assert done.code == 143, done
    assert done.err.splitlines()[-1] == "krake: stopped; run it again to go on"
    assert "Traceback" not in done.err
    return done


@pytest.mark.parametrize(
    ("damage", "step"),
    [
        ("journal: nonsense", "repair.queue.rescued"),
        ("scope_added is cut", "repair.queue.rescued"),
        ("positions of a part: cut", "repair.queue.reopened"),
    ],
)
def test_a_queue_repair(
    damage: str, step: str, copy: Callable[..., Krake], whole: tuple[Counter[str], Counter[str]]
) -> None:
    chosen = DAMAGES[damage]
    krake = copy(chosen.kill_at)
    chosen.do(krake.directory)
    assert found(krake)  # SQLite puts the log of the killed crawl into its file
    before = files_of(krake.directory)
    stopped(krake, [*REPAIR, "--dry-run"], step)
    assert files_of(krake.directory) == before, "a dry run that is stopped leaves no trace"
    stopped(krake, [*REPAIR], step)
    krake.ok(*REPAIR)
    if chosen.kill_at is None:
        krake.ok("settle")
        assert waiting(krake) == whole[1]
    else:
        krake.ok("crawl", "--run-id", "one", "--iterations", "4")
        assert set(visited(krake)) | set(waiting(krake)) >= set(whole[0]) | set(whole[1])
    assert found(krake) == Counter()


def test_urls_that_a_queue_repair_found_gone_are_noted_before_it_stops(
    copy: Callable[..., Krake],
) -> None:
    """What says that they were there is set aside: the next repair would not know of them."""
    krake = copy("intake.chunk.journalled")
    new = node_a(krake.directory) / "new"
    new.write_bytes(new.read_bytes().partition(b"\n")[0] + b"\n")
    stopped(krake, [*REPAIR], "queue.lost")
    krake(*REPAIR, "--only", "queue")
    assert found(krake)["urls_lost"] == 1


@pytest.mark.parametrize(
    ("damage", "step"),
    [
        ("an iteration and its scope are gone", "repair.folder.written"),
        ("the decision of a repair that is none", "repair.folder.placed"),
    ],
)
def test_a_folder_repair(
    damage: str, step: str, copy: Callable[..., Krake], whole: tuple[Counter[str], Counter[str]]
) -> None:
    krake = copy()
    DAMAGES[damage].do(krake.directory)
    stopped(krake, [*REPAIR], step)
    krake.ok(*REPAIR)
    assert found(krake) == Counter()
    krake.ok("settle")
    assert waiting(krake) == whole[1]
    assert visited(krake) == whole[0]


def test_a_look_at_the_key_tables(copy: Callable[..., Krake]) -> None:
    """That it was to stop was taken for a finding of the tables, and the check went on."""
    config = load_config(copy().file)

    def stop(counts: Mapping[str, Any]) -> None:
        if str(counts.get("checking")).startswith("keys of"):
            raise StoppedError("stopped")

    with pytest.raises(StoppedError):
        fsck(open_stores(config, on_progress=stop))


def test_a_sweep(copy: Callable[..., Krake]) -> None:
    krake = copy()
    left = [leave(krake, name) for name in LEFT_BESIDE]
    stopped(krake, ["sweep"], "repair.sweep.deleted")
    assert sum(path.exists() for path in left) == len(left) - 1
    krake.ok("sweep")
    assert not any(path.exists() for path in left)


def test_a_change_of_key_servers(copy: Callable[..., Krake]) -> None:
    krake = copy()
    total = krake.status()["keys"][0]["total"]
    servers = ["keys/0.sqlite", "keys/1.sqlite", "keys/2.sqlite"]
    krake.change(key_storage={"servers": servers, "replication": 2})
    stopped(krake, ["keys", "reshard"], "keys.reshard.copied:3")
    assert "under way: run `krake keys reshard`" in krake("settle").error()
    krake.ok("keys", "reshard")
    assert found(krake) == Counter()
    assert sum(server["total"] for server in krake.status()["keys"]) == 2 * total
