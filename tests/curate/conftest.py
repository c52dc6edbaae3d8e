"""The crawl half done of `tests.repair`, for tools that people use by hand."""

from __future__ import annotations

from tests.cli.conftest import krake
from tests.repair.conftest import (
    copy,
    crawl,
    crawled,
    half_done,
    killed,
    python,
    repair_web,
    settled,
    web,
)

__all__ = [
    "copy",
    "crawl",
    "crawled",
    "half_done",
    "killed",
    "krake",
    "python",
    "repair_web",
    "settled",
    "web",
]
