"""Ends what a topology has left behind: `python -m tests.cluster.reaper MARK`, with standard input open until then.

Servers get a signal when the program that started them dies. An edge worker that gets it asks the API server for
minutes, which is dead too; and its tasks are in groups of their own. All of them have MARK in their environment.
"""

from __future__ import annotations

import sys
import time

import psutil

MARK_VARIABLE = "KRAKE_CLUSTER_MARK"
PATIENCE_S = 10.0


def marked(mark: str) -> list[psutil.Process]:
    """The processes that have the mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK_VARIABLE) == mark:
                found.append(process)
        except psutil.Error:  # it has ended, or is somebody else's
            continue
    return found


def main(mark: str) -> None:
    """Wait for the end of the input; then give the marked ones time to end by themselves, and kill the rest."""
    sys.stdin.read()
    until_s = time.monotonic() + PATIENCE_S
    while (left := marked(mark)) and time.monotonic() < until_s:
        psutil.wait_procs(left, timeout=0.5)
    while left := marked(mark):
        for process in left:
            process.kill()
        psutil.wait_procs(left, timeout=5)


if __name__ == "__main__":
    main(sys.argv[1])
