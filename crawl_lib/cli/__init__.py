"""The command line, `krake`: each stage by hand, with the same code as the tasks, and tools to look and repair.

`parser` says which commands there are, the other modules carry them out. A KrakeError becomes one line on standard
error and exit code 1; a wrong argument exits with 2.

Every command ends within 5 s of SIGINT (Ctrl-C) or SIGTERM, says so in one line, and exits with 130 or 143; run again
it goes on, or begins again where it only looks. The second signal ends it at once. See `signals`.
"""

from collections.abc import Sequence

from crawl_lib.signals import end_on_signals


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    with end_on_signals():
        from crawl_lib.cli.program import run  # noqa: PLC0415 - takes a second, in which Ctrl-C works

        return run(argv)
