"""The service as a program, over HTTP: the client, the lock, the stop."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from crawl_lib.errors import BusyError, ConfigError, InputError, KrakeError, LockedError
from crawl_lib.realtime import Client, TokenFile, serve_realtime
from crawl_lib.realtime.link import LinkedFetcher
from crawl_lib.realtime.tokens import RIGHTS
from crawl_lib.stores import Stores, open_stores
from tests.realtime.fake import ThreadFetcher, Web, make_config

A, B = "http://a.example/", "http://b.example/"


@contextmanager
def running(stores: Stores, fetcher: Web | Callable[[int], LinkedFetcher]) -> Iterator[str]:
    """A service in a thread; gives its URL. `fetcher`: the web of a fetcher without a network, or a fetcher's start."""
    start = (lambda lock: ThreadFetcher(fetcher)) if isinstance(fetcher, Web) else fetcher
    urls: list[str] = []
    is_ready, problems = threading.Event(), []

    def ready(url: str) -> None:
        urls.append(url)
        is_ready.set()

    def serve() -> None:
        try:
            serve_realtime(stores, start, ready)
        except BaseException as error:
            problems.append(error)
        is_ready.set()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        assert is_ready.wait(60)
        if problems:
            raise problems[0]
        yield urls[0]
    finally:
        stores.stop.set()
        thread.join(30)
        assert not thread.is_alive()


def stores_of(tmp_path: Path, **sections: object) -> Stores:
    return open_stores(
        make_config(
            tmp_path, queue={"lock_timeout_s": 0, "local_dir": str(tmp_path / "q")}, **sections
        )
    )


def test_the_client_submits_reads_and_follows(tmp_path: Path) -> None:
    stores = stores_of(tmp_path)
    token = TokenFile(stores.config.realtime.tokens).add("test", RIGHTS)
    with running(stores, Web()) as url, Client(url, token) as client:
        [decision, refused] = client.submit([A, "nothing"], idempotency_key="1")
        assert (decision.decision, refused.decision, refused.rule) == ("new", "refused", "invalid")
        page = client.page(A, wait_s=30)
        assert page is not None
        assert page.document is not None
        assert page.document.facts == {"title": A}
        assert client.page(B) is None
        assert [page.state for page in client.pages([A, B], max_age_s=1000)] == ["known", "unknown"]
        event_id, event = next(client.events("0"))
        assert (event.url, int(event_id) > 0) == (A, True)
        assert client.fetch(B).outcome == "ok"
        with pytest.raises(InputError, match="no policy"):
            client.submit([A], "none")
        with pytest.raises(InputError, match="length <= 300"), Client(url, token) as other:
            other.pages([A] * 301)
        with pytest.raises(InputError, match="401"), Client(url, "wrong") as other:
            other.page(A)


def test_a_service_that_is_away_or_busy_is_told_apart(tmp_path: Path) -> None:
    with (
        pytest.raises(KrakeError, match="does not answer"),
        Client("http://127.0.0.1:1", "token") as client,
    ):
        client.page(A)
    stores = stores_of(tmp_path, realtime={"max_waiting": 1})
    token, web = TokenFile(stores.config.realtime.tokens).add("test", RIGHTS), Web()
    web.hold(A)
    with running(stores, web) as url, Client(url, token) as client:
        client.submit([A])
        with pytest.raises(BusyError) as caught:
            client.submit([B])
        assert caught.value.retry_after_s > 0


def test_a_second_service_of_a_node_is_refused_and_the_stop_is_quick(tmp_path: Path) -> None:
    stores, other = stores_of(tmp_path), stores_of(tmp_path)
    token, web = TokenFile(stores.config.realtime.tokens).add("test", RIGHTS), Web()
    with running(stores, web) as url:
        with pytest.raises(LockedError, match="serve realtime"), running(other, Web()):
            pass
        with Client(url, token) as client:
            client.submit([A])
            stream = client.events("0")
            next(stream)
            began_s = time.monotonic()
            stores.stop.set()
            assert list(stream) == [], "the stream ends with the service"
    assert time.monotonic() - began_s < 10
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", int(url.rstrip("/").rpartition(":")[2]))).close()


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"frontier": {"order": "fifo"}}, "frontier.order"),
        ({"urls": {"scope": "domains"}}, "urls.scope"),
        ({"realtime": {"listen": "0.0.0.0:0"}}, "no tokens"),
    ],
)
def test_a_config_that_cannot_be_served_is_refused(
    tmp_path: Path, sections: dict, said: str
) -> None:
    stores = stores_of(tmp_path, **sections)
    with pytest.raises(ConfigError, match=said):
        serve_realtime(stores, lambda lock: ThreadFetcher(Web()), print)
