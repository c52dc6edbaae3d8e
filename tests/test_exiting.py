"""`crawl_lib.exiting`: a program exits as Python does, but for giving back its memory."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import atexit, sys, threading
from crawl_lib.exiting import run_program

class Freed:
    def __del__(self):
        sys.stderr.write("freed ")

kept = Freed()

def main():
    atexit.register(lambda: sys.stderr.write("atexit "))
    threading.Thread(target=lambda: (threading.main_thread().join(), sys.stderr.write("thread "))).start()
    sys.stdout.write("said")
    {}

run_program(main)
"""


@pytest.mark.parametrize(
    ("end", "code", "told"),
    [
        ("return 0", 0, "thread atexit "),
        ("return 130", 130, "thread atexit "),
        ("sys.exit(2)", 2, "thread atexit freed "),
        ("raise SystemExit('bad words')", 1, "bad words\nthread atexit freed "),
    ],
)
def test_threads_handlers_and_output_are_heeded_and_nothing_is_freed(
    end: str, code: int, told: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(end)], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "said", told)


def test_the_code_holds_where_nobody_reads_what_is_said() -> None:
    command = [sys.executable, "-c", PROGRAM.format("return 3")]
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}  # it is written at the end
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait() == 3
