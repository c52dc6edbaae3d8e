"""Whatever is wrong with a queue, the error names a command, and that command repairs it without losing a URL."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from crawl_lib.frontier import NodeLock
from demo import Serving
from tests.cli.conftest import Krake


def write(name: str, data: bytes) -> Callable[[Path], None]:
    def broken(queue: Path) -> None:
        (queue / name).write_bytes(data)

    return broken


def remove(name: str) -> Callable[[Path], None]:
    def broken(queue: Path) -> None:
        (queue / name).unlink()

    return broken


BREAKS = {
    "says more": write("state", b"0\n7\n"),
    "says less": write("state", b"0\n5\n"),
    "no numbers": write("state", b"one\ntwo\n"),
    "empty": write("state", b""),
    "too much processed": write("state", b"7\n6\n"),
    "no state": remove("state"),
    "a file that state does not list": write("7", b"ftp://127.0.0.1/x\n"),
    "no data file": lambda queue: (queue / "0").rename(queue / "3"),
    "an unreadable record": write("state.krake", b"{"),
    "an unreadable move": write("move", b"{"),
    "an unreadable take": write("take", b"no take\n"),
}


@pytest.fixture
def filled(krake: Krake, serving: Serving) -> Path:
    """A node's queue of six URLs."""
    krake.configure(servers=["node-a"])
    krake.ok("inject", "\n".join(serving.url(0, f"/none/{number}") for number in range(6)))
    krake.ok("settle")
    assert krake.status()["queues"]["node-a"]["length"] == 6
    return krake.directory / "queue" / "node-a"


@pytest.mark.parametrize("name", BREAKS)
def test_a_queue_that_is_wrong_names_the_command_that_mends_it(
    krake: Krake, filled: Path, name: str
) -> None:
    BREAKS[name](filled)
    error = krake("settle").error()
    assert str(filled) in error
    [command] = re.findall(r"`krake (fsck [^`]*)`", error)
    assert command == "fsck --repair"
    if "move" not in name:  # which status does not look at
        assert f"`krake {command}`" in krake.status()["queues"]["node-a"]["error"], (
            "status shows it, and goes on"
        )
    krake.ok("status")

    assert krake.ok(*shlex.split(command)).out
    krake.ok("settle")
    krake.ok("crawl", "--run-id", "r")
    assert krake.status()["totals"]["outcomes"] == {"gone": 6}


def test_repair_of_a_good_queue_changes_nothing_that_counts(krake: Krake, filled: Path) -> None:
    before = (filled / "0").read_bytes()
    assert "clean" in krake.ok("fsck", "--repair").out
    assert (filled / "0").read_bytes() == before
    assert krake.ok("settle").code == 0
    assert krake.status()["queues"]["node-a"]["length"] == 6


def test_repair_leaves_out_a_node_that_somebody_works_on(krake: Krake, filled: Path) -> None:
    (filled / "state").unlink()
    with NodeLock(filled, "node-a", 1, what="a crawl"):
        told = krake("fsck", "--repair").out
    assert f"{filled}/lock: node node-a is locked by process" in told
    assert "a crawl" in told
    assert not (filled / "state").exists()
