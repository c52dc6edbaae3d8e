"""Commands find the config where the user stands, and a command that deletes names it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Done, Krake, run_in_process


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    monkeypatch.delenv("KRAKE_CONFIG_PATH", raising=False)
    return lambda *words: run_in_process(capsys, [str(word) for word in words])


@pytest.mark.parametrize("stand", ["crawls/mine", "."])
def test_krake_alone_prints_the_status_of_the_crawl_that_is_there(
    stand: str, run: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "  make crawl CONFIG=crawls/mine/mine.yml SEEDS=" in run("init", "crawls/mine").out
    monkeypatch.chdir(stand)
    done = run()
    assert (done.code, done.out) == (0, run("status").out)
    assert done.out.startswith(f"crawl {tmp_path}/crawls/mine/data/dfs/crawl\n")
    assert done.err == f"config: {'mine.yml' if stand != '.' else 'crawls/mine/mine.yml'}\n"


def test_krake_alone_takes_the_config_that_it_is_given(
    run: Callable[..., Done], tmp_path: Path
) -> None:
    run("init", tmp_path / "other")
    assert run("--config", tmp_path / "other" / "other.yml").out.startswith(
        f"crawl {tmp_path}/other/"
    )


def test_krake_where_no_crawl_is_says_how_to_begin(
    run: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = run().error()
    assert "krake init crawls/NAME" in error
    assert "krake --help lists the commands" in error


@pytest.mark.parametrize(
    "command",
    [
        "keys create --drop",
        "forget http://127.0.0.1/",
        "segment drop http://127.0.0.1/ --dry-run",
        "segment compact",
        "nodes retire node-b --lost",
        "sweep",
        "retry --outcome timeout --dry-run",
        "keys reshard --dry-run",
        "crawldb filter",
        "graph finalize",
    ],
)
def test_a_command_that_deletes_names_its_config_before_it_does_anything(
    command: str, krake: Krake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which crawl is meant may hang on the directory that the user happens to stand in."""
    monkeypatch.chdir(krake.directory)
    assert krake(*command.split()).err.startswith("config: krake.yml\n")


def test_key_servers_have_short_names_in_lists_and_keys_check_prints_the_whole_address(
    krake: Krake,
) -> None:
    krake.configure(key_storage={"servers": ["keys/0.sqlite", "keys/1.sqlite"], "replication": 2})
    krake.ok("keys", "create")
    shown = krake.ok("status").out
    assert "server_1" in shown
    assert "server_2" in shown
    assert "0.sqlite" not in shown
    checked = krake.ok("keys", "check").out
    for number in (0, 1):
        assert f"server_{number + 1} is {krake.directory}/keys/{number}.sqlite\n" in checked
    status = krake.status()["keys"]
    assert [(one["name"], one["server"]) for one in status] == [
        (f"server_{number + 1}", f"{krake.directory}/keys/{number}.sqlite") for number in (0, 1)
    ]


def test_what_only_looks_does_not(krake: Krake) -> None:
    for command in ("status", "config", "segment list", "crawldb stats"):
        assert "config: " not in krake(*command.split()).err
