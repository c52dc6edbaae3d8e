"""The short form of `make torture OPERATORS=N`: what operators do, one thing after the other, leaves a whole crawl.

A queue is lost and begun again, a crawl goes on, and keys move to other servers. Nothing is killed here, so that it is
the same each time.
"""

from __future__ import annotations

from tests.torture.harness import torture


def test_what_operators_do_loses_nothing() -> None:
    done = torture(1, "--seed", 39, "--actions", 5, "--kill", 0, program="tests.torture.operators")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 actions" in done.stdout
    assert "0 findings" in done.stdout
