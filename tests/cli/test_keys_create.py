"""`krake keys create`: once, again, and where a server lost its tables."""

from __future__ import annotations

import socket
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


def test_an_option_that_went_names_what_does_the_same(create, capsys) -> None:
    with pytest.raises(SystemExit, match="2"):
        create("--missing")
    assert "unrecognized arguments: --missing; run `krake fsck --repair`" in capsys.readouterr().err
