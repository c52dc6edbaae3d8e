"""Two schedulers over one table: one has the fetcher, both answer, and the second takes over after a loss."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.errors import ConfigError
from crawl_lib.realtime import Client, TokenFile
from crawl_lib.realtime.documents import Request, request_bytes
from crawl_lib.realtime.pages import Finished, Wish
from crawl_lib.realtime.service import only_scheduler
from crawl_lib.realtime.tokens import RIGHTS
from crawl_lib.stores import Stores
from tests.contracts.mariadb import PASSWORD, MariaDb
from tests.realtime.conftest import mysql_pages, new_database
from tests.realtime.fake import Web, make_config
from tests.realtime.remote import remote
from tests.realtime.test_fetchers import sections
from tests.realtime.test_pages import DAY_MS, done, key, wish
from tests.realtime.test_service import running, stores_of
from tests.web.hostile import HostileWeb

OF_URL = request_bytes(Request(url="http://a.example/"))


@pytest.fixture
def shared(mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The section `key_storage` of schedulers with one table."""
    monkeypatch.setenv("KRAKE_KEY_STORAGE_PASSWORD", PASSWORD)
    return {"servers": [mariadb.server], "database": new_database(mariadb), "user": "krake"}


def test_the_second_scheduler_answers_and_takes_over(
    tmp_path: Path, shared: dict[str, Any]
) -> None:
    with ExitStack() as stack:
        there = stack.enter_context(remote(tmp_path, "live-1"))
        web = stack.enter_context(HostileWeb())
        given = sections(there)
        given["fetch"]["host_delay_s"] = 0.01

        def scheduler(name: str) -> tuple[Stores, str]:
            (tmp_path / name).mkdir()
            stores = stores_of(tmp_path / name, key_storage=shared, **given)
            return stores, TokenFile(stores.config.realtime.tokens).add("test", RIGHTS)

        (one, first_token), (two, second_token) = scheduler("one"), scheduler("two")
        with running(one, Web()) as first_url, Client(first_url, first_token) as first:
            first.submit([web.url("/ok?1")])
            assert first.page(web.url("/ok?1"), wait_s=30).document is not None
            second_url = stack.enter_context(running(two, Web()))
            second = stack.enter_context(Client(second_url, second_token))
            [decision] = second.submit([web.url("/ok?2")])
            assert decision.decision == "new"
            assert second.page(web.url("/ok?2"), wait_s=30).document is not None, (
                "the first has the fetcher"
            )
            second.submit([web.url("/redirect/ok?3")])
            assert second.page(web.url("/ok?1")).document is not None
        second.submit([web.url("/ok?4")])
        assert second.page(web.url("/ok?4"), wait_s=30).document is not None, (
            "the second has the fetcher now"
        )
    assert len([path for path in web.paths() if path == "/ok?2"]) == 1


def test_a_document_of_an_older_epoch_changes_nothing(connect: Any) -> None:
    pages = connect()
    pages.submit([wish("a"), wish("waits")])
    pages.finish([done("a", b"9", epoch=9)])
    pages.finish([done("a", b"8", epoch=8)])
    assert pages.read([key("a")])[key("a")].data == b"9"
    made_ms = pages.written_ms([key("a")])[key("a"), 9]
    assert made_ms
    assert list(pages.written_ms([key("a")])) == [(key("a"), 9)], (
        "another scheduler has written since"
    )
    pages.finish([Finished(key("waits"), b"9", DAY_MS, 0, made_ms)])
    assert pages.read([key("waits")])[key("waits")].data == b"9", (
        "a row of any owner gets what it waits for"
    )
    pages.finish([Finished(key("waits"), b"older", DAY_MS, 0, made_ms)])
    assert pages.read([key("waits")])[key("waits")].data == b"9", "its document is younger by now"


def test_a_writer_without_leases_is_newer_than_leases(connect: Any) -> None:
    pages = connect()
    pages.submit([wish("a")])
    leased = pages.now_ms() - 1
    pages.finish([done("a", b"leased", epoch=leased)])
    pages.finish([done("a", b"later", epoch=pages.next_epoch())])
    assert pages.read([key("a")])[key("a")].data == b"later"


def test_due_rows_are_counted_by_authority(mariadb: MariaDb) -> None:
    pages = mysql_pages(mariadb, new_database(mariadb))
    pages.ensure()
    urls = ["http://a.example/1?x", "http://a.example/2", "https://b.example:8443/"]
    texts = [
        f'{{"url":"{url}","policy":"p","target":{{"url":"http://c.example/"}}}}' for url in urls
    ]
    pages.submit([Wish(key(url), 7, text.encode()) for url, text in zip(urls, texts, strict=True)])
    assert pages.queues() == {"http://a.example": 2, "https://b.example:8443": 1}
    pages.close()


def test_a_file_serves_one_scheduler(tmp_path: Path) -> None:
    config = make_config(tmp_path).key_storage
    with (
        only_scheduler(config),
        pytest.raises(ConfigError, match="several need MySQL"),
        only_scheduler(config),
    ):
        pass
    with only_scheduler(config):
        pass
