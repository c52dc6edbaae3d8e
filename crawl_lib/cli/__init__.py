"""The command line, `krake`: each stage by hand, with the same code as the tasks, and tools to look and repair.

`parser` says which commands there are, the other modules carry them out. A KrakeError becomes one line on standard
error and exit code 1; a wrong argument exits with 2, Ctrl-C and SIGTERM with 130.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from crawl_lib.cli.parser import build_parser
from crawl_lib.errors import KrakeError, StoppedError

STOPPED = 130
"""The exit code of whatever was asked to stop, as shells have it for Ctrl-C."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = build_parser().parse_args(argv)
    try:
        code = int(arguments.run(arguments))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader went away, as `head` does; Python's own flush at the end must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KrakeError as error:
        print(f"krake: {' '.join(str(error).splitlines())}", file=sys.stderr)
        return STOPPED if isinstance(error, StoppedError) else 1
    except KeyboardInterrupt:
        print("krake: stopped; run the same command again to go on", file=sys.stderr)
        return STOPPED
    return code
