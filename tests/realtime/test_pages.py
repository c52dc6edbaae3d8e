"""The table: submissions, documents, redirects, events and sweeps, on SQLite and on a real MariaDB."""

from __future__ import annotations

import random
import threading
from hashlib import sha1

import pytest

from crawl_lib.errors import KeyServerDownError, KeyTablesError
from crawl_lib.realtime.pages import LOOK_BACK_MS, Finished, Followed, Mark, Wish, part_of
from tests.realtime.conftest import mysql_pages, new_database

DAY_MS = 86_400_000


def key(name: object) -> bytes:
    return sha1(str(name).encode()).digest()


def wish(name: object, **options: object) -> Wish:
    return Wish(key(name), 7, f'{{"url":"http://{name}/"}}'.encode(), **options)


def done(name: object, data: bytes = b"{}", again_ms: int = DAY_MS, epoch: int = 1) -> Finished:
    return Finished(key(name), data, again_ms, epoch)


def test_a_submission_makes_a_new_row_due_and_counts_its_shares(connect):
    pages = connect()
    rows = pages.submit([wish("a"), wish("b"), wish("a", shares=2)])
    assert rows[key("a")].shares == 3
    assert rows[key("a")].due_ms is not None
    assert [row.key for row in pages.due(Mark(), 10)] == sorted([key("a"), key("b")])
    again = pages.submit([wish("a")])[key("a")]
    assert (again.shares, again.due_ms) == (4, rows[key("a")].due_ms)


def test_a_submission_with_a_name_counts_once(connect):
    pages, restarted = connect(), connect()
    named = [wish("a", repeat=key("one")), wish("b", repeat=key("two")), wish("b")]
    pages.submit(named)
    restarted.submit([wish("a")])
    rows = restarted.submit(named)
    assert (rows[key("a")].shares, rows[key("b")].shares) == (2, 3)
    assert rows[key("a")].due_ms is not None
    pages._changed("UPDATE krakepagesrepeats SET made_ms = made_ms - 86500000")
    pages.sweep(Mark(), DAY_MS, 10)
    assert pages.submit(named[:1])[key("a")].shares == 3, "a name is known for a day"


def test_a_document_ends_the_wait_until_it_is_too_old(connect):
    pages = connect()
    pages.submit([wish("a"), wish("b")])
    pages.finish([done("a", b'{"title":"A"}'), done("b", again_ms=0)])
    row = pages.read([key("a")])[key("a")]
    assert (row.data, row.due_ms, row.is_open) == (b'{"title":"A"}', None, False)
    assert row.fetched_ms > 0
    known = pages.submit([wish("a"), wish("b")])
    assert not known[key("a")].is_open, "the policy says that the document is good for a day"
    assert known[key("b")].is_open, "the document was good for no time"
    assert pages.read([key("a"), key("b")])[key("b")].data == b"{}", (
        "the old document stays until there is a new one"
    )


@pytest.mark.parametrize(("max_age_ms", "is_due"), [(-1, True), (DAY_MS, False), (None, False)])
def test_a_submission_may_ask_for_a_younger_document(connect, max_age_ms, is_due):
    pages = connect()
    pages.submit([wish("a")])
    pages.finish([done("a")])
    renewed = Wish(key("a"), 7, b'{"policy":"new"}', max_age_ms=max_age_ms)
    row = pages.submit([renewed])[key("a")]
    assert row.is_open is is_due
    assert (row.request == b'{"policy":"new"}') is is_due, (
        "the submission that made the row due counts"
    )


def test_a_lower_epoch_and_a_deleted_row_stay_unwritten(connect):
    pages = connect()
    pages.submit([wish("a"), wish("b")])
    pages.finish([done("a", b"5", epoch=5)])
    pages.finish([done("a", b"4", epoch=4)])
    assert pages.read([key("a")])[key("a")].data == b"5"
    assert pages.delete([key("b"), key("none")]) == 1
    pages.finish([done("b")])
    assert pages.read([key("b")]) == {}, "what an operator deleted does not come back"


def test_a_redirect_waits_for_its_target_and_is_not_due(connect):
    pages = connect()
    pages.submit([wish("a"), wish("b"), wish("target", shares=0)])
    pages.follow([Followed(key(name), key("target"), b'{"hop":1}', 1) for name in "ab"])
    rows = pages.submit([wish("a")])
    assert (rows[key("a")].due_ms, rows[key("a")].waits_for) == (None, key("target"))
    assert rows[key("a")].request == b'{"hop":1}'
    assert {row.key for row in pages.waiters([key("target")])} == {key("a"), key("b")}
    first, second = (
        pages.waiting(b"", b"", 1),
        pages.waiting(key("target"), min(key("a"), key("b")), 5),
    )
    assert [row.key for row in first + second] == sorted([key("a"), key("b")])
    pages.finish([done("a"), done("b"), done("target")])
    assert pages.waiters([key("target")]) == []
    assert pages.due(Mark(), 10) == []


def test_many_redirects_are_written_each_by_its_own_epoch(connect):
    pages = connect()
    numbers = range(45)
    pages.submit([wish(number) for number in numbers])
    pages.finish([done(3, epoch=9)])
    statements: list[str] = []
    changed = pages._changed

    def noted(statement: str) -> int:
        statements.append(statement)
        return changed(statement)

    pages._changed = noted
    hops = [Followed(key(one), key(f"to {one}"), b"%d" % one, one) for one in numbers]
    pages.follow(hops)
    assert len(statements) == 1, "each statement is an fsync of its own"
    rows = pages.states([key(one) for one in numbers])
    assert (rows[key(3)].waits_for, rows[key(3)].is_open) == (None, False), "of a newer writer"
    for one in set(numbers) - {3}:
        row = rows[key(one)]
        assert (row.waits_for, row.due_ms, row.request) == (key(f"to {one}"), None, b"%d" % one)
    pages.finish([done(7, epoch=6), done(8, epoch=8)])
    still = pages.states([key(7), key(8)])
    assert still[key(7)].waits_for == key("to 7"), "the row has the epoch of its redirect"
    assert still[key(8)].waits_for is None


def test_due_rows_are_read_in_pieces_the_oldest_first(connect):
    pages = connect()
    for name in range(7):
        pages.submit([wish(name)])
    read, mark = [], Mark()
    while rows := pages.due(mark, 2):
        read += rows
        mark = rows[-1]
    assert {row.key for row in read} == {key(name) for name in range(7)}
    assert len(read) == 7
    assert read == sorted(read)
    assert pages.queue().due == 7
    assert pages.due(Mark(), 10, parts=[6, 8]) == []
    assert pages.due(Mark(), 10, parts=[]) == pages.waiting(b"", b"", 10, parts=[]) == []
    assert pages.queue(parts=[]).due == 0


def test_events_are_in_the_order_of_their_times(connect):
    pages = connect()
    pages.submit([wish(name) for name in range(5)])
    for name in range(4):
        pages.finish([done(name)])
    marks, mark = [], Mark()
    while found := pages.events(mark, 3):
        marks += found
        mark = found[-1]
    assert {mark.key for mark in marks} == {key(name) for name in range(4)}, "4 has no document yet"
    assert marks == sorted(marks)
    pages.finish([done(0, b"new")])
    assert key(0) in {mark.key for mark in pages.events(Mark(marks[-1].time_ms), 9)}


def test_a_sweep_deletes_what_nobody_has_wanted_for_long(connect):
    pages = connect()
    names = ["old", "due", "waits"]
    pages.submit([wish(name) for name in names])
    pages.finish([done(name, again_ms=-1) for name in names])
    pages.submit([wish("due")])
    pages.follow([Followed(key("waits"), key("due"), b"{}", 1)])
    assert pages.sweep(Mark(), DAY_MS, 10).deleted == 0, "each was shared a moment ago"
    assert pages.sweep(Mark(), -DAY_MS, 1).looked == 1
    swept = pages.sweep(Mark(), -DAY_MS, 10)
    rows = pages.read(list(map(key, names)))
    assert set(rows) == {key("due"), key("waits")}
    assert swept.deleted <= 1


def test_a_table_of_another_version_is_refused(connect):
    pages = connect()
    pages._changed("UPDATE krakepagesversion SET version = 2")
    with pytest.raises(KeyTablesError, match=r"version 2.*drop the tables"):
        pages.ensure()


def test_a_fetcher_that_died_is_counted_for_due_rows_only(connect):
    pages = connect()
    pages.submit([wish("a"), wish("b")])
    pages.finish([done("b")])
    pages.tried([key("a"), key("b")])
    rows = pages.states([key("a"), key("b")])
    assert (rows[key("a")].tries, rows[key("b")].tries) == (1, 0)


def test_hosts_of_one_domain_have_one_part():
    assert part_of("www.example.org") == part_of("img.example.org")
    assert len({part_of(f"site{number}.example") for number in range(2000)}) > 200


def test_a_slow_write_gets_a_later_time(connect):
    """A reader that is `LOOK_BACK_MS` behind may have passed the time of a statement that took longer."""
    times = iter([0.0, LOOK_BACK_MS / 1000, 10.0, 10.1])
    writes = []
    pages = connect(clock=lambda: next(times))
    pages.submit([wish("a")])
    finish = pages._finish
    pages._finish = lambda documents: (writes.append(len(documents)), finish(documents))
    pages.finish([done("a")])
    assert writes == [1, 1]


class TestOverlap:
    """Two writers on a real MariaDB, of which the earlier one commits last."""

    def test_no_event_is_passed_over(self, mariadb):
        database = new_database(mariadb)
        early, late, reader = (mysql_pages(mariadb, database) for _ in range(3))
        early.ensure()
        early.submit([wish("early"), wish("late")])
        blocker = mysql_pages(mariadb, database)
        blocker._repeated(lambda connection: connection.begin())
        blocker._changed(f"UPDATE krakepages SET shares = 9 WHERE hash = x'{key('early').hex()}'")
        thread = threading.Thread(target=early.finish, args=([done("early")],))
        thread.start()
        self._wait_until_blocked(mariadb)
        late.finish([done("late")])
        seen = reader.events(Mark(), 10)
        assert [mark.key for mark in seen] == [key("late")]
        blocker._repeated(lambda connection: connection.rollback())
        thread.join(20)
        later = reader.events(Mark(seen[-1].time_ms - LOOK_BACK_MS), 10)
        assert {mark.key for mark in later} == {key("early"), key("late")}
        for pages in (early, late, reader, blocker):
            pages.close()

    @staticmethod
    def _wait_until_blocked(mariadb):
        while not mariadb.run(
            "SELECT 1 FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"
        ):
            threading.Event().wait(0.005)

    def test_a_writer_that_is_blocked_for_long_is_told_so_and_its_time_is_gone(self, mariadb):
        database = new_database(mariadb)
        pages, blocker = (mysql_pages(mariadb, database) for _ in range(2))
        pages.ensure()
        pages.submit([wish("a")])
        blocker._repeated(lambda connection: connection.begin())
        blocker._changed(f"UPDATE krakepages SET shares = 9 WHERE hash = x'{key('a').hex()}'")
        with pytest.raises(KeyServerDownError, match="max_statement_time"):
            pages.finish([done("a")])
        blocker._repeated(lambda connection: connection.rollback())
        assert pages.events(Mark(), 10) == []
        pages.finish([done("a")])
        assert len(pages.events(Mark(), 10)) == 1
        pages.close()
        blocker.close()

    def test_a_killed_server_keeps_what_was_submitted_and_finished(self, mariadb):
        """Seeded kills are in the cluster's tests; here the connection is lost at random statements."""
        rng = random.Random(42)
        database = new_database(mariadb)
        pages = mysql_pages(mariadb, database)
        pages.ensure()
        for number in range(20):
            pages.submit([wish(number)])
            if rng.random() < 0.5:
                mariadb.run(f"KILL {pages._connection.thread_id()}")
            pages.finish([done(number)])
        assert len(pages.read([key(number) for number in range(20)])) == 20
        assert pages.due(Mark(), 50) == []
        pages.close()
