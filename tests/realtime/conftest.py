"""The table on both kinds of server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from crawl_lib.realtime.pages import PageServer
from crawl_lib.realtime.pages_mysql import MySqlPages
from crawl_lib.realtime.pages_sqlite import SqlitePages
from tests.contracts.mariadb import PASSWORD, MariaDb, mariadb

__all__ = ["mariadb"]


def mysql_pages(server: MariaDb, database: str, **options: object) -> MySqlPages:
    """A connection to the table of a database."""
    given = {"user": "krake", "password": PASSWORD, "timeout_s": 20.0, **options}
    return MySqlPages(server.server, database=database, **given)


def new_database(server: MariaDb) -> str:
    """A new database without tables."""
    database = server.new_database()
    server.run(f"CREATE DATABASE {database}")
    return database


@pytest.fixture(params=["sqlite", "mysql"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., PageServer]]:
    """Connections to one new table: each call is another writer."""
    with ExitStack() as stack:
        if request.param == "sqlite":

            def make(**options: object) -> PageServer:
                return SqlitePages(tmp_path / "pages.sqlite", **options)
        else:
            server: MariaDb = request.getfixturevalue("mariadb")
            database = new_database(server)

            def make(**options: object) -> PageServer:
                return mysql_pages(server, database, **options)

        def connected(**options: object) -> PageServer:
            pages = make(**options)
            stack.callback(pages.close)
            pages.ensure()
            return pages

        yield connected
