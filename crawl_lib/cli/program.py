"""One command from its words to its exit code."""

import argparse
import os
import sys
from collections.abc import Sequence

from crawl_lib.cli.common import InterruptedTool, name_config, say
from crawl_lib.cli.parser import build_parser, command_of
from crawl_lib.errors import KrakeError, StoppedError
from crawl_lib.signals import stop_on_signals


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    words = sys.argv[1:] if argv is None else argv
    arguments = build_parser(command_of(words)).parse_args(words)
    with stop_on_signals() as arguments.stop:
        try:
            return _run(arguments)
        except (StoppedError, InterruptedTool):
            if arguments.stop.text:
                say(f"krake: {arguments.stop.text}", file=sys.stderr)
            return int(arguments.stop.code)


def _run(arguments: argparse.Namespace) -> int:
    try:
        if arguments.names_config:
            name_config(arguments)
        code = int(arguments.run(arguments))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader went away, as `head` does; Python's own flush at the end must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except StoppedError:
        raise
    except KrakeError as error:
        for line in error.lines:
            say(f"krake: {line}", file=sys.stderr)
        return 1
    return code
