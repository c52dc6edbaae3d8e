"""An object store as a program of its own: the contract, kills at each request, and a crawl."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.cluster.versitygw import VersityGw, why_not
from tests.contracts.contenders import contend
from tests.contracts.kills import KillsContract
from tests.contracts.storage import StorageContract


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VersityGw]:
    if missing := why_not():
        pytest.fail(f"the tests of object stores cannot run: {missing}")
    with VersityGw(tmp_path_factory.mktemp("s3")) as running:
        yield running


class TestContract(StorageContract):
    @pytest.fixture
    def storage(self, gateway):
        return gateway.store()


class TestKills(KillsContract):
    @pytest.fixture
    def server(self, gateway):
        return gateway


def test_of_two_tasks_one_wins_also_when_the_other_is_stopped_for_longer_than_a_take_over(gateway):
    """`KRAKE_CONTENDERS=1000`: that many pairs, and the second task waits for seconds before it takes over."""
    asked = os.environ.get("KRAKE_CONTENDERS")
    won = contend(gateway, names=int(asked or 60), last_stop=29, waits=asked is not None)
    print(f"won: {won}")
    assert min(won.values()) > 0
