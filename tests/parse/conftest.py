"""The scanner of links as a program with sanitizers, once for all tests of a process."""

from __future__ import annotations

import pytest

from tests.parse.driver import SANITIZERS, Driver, compiled


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    return Driver(compiled(tmp_path_factory.mktemp("driver"), *SANITIZERS))
