"""A dry run changes nothing: no file of the crawl has another name, another byte or another time.

Nor does a repair that is run twice, the second time.
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from crawl_lib.cli.parser import build_parser
from tests.cli.conftest import Krake
from tests.harms import flip
from tests.repair.archives import pages_archive, write
from tests.repair.checked import snapshot
from tests.scopes import scope_of


def tree(directory: Path) -> dict[str, tuple[int, int, str] | None]:
    """Every folder and file: its size, time of change and digest."""
    return {
        str(path.relative_to(directory)): (
            (path.stat().st_size, path.stat().st_mtime_ns, sha256(path.read_bytes()).hexdigest())
            if path.is_file()
            else None
        )
        for path in sorted(directory.rglob("*"))
    }


def newest(krake: Krake) -> Path:
    return max(krake.directory.glob("dfs/crawl/1*"))


def segment(krake: Krake) -> Path:
    warcs = krake.directory.glob("dfs/crawl/1*/node-a/*.warc.gz")
    return max(warcs, key=lambda path: path.stat().st_size).parent


def damaged_segment(krake: Krake) -> list[str]:
    path = segment(krake)
    flip(next(path.glob("*.warc.gz")), 0.6)
    return []


def salvaged_segment(krake: Krake) -> list[str]:
    damaged_segment(krake)
    krake.ok("fsck", "--repair")
    return ["--damaged"]


def broken_queue(krake: Krake) -> list[str]:
    (krake.directory / "queue" / "node-a" / "state").unlink()
    return []


def lost_queue(krake: Krake) -> list[str]:
    shutil.rmtree(krake.directory / "queue" / "node-a")
    return ["node-a"]


def broken_folder(krake: Krake) -> list[str]:
    for path in (
        scope_of(newest(krake)),
        newest(krake) / "iteration.json",
        newest(krake) / "index.json",
    ):
        path.write_bytes(b"{")
    return []


def broken_seeds(krake: Krake) -> list[str]:
    [seeds] = krake.directory.glob("dfs/crawl/seeds/*")
    (seeds / "scope").unlink()
    return []


def a_page(krake: Krake) -> list[str]:
    return [next(segment(krake).glob("index.cdxj")).read_text().split('"url": "')[1].split('"')[0]]


def dropped_page(krake: Krake) -> list[str]:
    krake.ok("segment", "drop", "--yes", *a_page(krake))
    return []


def an_archive(krake: Krake) -> list[str]:
    return [str(write(krake.directory / "old.warc.gz", pages_archive(range(3))))]


def no_keys(krake: Krake) -> list[str]:
    for path in krake.directory.glob("keys/*"):
        path.unlink()
    return []


def archive_and_no_keys(krake: Krake) -> list[str]:
    no_keys(krake)
    return an_archive(krake)


def one_more_server(krake: Krake) -> list[str]:
    servers = ["keys/0.sqlite", "keys/1.sqlite", "keys/2.sqlite"]
    krake.change(key_storage={"servers": servers, "replication": 2})
    return []


def node_left(krake: Krake) -> list[str]:
    krake.change(servers=["node-b"])
    return ["node-a"]


def node_lost(krake: Krake) -> list[str]:
    shutil.move(krake.directory / "queue" / "node-a", krake.directory / "gone")
    return [*node_left(krake), "--lost"]


def node_came_back(krake: Krake) -> list[str]:
    krake.ok("nodes", "retire", "--yes", *node_lost(krake))
    krake.change(servers=["node-a", "node-b"])
    return ["node-a"]


def a_leftover(krake: Krake) -> list[str]:
    (newest(krake) / f".node-a-{'0' * 32}").mkdir()
    return []


def no_note(krake: Krake) -> list[str]:
    """As in tables of before servers kept notes of their places."""
    with closing(sqlite3.connect(krake.directory / "keys" / "0.sqlite")) as base:
        base.execute("delete from krakenote")
        base.commit()
    return []


def nothing(krake: Krake) -> list[str]:
    return []


CASES: list[tuple[str, Callable[[Krake], list[str]]]] = [
    ("fsck", damaged_segment),
    ("fsck --repair", broken_queue),
    ("nodes restart", lost_queue),
    ("fsck --repair", broken_folder),
    ("fsck --repair", broken_seeds),
    ("fsck --repair", damaged_segment),
    ("sweep", salvaged_segment),
    ("fsck --repair", no_note),
    ("fsck --repair", no_keys),
    ("fsck --repair", nothing),
    ("segment drop", a_page),
    ("segment compact", dropped_page),
    ("import", an_archive),
    ("import", archive_and_no_keys),
    ("keys reshard", one_more_server),
    ("forget", a_page),
    ("forget", lambda krake: [*a_page(krake), *no_note(krake)]),
    ("forget", lambda krake: ["--older-than", "0"]),
    ("retry", lambda krake: ["--outcome", "gone"]),
    ("nodes retire", node_left),
    ("nodes retire", node_lost),
    ("nodes admit", node_came_back),
    ("sweep", a_leftover),
]


WITH_YES = {"forget", "segment drop", "segment compact", "nodes retire"}


@pytest.mark.parametrize(
    ("command", "prepare"), CASES, ids=lambda value: getattr(value, "__name__", value)
)
def test_a_dry_run_changes_nothing(
    command: str, prepare: Callable[[Krake], list[str]], copy: Callable[..., Krake]
) -> None:
    krake = copy()
    words = [*command.split(), *prepare(krake), "--dry-run"]
    before = tree(krake.directory)
    done = krake(*words)
    assert done.code in {0, 1}, done
    assert not done.err.startswith("krake: "), done
    assert "dry run" in done.out
    assert tree(krake.directory) == before


def test_no_command_with_a_dry_run_is_left_out() -> None:
    assert {command.partition(" --")[0] for command, _ in CASES} == set(
        with_dry_run(build_parser(), ())
    )


def with_dry_run(parser: argparse.ArgumentParser, words: tuple[str, ...]) -> Iterator[str]:
    for action in parser._actions:
        if "--dry-run" in action.option_strings:
            yield " ".join(words)
        elif isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from with_dry_run(inner, (*words, name))


def test_a_dry_admission_refuses_what_the_admission_refuses(copy: Callable[..., Krake]) -> None:
    krake = copy()
    words = ["nodes", "admit", *node_came_back(krake)]
    directory = krake.directory / "queue" / "node-a"
    shutil.copytree(krake.directory / "gone", directory)
    problem = krake(*words, "--dry-run").error()
    assert "holds the queue of before node node-a was retired" in problem
    assert krake(*words).error() == problem
    shutil.rmtree(directory)
    assert "node-a would take part again" in krake.ok(*words, "--dry-run").out
    krake.ok(*words)
    assert "may work" in krake.ok(*words, "--dry-run").out
    assert "is not in servers" in krake("nodes", "admit", "node-x", "--dry-run").error()


@pytest.mark.parametrize(
    ("command", "prepare"),
    [case for case in CASES if case[1] is not archive_and_no_keys],  # refused without keys
    ids=lambda value: getattr(value, "__name__", value),
)
def test_run_twice_a_command_finds_its_work_done(
    command: str, prepare: Callable[[Krake], list[str]], copy: Callable[..., Krake]
) -> None:
    krake = copy()
    words = [*command.split(), *prepare(krake), *(["--yes"] if command in WITH_YES else [])]
    done = krake(*words)
    assert not done.err.startswith("krake: "), done
    before = snapshot(krake.directory)
    again = krake(*words)
    assert not again.err.startswith("krake: "), again
    assert snapshot(krake.directory) == before
