"""`krake keys create`: once, again, and where a server lost its tables."""

from __future__ import annotations

import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from crawl_lib.cli import main

CONFIG = (
    "servers: [a]\ndfs_primary: dfs\nkey_storage: {servers: [0.sqlite, 1.sqlite], replication: 2}\n"
)


@pytest.fixture
def create(tmp_path: Path):
    path = tmp_path / "config.yml"
    path.write_text(CONFIG)
    return lambda *options: main(["--config", str(path), "keys", "create", *options])


@pytest.fixture
def check(tmp_path: Path):
    return lambda: main(["--config", str(tmp_path / "config.yml"), "keys", "check"])


def test_a_set_up_may_be_run_again_and_keeps_what_stands(create, tmp_path, capsys) -> None:
    assert create() == 0
    assert capsys.readouterr().out.count(".sqlite") == 2
    before = (tmp_path / "0.sqlite").stat().st_ino
    assert create() == 0
    assert capsys.readouterr().out == "key tables are there on every server\n"
    assert (tmp_path / "0.sqlite").stat().st_ino == before


def test_only_the_server_that_lost_its_tables_gets_new_ones(
    create, check, tmp_path, capsys
) -> None:
    assert create() == 0
    for file in tmp_path.glob("1.sqlite*"):
        file.unlink()
    capsys.readouterr()
    assert check() == 1
    assert "run `krake keys create`" in capsys.readouterr().out, "what is run next"
    assert create() == 0
    assert capsys.readouterr().out == f"key tables made on {tmp_path / '1.sqlite'}\n"


def test_tables_that_are_there_ask_nothing_of_the_dfs(create, tmp_path, capsys) -> None:
    assert create() == 0
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    text = CONFIG.replace("dfs_primary: dfs", f"dfs_primary: {address}\ndfs: {{wait_s: 0}}")
    (tmp_path / "config.yml").write_text(text)
    assert create() == 0
    assert capsys.readouterr().out.endswith("key tables are there on every server\n")


def test_tables_of_an_older_version_get_a_table_of_turns_and_keep_their_keys(
    create, tmp_path, capsys
) -> None:
    """Also where a crawl has pages; servers without key tables get none."""
    assert create() == 0
    with closing(sqlite3.connect(tmp_path / "0.sqlite", isolation_level=None)) as connection:
        connection.execute("DROP TABLE kraakeslots")
        connection.execute("INSERT INTO kraakekeys VALUES (?, 2)", ("0" * 40,))
    for file in tmp_path.glob("1.sqlite*"):
        file.unlink()
    capsys.readouterr()
    assert create("--missing") == 0
    assert capsys.readouterr().out == f"tables of turns made on {tmp_path / '0.sqlite'}\n"
    assert not (tmp_path / "1.sqlite").exists()
    assert create("--missing") == 0
    assert capsys.readouterr().out == "tables of turns are there on every server\n"
    with closing(sqlite3.connect(tmp_path / "0.sqlite")) as connection:
        assert connection.execute("SELECT * FROM kraakekeys").fetchall() == [("0" * 40, 2)]
        assert connection.execute("SELECT * FROM kraakeslots").fetchall() == []
