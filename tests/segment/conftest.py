"""No fsync in these tests: it guards against a power loss, which no test can cut, and costs most of their time."""

from tests.frontier.conftest import _no_fsync

__all__ = ["_no_fsync"]
