"""The first look of Airflow's page at a crawl on HDFS: the newest iterations come first, and the others follow."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import requests
from krake_airflow.page.crawls import _READ_S, SHOWN_ITERATIONS
from krake_airflow.page.views import _known

from crawl_lib.config.model import DfsConfig
from crawl_lib.rounds import CrawlReader, commit_iteration, start_iteration
from crawl_lib.storage import LocalStorage, open_storage
from crawl_lib.stores import Secrets, open_stores
from tests.cluster.hdfs import Hdfs
from tests.cluster.test_crawl import copy_of
from tests.e2e.crawl import make_config
from tests.rounds.test_start import lay_segment

ITERATIONS = 100
REQUESTS, OF_CRAWL = 10, 40
"""HTTP requests that an iteration may cost, and the crawl. The newest 40 iterations cost 440 then: a second, where a
request takes 2 ms."""


def test_the_newest_iterations_are_shown_first_and_the_page_says_that_others_follow(
    hdfs: Hdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(tmp_path, nodes=2, crawl={"max_iterations": ITERATIONS})
    stores = open_stores(config)
    for number in range(1, ITERATIONS + 1):
        folder = start_iteration(
            stores, run_id="r", iteration=number, clock=lambda number=number: 1e6 + number
        ).folder
        for node in config.servers:
            lay_segment(stores, folder, node, pages=number)
        commit_iteration(stores, run_id="r", iteration=number)
    far = dataclasses.replace(
        config, dfs_primary=f"{hdfs.address}/krake/looks", dfs=DfsConfig(wait_s=30.0)
    )
    storage = open_storage(far)
    copy_of(LocalStorage.open(Path(config.dfs_primary)), config.crawl.directory, storage)

    sent, send = list[str](), requests.Session.send

    def counted(
        session: requests.Session, request: requests.PreparedRequest, **options: Any
    ) -> requests.Response:
        sent.append(str(request.url))
        return send(session, request, **options)

    monkeypatch.setattr(requests.Session, "send", counted)
    reader = CrawlReader(far, Secrets(), elsewhere=lambda *_: {}, ask_keys=lambda *_: [])
    iterations, looks = list[dict[str, Any]](), 0
    while len(iterations) < SHOWN_ITERATIONS:
        status = reader.status(last=SHOWN_ITERATIONS, read_s=_READ_S)
        iterations, looks = status["iterations"], looks + 1
    read = ITERATIONS - status.get("unread", 0)
    assert len(sent) <= REQUESTS * read + OF_CRAWL * looks, (len(sent), read, looks)
    assert [entry["counts"]["urls"] for entry in iterations] == [
        2 * number for number in range(ITERATIONS - 39, ITERATIONS + 1)
    ]
    status = CrawlReader(far, Secrets(), elsewhere=lambda *_: {}, ask_keys=lambda *_: []).status(
        read_s=0
    )
    assert status["unread"] == ITERATIONS - 1, "one is read in any case"
    assert f"{status['unread']} older iterations are being read" in _known(status)

    status = reader.status(last=SHOWN_ITERATIONS)
    assert "unread" not in status
    assert "being read" not in _known(status)
    assert status["totals"]["urls"] == ITERATIONS * (ITERATIONS + 1)
