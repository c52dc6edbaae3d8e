"""The crawl half done of `tests.repair`, for tools that people use by hand."""

from __future__ import annotations

from tests.repair.conftest import copy, crawl, crawled, half_done, repair_web, settled, web

__all__ = ["copy", "crawl", "crawled", "half_done", "repair_web", "settled", "web"]
