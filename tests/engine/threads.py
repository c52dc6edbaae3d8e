"""DuckDB with a number of threads: whatever it is, an answer has the same bytes."""

from __future__ import annotations

from typing import Any

import pytest

from crawl_lib.engine import duck


def use_threads(patch: pytest.MonkeyPatch, threads: int, memory_bytes: int | None = None) -> None:
    """Have engines that are opened from now on use so many threads, and so much memory."""
    opened = duck.open_duck

    def with_threads(room: Any) -> Any:
        engine = opened(room)
        engine.execute(f"set threads = {threads}")
        if memory_bytes is not None:
            engine._memory_bytes = memory_bytes
        return engine

    patch.setattr(duck, "open_duck", with_threads)
