"""`krake status`: a URL counts once, when it ends; its tries, and iterations of few answers, are said apart."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

from crawl_lib.cli.figures import duration
from crawl_lib.config import load_config
from crawl_lib.fetch import HostStore, make_hosts_folder
from crawl_lib.fetch.hoststore import BackOff
from crawl_lib.frontier import NodeDirectory, Queue, TakeHeader
from crawl_lib.rounds.commit import commit_iteration
from crawl_lib.rounds.start import start_iteration
from crawl_lib.stores import open_stores
from tests.cli.conftest import Krake
from tests.frontier.helpers import held
from tests.ports import free_port
from tests.rounds.test_start import lay_segment
from tests.screens import KRAKE, SIZES, run_in_terminal


@pytest.fixture
def of_few_answers(krake: Krake) -> str:
    """A crawl of one iteration; returns its folder."""
    krake.configure()
    stores = open_stores(load_config(str(krake.file)))
    folder = start_iteration(stores, run_id="r", iteration=1).folder
    lay_segment(
        stores, folder, "node-a", outcomes={"ok": 3, "timeout": 60}, retried={"timeout": 58}
    )
    lay_segment(stores, folder, "node-b", outcomes={"timeout": 10})
    commit_iteration(stores, run_id="r", iteration=1)
    return folder


def test_urls_and_tries_are_apart(krake: Krake, of_few_answers: str) -> None:
    status = krake.status()
    [counts] = [entry["counts"] for entry in status["iterations"]]
    assert (counts["urls"], counts["fetched"]) == (15, 73)
    assert (status["totals"]["urls"], status["totals"]["fetched"]) == (15, 73)
    lines = [
        line.split()
        for line in krake.ok("status").out.replace("│", " ").replace("┃", " ").splitlines()
    ]
    assert [
        "folder",
        "run",
        "/",
        "iteration",
        "complete",
        "URLs",
        "tries",
        "deferred",
        "links",
        "MB",
    ] in lines
    assert [of_few_answers, "r", "/", "1", "yes", "15", "73", "0", "0", "0.0"] in lines
    assert ["outcome", "URLs", "tries"] in lines
    assert ["ok", "3", "3"] in lines
    assert ["timeout", "12", "70"] in lines


def test_few_answers_are_told_of(krake: Krake, of_few_answers: str) -> None:
    assert (
        f"warning: iteration {of_few_answers}: only 3 of 73 URLs were answered at all\n"
        in krake.ok("status").out
    )


def test_a_crawl_by_hand_fails_once_for_few_answers(krake: Krake) -> None:
    krake.configure(crawl={"min_success": 0.2})
    port = free_port()
    krake.ok("inject", "\n".join(f"http://127.0.0.1:{port}/{number}" for number in range(60)))
    again = ("crawl", "--run-id", "one")
    assert (
        "only 0 of 60 URLs were answered at all, and crawl.min_success is 0.2"
        in krake(*again).err.splitlines()[-1]
    )
    krake.ok(*again)
    assert [entry["complete"] for entry in krake.status()["iterations"]] == [True]
    assert "no URL was due" in krake.ok("crawl", "--run-id", "two").err


def lines_of(shown: str) -> list[list[str]]:
    """The rows of its tables, by words."""
    return [line.split() for line in shown.replace("│", " ").replace("┃", " ").splitlines()]


@pytest.fixture
def at_work(krake: Krake) -> str:
    """A crawl whose first iteration runs on one of its nodes, which has taken 20 of 50 URLs; returns its folder."""
    krake.configure()
    krake.ok("inject", *(f"http://127.0.0.{1 + number % 2}/{number}" for number in range(50)))
    krake.ok("settle")
    stores = open_stores(load_config(str(krake.file)))
    folder = start_iteration(stores, run_id="r", iteration=1).folder
    node = max(krake.status()["queues"].items(), key=lambda item: item[1]["length"])[0]
    directory = krake.directory / "queue" / node
    held(Queue(directory, node)).takes.take_lines(
        bytearray(b"\1" * 20), TakeHeader("t", "r", 1, folder, 1)
    )
    said = {
        "phase": "fetch",
        "taken": 20,
        "fetched": 5,
        "pages_per_s": 2.5,
        "bytes": 3_400_000,
        "time": time.time(),
    }
    NodeDirectory(directory).progress.write_text(json.dumps(said))
    with HostStore(make_hosts_folder(directory)) as hosts:
        hosts.save_back_off("127.0.0.1", BackOff(time.time() + 500, 1))
        hosts.save_back_off("127.0.0.2", BackOff(time.time() + 500, 1))
    return folder


def test_what_runs_has_rate_eta_bytes_and_hosts(krake: Krake, at_work: str) -> None:
    """Finding 9: none of them was told, and a running iteration was "missing"."""
    [queue] = [queue for queue in krake.status()["queues"].values() if "open_take" in queue]
    assert (queue["progress"]["eta_s"], queue["progress"]["queue_eta_s"]) == (
        6,
        round((queue["length"] - 5) / 2.5),
    )
    assert sum(entry["urls"] for entry in queue["hosts"].values()) == queue["length"]
    assert all("back_off" in entry for entry in queue["hosts"].values())
    shown = krake.ok("status").out
    assert "missing" not in shown
    assert f"{at_work} r / 1 not yet: waits for node-a, node-b" in " ".join(
        shown.replace("│", " ").split()
    )
    [row] = [row for row in lines_of(shown) if row[1:5] == ["r", "/", "1", "fetch"]]
    assert row[5:] == ["5", "20", "2.5", "3.4", "6", "s", *row[11:]]
    assert "in back-off until" in shown


def test_only_the_last_iterations_are_listed(krake: Krake) -> None:
    """Finding 9: every iteration was listed for ever."""
    krake.configure()
    stores = open_stores(load_config(str(krake.file)))
    folders = [
        start_iteration(stores, run_id=f"r{number}", iteration=1).folder for number in range(12)
    ]
    shown = krake.ok("status").out
    assert [folder for folder in folders if folder in shown] == folders[2:]
    assert "and 2 older iterations; --last N shows the last N" in shown
    assert [entry["folder"] for entry in krake.status()["iterations"]] == folders
    found = krake.ok("status", "--json", "--last", "1").json
    assert ([entry["folder"] for entry in found["iterations"]], found["older"]) == (
        folders[-1:],
        11,
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59, "59 s"),
        (61, "1 min 01 s"),
        (3_600, "1 h 00 min"),
        (4e6, "1,111 h 06 min"),
    ],
)
def test_a_duration_has_two_units_at_most(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_watch_goes_on_until_it_is_stopped(krake: Krake) -> None:
    command = [sys.executable, "-c", KRAKE, "--config", krake.file, "status", "--watch"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        seen = 0
        while seen < 2:
            seen += process.stdout.readline().startswith("crawl ")
        began_s = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert time.monotonic() - began_s < 5
    assert (process.returncode, errors) == (130, "")


WATCH = f"import crawl_lib.cli.looking as looking; looking.WATCH_S = 0.05; {KRAKE}"


@pytest.mark.parametrize("size", SIZES)
def test_watch_has_a_screen_of_its_own(krake: Krake, at_work: str, size: tuple[int, int]) -> None:
    """It scrolled away what the terminal showed, and its own first lines; what is at work came far below."""
    stores = open_stores(load_config(str(krake.file)))
    for number in range(12):
        start_iteration(stores, run_id=f"r{number}", iteration=1)
    terminal = run_in_terminal(WATCH, ["--config", krake.file, "status", "--watch"], size)
    seen = terminal.until(lambda _: terminal.written.count("\x1b[H") > 3)
    assert (len(seen.shown), seen.is_alternate) == (size[0], True)
    titles = [line for line in seen.shown if line in {"at work", "iterations"}]
    assert titles == ["at work", "iterations"]
    assert "more lines: `krake status` shows all" in seen.shown[-1]
    terminal.interrupt()
    assert terminal.finish() == 130
    assert (seen.is_alternate, seen.cursor_is_shown, seen.lines) == (False, True, [""]), (
        terminal.written[-300:]
    )


RUN = "manual__2026-11-27T07:06:40.123456+00:00"


@pytest.mark.parametrize("size", SIZES)
def test_no_cell_is_cut_on_a_terminal(krake: Krake, size: tuple[int, int]) -> None:
    """Neither the run's id, by which people go on, nor a number, a path or a URL."""
    krake.configure(
        crawl={"name": "long"}, servers=["node-with-a-long-name-a", "node-with-a-long-name-b"]
    )
    stores = open_stores(load_config(str(krake.file)))
    folder = start_iteration(stores, run_id=RUN, iteration=1).folder
    for node in stores.config.servers:
        lay_segment(stores, folder, node, outcomes={"ok": 1_234_567}, deferred=12_345_678)  # type: ignore[arg-type]
    commit_iteration(stores, run_id=RUN, iteration=1)
    terminal = run_in_terminal(KRAKE, ["--config", krake.file, "status"], size)
    assert terminal.finish() == 0
    lines = [line.rstrip() for line in terminal.screen.lines]
    assert "exports" in lines
    assert not [line for line in lines if "…" in line]
    assert all(
        any(one in line for line in lines)
        for one in (folder, "2,469,134", "24,691,356", "deferred")
    )
    first = next(
        number for number, line in enumerate(lines) if line.lstrip("┃ ").startswith("folder")
    )
    begin = min(at for at in map(lines[first].find, ("run", "iteration")) if at > 0)
    end = lines[first].index("complete")
    column = "".join(
        line[begin:end].strip(" │") for line in lines[first + 1 : lines.index("outcomes")]
    )
    assert f"{RUN}/1" in column.replace(" ", "")


def test_a_long_url_is_shown_whole(krake: Krake) -> None:
    krake.configure()
    url = f"http://127.0.0.1/{'long/' * 30}"
    terminal = run_in_terminal(KRAKE, ["--config", krake.file, "why", url])
    terminal.finish()
    shown = "".join(line.strip(" │") for line in terminal.screen.lines)
    assert url in shown
    assert "…" not in shown
