"""The embedded key server: the contract, and what a file can do wrong."""

import os
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from crawl_lib.errors import KeyServerDownError, KeyStoreError, KeyTablesError
from crawl_lib.keys import ShardedKeyStore, SqliteKeyServer
from crawl_lib.keys.sqlite import translate
from crawl_lib.states import KeyState
from tests.contracts.keystore import KeyStoreContract, make_keys
from tests.forked import run_forked


def rows_of(path):
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT hash, keyinfo FROM kraakekeys").fetchall()
    finally:
        connection.close()


def dropped(server, table):
    with closing(sqlite3.connect(server.path)) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {table}")


class TestContract(KeyStoreContract):
    @pytest.fixture
    def new_server(self, tmp_path):
        count = iter(range(100))
        return lambda: SqliteKeyServer(tmp_path / "keys" / f"{next(count)}.sqlite")

    @pytest.fixture
    def again(self):
        return lambda server: SqliteKeyServer(server.path)

    @pytest.fixture
    def raw(self):
        return lambda server: rows_of(server.path)

    @pytest.fixture
    def drop_note_table(self):
        return lambda server: dropped(server, "krakenote")

    @pytest.fixture
    def drop_slot_table(self):
        return lambda server: dropped(server, "kraakeslots")


@pytest.fixture
def server(tmp_path):
    server = SqliteKeyServer(tmp_path / "keys" / "0.sqlite", timeout_s=0.1)
    yield server
    server.close()


def test_its_folder_is_made_if_the_parent_is_there(server):
    server.create()
    assert server.path.is_file()


def test_a_folder_without_parent_is_an_error_that_names_the_file(tmp_path):
    server = SqliteKeyServer(tmp_path / "a" / "b" / "0.sqlite")
    with pytest.raises(KeyStoreError, match=r"0\.sqlite: cannot be created.*No such file.*parent"):
        server.create()
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("path", ["file/0.sqlite", "file/keys/0.sqlite"])
def test_a_path_below_a_regular_file_is_an_error(tmp_path, path):
    (tmp_path / "file").write_text("x")
    server = SqliteKeyServer(tmp_path / path)
    for request in (server.create, server.ensure):
        with pytest.raises(KeyStoreError, match=r"0\.sqlite: cannot be created or opened"):
            request()
    with pytest.raises(KeyStoreError):
        server.known(make_keys(1))


@pytest.mark.parametrize("path", ["/proc/0.sqlite", "/proc/keys/0.sqlite"])
def test_a_folder_that_takes_no_files_is_an_error(path):
    with pytest.raises(KeyStoreError, match=r"0\.sqlite: "):
        SqliteKeyServer(path).ensure()


def _ensure_where_nothing_can_be_written(folder):
    if os.getuid() == 0:
        os.setuid(65534)  # root may write everywhere
    with pytest.raises(KeyStoreError, match="writable"):
        SqliteKeyServer(folder / "0.sqlite").ensure()


def test_an_unwritable_folder_is_an_error():
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        assert run_forked(_ensure_where_nothing_can_be_written, Path(folder)) == 0


def test_a_folder_in_place_of_the_file_is_an_error(server):
    server.path.mkdir(parents=True)
    with pytest.raises(KeyStoreError, match=r"0\.sqlite: "):
        server.known(make_keys(1))


def test_a_file_that_is_no_database_is_an_error(server):
    server.path.parent.mkdir()
    server.path.write_bytes(b"not a database" * 1000)
    with pytest.raises(
        KeyStoreError, match=r"0\.sqlite: .*not a database.*krake fsck --repair --only keys"
    ):
        server.known(make_keys(1))


def test_a_file_that_another_process_keeps_locked_is_down(server):
    server.create()
    other = sqlite3.connect(server.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for request in (
        lambda: server.insert(make_keys(1), KeyState.QUEUED),
        lambda: server.claim(make_keys(1)),
    ):
        with pytest.raises(KeyServerDownError, match="locked"):
            request()
    other.execute("ROLLBACK")
    other.close()
    assert server.claim(make_keys(1)).ours == set(make_keys(1))


def test_a_table_without_its_file_is_not_made_by_asking(server):
    with pytest.raises(KeyTablesError, match="no such file: run `krake keys create`"):
        server.known(make_keys(1))
    assert not server.path.exists()


def test_ensure_makes_the_file_once_and_keeps_what_stands(server):
    store = ShardedKeyStore([server])
    store.ensure_tables()
    store.insert(make_keys(5))
    store.ensure_tables()
    assert store.unknown(make_keys(5)).known == set(make_keys(5))


def test_ensure_leaves_a_file_without_table_alone(server):
    server.path.parent.mkdir()
    server.path.touch()
    server.ensure()
    with pytest.raises(KeyTablesError, match="krake keys create"):
        server.known(make_keys(1))
    server.create()
    assert server.known(make_keys(1)) == set()


def test_many_processes_may_ensure_at_once(tmp_path):
    """The file appears with its table, at once: no one sees one without the other, no one's keys are lost."""
    gate = threading.Barrier(8, timeout=60)

    def start(number):
        server = SqliteKeyServer(tmp_path / "keys" / "0.sqlite")
        gate.wait()
        server.ensure()
        server.insert(make_keys(1, start=number), KeyState.QUEUED)
        server.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(start, range(8)))
    assert len(rows_of(tmp_path / "keys" / "0.sqlite")) == 8
    assert sorted(path.name for path in (tmp_path / "keys").iterdir() if path.name[0] == ".") == []


def test_the_log_of_a_deleted_file_is_not_replayed(server):
    server.create()
    server.insert(make_keys(100), KeyState.QUEUED)
    log = server.path.with_name("0.sqlite-wal").read_bytes()
    server.close()
    server.path.unlink()
    server.path.with_name("0.sqlite-wal").write_bytes(log)
    server.create()
    assert server.known(make_keys(100)) == set()


def test_keys_are_synced_before_a_write_returns(server):
    """synchronous=FULL (2): the key of a URL that was noted as taken in outlives a power loss."""
    server.create()
    with server._open() as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_claim_whose_commit_fails_is_unsure(server):
    server.create()
    server.insert(make_keys(3), KeyState.QUEUED)

    class Failing:
        def __init__(self, connection):
            self.connection = connection

        def execute(self, statement, *arguments):
            if statement == "COMMIT":
                raise sqlite3.OperationalError("disk I/O error")
            return self.connection.execute(statement, *arguments)

        def __getattr__(self, name):
            return getattr(self.connection, name)

    server._connection = Failing(server._connection)
    answer = server.claim(sorted(make_keys(10)))
    assert answer.theirs == set(make_keys(3))
    assert answer.unsure == set(make_keys(7, start=3))
    assert answer.ours == set()
    server.insert(sorted(make_keys(10)), KeyState.QUEUED)  # a new connection works


def test_a_foreign_keyinfo_means_known(server):
    server.create()
    keys = make_keys(3)
    connection = sqlite3.connect(server.path)
    with connection:
        connection.executemany(
            "INSERT INTO kraakekeys VALUES (?, ?)",
            zip([k.hex() for k in keys], [None, 0, 9], strict=True),
        )
    connection.close()
    store = ShardedKeyStore([server])
    assert store.unknown(keys).known == set(keys)
    assert set(store.states(keys).values()) == {KeyState.QUEUED}
    assert store.counts()[0].by_state == {"queued": 0, "crawled": 0, "gone": 0, "other": 3}
    store.set_state(keys, KeyState.CRAWLED)
    assert set(store.states(keys).values()) == {KeyState.CRAWLED}


@pytest.mark.parametrize("code", range(1, 27))
def test_every_error_of_sqlite_is_translated(code):
    error = sqlite3.OperationalError("text of it")
    error.sqlite_errorcode = code | 3 << 8
    assert str(translate("keys/0.sqlite", error)).startswith("keys/0.sqlite: ")
