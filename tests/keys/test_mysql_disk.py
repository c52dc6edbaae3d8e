"""A MariaDB whose disk is full: its data file may not grow, which is what InnoDB sees of a full disk."""

import pymysql
import pytest

from crawl_lib.errors import KeyServerFullError
from crawl_lib.keys import STATEMENT_KEYS, ShardedKeyStore
from crawl_lib.keys.mysql_errors import translate
from tests.contracts.keystore import make_keys
from tests.contracts.mariadb import FAST, start_mariadb

ROOM = ("--innodb-file-per-table=0", "--innodb-data-file-path=ibdata1:12M:autoextend:max:{most}M")


def with_room(most):
    return (*FAST, *(option.format(most=most) for option in ROOM))


def fill(write, keys, inserted):
    """Write keys, statement by statement, from the first that is not noted on, and note them."""
    while len(inserted) < len(keys):
        statement = keys[len(inserted) :][:STATEMENT_KEYS]
        write(statement)
        inserted += statement


def test_a_full_disk_names_the_server_undoes_the_statement_and_is_over_when_there_is_room():
    keys = sorted(make_keys(120_000))
    with start_mariadb(*with_room(14), pool_mb=16) as small:
        server = small.key_server()
        server.create()
        with ShardedKeyStore([server]) as store:
            inserted: list[bytes] = []
            with pytest.raises(KeyServerFullError, match="make room on its disk") as caught:
                fill(store.insert, keys, inserted)
            assert server.name in str(caught.value)
            assert "\n" not in str(caught.value)
            assert store.unknown(keys).known == set(inserted), (
                "the statement that failed left nothing"
            )
            # The server may have freed a little room since.
            with pytest.raises(KeyServerFullError, match="make room"):
                fill(store.claim, keys, inserted)
            assert store.unknown(keys).known == set(inserted)
            small.stop()
            small.options = with_room(200)
            small.start()
            statement = keys[len(inserted) :][:STATEMENT_KEYS]
            assert store.claim(statement).ours == set(statement)
            store.insert(keys)
            assert [counts.by_state["queued"] for counts in store.counts()] == [len(keys)]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (1114, "The table 'kraakekeys' is full"),
        (1021, "Disk full (/tmp/#sql); waiting for someone to free some space... (errno: 28)"),
        (1030, 'Got error 28 "No space left on device" from storage engine InnoDB'),
        (1026, "Error writing file './krake/kraakekeys' (errno: 28 \"No space left on device\")"),
        (3, "Error writing file (Errcode: 28 'No space left on device')"),
    ],
)
def test_every_way_to_say_that_the_disk_is_full_is_understood(code, text):
    error = translate("db:3306", "krake", "krake", pymysql.err.OperationalError(code, text))
    assert isinstance(error, KeyServerFullError)
    assert str(error).startswith("db:3306: has no room")


def test_other_errors_with_a_28_in_them_are_not_a_full_disk():
    error = translate(
        "db:3306", "krake", "krake", pymysql.err.OperationalError(1064, "syntax error near '28'")
    )
    assert not isinstance(error, KeyServerFullError)
