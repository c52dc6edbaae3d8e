"""What a node remembers of hosts: times, robots answers, and whether the last stop was clean."""

import os
import sqlite3
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl_lib.errors import StorageError
from crawl_lib.fetch import HOSTS_TABLES, HostStore
from crawl_lib.fetch.hoststore import (
    NO_BACK_OFF,
    BackOff,
    HostRow,
    RobotsRow,
    hosts_in_back_off,
    make_hosts_folder,
)
from crawl_lib.fetch.retry import GROWS
from crawl_lib.findings import sqlite_problem
from tests.forked import run_python


class Wall:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def test_rows_come_back_in_another_process_of_the_node(tmp_path):
    with HostStore(tmp_path) as one, HostStore(tmp_path) as other:
        one.save_hosts([HostRow("a.test", 5.0, 1.0), HostRow("b.test", 6.0, 9.0)])
        assert other.host("b.test") == HostRow("b.test", 6.0, 9.0)
        assert other.host("c.test") is None
        row = RobotsRow("http://a.test", "rules", b"\xff\x00", "", 1.0, 2.0)
        other.save_robots(row, HostRow("a.test", 7.0, 3.0))
        assert one.robots("http://a.test") == row
        assert one.robots("https://a.test") is None
        assert one.host("a.test") == HostRow("a.test", 7.0, 3.0)


def test_a_host_time_never_goes_back(tmp_path):
    with HostStore(tmp_path) as store:
        store.save_hosts([HostRow("a.test", 5.0, 1.0)])
        store.save_hosts([HostRow("a.test", 4.0, 2.0)])
        assert store.host("a.test") == HostRow("a.test", 5.0, 2.0)


def test_hosts_wait_as_after_an_unclean_stop_where_the_caller_asks_for_it(tmp_path):
    with HostStore(tmp_path, wall=lambda: 500.0) as store:
        assert store.begin(hold=True) is True
        assert store.hold_from() == 500.0
        store.finish()
    with HostStore(tmp_path, wall=lambda: 900.0) as store:
        assert store.begin() is False
        assert store.hold_from() == 500.0


def test_the_newest_sketches_of_a_pattern_stay_and_a_page_that_is_noted_again_changes_nothing(
    tmp_path,
):
    with HostStore(tmp_path) as store:
        for _ in range(2):
            store.pages.save_sketches("a.test/~1", {30: b"c", 10: b"a", 20: b"b"}, 3)
        store.pages.save_sketches("a.test/~2", {1: b"z"}, 3)
        assert store.pages.sketches("a.test/~1") == [b"a", b"b", b"c"]
        store.pages.save_sketches("a.test/~1", {40: b"", 5: b"e"}, 3)
        assert store.pages.sketches("a.test/~1") == [b"b", b"c", b""]
        assert store.pages.sketches("a.test/~2") == [b"z"]
        with closing(sqlite3.connect(store.path)) as base:  # fetching processes may write to it
            base.execute("INSERT INTO sketches VALUES ('a.test/~2', 2, 'no bytes')")
            base.commit()
        assert store.pages.sketches("a.test/~2") == [b"z"]


def test_a_clean_stop_holds_nobody(tmp_path):
    with HostStore(tmp_path, wall=Wall()) as store:
        assert store.begin() is False
        store.finish()
        assert store.begin() is False
        assert store.hold_from() == 0.0


def test_an_unclean_stop_holds_every_host_from_now(tmp_path):
    wall = Wall()
    with HostStore(tmp_path, wall=wall) as store:
        store.begin()
    wall.now += 50
    with HostStore(tmp_path, wall=wall) as store:
        assert store.begin() is True
        assert store.hold_from() == wall.now


def test_a_killed_process_leaves_the_mark_and_its_robots_answers(tmp_path):
    code = (
        "import sys; from pathlib import Path; from crawl_lib.fetch.hoststore import HostRow, HostStore, RobotsRow\n"
        "store = HostStore(Path(sys.argv[1])); store.begin()\n"
        "store.save_robots(RobotsRow('http://a.test', 'rules', b'x', '', 1.0, 2e9), HostRow('a.test', 4e9, 7.0))\n"
    )
    assert (
        run_python(
            code, [str(tmp_path)], {**os.environ, "KRAKE_KILL_AT": "hosts.robots"}
        ).returncode
        == -9
    )
    with HostStore(tmp_path) as store:
        assert store.begin() is True
        assert store.robots("http://a.test").body == b"x"
        assert store.host("a.test").delay_s == 7.0


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "hosts.sqlite").write_bytes(b"this is no database" * 100)
    with pytest.raises(StorageError, match=r"hosts\.sqlite"):
        HostStore(tmp_path)


def begin_and_finish(store):
    with store:
        store.begin()
        store.finish()


ENDLESS = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT x FROM r"
TRIGGER = f"CREATE TRIGGER endless {{}} ON {{}} BEGIN SELECT count(*) FROM ({ENDLESS}); END"


@pytest.mark.parametrize(
    "planted",
    [
        TRIGGER.format("AFTER INSERT", "marks"),
        TRIGGER.format("BEFORE DELETE", "marks"),
        "INSERT INTO hosts VALUES ('a.test', 1.0, 1.0, 0.0);"
        + TRIGGER.format("AFTER DELETE", "hosts"),
        "INSERT INTO hosts VALUES ('a.test', 1e18, 1.0, 0.0);"
        + TRIGGER.format("BEFORE UPDATE", "hosts"),
        f"DROP TABLE marks; CREATE VIEW marks (name, value) AS SELECT 'dirty', total(x) FROM ({ENDLESS})",
    ],
)
@pytest.mark.parametrize("opened_before", [False, True])
def test_a_program_in_the_file_is_not_run(tmp_path, planted, opened_before):
    """Who took a fetching process over can write the file: triggers and views without end must hold no task up."""
    if not opened_before:
        HostStore(tmp_path).close()
    store = HostStore(tmp_path) if opened_before else None
    with closing(sqlite3.connect(tmp_path / "hosts.sqlite")) as other:
        other.executescript(planted)
        with pytest.raises(StorageError, match=r"hosts\.sqlite: .*it may be deleted"):
            begin_and_finish(store or HostStore(tmp_path))


NOW = Wall.now
DAY_S = 86_400.0


def test_a_clock_that_was_ahead_keeps_no_answer_and_no_time(tmp_path):
    """Written later than now: the host waits one delay from now, once, and its robots.txt is unknown."""
    ahead = Wall()
    ahead.now += 90 * DAY_S
    with HostStore(tmp_path, wall=ahead) as store:
        store.begin()
        store.save_hosts([HostRow("a.test", ahead.now, 1.0)])
        store.save_robots(
            RobotsRow("http://a.test", "allow", b"", "", ahead.now, ahead.now + 9),
            HostRow("a", 1.0, 1.0),
        )
    with HostStore(tmp_path, wall=ahead) as store:
        assert store.begin() is True
    wall = Wall()
    with HostStore(tmp_path, wall=wall) as store:
        assert store.robots("http://a.test") is None
        store.begin()
        assert (store.hold_from(), store.host("a.test")) == (NOW, HostRow("a.test", NOW, 1.0))
        store.finish()
    wall.now += 100
    with HostStore(tmp_path, wall=wall) as store:
        assert store.begin() is False
        assert (store.hold_from(), store.host("a.test").last_end) == (NOW, NOW)


def test_a_time_of_a_clock_that_is_set_back_in_a_run_is_replaced(tmp_path):
    wall = Wall()
    with HostStore(tmp_path, wall=wall) as store:
        store.save_hosts([HostRow("a.test", NOW, 1.0)])
        wall.now -= 10 * DAY_S
        store.save_hosts([HostRow("a.test", wall.now - 5, 1.0)])
        assert store.host("a.test").last_end == wall.now


BACK_OFFS = [
    ("soon.test", NOW + 1),
    ("later.test", NOW + 100),
    ("over.test", NOW),
    ("ahead.test", NOW + 101),
]


def test_hosts_in_back_off_are_those_whose_time_can_be_true_and_is_not_over(tmp_path):
    """At most 100 s from now here; also what is of no type it should have is not believed."""
    folder = make_hosts_folder(tmp_path)
    with HostStore(folder, wall=Wall()) as store, HostStore(folder, wall=Wall()) as other:
        for host, until in BACK_OFFS:
            store.save_back_off(host, BackOff(until, 1))
        store.save_back_off("odd.test", BackOff("soon", 1))
        store.save_back_off(b"odder.test", BackOff(NOW + 5, 1))
        assert list(other.in_back_off(NOW, 100.0).items()) == [
            ("soon.test", NOW + 1),
            ("later.test", NOW + 100),
        ]
        assert hosts_in_back_off(tmp_path, NOW, 100.0) == other.in_back_off(NOW, 100.0)
        assert other.back_off("later.test") == (NOW + 100, 1)
        assert other.back_off("odd.test") == other.back_off("none.test") == NO_BACK_OFF
        other.save_back_off("later.test", BackOff(NOW + 50, 2))
        other.save_back_off("soon.test", NO_BACK_OFF)
        assert store.in_back_off(NOW, 100.0) == {"later.test": NOW + 50}
        for times, believed in ((-1, 0), (1 << 62, GROWS), ("often", 0)):
            store.save_back_off("a.test", BackOff(NOW, times))
            assert store.back_off("a.test").times == believed


def test_what_was_over_for_a_month_is_forgotten(tmp_path):
    with HostStore(tmp_path, wall=Wall()) as store:
        store.save_back_off("a.test", BackOff(NOW - 31 * DAY_S, 3))
        store.save_back_off("b.test", BackOff(NOW - 29 * DAY_S, 3))
        store.begin()
        assert (store.back_off("a.test"), store.back_off("b.test").times) == (NO_BACK_OFF, 3)


def test_to_look_at_back_offs_leaves_no_trace(tmp_path):
    """Where nothing is known, in a file of before, and in one that no task has open."""
    place = tmp_path / "hosts"
    assert hosts_in_back_off(tmp_path, NOW, 100.0) == {}
    place.mkdir()
    with HostStore(place, wall=Wall()) as store:
        store.save_back_off("a.test", BackOff(NOW + 9, 1))
    there = sorted(place.iterdir())
    assert hosts_in_back_off(tmp_path, NOW, 100.0) == {"a.test": NOW + 9}
    with closing(sqlite3.connect(place / "hosts.sqlite")) as base:
        base.execute("DROP TABLE back_offs")
    assert hosts_in_back_off(tmp_path, NOW, 100.0) == {}
    assert sorted(place.iterdir()) == there
    assert sqlite_problem(place / "hosts.sqlite", HOSTS_TABLES) is None
    with HostStore(place, wall=Wall()) as store:
        assert store.back_off("a.test") == NO_BACK_OFF
    (place / "hosts.sqlite").write_bytes(b"this is no database" * 100)
    with pytest.raises(StorageError, match=r"hosts\.sqlite: .*it may be deleted"):
        hosts_in_back_off(tmp_path, NOW, 100.0)


def test_a_program_in_the_file_is_not_run_by_who_looks(tmp_path):
    place = tmp_path / "hosts"
    place.mkdir()
    HostStore(place).close()
    with closing(sqlite3.connect(place / "hosts.sqlite")) as other:
        other.executescript(
            f"DROP TABLE back_offs; CREATE VIEW back_offs (host, until) AS SELECT 'a', total(x) FROM ({ENDLESS})"
        )
    with pytest.raises(StorageError, match=r"hosts\.sqlite: .*it may be deleted"):
        hosts_in_back_off(tmp_path, NOW, 100.0)


@pytest.mark.parametrize(
    ("fetched", "expires", "is_believed"),
    [
        (NOW - 50, NOW + 50, True),
        (NOW, NOW + 100, True),
        (NOW - 50, NOW - 1, True),
        (NOW - 50, NOW + 101, False),
        (NOW + 1, NOW + 50, False),
        (NOW - 50, float("inf"), False),
        (float("inf"), NOW, False),
        ("soon", NOW + 50, False),
        (NOW - 50, b"later", False),
    ],
)
def test_an_answer_whose_times_cannot_be_is_unknown(tmp_path, fetched, expires, is_believed):
    """An answer holds for 100 s at most here."""
    with HostStore(tmp_path, wall=Wall(), robots_ttl_s=100.0) as store:
        store.save_robots(
            RobotsRow("http://a.test", "allow", b"", "", fetched, expires),
            HostRow("a.test", 1.0, 1.0),
        )
        assert (store.robots("http://a.test") is not None) is is_believed


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE robots SET verdict = x'00'",
        "UPDATE robots SET body = 'text'",
        "UPDATE robots SET error = x'00'",
        "UPDATE robots SET fetched = 'text'",
        "UPDATE robots SET expires = x'00'",
        "UPDATE hosts SET last_end = 'text'",
        "UPDATE hosts SET delay_s = x'00'",
    ],
)
def test_a_row_with_something_else_in_a_column_is_unknown(tmp_path, change):
    with HostStore(tmp_path, wall=Wall()) as store:
        store.save_robots(
            RobotsRow("http://a.test", "allow", b"", "", 1.0, 2.0), HostRow("a.test", 1.0, 1.0)
        )
        store._db.execute(change)
        table = change.split()[1]
        assert (store.robots("http://a.test") is None) is (table == "robots")
        assert (store.host("a.test") is None) is (table == "hosts")


def test_a_mark_with_something_else_in_it_is_of_now(tmp_path):
    with HostStore(tmp_path, wall=Wall()) as store:
        store._db.execute("INSERT INTO marks VALUES ('dirty', 'text'), ('hold_from', x'00')")
        assert store.hold_from() == NOW
        assert store.begin() is True


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The bytes of a store with some rows."""
    directory = tmp_path_factory.mktemp("written")
    with HostStore(directory, wall=Wall()) as store:
        store.begin()
        for number in range(40):
            row = RobotsRow(
                f"http://{number}.test", "rules", b"User-agent: *\n" * 9, "", NOW - 1, NOW + 9
            )
            store.save_robots(row, HostRow(f"{number}.test", NOW - 1, 1.5))
        store.finish()
    return (directory / "hosts.sqlite").read_bytes()


@pytest.mark.parametrize(
    ("right", "wrong"),
    [(b"CREATE TABLE robots", b"CREATE TABL\xff robots"), (b"expires REAL", b"expires REAM")],
    ids=["its message quotes what is no text", "its times are read as integers"],
)
def test_a_damaged_schema_is_an_error_that_names_the_file_or_rows_that_are_unknown(
    tmp_path, written, right, wrong
):
    (tmp_path / "hosts.sqlite").write_bytes(written.replace(right, wrong))
    if b"\xff" in wrong:
        with pytest.raises(StorageError, match=r"hosts\.sqlite: "):
            HostStore(tmp_path, wall=Wall())
    else:
        with HostStore(tmp_path, wall=Wall()) as store:
            assert store.robots("http://1.test") is None
            assert store.host("1.test") is not None


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_what_is_read_of_a_damaged_file_is_of_its_type_or_an_error_that_names_the_file(
    tmp_path_factory, written, data
):
    damaged = bytearray(written)
    for _ in range(data.draw(st.integers(1, 8))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        damage = data.draw(st.binary(min_size=1, max_size=30))
        damaged[place : place + len(damage)] = damage
    directory = tmp_path_factory.mktemp("damaged")
    (directory / "hosts.sqlite").write_bytes(
        bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    )
    error = ""
    try:
        with HostStore(directory, wall=Wall()) as store:
            store.begin()
            assert 0.0 <= store.hold_from() <= NOW
            for number in range(40):
                host, row = store.host(f"{number}.test"), store.robots(f"http://{number}.test")
                assert host is None or (type(host.last_end), type(host.delay_s)) == (float, float)
                assert row is None or (type(row.body), type(row.error), type(row.expires)) == (
                    bytes,
                    str,
                    float,
                )
                store.save_hosts([HostRow(f"{number}.test", NOW, 1.0)])
            store.finish()
    except StorageError as failed:
        error = str(failed)
    assert not error or str(directory / "hosts.sqlite") in error


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "hosts").write_bytes(b"in the way")
    with pytest.raises(StorageError, match=r"hosts: cannot be made: File exists"):
        make_hosts_folder(tmp_path)
