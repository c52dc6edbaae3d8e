"""A process that reads strangers' bytes, taken over: each way out of it ends in an error, and it can still work."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawl_lib.records import Fetched
from crawl_lib.segment import Position
from crawl_lib.states import Outcome
from crawl_lib.text.child import message, read_message
from crawl_lib.walls import NO_FILTER_TEXT, calls, can_filter, clean_environment, data_bytes
from crawl_lib.worker import aside
from tests.e2e.crawl import make_config
from tests.walls.test_sandbox import crawl
from tests.worker import taken_over

ROOT = Path(__file__).resolve().parents[2]
HEADERS = Path("/usr/include")
needs_filter = pytest.mark.skipif(not can_filter(), reason=NO_FILTER_TEXT)
OF_ROOT = {"packets", "raw packets", "raw IP", "raw IPv6"}
OF_MACHINE = {
    "the hypervisor",
    "a socket by another ABI",
    "a ring",
    "a process by clone3",
    "a sparse file",
}
"""Tries that some machines refuse to everybody."""


@pytest.fixture
def unix_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A datagram socket of another program; by a short name, since the kernel takes no path of more than 107 bytes."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        monkeypatch.chdir(tmp_path)
        server.bind("server")
        yield "server"


def refused(found: dict[str, str]) -> set[str]:
    return {name for name, what in found.items() if what == "refused"}


def test_each_of_these_tries_would_succeed_without_walls(tmp_path: Path, unix_path: str) -> None:
    code = (
        "import json\n"
        "from tests.worker.taken_over import attack\n"
        "print(json.dumps(attack('.', 'server', internet=False, but=['a program, in place'])))"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert refused(json.loads(done.stdout)) <= OF_ROOT | OF_MACHINE


ATTACK = """
sys.path.insert(0, {root!r})
from tests.worker.taken_over import attack, honest
visit = worker._Worker._visit
def taken_over(self, *rest):
    spool = self.task.spool
    os.chdir({home!r})
    found = {{"attack": attack(spool, "server", internet=True), "honest": honest()}}
    sys.stderr.write(__import__("json").dumps(found) + "\\n")
    return visit(self, *rest)
worker._Worker._visit = taken_over
"""


@needs_filter
def test_a_fetching_process_is_refused_everything_and_goes_on_fetching(
    tmp_path: Path, unix_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = crawl(tmp_path, monkeypatch, 1, ATTACK.format(root=str(ROOT), home=str(tmp_path)))
    found = json.loads((directory / "worker-0.log").read_text())
    assert {name: what for name, what in found["attack"].items() if what != "refused"} == {}
    assert set(found["honest"].values()) == {"done"}, found["honest"]
    [manifest] = (tmp_path / "dfs").glob("*/*/node-0/manifest.json")
    assert json.loads(manifest.read_text())["counts"]["outcomes"] == {"ok": 1}


@needs_filter
def test_the_process_that_reads_large_pages_is_refused_everything_too(
    tmp_path: Path, unix_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(given: list[object], reader: object, out: io.BufferedWriter) -> None:
        found = taken_over.attack(str(tmp_path), "server", internet=False)
        out.write(json.dumps(["text/html", 0, "", json.dumps(found)]).encode() + b"\n")

    monkeypatch.setattr(aside, "_read", read)
    with aside.Aside(make_config(tmp_path, nodes=1), tmp_path, data_bytes()) as server:
        server.ask(Fetched("http://a.test/", 0.0, Outcome.OK), Position("x", 0, 1), links=False)
        answer = server.answer()
    assert answer is not None
    assert list(answer[1]) == []
    found = json.loads(answer[0].error or "")
    assert {name: what for name, what in found.items() if what != "refused"} == {}


@needs_filter
def test_the_process_that_reads_texts_is_refused_everything_too(
    tmp_path: Path, unix_path: str
) -> None:
    """But its own limit of CPU, which it sets for each page."""
    code = (
        "import os, sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "from crawl_lib.text import child, extract\n"
        "from tests.worker.taken_over import attack\n"
        f"extract.page_text = lambda *_, **__: attack({str(tmp_path)!r}, 'server', internet=False)\n"
        "sys.argv[1] = str(os.getppid())\n"
        "child.main()"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, "0", str(256 << 20), "10", "1000", "1000"],
        input=message(b"hx"),
        capture_output=True,
        env=clean_environment(os.environ),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(read_message(io.BytesIO(done.stdout)) or b"")
    assert {name for name, what in found.items() if what != "refused"} == {"other limits"}


def test_a_kernel_without_filters_is_named_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_seccomp", lambda *_: -1)
    assert not can_filter()
    assert calls.refuse_calls(forks=True, internet=True, limits=True) == NO_FILTER_TEXT


@pytest.mark.parametrize("machine", calls._NUMBERS)
def test_the_numbers_are_those_of_the_kernel(machine: str) -> None:
    """As its headers have them, where they are installed."""
    file = {
        "x86_64": HEADERS / "x86_64-linux-gnu/asm/unistd_64.h",
        "aarch64": HEADERS / "asm-generic/unistd.h",
    }[machine]
    if not file.exists():
        pytest.skip(f"{file} is not there: install linux-libc-dev")
    there = dict(re.findall(r"define __NR(?:3264)?_(\w+)\s+(\d+)", file.read_text()))
    ours = calls._NUMBERS[machine] | calls._SAME_NUMBERS
    assert {name: int(there.get(name, 0)) for name in ours} == ours
