"""A crawl on three real MariaDB servers, one of which dies in the middle of fetching and comes back poorer."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from crawl_lib import stages
from crawl_lib.cli import main
from crawl_lib.config import Config
from crawl_lib.keys import check, open_key_store
from crawl_lib.keys.intervals import replicas
from crawl_lib.keys.server import SQL_DIRECTORY
from crawl_lib.rounds import start_iteration
from crawl_lib.states import KEY_STATE_OF_OUTCOME, KeyState, Outcome
from crawl_lib.stores import PASSWORD_VARIABLE, open_stores
from crawl_lib.urls import key_of
from demo import Serving, SynthWeb, TruthOptions
from tests.contracts.mariadb import PASSWORD, MariaDb
from tests.e2e.crawl import MOST_ITERATIONS, Result, check_counts, make_config, write_config

WEB = SynthWeb(seed=20, sites=7, pages_per_site=20)
MAX_REDIRECTS = 4
VICTIM = 1
DIES_IN, RETURNS_BEFORE = 2, 5
"""The iteration in whose middle the server dies, and the one before which it is back: others run without it."""


@dataclass
class Troubled:
    """A crawl in which the victim dies while pages are fetched. `comes_back`: what happens to it meanwhile."""

    config: Config
    victim: MariaDb
    comes_back: Callable[[MariaDb, str], None]
    result: Result
    _dying: threading.Lock = field(default_factory=threading.Lock)
    died: bool = False

    def crawl(self, seeds: str) -> None:
        """All iterations and the last intake; no maintenance."""
        stages.inject(open_stores(self.config), run_id="run-1", seeds=seeds)
        for number in range(1, MOST_ITERATIONS):
            if number == RETURNS_BEFORE:
                assert self.died, (
                    "no page was fetched in the iteration in which the server should die"
                )
                self.comes_back(self.victim, self.config.key_storage.database)
            if self._iteration(number)["taken"] == 0:
                break
        assert number > RETURNS_BEFORE, "the crawl was over before the server was back"
        for node in self.config.servers:
            stages.settle_node(open_stores(self.config), node=node)

    def _iteration(self, number: int) -> dict[str, Any]:
        """One iteration, the nodes at the same time."""
        start_iteration(open_stores(self.config), run_id="run-1", iteration=number)
        with ThreadPoolExecutor(len(self.config.servers)) as pool:
            list(pool.map(lambda node: self._node(number, node), self.config.servers))
        commit = stages.commit_iteration(open_stores(self.config), run_id="run-1", iteration=number)
        self.result.commits.append(commit)
        return commit

    def _node(self, number: int, node: str) -> None:
        def on_progress(progress: Any) -> None:
            with self._dying:
                if number == DIES_IN and progress["phase"] == "fetch" and not self.died:
                    self.died = True
                    self.victim.kill()

        stages.crawl_node(
            open_stores(self.config, on_progress=on_progress),
            run_id="run-1",
            iteration=number,
            node=node,
        )


def stale(victim: MariaDb, database: str) -> None:
    """It has what it had, up to a second before it died."""
    victim.start()


def without_tables(victim: MariaDb, database: str) -> None:
    """Somebody restored it without Krake's tables."""
    victim.start()
    victim.run(f"DROP TABLE {database}.kraakekeys")


def on_a_new_disk(victim: MariaDb, database: str) -> None:
    """Its data directory is new: there is the user, and no database."""
    victim.install()
    victim.start()
    victim.prepare()


def set_up_by_krake(servers: list[MariaDb], database: str, config_file: Path) -> None:
    assert main(["--config", str(config_file), "keys", "create"]) == 0


def set_up_by_hand(servers: list[MariaDb], database: str, config_file: Path) -> None:
    """As docs/cluster.md says: the client reads `sql/keys/create.sql` on each server."""
    client = shutil.which("mariadb") or shutil.which("mysql")
    assert client, "no mysql client (Debian package mariadb-client)"
    for server in servers:
        server.run(f"CREATE DATABASE {database}")
        command = [client, "--no-defaults", f"--socket={server.socket}", "--user=root", database]
        with (SQL_DIRECTORY / "create.sql").open() as script:
            subprocess.run(command, stdin=script, check=True)


def maintain(config: Config) -> list[dict[str, Any]]:
    """A task per server, all at the same time, as in the DAG."""
    servers = config.key_storage.servers
    with ThreadPoolExecutor(len(servers)) as pool:
        return list(
            pool.map(
                lambda server: stages.maintain_keys(open_stores(config), server=server), servers
            )
        )


def expected_rows(result: Result, place: int) -> dict[bytes, KeyState]:
    """What the key server at a place should hold: its share of the visited URLs, by how each ended."""
    states = {
        key_of(url): KEY_STATE_OF_OUTCOME[Outcome(outcome)]
        for url, outcome in result.outcomes().items()
    }
    return {key: state for key, state in states.items() if place in replicas(key, 3, 2)}


@pytest.fixture
def servers(
    three_mariadbs: list[MariaDb], monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[MariaDb]]:
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    yield three_mariadbs
    for server in three_mariadbs:
        server.stop()
        server.start()


@pytest.mark.parametrize(
    ("comes_back", "set_up"),
    [(stale, set_up_by_krake), (without_tables, set_up_by_hand), (on_a_new_disk, set_up_by_krake)],
    ids=lambda given: given.__name__,
)
def test_a_crawl_outlives_a_key_server(
    servers: list[MariaDb],
    tmp_path: Path,
    comes_back: Callable[..., None],
    set_up: Callable[..., None],
) -> None:
    """No URL is lost and none is fetched twice; maintenance finds what the server lacks, and fills it."""
    keys = {
        "servers": [server.server for server in servers],
        "replication": 2,
        "database": servers[0].new_database(),
    }
    fetch = {"host_delay_s": 0.02, "max_redirects": MAX_REDIRECTS}
    with Serving(WEB) as serving:
        config = make_config(tmp_path, nodes=2, key_storage=keys, fetch=fetch)
        set_up(servers, config.key_storage.database, write_config(config, tmp_path))
        result = Result(config)
        Troubled(config, servers[VICTIM], comes_back, result).crawl("\n".join(serving.seeds))
        truth = serving.truth(options=TruthOptions(max_redirects=MAX_REDIRECTS))
    visited = result.visited()
    assert set(visited) == set(truth.visits)
    assert set(visited.values()) == {1}
    assert result.outcomes() == {url: str(outcome) for url, outcome in truth.outcomes().items()}
    check_counts(result)
    victim = servers[VICTIM].server
    missed = [manifest["intake"]["missed"] for manifest in result.manifests()]
    assert {name for counts in missed for name in counts} == {victim}, (
        "what it missed is in the manifests"
    )
    with open_key_store(config.key_storage, PASSWORD) as store:
        found = check(store)
        assert not found.ok
        assert set(found.missing) | set(found.behind) | set(found.failed) == {victim}
        reports = maintain(config)
        assert all(report["ok"] for report in reports)
        assert (
            sum(
                sum(report["missing"].values()) + sum(report["behind"].values())
                for report in reports
            )
            > 0
        )
        assert {
            name
            for report in reports
            for name in [*report["missing"], *report["behind"], *report["created"]]
        } == {victim}
        assert check(store).ok
        for place, server in enumerate(store.servers):
            assert dict(server.scan(bytes(20), b"\xff" * 20)) == expected_rows(result, place)
    again = maintain(config)
    assert all(report["ok"] and not report["missing"] and not report["created"] for report in again)
    assert [report["servers"][0]["total"] for report in again] == [
        len(expected_rows(result, n)) for n in range(3)
    ]
