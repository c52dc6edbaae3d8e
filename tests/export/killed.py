"""Run by `test_kills`: kill the three stages at one durable step after the other, and run them again.

    python -m tests.export.killed CONFIG.json STEP...

For each step a child is killed there and another one runs to the end, in an export named by the step's number. A fork
for each saves the start of the interpreter; nothing has opened DuckDB before it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pyarrow

from crawl_lib.config import from_mapping
from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.export import SegmentInput, export_pages
from crawl_lib.graph import finalize_export, link_export
from crawl_lib.stores import open_stores


def child(work: dict, name: str, step: str | None) -> int:
    """The wait status of a process that runs all stages, and dies at `step`."""
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    try:
        if step is not None:
            os.environ[KILL_VARIABLE] = step
        config = from_mapping(work["config"], Path("/"))
        stores = open_stores(config)
        export_pages(
            stores, name=name, segments=[SegmentInput(*entry) for entry in work["segments"]]
        )
        link_export(stores, name=name)
        finalize_export(stores, name=name)
    except BaseException as error:
        print(f"{step}: {error!r}", file=sys.stderr)
        os._exit(1)
    os._exit(0)


def main(path: str, steps: list[str]) -> None:
    """All steps, and once without a kill, under the name `whole`."""
    pyarrow.array([1])  # loads pandas, where it is installed: once, and not in each child
    work = json.loads(Path(path).read_text())
    assert child(work, "whole", None) == 0
    for number, step in enumerate(steps):
        status = child(work, f"step-{number}", step)
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, f"{step} was never reached"
        assert child(work, f"step-{number}", None) == 0, step


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
