"""What no other command undoes is asked for: `--yes`, or the word on a terminal; else nothing is done."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from demo import Serving
from tests.cli.conftest import Krake
from tests.harms import files_of

COMMANDS = {
    "keys create --drop": "every URL of the crawl is new again",
    "forget SEED": "fetched again",
    "forget --older-than 0": "pages of all hosts become new",
    "segment drop SEED": "1 page is taken out",
    "segment compact": "records of dropped pages",
    "nodes retire node-b --lost": "on the disk of node-b",
}


@pytest.fixture
def crawled(krake: Krake, serving: Serving) -> Krake:
    krake.ok("inject", "\n".join(serving.seeds))
    krake.ok("crawl")
    krake.ok("settle")
    krake.ok("segment", "drop", serving.seeds[1], "--yes")
    return krake


@pytest.fixture
def node_lost(crawled: Krake) -> Krake:
    mapping = yaml.safe_load(crawled.file.read_text())
    crawled.file.write_text(yaml.safe_dump({**mapping, "servers": ["node-a"]}))
    shutil.rmtree(crawled.directory / "queue" / "node-b")
    return crawled


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_terminal_nothing_is_done_but_for_yes(
    command: str, node_lost: Krake, serving: Serving
) -> None:
    words = command.replace("SEED", serving.seeds[0]).split()
    before = files_of(node_lost.directory)
    error = node_lost(*words).error()
    assert error.startswith("nothing was done: ")
    assert COMMANDS[command] in error
    assert error.endswith("give --yes to go on")
    assert files_of(node_lost.directory) == before


@pytest.mark.parametrize(("answer", "code"), [("yes\n", 0), ("y\n", 1), ("\n", 1)])
def test_on_a_terminal_the_word_is_typed(
    answer: str, code: int, crawled: Krake, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, slave = os.openpty()
    try:
        with os.fdopen(slave, closefd=False) as terminal:
            monkeypatch.setattr(sys, "stdin", terminal)
            os.write(master, answer.encode())
            done = crawled("forget", serving.seeds[0])
    finally:
        os.close(master)
        os.close(slave)
    assert done.code == code
    assert "Type yes to go on: " in done.err
    assert ("forgot 1 of 1" in done.out) == (code == 0)


def test_what_can_be_undone_is_not_asked(crawled: Krake, tmp_path: Path) -> None:
    crawled.ok("keys", "create")
    crawled.ok("fsck", "--repair")
    crawled.ok("forget")
    crawled.ok("sweep")
