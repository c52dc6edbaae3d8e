"""Rings and reshard on each kind of key server."""

from __future__ import annotations

import pytest

from crawl_lib.keys.sqlite import SqliteKeyServer
from tests.contracts.keymoves import KeyMovesContract


class TestSqlite(KeyMovesContract):
    @pytest.fixture
    def new_server(self, tmp_path):
        count = iter(range(100))
        return lambda: SqliteKeyServer(tmp_path / "keys" / f"{next(count)}.sqlite")


class TestMySql(KeyMovesContract):
    @pytest.fixture
    def new_server(self, mariadb):
        return mariadb.key_server
