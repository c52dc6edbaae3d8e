"""The command line, `krake`: each stage by hand, with the same code as the tasks, and tools to look and repair.

`parser` says which commands there are, the other modules carry them out. A KrakeError becomes one line on standard
error and exit code 1; a wrong argument exits with 2.

Every command ends within 5 s of SIGINT (Ctrl-C) or SIGTERM, says so in one line, and exits with 130 or 143; run again
it goes on, or begins again where it only looks. The second signal ends it at once. See `crawl.signals`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from crawl_lib.cli.common import InterruptedTool
from crawl_lib.cli.parser import build_parser
from crawl_lib.crawl.signals import STOPPED_TEXT, stop_on_signals
from crawl_lib.errors import KrakeError, StoppedError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = build_parser().parse_args(argv)
    with stop_on_signals() as arguments.stop:
        try:
            return _run(arguments)
        except (StoppedError, InterruptedTool):
            print(f"krake: {STOPPED_TEXT}", file=sys.stderr)
            return int(arguments.stop.code)


def _run(arguments: argparse.Namespace) -> int:
    try:
        code = int(arguments.run(arguments))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader went away, as `head` does; Python's own flush at the end must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except StoppedError:
        raise
    except KrakeError as error:
        print(f"krake: {' '.join(str(error).splitlines())}", file=sys.stderr)
        return 1
    return code
