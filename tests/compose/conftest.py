"""One stack for all tests that start docker-compose.yml: each module starts the services that it needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.compose import docker
from tests.compose.stack import Stack


@pytest.fixture(scope="session")
def unstarted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack; an earlier module may have started containers of the stack."""
    if missing := docker.why_not():
        pytest.skip(f"docker-compose.yml cannot be started here: {missing}")
    with ExitStack() as kept:
        try:
            kept.enter_context(docker.engine())
        except docker.EngineError as error:
            pytest.skip(f"docker-compose.yml cannot be started here: {error}")
        docker.make_all()
        yield kept.enter_context(Stack(tmp_path_factory.mktemp("compose")))
