"""Stages in processes of their own, that a durable step may end."""

from __future__ import annotations

import os
from typing import Any

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.stores import open_stores
from tests.forked import run_forked


def _run(config: Config, stage: str, kill_at: str | None, options: dict[str, Any]) -> None:
    if kill_at is not None:
        os.environ[KILL_VARIABLE] = kill_at
    getattr(stages, stage)(open_stores(config), **options)


def run_stage(config: Config, stage: str, kill_at: str | None = None, **options: Any) -> int:
    """Run a function of `crawl_lib.stages` in a child, killed at a step; returns its exit code, -9 if it was killed."""
    return run_forked(_run, config, stage, kill_at, options)
