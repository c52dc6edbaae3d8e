"""What every test has: no sockets but loopback (see `addopts`), and a config on embedded stores of its own."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from crawl_lib.config import Config, from_mapping

if TYPE_CHECKING:
    from demo import Serving

# No test is timed: a busy machine is not a defect.
settings.register_profile("krake", deadline=None)
settings.load_profile("krake")

LONGEST_FIRST = (
    "dags/test_make_crawl.py",
    "node/test_nodes_return.py",
    "rounds/test_nodes_change.py",
    "e2e/test_synthetic_web.py",
    "e2e/test_debian_docs.py",
    "rounds/test_min_nodes.py",
    "repair/test_held_elsewhere.py",
    "node/test_kill_at_every_step.py",
    "worker/test_large_pages.py",
    "keys/test_three_servers.py",
    "torture/",
    "cli/test_stop.py",
    "repair/",
    "frontier/test_kill.py",
    "export/test_kills.py",
    "node/",
    "worker/",
)
"""How paths of files begin, in this folder, that take longest; what is not here follows. `--dist loadfile` gives a file
to one process, so a long one at the end would have the others wait."""

SHARED_TESTDATA = Path(__file__).resolve().parents[1].parent / "shared" / "testdata"


gc.disable()  # until all tests are collected, which leaves nothing to free


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have processes that share the tests begin with the longest files."""
    here = Path(__file__).parent

    @cache
    def rank(file: Path) -> int:
        path = file.relative_to(here).as_posix() if here in file.parents else ""
        return next((number for number, start in enumerate(LONGEST_FIRST) if path.startswith(start)), sys.maxsize)

    items.sort(key=lambda item: rank(item.path))


def pytest_collection_finish() -> None:
    """Modules and thousands of tests stay to the end: no collection of garbage looks through them again."""
    gc.freeze()
    gc.enable()


@pytest.fixture
def testdata() -> Path:
    """Third-party conformance data, which is not part of the project."""
    if not SHARED_TESTDATA.is_dir():
        pytest.skip("third-party test data is not there: ../shared/testdata")
    return SHARED_TESTDATA


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A config of two nodes on embedded stores below `tmp_path`; loopback may be crawled."""
    return from_mapping(
        {
            "servers": ["node-a", "node-b"],
            "dfs_primary": "dfs",
            "key_storage": {"servers": ["keys/0.sqlite"]},
            "queue": {"local_dir": "queue"},
            "scratch": {"directory": "scratch"},
            "urls": {"scope": "any"},
            "fetch": {
                "contact": "tests@localhost",
                "host_delay_s": 0.0,
                "ip_delay_s": 0.0,
                "allow_networks": ["127.0.0.0/8", "::1/128"],
                "processes": 1,
            },
        },
        base=tmp_path,
    )


@pytest.fixture(scope="module")
def serving(request: pytest.FixtureRequest) -> Iterator[Serving]:
    """The synthetic web that the module calls `WEB`, served on loopback."""
    from demo import Serving  # noqa: PLC0415

    with Serving(request.module.WEB) as running:
        yield running
