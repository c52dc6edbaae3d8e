"""Commands and the table: what `why` and `show` say, what `forget` and `drop` delete, what `fill` makes again."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from crawl_lib.ask import explain, find_page, read_answer
from crawl_lib.cli.program import run as krake
from crawl_lib.config import Config
from crawl_lib.errors import ConfigError, DamagedKeysError, InputError, KeyTablesError, LockedError
from crawl_lib.keys import interval
from crawl_lib.realtime import collect_parts, drop_rows, fill_table, forget_rows, row_facts
from crawl_lib.realtime.documents import Document, Request, encoded, request_bytes
from crawl_lib.realtime.pages import Finished, Followed, Mark, PageServer, Wish, part_of
from crawl_lib.realtime.places import FETCHER
from crawl_lib.realtime.protocol import Hop, PageTarget
from crawl_lib.realtime.store import connect_pages
from crawl_lib.stores import Stores
from crawl_lib.urls import host_of, key_of
from tests.e2e.crawl import write_config
from tests.realtime.conftest import mysql_pages, new_database
from tests.realtime.test_collect import config_of, fetch, keys, submissions
from tests.realtime.test_live import live_config, service
from tests.repair.crawled import stores_of
from tests.web.hostile import HostileWeb

A, B, C, D = (f"http://{name}.example/" for name in "abcd")


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return stores_of(config_of(tmp_path))


@pytest.fixture
def pages(stores: Stores) -> Iterator[PageServer]:
    """The table of the crawl's only key server."""
    config = stores.config.key_storage
    pages = connect_pages(config, None, config.servers[0])
    pages.ensure()
    yield pages
    pages.close()


def submit(pages: PageServer, *urls: str) -> None:
    pages.submit(
        [Wish(key_of(url), part_of(host_of(url)), request_bytes(Request(url=url))) for url in urls]
    )


def hop(url: str, time_ms: int = 4_000_000_000_000) -> Hop:
    return Hop(
        url=url, key=key_of(url).hex(), outcome="ok", status=200, time_ms=time_ms, duration_ms=5
    )


def finish(pages: PageServer, url: str, *hops: str, **fields: object) -> None:
    given = {
        "outcome": "ok",
        "final_url": (hops or (url,))[-1],
        "hops": [*map(hop, hops or (url,))],
        **fields,
    }
    pages.finish([Finished(key_of(url), encoded(Document(url=url, **given)), 1000, 1)])


class TestWhy:
    """A URL that waits, that failed, that came since the last collection, that is refused, that nobody submitted."""

    def test_a_url_that_waits(self, stores: Stores, pages: PageServer) -> None:
        submit(pages, A)
        found = explain(stores, A)
        assert "waits to be fetched in real time" in found["answer"]
        assert (found["realtime"]["state"], found["realtime"]["shares"]) == ("due", 1)

    def test_a_redirect_that_waits_for_its_target(self, stores: Stores, pages: PageServer) -> None:
        submit(pages, A)
        target = PageTarget(url=B, key=key_of(B).hex(), how="redirect")
        request = Request(url=A, hop=hop(A), target=target)
        pages.follow([Followed(key_of(A), key_of(B), request_bytes(request), 1)])
        assert f"waits for the document of {B}" in explain(stores, A)["answer"]

    def test_a_failure(self, stores: Stores, pages: PageServer) -> None:
        submit(pages, A)
        finish(pages, A, outcome="dns_failed", error="no such name")
        found = explain(stores, A)
        assert "ended as dns_failed: no such name; a submission after 2" in found["answer"]
        assert found["realtime"]["error"] == "no such name"

    def test_a_url_that_a_rule_refuses(self, stores: Stores, pages: PageServer) -> None:
        rules = ({"action": "-", "kind": "domain", "value": "a.example"},)
        config = config_of(Path(stores.config.queue.local_dir).parent)
        from tests.e2e.crawl import make_config  # noqa: PLC0415

        refusing = make_config(
            Path(stores.config.queue.local_dir).parent,
            nodes=1,
            urls={"scope": "any", "rules": list(rules)},
            frontier={"order": "crawldb", "routing": "host"},
            realtime={},
        )
        assert config.key_storage == refusing.key_storage
        assert "submissions are refused" in explain(stores_of(refusing), A)["answer"]

    def test_a_url_that_nobody_submitted(self, stores: Stores, pages: PageServer) -> None:
        found = explain(stores, A)
        assert "was not submitted" in found["answer"]
        assert found["realtime"]["state"] == "unknown"

    def test_a_crawl_without_the_table_says_nothing_of_it(self, stores: Stores) -> None:
        assert "realtime" not in explain(stores, A)

    def test_a_server_that_cannot_be_asked_is_a_note(
        self, stores: Stores, pages: PageServer
    ) -> None:
        pages.close()
        pages.path.write_bytes(b"no data base at all" * 100)
        found = explain(stores, A)
        assert any("krake realtime fill" in note for note in found["notes"])


class TestShow:
    """The document of a row is shown where no segment has it yet."""

    def test_the_document_until_it_is_collected(self, stores: Stores, pages: PageServer) -> None:
        submit(pages, A)
        finish(pages, A, facts={"title": "A title"})
        found = find_page(stores, A)
        assert (found.url, found.row["facts"]["title"], found.row["shares"]) == (
            A,
            "A title",
            1,
        )
        with pytest.raises(InputError, match="krake realtime collect"):
            read_answer(stores, found)

    def test_the_later_of_document_and_segment(self, stores: Stores, pages: PageServer) -> None:
        fetch(stores.config, A)
        collect_parts(stores, FETCHER)
        submit(pages, A)
        finish(pages, A, hops=[hop(A, 1000)])
        assert "warc_file" in find_page(stores, A).row, "the segment's capture is later"
        finish(pages, A)
        assert "hops" in find_page(stores, A).row
        assert "ended as ok" in explain(stores, A)["answer"]

    def test_a_url_without_a_document_was_not_crawled(
        self, stores: Stores, pages: PageServer
    ) -> None:
        submit(pages, A)
        with pytest.raises(InputError, match="was not crawled"):
            find_page(stores, A)


class TestForget:
    """Rows of URLs, of hosts and of an age are deleted, but for rows that wait."""

    def test_of_urls_hosts_and_age(self, stores: Stores, pages: PageServer) -> None:
        more = f"{A}more"
        submit(pages, A, more, B, C)
        for url in (A, more, B):
            finish(pages, url)
        report = forget_rows(stores, [B, C, D], [], None, dry_run=True)
        assert report is not None
        assert (report.deleted, report.waiting, report.unknown) == (1, 1, 1)
        assert len(pages.states([key_of(B)])) == 1, "a dry run"
        assert forget_rows(stores, [], ["a.example"], None, dry_run=False).deleted == 2
        assert forget_rows(stores, [], [], 3600.0, dry_run=False).deleted == 0
        assert forget_rows(stores, [], [], -3600.0, dry_run=False).deleted == 1
        assert [row.key for row in pages.due(Mark(), 10)] == [key_of(C)]

    def test_without_a_table_nothing_is_said(self, stores: Stores) -> None:
        assert forget_rows(stores, [A], [], None, dry_run=False) is None


def test_a_drop_takes_the_documents_that_came_by_the_page(
    stores: Stores, pages: PageServer
) -> None:
    submit(pages, A, B, C, D)
    finish(pages, A, A, B)
    finish(pages, B)
    finish(pages, C, facts={"title": f'"key":"{key_of(B).hex()}"'})
    assert drop_rows(stores, {key_of(B), key_of("http://none.example/")}, dry_run=True) == 2
    assert drop_rows(stores, {key_of(B)}, dry_run=False) == 2
    assert set(pages.states([*map(key_of, (A, B, C, D))])) == {key_of(C), key_of(D)}


def test_commands_say_how_many_rows_went(
    tmp_path: Path, stores: Stores, pages: PageServer, capsys
) -> None:
    config = write_config(stores.config, tmp_path)
    submit(pages, A, B)
    finish(pages, A)
    finish(pages, B)
    assert krake(["--config", str(config), "forget", A, "--yes"]) == 0
    assert "deleted 1 row of krakepages" in capsys.readouterr().out
    assert krake(["--config", str(config), "segment", "drop", B, "--yes", "--json"]) == 1, (
        "no segment has it"
    )
    assert json.loads(capsys.readouterr().out)["rows"] == 1
    assert krake(["--config", str(config), "why", A]) == 0
    assert "was not submitted" in capsys.readouterr().out


class TestEpochs:
    """An epoch is of one writer alone, and above all epochs of the table."""

    def test_each_start_has_a_higher_one(self, connect: Callable[..., PageServer]) -> None:
        one, other = connect(), connect()
        epochs = [pages.next_epoch() for pages in (one, other, one, one, other)]
        assert epochs == sorted(set(epochs))
        one.ensure()
        assert one.next_epoch() > epochs[-1]

    def test_a_table_of_the_first_version_goes_on_above_its_epochs(
        self, connect: Callable[..., PageServer]
    ) -> None:
        pages = connect()
        submit(pages, A)
        pages.finish([Finished(key_of(A), b"{}", 1000, 1 << 50)])
        pages._changed("DROP TABLE krakepagesepoch")
        pages.ensure()
        assert pages.next_epoch() == (1 << 50) + 1


class TestFill:
    """A lost table comes again from segments, and rows go where their keys belong."""

    def test_documents_are_as_the_service_wrote_them(self, tmp_path: Path, capsys) -> None:
        with HostileWeb() as web:
            page = b"<title>A title</title><meta name=description content=words><meta property=og:image content=/i.png>"
            web.on(
                "/page", lambda talk: talk.reply(headers=b"Content-Type: text/html\r\n", body=page)
            )
            web.on("/hop", lambda talk: talk.reply("301 Moved", b"Location: /page\r\n", b""))
            web.on("/moved", lambda talk: talk.reply("301 Moved", b"Location: /hop\r\n", b""))
            urls = [web.url(path) for path in ("/moved", "/hop", "/page", "/nothing")]
            with service(tmp_path, capsys) as live:
                for url in urls:
                    live.document(url)
                stores = stores_of(live_config(tmp_path))
                before = [row_facts(stores, key_of(url)) for url in urls]
                with pytest.raises(LockedError, match="krake serve realtime"):
                    fill_table(stores_of(replace_lock(live_config(tmp_path))))
                live.process.send_signal(signal.SIGTERM)
                live.process.wait(30)
        for path in (tmp_path / "keys").glob("*-pages.sqlite*"):
            path.unlink()
        stores = stores_of(live_config(tmp_path))
        report = fill_table(stores)
        assert (report.filled, report.redirected, report.waiting) == (4, 2, 0)
        assert submissions(stores.config) == keys(*urls), "the fill collects first"
        after = [row_facts(stores, key_of(url)) for url in urls]
        assert [essential(row) for row in after] == [essential(row) for row in before]
        assert fill_table(stores).filled == 0, "run again, it finds all rows"

    def test_a_newer_row_stays_and_an_old_capture_is_left_out(
        self, stores: Stores, pages: PageServer
    ) -> None:
        submit(pages, A)
        finish(pages, A, facts={"title": "later"})
        fetch(stores.config, A, B)
        report = fill_table(stores)
        assert (report.captures, report.filled) == (2, 0), "captures of tests are years old"

    def test_rows_go_to_servers_that_were_added(
        self, tmp_path: Path, stores: Stores, pages: PageServer
    ) -> None:
        urls = [f"http://{number}.example/" for number in range(20)]
        submit(pages, *urls)
        for url in urls[:10]:
            finish(pages, url)
        pages.close()
        storage = stores.config.key_storage
        both = replace(storage, servers=(*storage.servers, str(tmp_path / "keys" / "other.sqlite")))
        more = stores_of(replace(stores.config, key_storage=both))
        others = [url for url in urls if interval(key_of(url), 2) == 1]
        report = fill_table(more)
        assert report.moved == len(others) > 0
        second = connect_pages(both, None, both.servers[1])
        rows = second.read([*map(key_of, urls)])
        assert set(rows) == {*map(key_of, others)}
        assert {key for key, row in rows.items() if row.is_open} == {
            key_of(url) for url in others if url in urls[10:]
        }
        second.close()
        assert fill_table(more).moved == 0

    def test_a_damaged_file_is_kept_and_made_again(self, stores: Stores, pages: PageServer) -> None:
        pages.close()
        pages.path.write_bytes(b"no data base at all" * 1000)
        with pytest.raises(DamagedKeysError, match="krake realtime fill"):
            pages.states([key_of(A)])
        assert fill_table(stores).aside == 1
        assert list(pages.path.parent.glob("*-pages.sqlite.damaged-*"))
        assert pages.states([key_of(A)]) == {}

    def test_a_missing_file_is_not_made_by_a_question(
        self, stores: Stores, pages: PageServer
    ) -> None:
        pages.close()
        pages.path.unlink()
        with pytest.raises(KeyTablesError, match="krake realtime fill"):
            pages.states([key_of(A)])
        assert not pages.path.exists()

    def test_another_crawl_has_no_table(self, tmp_path: Path) -> None:
        from tests.e2e.crawl import make_config  # noqa: PLC0415

        with pytest.raises(ConfigError, match="crawldb"):
            fill_table(stores_of(make_config(tmp_path, nodes=1)))

    def test_rows_of_mariadb_are_written_whole(self, mariadb) -> None:
        pages = mysql_pages(mariadb, new_database(mariadb))
        assert not pages.exists()
        with pytest.raises(KeyTablesError, match="krakepages"):
            pages.states([key_of(A)])
        pages.ensure()
        assert pages.exists()
        submit(pages, A, B)
        finish(pages, A)
        rows = pages.rows_after(b"", 10)
        pages.put([(7, row._replace(shares=9)) for row in rows])
        assert pages.rows_after(b"", 10) == [row._replace(shares=9) for row in rows]
        assert pages.forget([key_of(A), key_of(B)]) == 1
        pages.close()


def replace_lock(config: Config) -> Config:
    """Wait for no lock."""
    return replace(config, queue=replace(config.queue, lock_timeout_s=0.0))


def essential(row: dict[str, object] | None) -> dict[str, object]:
    """A row without its times and counts."""
    assert row is not None
    document = dict(row["document"])
    return {"state": row["state"], "url": row["url"], "document": document}
