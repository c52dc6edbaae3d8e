"""The command line, `krake`: each stage by hand, with the same code as the tasks, and tools to look and repair.

`parser` names the commands, the other modules carry commands out. A KrakeError becomes one line on standard
error and exit code 1; a wrong argument exits with 2.

Shells that were told to complete `krake` run it as PYTHON_ARGCOMPLETE_OK: docs/crawling.md says how.

Every command ends within 5 s of SIGINT (Ctrl-C) or SIGTERM, says so in one line, and exits with 130 or 143; a second
run goes on, or begins again if the command only looks. The second signal ends the command at once. See `signals`.
"""

import gc
import os
from collections.abc import Sequence
from typing import NoReturn

from crawl_lib.exiting import run_program
from crawl_lib.signals import end_on_signals


def krake() -> NoReturn:
    """Be the program `krake`."""
    gc.disable()  # until the command is loaded: modules leave no garbage, and a collection is a tenth of their cost
    run_program(main)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    # Krake has numpy do no linear algebra, and the threads for it would spin for 0.06 s of CPU in every process.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if "_ARGCOMPLETE" in os.environ:  # set by the function that a shell calls
        _complete()
    with end_on_signals():
        from crawl_lib.cli.program import run  # noqa: PLC0415 - takes a second, in which Ctrl-C works

        return run(argv)


def _complete() -> NoReturn:
    """Print completions of a command line to the shell, and exit."""
    from argcomplete import autocomplete  # noqa: PLC0415

    from crawl_lib.cli.parser import build_parser  # noqa: PLC0415

    autocomplete(build_parser())
    raise SystemExit(1)
