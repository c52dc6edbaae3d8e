"""What every test has: no sockets but loopback (see `addopts`), and a config on embedded stores of its own."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from crawl_lib.config import Config, from_mapping
from crawl_lib.storage import open_storage
from tests.sharing import Scheduling, place_of

if TYPE_CHECKING:
    from crawl_lib.stores import Stores
    from demo import Serving

# No test is timed: a busy machine is not a defect.
settings.register_profile("krake", deadline=None)
settings.load_profile("krake")

SHARED_TESTDATA = Path(__file__).resolve().parents[1].parent / "shared" / "testdata"


gc.disable()  # until all tests are collected, which leaves nothing to free


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have what takes longest begin first."""
    items.sort(key=lambda item: place_of(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling | None:
    """Share tests among processes as `tests.sharing` says, where they share files."""
    return Scheduling(config, log) if config.option.dist == "loadfile" else None


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


@pytest.fixture
def stores(config: Config) -> Stores:
    """The stores of that config."""
    from tests.stores import stores_on  # noqa: PLC0415

    return stores_on(open_storage(config), config)


@pytest.fixture(scope="module")
def serving(request: pytest.FixtureRequest) -> Iterator[Serving]:
    """The synthetic web that the module calls `WEB`, served on loopback."""
    from demo import Serving  # noqa: PLC0415

    with Serving(request.module.WEB) as running:
        yield running
