"""One crawl of a synthetic web for all tests of this room; each test damages a copy of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crawl_lib.synthweb import Serving, SynthWeb
from tests.e2e.crawl import Result, make_config, run_crawl
from tests.repair.crawled import copy_of


@pytest.fixture(scope="session")
def repair_web() -> Iterator[Serving]:
    with Serving(SynthWeb(seed=11, sites=3, pages_per_site=14, specials=True)) as found:
        yield found


@pytest.fixture(scope="session")
def crawled(repair_web: Serving, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Three iterations of two nodes; never changed."""
    config = make_config(tmp_path_factory.mktemp("crawled"), nodes=2, fetch={"host_delay_s": 0.0})
    return run_crawl(config, "\n".join(repair_web.seeds), 3)


@pytest.fixture
def crawl(crawled: Result, tmp_path: Path) -> Result:
    """A copy that a test may damage."""
    return copy_of(crawled, tmp_path / "crawl")
