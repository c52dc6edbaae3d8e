"""A SQLite file of keys with wrong bits in it: every request answers, or says which file is damaged and what to do."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from crawl_lib.errors import DamagedKeysError, KeyStoreError, KeyTablesError
from crawl_lib.keys import ShardedKeyStore, check, repair, reshard
from crawl_lib.keys.ring import Ring, RingNote, read_ring
from crawl_lib.keys.sqlite import SqliteKeyServer
from crawl_lib.states import KeyState
from tests.contracts.keystore import make_keys

KEYS = make_keys(600)
ROUNDS = 60
LOW, HIGH = bytes(20), b"\xff" * 20


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a file with keys of each state, and a note."""
    path = tmp_path_factory.mktemp("whole") / "0.sqlite"
    server = SqliteKeyServer(path)
    server.create()
    server.insert(KEYS[:300], KeyState.QUEUED)
    server.insert(KEYS[300:500], KeyState.CRAWLED)
    server.insert(KEYS[500:], KeyState.GONE)
    server.write_note(RingNote(Ring(0, (str(path),), 1), 0).to_text())
    server.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.read_bytes()


REQUESTS: dict[str, Callable[[SqliteKeyServer, Path], object]] = {
    "known": lambda server, _: server.known(KEYS),
    "states": lambda server, _: server.states(KEYS),
    "counts": lambda server, _: ShardedKeyStore([server]).counts(),
    "scan": lambda server, _: list(server.scan(LOW, HIGH)),
    "problems": lambda server, _: list(server.problems()),
    "read_ring": lambda server, _: read_ring(server),
    "exists": lambda server, _: server.exists(),
    "check": lambda server, _: check(ShardedKeyStore([server])),
    "repair": lambda server, _: repair(ShardedKeyStore([server])),
    "reshard": lambda server, folder: reshard(
        ShardedKeyStore([server, SqliteKeyServer(folder / "1.sqlite")]), ShardedKeyStore([server])
    ),
    "claim": lambda server, _: server.claim(KEYS),
    "insert": lambda server, _: server.insert(KEYS, KeyState.CRAWLED),
    "set_state": lambda server, _: server.set_state(KEYS, KeyState.GONE),
    "delete": lambda server, _: server.delete(KEYS[:10]),
    "write_note": lambda server, _: server.write_note("text"),
}


def damaged_file(folder: Path, data: bytes) -> SqliteKeyServer:
    path = folder / "0.sqlite"
    path.write_bytes(data)
    return SqliteKeyServer(path, timeout_s=1.0)


@pytest.mark.parametrize("request_name", REQUESTS)
def test_no_wrong_bit_crashes_a_request(whole: bytes, tmp_path: Path, request_name: str) -> None:
    chance = random.Random(request_name)
    for number in range(ROUNDS):
        data = bytearray(whole)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        folder = tmp_path / str(number)
        folder.mkdir()
        server = damaged_file(folder, bytes(data))
        try:
            REQUESTS[request_name](server, folder)
        except KeyStoreError as error:
            problem = str(error)
        else:
            problem = "0.sqlite: run again"
        finally:
            server.close()
        assert "0.sqlite: " in problem
        assert "run `krake " in problem or "run again" in problem, problem


def rewritten(folder: Path, whole: bytes, *statements: str) -> SqliteKeyServer:
    server = damaged_file(folder, whole)
    with closing(sqlite3.connect(server.path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
    return server


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE kraakekeys SET hash = replace(hash, '0', 'p')",
        "UPDATE kraakekeys SET hash = substr(hash, 1, 39) WHERE keyinfo = 3",
        "UPDATE kraakekeys SET hash = CAST(hash AS BLOB) WHERE keyinfo = 3",
        "UPDATE kraakekeys SET keyinfo = 'text' WHERE keyinfo = 3",
        "UPDATE kraakekeys SET keyinfo = x'ff' WHERE keyinfo = 3",
        "ALTER TABLE kraakekeys RENAME COLUMN keyinfo TO keyinfn",
        "ALTER TABLE kraakekeys RENAME TO kraakekeyr",
    ],
)
def test_rows_and_names_that_are_no_keys_are_damage(
    whole: bytes, tmp_path: Path, statement: str
) -> None:
    store = ShardedKeyStore([rewritten(tmp_path, whole, statement)])
    for work in (check, repair):
        report = work(store)
        assert not report.ok
        assert report.failed, statement
    with pytest.raises(
        DamagedKeysError, match=r"0\.sqlite: .*damaged.*run `krake fsck --repair --only keys`"
    ):
        repair(store).raise_if_failed()
    store.close()


def test_a_table_that_is_compared_as_numbers_is_damage(whole: bytes, tmp_path: Path) -> None:
    server = damaged_file(tmp_path, whole.replace(b"hash CHAR(40)", b"hash CXAR(40)"))
    with pytest.raises(DamagedKeysError, match="its columns are others"):
        server.known(KEYS)


def test_a_schema_that_is_no_text_is_damage(whole: bytes, tmp_path: Path) -> None:
    """SQLite's message quotes it, so Python cannot decode the message."""
    server = damaged_file(
        tmp_path, whole.replace(b"CREATE TABLE kraakekeys", b"CREATE TABL\xff kraakekeys")
    )
    with pytest.raises(DamagedKeysError, match=r"0\.sqlite: .*damaged"):
        server.known(KEYS)


def test_a_damaged_file_is_dropped_and_made_again(whole: bytes, tmp_path: Path) -> None:
    server = damaged_file(tmp_path, b"\x00" * 512 + whole[512:])
    with pytest.raises(DamagedKeysError):
        server.create()
    store = ShardedKeyStore([server])
    store.create(drop=True)
    assert store.unknown(KEYS).new == set(KEYS)
    store.close()


@pytest.mark.parametrize("bit", range(8))
def test_a_wrong_bit_in_the_note_is_damage_and_never_another_place(
    whole: bytes, tmp_path: Path, bit: int
) -> None:
    server = damaged_file(tmp_path, whole)
    text, right = server.read_note() or "", read_ring(server)
    for at in range(len(text)):
        wrong = text[:at] + chr(ord(text[at]) ^ 1 << bit) + text[at + 1 :]
        server.write_note(wrong.encode("utf-8", "replace").decode("ascii", "replace"))
        with suppress(KeyTablesError):
            assert read_ring(server) == right, wrong
    server.close()
