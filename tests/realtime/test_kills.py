"""The service is killed at random moments: each 202 ends in a document, and a subscriber misses none."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from crawl_lib.errors import BusyError, KrakeError
from crawl_lib.realtime import Client, TokenFile
from crawl_lib.realtime.answers import Page
from crawl_lib.realtime.tokens import RIGHTS
from tests.contracts.mariadb import PASSWORD, start_mariadb
from tests.realtime.conftest import new_database

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def process(folder: Path, keys: list[str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A service in a process, which is killed at the end."""
    command = [sys.executable, "-m", "tests.realtime.program", str(folder), *keys]
    environment = {**os.environ, "KRAKE_KEY_STORAGE_PASSWORD": PASSWORD}
    running = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        assert running.stdout is not None
        yield running, running.stdout.readline().strip()
    finally:
        running.kill()
        running.wait()
        assert running.stdout is not None
        running.stdout.close()


class Subscriber:
    """Follows events over all lives of the service. `seen`: the URLs of events; `last`: the id of the last one."""

    def __init__(self, token: str) -> None:
        self.seen: set[str] = set()
        self.last = "0"
        self._token = token

    def follow(self, url: str) -> threading.Thread:
        """Follow one life of the service, in a thread."""
        thread = threading.Thread(target=self._follow, args=(url,))
        thread.start()
        return thread

    def _follow(self, url: str) -> None:
        with suppress(KrakeError), Client(url, self._token) as client:
            for event_id, page in client.events(self.last):
                self.seen.add(page.url)
                self.last = event_id


def lives(folder: Path, seed: int, number: int, keys: list[str]) -> None:
    """Kill a service so often, while URLs come in; then let it end all."""
    rng = random.Random(seed)
    token = TokenFile(folder / "tokens.json").add("test", RIGHTS)
    subscriber, accepted = Subscriber(token), set[str]()
    for life in range(number + 1):
        with process(folder, keys) as (running, url):
            thread = subscriber.follow(url)
            with Client(url, token) as client:
                for _ in range(rng.randrange(5, 15)):
                    urls = [_url(rng, life) for _ in range(rng.randrange(1, 20))]
                    accepted |= {
                        one.url
                        for one in client.submit(urls)
                        if one.decision in {"new", "waiting", "known"}
                    }
                if life == number:
                    _all_end(client, accepted, subscriber)
                    running.send_signal(signal.SIGTERM)
                    assert running.wait(10) == 0
            running.kill()
            thread.join(60)
    assert accepted <= subscriber.seen


def _url(rng: random.Random, life: int) -> str:
    hops = "".join(f"r/{rng.randrange(50)}/" for _ in range(rng.choice([0, 0, 1, 1, 3])))
    return f"http://{rng.randrange(50)}.example/{hops}{life}-{rng.randrange(30)}"


def _all_end(client: Client, accepted: set[str], subscriber: Subscriber) -> None:
    for url in sorted(accepted):
        page = client.page(url, wait_s=60)
        assert page is not None
        assert page.state == "known", url
        assert page.document is not None
        assert page.document.outcome in {"ok", "fetcher_died"}, (url, page.document)
        assert len(page.document.hops) == url.count("r/") + 1
    gone = threading.Event()
    while not accepted <= subscriber.seen:
        gone.wait(0.02)


def test_killed_services_lose_nothing(tmp_path: Path) -> None:
    lives(tmp_path, 42, 2, [])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_often_killed_services_lose_nothing(tmp_path: Path, mariadb, seed: int) -> None:
    lives(tmp_path, seed, 5, [new_database(mariadb), mariadb.server])


@pytest.mark.slow
def test_a_killed_key_server_comes_back_and_nothing_is_lost(tmp_path: Path) -> None:
    token = TokenFile(tmp_path / "tokens.json").add("test", RIGHTS)
    with start_mariadb("--innodb-flush-log-at-trx-commit=1") as server:  # as operators have it
        keys = [new_database(server), server.server]
        with process(tmp_path, keys) as (_, service), Client(service, token) as client:
            urls = [f"http://{number}.example/r/7/{number}" for number in range(30)]
            while not any(
                one.decision == "new" for one in client.submit(urls)
            ):  # the table is being made
                pass
            server.kill()
            with pytest.raises(BusyError, match="503"):
                client.submit(["http://later.example/"])
            server.start()
            for url in urls:
                page = _patient(client, url)
                assert page.document is not None
                assert page.document.outcome in {"ok", "fetcher_died"}


def _patient(client: Client, url: str) -> Page:
    while True:
        threading.Event().wait(0.05)
        with suppress(BusyError):
            page = client.page(url, wait_s=30)
            assert page is not None
            return page
