"""What every test has: no sockets but loopback (see `addopts`), and a config on embedded stores of its own."""

from __future__ import annotations

import gc
from collections.abc import Iterator
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
    "repair/test_damages.py",
    "e2e/test_synthetic_web.py",
    "torture/test_short.py",
    "crawldb/test_schedule.py",
    "torture/test_planted.py",
    "dags/test_make_crawl.py",
    "repair/test_random_damage.py",
    "crawldb/test_generate.py",
    "e2e/test_shared_turns.py",
    "crawldb/test_orphans_and_seeds.py",
    "frontier/test_kill.py",
    "crawldb/test_grouping.py",
)
"""Paths of the files that take longest, in this folder. `--dist loadfile` gives a file to one process, so a long one at
the end would have the others wait."""

WAITING = ("curate/", "dags/", "e2e/", "fetch/", "keys/", "node/", "rounds/")
"""Folders whose tests wait for most of their time: for delays, retries, servers. Two cores have something to do if they
are spread among the others."""

SHARED_TESTDATA = Path(__file__).resolve().parents[1].parent / "shared" / "testdata"


gc.disable()  # until all tests are collected, which leaves nothing to free


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have processes that share the tests begin with the longest files, and mix those that wait with the others."""
    here = Path(__file__).parent
    groups: tuple[list[Path], list[Path]] = [], []
    place: dict[Path, float] = {}
    for file in dict.fromkeys(item.path for item in items):
        path = file.relative_to(here).as_posix() if here in file.parents else ""
        if path in LONGEST_FIRST:
            place[file] = LONGEST_FIRST.index(path) - len(LONGEST_FIRST)
        else:
            groups[path.startswith(WAITING)].append(file)
    for files, end in zip(groups, (1.0, 0.8), strict=True):  # the last files are short
        place.update((file, end * number / len(files)) for number, file in enumerate(files))
    items.sort(key=lambda item: place[item.path])


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
