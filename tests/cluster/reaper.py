"""Ends what a topology has left behind: `python -m tests.cluster.reaper`, told of servers on its standard input.

Servers get a signal when the program that started them dies. An edge worker that gets it asks the API server for
minutes, which is dead too; and its tasks are in groups of their own. All that a server started is in its session.
"""

from __future__ import annotations

import os
import sys
import time

import psutil

PATIENCE_S = 10.0


def of_sessions(sessions: set[int]) -> list[psutil.Process]:
    """The processes in these sessions, each named by the id of the server that leads it."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) in sessions and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (OSError, psutil.Error):  # it has ended, or is somebody else's
            continue
    return found


def main() -> None:
    """Read the servers' ids, a line each, to the end; then give them time to end by themselves, and kill the rest."""
    sessions = {int(line) for line in sys.stdin}
    until_s = time.monotonic() + PATIENCE_S
    while (left := of_sessions(sessions)) and time.monotonic() < until_s:
        psutil.wait_procs(left, timeout=0.5)
    for process in left:
        process.kill()
    psutil.wait_procs(left, timeout=5)


if __name__ == "__main__":
    main()
