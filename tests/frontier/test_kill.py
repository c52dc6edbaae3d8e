"""Kill each operation at every durable step it has, run it again, and compare all bytes with an unbroken run.

The steps are found by running, so a new one cannot be forgotten.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.config import TrapsConfig
from crawl_lib.crawldir import CrawlDirectory
from crawl_lib.frontier import (
    Queue,
    Shares,
    Take,
    TakeHeader,
)
from crawl_lib.records import QueuedUrl
from crawl_lib.seeds import Division, parse_seeds
from crawl_lib.seeds.inject import inject
from crawl_lib.storage.local import LocalStorage
from crawl_lib.urls import Owners, Traps
from tests.frontier.helpers import (
    KILLED,
    Keys,
    hand_made,
    held,
    key,
    run_in_child,
    snapshot,
    source,
    steps_of,
    take_in,
)
from tests.frontier.shares import head

NODES = ("n1", "n2")
FOUND = [f"http://h{n % 5}.test/{n}" for n in range(23)]
OTHERS = {key(url) for url in FOUND[4:7]}


def _keys(root: Path, **options: Any) -> Keys:
    return Keys(root / "keys", **options)


def _queue(root: Path) -> Queue:
    return Queue(root / "n1")


def _prepare(root: Path) -> None:
    """A queue of three files whose first is partly processed, with URLs of earlier intakes undecided."""
    (root / "n1").mkdir(parents=True)
    for number in range(3):
        urls = [f"http://old{number}.test/{n}" for n in range(4)]
        down = {key(urls[3])} if number == 2 else set()
        take_in(_queue(root), _keys(root, down=down), source(str(number), "n1", urls))
    take = held(_queue(root)).takes.make(
        head(2), TakeHeader(take_id="t0", run_id="r", iteration=1, folder="5", processes=1)
    )
    held(_queue(root)).takes.advance(take)
    held(root / "n1").takes.close()


def _prepare_by_hand(root: Path) -> None:
    first = [
        "HTTP://A.test/%7ex",
        "no url",
        "http://a.test/~x",
        *(f"http://h{n}.test/" for n in range(8)),
    ]
    hand_made(root / "n1", first, ["http://b.test/1", "http://a.test/~x"], processed=0)


def _prepare_take(root: Path) -> None:
    """Of each host two URLs, and what was passed over between them."""
    _prepare(root)
    header = TakeHeader(take_id="t1", run_id="r", iteration=2, folder="6", processes=1)
    taken = held(_queue(root)).takes.make(Shares(6, lambda host: 2, None, 9, 0.0, 0.0), header)
    assert (taken.count, taken.passed_over) == (6, 2)


def _intake(
    root: Path,
    routing: str = "host",
    *,
    others: set[bytes] | None = None,
    limit: int | None = None,
    undecided: Collection[str] = (),
) -> None:
    sources = [
        source("8", "n1", [FOUND[0], *FOUND[:9], "http://old1.test/1"]),
        source("8", "n2", FOUND[3:12]),
        source("seeds/x", "", ["http://old0.test/0", *FOUND[20:22]], "h"),
        source("9", "n1", FOUND[12:]),
    ]
    take_in(
        _queue(root),
        _keys(root, down=set(map(key, undecided)), others=others or set()),
        *sources,
        routing=routing,
        owners=Owners(NODES),
        chunk_lines=10,
        max_pages_per_host=limit,
        complete_folders=["8"],
    )


def _intake_with_a_limit(root: Path) -> None:
    _intake(root, limit=3)


def _intake_with_traps(root: Path) -> None:
    """Of eleven months of a calendar four are let in, in two chunks."""
    months = [QueuedUrl(f"http://h0.test/?month={number}", bytes(20)) for number in range(11)]
    sources = [
        source("8", "n1", months[:2]),
        source("8", "n2", [*FOUND[:9], *months]),
        source("9", "n1", FOUND[9:]),
    ]
    traps = Traps(TrapsConfig(max_dates=4))
    take_in(_queue(root), _keys(root), *sources, owners=Owners(NODES), chunk_lines=10, traps=traps)


def _intake_with_a_server_down(root: Path) -> None:
    _intake(root, undecided=[FOUND[9], FOUND[17]])


def _intake_local(root: Path) -> None:
    _intake(root, "local")


def _prepare_other_nodes(root: Path) -> None:
    """A queue of three files, filled when this node was alone, and one URL that an adoption left for others."""
    _prepare(root)
    (root / "n1" / "handed_on").write_bytes(b"http://earlier.test/\t\t0\t0\th\t\n")


def _rehome(root: Path) -> None:
    held(_queue(root)).queue.finish_open_move()
    held(_queue(root)).rewrites.rehome(Owners(["n1", "n2", "n3"]))


def _rehome_all(root: Path) -> None:
    held(_queue(root)).queue.finish_open_move()
    held(_queue(root)).rewrites.rehome(Owners(["n2", "n3"]))


def _take(root: Path) -> None:
    if Take.open(root / "n1") is None:
        held(_queue(root)).takes.make(
            head(6), TakeHeader(take_id="t1", run_id="r", iteration=2, folder="6", processes=1)
        )


def _advance(root: Path) -> None:
    queue = _queue(root)
    held(queue).queue.finish_open_move()
    take = Take.open(queue.directory)
    if take is not None:
        if take.leftover() is None:
            held(take.path.parent).takes.leave_over(take, [1, 2, 5])
        again = [replace(one, retries=one.retries + 1, due=9) for one in take.select([0, 3])]
        held(queue).takes.advance(take, take.select(take.leftover() or []), again)
        held(queue.directory).takes.close()
    # What a kill between the last two deletions leaves goes with the next take; compare with that done.
    held(queue.directory).takes.close()


def _prepare_requisites(root: Path) -> None:
    """A queue whose first file is partly processed, with requisites in two files."""
    _prepare(root)
    for folder in ("6", "7"):
        found = [
            QueuedUrl(f"http://h.test/{folder}{n}", bytes(20), requisite=n % 2) for n in range(6)
        ]
        take_in(_queue(root), _keys(root), source(folder, "n1", found))


def _bring_forward(root: Path) -> None:
    held(_queue(root)).queue.finish_open_move()
    assert held(_queue(root)).rewrites.bring_forward() == 6


def _use_up(root: Path) -> None:
    queue = _queue(root)
    held(queue).queue.finish_open_move()
    if not (queue.directory / "done").exists():
        if Take.open(queue.directory) is None:
            held(queue).takes.make(
                head(99), TakeHeader(take_id="t1", run_id="r", iteration=2, folder="6", processes=1)
            )
        take = Take.open(queue.directory)
        assert take
        held(queue).takes.advance(take)
        (queue.directory / "done").write_text("")
    held(queue.directory).takes.close()


def _inject(root: Path) -> None:
    storage = LocalStorage.open(root)
    for entry in storage.list("crawl/seeds") if storage.exists("crawl/seeds") else []:
        if entry.name.startswith("."):
            storage.delete(f"crawl/seeds/{entry.name}")
    inject(
        CrawlDirectory(storage, "crawl"),
        "r",
        parse_seeds("\n".join(FOUND)),
        Division(NODES, "local"),
    )


def _nothing(root: Path) -> None:
    root.mkdir()


Work = Callable[[Path], None]
OPERATIONS: dict[str, tuple[Work, Work]] = {
    "intake": (_prepare, _intake),
    "intake_with_a_limit": (_prepare, _intake_with_a_limit),
    "intake_with_traps": (_prepare, _intake_with_traps),
    "intake_with_a_server_down": (_prepare, _intake_with_a_server_down),
    "first_intake": (lambda root: (root / "n1").mkdir(parents=True), _intake),
    "adopt_and_intake": (_prepare_by_hand, _intake),
    "adopt_and_keep_all": (_prepare_by_hand, _intake_local),
    "rehome": (_prepare_other_nodes, _rehome),
    "rehome_all": (_prepare_other_nodes, _rehome_all),
    "take": (_prepare, _take),
    "advance": (_prepare_take, _advance),
    "bring_forward": (_prepare_requisites, _bring_forward),
    "use_up": (_prepare, _use_up),
    "inject": (_nothing, _inject),
}


def _start_from(root: Path, prepare: Work) -> None:
    """A fresh copy of what `prepare` makes; it is made once."""
    prepared = root.with_name(f"{root.name}.prepared")
    if not prepared.exists():
        prepare(prepared)
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(prepared, root)


def _state_after(
    root: Path, prepare: Work, work: Work, kill_at: str | None = None
) -> dict[str, Any]:
    _start_from(root, prepare)
    if kill_at is not None:
        assert run_in_child(lambda: work(root), kill_at) == KILLED, kill_at
    assert run_in_child(lambda: work(root)) == 0
    found = snapshot(root)
    if work is _intake_with_a_server_down:
        # A run after the move asks for the undecided URLs once more, and counts them once more.
        record = found["n1/state.krake"]
        asked = record["pending"].pop("undecided")
        record["last_move"] = record["pending"].pop("seen") - asked
    if "keys" in found:
        data = found["keys"]
        names = {
            key(url): url
            for url in [*FOUND, *(f"http://old{n // 4}.test/{n % 4}" for n in range(12))]
        }
        cut = [data[at : at + 20] for at in range(0, len(data), 20)]
        found["keys"] = sorted(names.get(item, item.hex()) for item in cut)
    return found


def _kill_points(root: Path, prepare: Work, work: Work) -> list[str]:
    _start_from(root, prepare)
    counts: Counter[str] = Counter()
    points = []
    for step in steps_of(lambda: work(root)):
        counts[step] += 1
        points.append(f"{step}:{counts[step]}")
    return points


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "adopt_and_keep_all"])
def test_killed_at_any_step_and_run_again_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    prepare, work = OPERATIONS[name]
    root = tmp_path / "root"
    unbroken = _state_after(root, prepare, work)
    points = _kill_points(root, prepare, work)
    assert points
    for point in points:
        assert _state_after(root, prepare, work, point) == unbroken, point


def test_every_operation_has_the_steps_that_the_protocol_names(tmp_path: Path) -> None:
    """So that the tests above cannot pass by finding nothing."""
    seen = set()
    for number, (prepare, work) in enumerate(OPERATIONS.values()):
        seen |= {
            point.partition(":")[0] for point in _kill_points(tmp_path / str(number), prepare, work)
        }
    moves = {"written", "step", "state", "hosts", "hosts_deleted", "record", "done"}
    chunks = {"appended", "journalled", "inserted"}
    wanted = {f"queue.move.{name}" for name in moves} | {f"intake.chunk.{name}" for name in chunks}
    wanted |= {
        "intake.planned",
        "intake.claim.written",
        "intake.claim.journalled",
        "intake.claimed",
    }
    wanted |= {
        "adopt.written",
        "adopt.files_written",
        "adopt.inserted",
        "take.written",
        "take.put_back",
    }
    wanted |= {"rehome.written", "forward.written"}
    wanted |= {"take.leftover", "take.deleted", "inject.written", "inject.renamed"}
    assert wanted <= seen


def _local_with_others(root: Path) -> None:
    _intake(root, "local", others=OTHERS)


def test_local_routing_killed_anywhere_loses_nothing_and_doubles_only_what_it_counts(
    tmp_path: Path,
) -> None:
    """Only a first, definite answer may drop a URL; what a second sending keeps is counted as unsure."""
    root = tmp_path / "root"
    unbroken = _state_after(root, _prepare, _local_with_others)
    wanted = _lines(unbroken)
    for point in _kill_points(root, _prepare, _local_with_others):
        found = _state_after(root, _prepare, _local_with_others, point)
        lines = _lines(found)
        more = Counter(lines) - Counter(wanted)
        report = found["n1/state.krake"]["pending"]
        assert not Counter(wanted) - Counter(lines), point
        assert sum(more.values()) <= report["unsure"], point
        assert {key(url) for url in more} <= OTHERS, "only URLs that are another node's come twice"
        assert found["keys"] == unbroken["keys"], point
        assert report["seen"] == unbroken["n1/state.krake"]["pending"]["seen"], point


def _lines(found: dict[str, Any]) -> list[str]:
    files = sorted(name for name in found if name.removeprefix("n1/").isdigit())
    return [line for name in files for line in found[name].decode().splitlines()]


def test_a_second_kill_while_a_move_is_finished_changes_nothing(tmp_path: Path) -> None:
    root = tmp_path / "root"
    unbroken = _state_after(root, _prepare_take, _advance)
    for first in ("queue.move.step:2", "queue.move.written", "queue.move.state"):
        for second in (
            "queue.move.step:1",
            "queue.move.step:3",
            "queue.move.state",
            "queue.move.record",
        ):
            _start_from(root, _prepare_take)
            assert run_in_child(lambda: _advance(root), first) == KILLED
            assert run_in_child(lambda: _advance(root), second) == KILLED
            assert run_in_child(lambda: _advance(root)) == 0
            assert snapshot(root) | {"keys": 0} == unbroken | {"keys": 0}, (first, second)
