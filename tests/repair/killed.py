"""`krake` in a process of its own, which a durable step may kill, or ask to stop."""

from __future__ import annotations

import os

from crawl_lib.durable import KILL_VARIABLE
from tests.cli.conftest import Done
from tests.forked import ROOT, run_python

__all__ = ["ROOT", "run_killed", "run_stopped"]
PROGRAM = "import sys; from crawl_lib.cli import main; sys.exit(main())"
UNSEALED = f"from crawl_lib.segment import Sealer; Sealer.__init__.__kwdefaults__['interval_s'] = 600.0; {PROGRAM}"


STOPPED = """\
import os, signal, sys
from crawl_lib import signals

class Known(signals.StopSignal):
    def __init__(self):
        global stop
        super().__init__()
        stop = self

def ask_to_stop(pid, number):
    kill(pid, signal.SIGTERM)
    stop.wait()

kill, os.kill = os.kill, ask_to_stop
signals.StopSignal = Known
signals.LastResort.begin = lambda *arguments: None
from crawl_lib.cli import main
sys.exit(main())
"""
"""`krake`, which is not killed by a step but gets SIGTERM, and goes on once it knows; nothing ends it by force."""


def run_stopped(words: list[str], stop_at: str) -> Done:
    """Run a command that is asked to stop at a durable step; what does not stop in order ends with its own code."""
    return _run(STOPPED, words, stop_at)


def run_killed(words: list[str], kill_at: str | None, *, seals: bool = True) -> Done:
    """Run a command; `kill_at`: the step at which it dies by SIGKILL (exit code -9).

    `seals`: whether what is fetched may be sealed while it is fetched, however slow this machine is.
    """
    return _run(PROGRAM if seals else UNSEALED, words, kill_at)


def _run(program: str, words: list[str], step: str | None) -> Done:
    environment = {name: value for name, value in os.environ.items() if name != KILL_VARIABLE}
    if step is not None:
        environment[KILL_VARIABLE] = step
    done = run_python(program, words, environment)
    return Done(done.returncode, done.stdout, done.stderr)
