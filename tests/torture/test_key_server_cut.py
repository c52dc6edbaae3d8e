"""A key server that drops connections in the middle of a batch: nothing is lost, nothing fetched twice (I1, I2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crawl_lib import stages
from crawl_lib.errors import KrakeError
from crawl_lib.states import KeyState
from crawl_lib.stores import PASSWORD_VARIABLE, open_stores
from crawl_lib.urls import key_of
from demo import Serving, SynthWeb
from tests.cluster.proxy import CuttingRelay
from tests.contracts.mariadb import PASSWORD, MariaDb, mariadb
from tests.e2e.crawl import Result, make_config, run_iteration

__all__ = ["mariadb"]
WEB = SynthWeb(seed=4, sites=2, pages_per_site=40, specials=False)
CUTS = [900, 1500, 2500, 4000, 700, 1200, 3000, 5000]
"""After so many bytes from the crawler: some in the greeting, most within a statement with its keys."""


@pytest.fixture
def relay(mariadb: MariaDb) -> Iterator[CuttingRelay]:
    with CuttingRelay(mariadb.port) as found:
        yield found


def test_connections_cut_in_the_middle_of_batches(
    mariadb: MariaDb, relay: CuttingRelay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    keys = {"servers": [relay.netloc], "database": mariadb.new_database(), "timeout_s": 20}
    config = make_config(tmp_path, nodes=1, key_storage=keys, fetch={"host_delay_s": 0.0})
    errors: list[str] = []
    with Serving(WEB) as serving:
        stages.inject(open_stores(config), run_id="run", seeds="\n".join(serving.seeds))
        with open_stores(config).keys() as store:
            store.create()
        relay.cuts += CUTS
        number, taken = 0, 1
        while taken:
            number += 1
            while len(errors) <= len(CUTS):
                try:
                    taken = run_iteration(config, "run", number)["taken"]
                    break
                except KrakeError as error:
                    errors.append(str(error))
            if not taken and stages.settle_node(open_stores(config), node="node-0")[
                "queue"
            ] + waiting(config):
                taken = 1
        truth, asked = serving.truth(), serving.log().counts()
        with open_stores(config).keys() as store:
            states = store.states([key_of(url) for url in truth.visits])
    assert all(relay.netloc in error for error in errors), "an error names the server"
    assert len(errors) <= len(CUTS)
    assert relay.done, "no connection was cut, so nothing was tested"
    visited = Result(config).visited()
    assert set(visited) == set(truth.visits)
    assert set(visited.values()) == {1}
    assert set(asked.values()) == {1}
    assert KeyState.QUEUED not in states.values()
    assert None not in states.values()


def waiting(config: object) -> int:
    """URLs whose key server did not answer, which the next intake begins with."""
    return sum(1 for path in Path(config.queue.local_dir).glob("*/undecided") for _ in path.open())  # type: ignore[attr-defined]
