"""The first version of a crawl that was made with a FIFO queue; and kills at every step of an update."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from crawl_lib.config import Config
from crawl_lib.crawldb import init_crawldb, newest_version, update
from crawl_lib.crawldir.settled import Settled
from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.errors import InputError
from crawl_lib.storage import open_storage
from crawl_lib.urlfiles import TakenIn
from tests.crawldb.crawls import Crawl, Visit
from tests.crawldb.test_update import DAY, NOW, A, B, C, T
from tests.stores import stores_on


@pytest.fixture
def crawl(config: Config) -> Crawl:
    """A FIFO crawl of two rounds."""
    crawl = Crawl(stores_on(open_storage(config), config))
    crawl.seeds(A)
    crawl.segment(T, [Visit(A, links=[B, C])])
    crawl.segment(
        T + DAY, [Visit(B, more={"depth": 1}), Visit(C, "timeout", retry_s=60, more={"depth": 1})]
    )
    return crawl


def settle(crawl: Crawl, node: str, folder: int, queue: int = 0, undecided: int = 0) -> None:
    Settled(node, str(folder), queue, undecided, TakenIn()).write(crawl.stores.crawl)


def test_of_all_segments_once_nothing_waits(crawl: Crawl) -> None:
    for node in crawl.stores.config.servers:
        settle(crawl, node, T + DAY)
    version = init_crawldb(crawl.stores, now=NOW)
    assert version.manifest["parent"] is None
    rows = crawl.rows(version)
    assert {url: (row["status"], row["depth"]) for url, row in rows.items()} == {
        A: ("fetched", 0), B: ("fetched", 1), C: ("unfetched", 1)
    }  # fmt: skip
    assert init_crawldb(crawl.stores, now=NOW) == version


@pytest.mark.parametrize("what", ["not settled", "settled before", "queue", "undecided"])
def test_not_while_queues_are_not_empty(crawl: Crawl, what: str) -> None:
    settle(crawl, "node-a", T + DAY)
    if what != "not settled":
        settle(
            crawl,
            "node-b",
            T if what == "settled before" else T + DAY,
            what == "queue",
            what == "undecided",
        )
    with pytest.raises(
        InputError,
        match=r"URLs wait in queues \(node-b: .*frontier\.order: fifo until nothing waits",
    ):
        init_crawldb(crawl.stores, now=NOW)
    assert newest_version(crawl.stores) is None


KILLED = """
import sys
from datetime import UTC, datetime
from crawl_lib import load_config, open_stores
from crawl_lib.crawldb import update
update(open_stores(load_config(sys.argv[1])), now=datetime(2026, 11, 1, tzinfo=UTC))
"""


@pytest.mark.parametrize("step", ["versions.written", "versions.renamed"])
def test_killed_at_a_step_the_next_update_leaves_the_same(
    crawl: Crawl, step: str, tmp_path: Path
) -> None:
    file = tmp_path / "config.yml"
    file.write_text(yaml.safe_dump(crawl.stores.config.to_mapping()))
    command = [sys.executable, "-c", KILLED, str(file)]
    done = subprocess.run(command, env={**os.environ, KILL_VARIABLE: step}, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = {path.name[:2] for path in (crawl.root / "crawldb").iterdir()}
    assert left == ({".1"} if step.endswith("written") else {".1", "1"})
    killed = update(crawl.stores, now=NOW)
    assert killed.number == 1
    crawl.segment(T + 2 * DAY, [])
    again = update(crawl.stores, now=NOW)
    assert again.manifest["parts"] == killed.manifest["parts"]
    assert sorted(path.name for path in (crawl.root / "crawldb").iterdir()) == ["1", "2"]
    assert [path.name for path in Path(crawl.stores.config.scratch.directory).iterdir()] == [
        "export.lock"
    ]
