"""Every command that takes its time ends at Ctrl-C and SIGTERM with one line and its code; run again it goes on."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from demo import Serving
from tests.cli.conftest import Krake, run_in_process
from tests.harms import shorten
from tests.repair.archives import pages_archive, write
from tests.repair.killed import ROOT, run_killed

AT_WORK = """\
import sys
from contextlib import contextmanager
from crawl_lib.cli import common, program

told, stop_on_signals = common.ProgressLine.__call__, program.stop_on_signals

@contextmanager
def known():
    global stop
    with stop_on_signals() as stop:
        yield stop

def tell_and_wait(line, progress):
    print("at work", flush=True)
    stop.wait()
    told(line, progress)

program.stop_on_signals, common.ProgressLine.__call__ = known, tell_and_wait
sys.exit(program.run())
"""
"""`krake`, which says so when it is at work, and waits there until it is asked to stop."""

COMMANDS = (
    "crawl",
    "settle",
    "export",
    "fsck",
    "fsck --repair",
    "segment drop --yes SEED",
    "segment compact --yes",
    "import DIRECTORY/foreign.warc.gz",
    "forget --yes 127.0.1.1",
    "retry --outcome gone",
    "why http://127.0.0.1/never-seen",
)


@pytest.fixture(scope="module")
def crawled(serving: Serving, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crawl of two iterations that is not over; a page of it was dropped."""
    directory = tmp_path_factory.mktemp("crawled")
    krake = Krake(directory, lambda words: run_killed(words, None))
    krake.configure()
    krake.ok("inject", "\n".join(serving.seeds))
    krake.ok("crawl", "--iterations", "2", "--batch-size", "3")
    krake.ok("segment", "drop", "--yes", serving.seeds[0])
    write(directory / "foreign.warc.gz", pages_archive(range(100)))
    return directory


def the_whole_command(line: str, config: str | Path) -> list[str]:
    """The command that goes on with a crawl, without its config, which `Krake` adds."""
    before, _, command = line.partition("krake --config ")
    assert before == "krake: stopped. To go on: "
    file, *words = shlex.split(command)
    assert Path(file) == Path(config).resolve()
    assert words[:4] == ["crawl", "--iterations", "1", "--run-id"]
    assert words[4].startswith("by-hand-")
    return words


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_is_stopped(
    command: str,
    crawled: Path,
    serving: Serving,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    krake = Krake(tmp_path / "crawl", lambda words: run_in_process(capsys, words))
    shutil.copytree(crawled, krake.directory)
    words = (
        command.replace("SEED", serving.seeds[1]).replace("DIRECTORY", str(krake.directory)).split()
    )
    if "--repair" in words:
        segment = next((krake.directory / "dfs" / "crawl").glob("[0-9]*/node-b"))
        shorten(segment / "pages.parquet")
    number = signal.SIGTERM if COMMANDS.index(command) % 2 else signal.SIGINT
    with subprocess.Popen(
        [sys.executable, "-c", AT_WORK, "--config", krake.file, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "at work\n"
        process.send_signal(number)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 128 + number, errors
    last = errors.splitlines()[-1]
    if command == "crawl":
        words = the_whole_command(last, krake.file)
    else:
        assert last == "krake: stopped; run it again to go on"
    assert "Traceback" not in errors
    krake.ok(*words)
    if command != "fsck":
        krake.ok("fsck")
