"""`python -m krake_airflow crawl ...`, `python -m krake_airflow ui ...`: the programs of `make crawl` and `make ui`."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from crawl_lib.exiting import run_program
from crawl_lib.signals import end_on_signals
from krake_airflow.preload import collect_seldom

PROGRAMS = {"crawl": "run", "ui": "ui"}
"""The module of this package for each program."""


def main(words: list[str]) -> int:
    """Run the program named by the first word, with the other words as arguments; return the exit code."""
    if not words or words[0] not in PROGRAMS:
        sys.stderr.write(f"usage: python -m krake_airflow {{{','.join(PROGRAMS)}}} ...\n")
        return 2
    # New files are for this user alone: logs, passwords, queues, pages. Existing folders keep their rights, so people
    # may share a folder on purpose.
    os.umask(0o077)
    collect_seldom()
    with end_on_signals():
        return int(import_module(f"krake_airflow.{PROGRAMS[words[0]]}").main(words[1:]))


if __name__ == "__main__":
    run_program(lambda: main(sys.argv[1:]))
