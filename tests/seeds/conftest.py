"""No fsync here either: see `tests.frontier.conftest`."""

from __future__ import annotations

from tests.frontier.conftest import _no_fsync

__all__ = ["_no_fsync"]
