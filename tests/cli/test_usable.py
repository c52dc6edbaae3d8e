"""What a crawl would be refused for is named before it begins, and all of it at once (`crawl_lib.usable`)."""

from __future__ import annotations

import dataclasses
import logging
import tempfile
from pathlib import Path
from typing import Any

import pytest

from crawl_lib import usable
from crawl_lib.config import Config
from crawl_lib.errors import (
    ConfigError,
    KeyAccessError,
    KeyServerDownError,
    NoRoomError,
    StorageError,
)
from crawl_lib.keys import ShardedKeyStore
from crawl_lib.keys.mysql import MySqlKeyServer
from crawl_lib.stores import Secrets
from crawl_lib.usable import require_usable
from tests.cli.conftest import Krake
from tests.e2e.crawl import make_config


def options(lines: list[str]) -> list[str]:
    return [line.removeprefix("krake: ").partition(": ")[0] for line in lines]


def break_much(krake: Krake) -> None:
    (krake.directory / "file").write_text("")
    krake.configure(
        dfs_primary="no/parent",
        key_storage={"servers": ["no/keys/0.sqlite"]},
        queue={"local_dir": "file"},
        scratch={"directory": "file/below"},
        urls={
            "rules": [
                {"action": "-", "kind": "regex", "value": "("},
                {"action": "-", "kind": "prefix", "value": "a"},
            ]
        },
        batch={"engine": "spark"},
    )


@pytest.mark.parametrize("words", [["config"], ["inject", "http://127.0.0.1/"], ["crawl"]])
def test_all_that_is_wrong_is_named_at_once_and_nothing_is_made(
    krake: Krake, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`scratch.directory` and Spark were found by `export`, after all iterations."""
    monkeypatch.setenv("JAVA_HOME", "/no/java")
    break_much(krake)
    done = krake(*words)
    assert done.code == 1
    assert options(done.err.splitlines()) == [
        "urls.rules[0]",
        "urls.rules[1]",
        "dfs_primary",
        "key_storage.servers",
        "queue.local_dir",
        "scratch.directory",
        "batch.engine",
    ]
    assert sorted(path.name for path in krake.directory.iterdir()) == ["file", "krake.yml"]


def test_a_good_config_is_left_without_a_trace(krake: Krake) -> None:
    assert krake.ok("config").err == ""
    assert [path.name for path in krake.directory.iterdir()] == ["krake.yml"]


@pytest.mark.parametrize(
    "name", ["dfs", "dfs/crawl", "dfs/export", "queue", "queue/node-b", "keys", "scratch"]
)
def test_a_directory_that_may_not_be_written_to_is_named(
    krake: Krake, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = krake.directory / name
    place.mkdir(parents=True)
    made = tempfile.TemporaryFile

    def refuse(**where: Path) -> Any:
        if where["dir"] == place:
            raise PermissionError(13, "Permission denied", str(place))
        return made(**where)

    monkeypatch.setattr(usable.tempfile, "TemporaryFile", refuse)
    assert (
        f": {place}: cannot be written to: Permission denied; correct its rights"
        in krake("config").error()
    )


def test_too_little_room_is_named(krake: Krake) -> None:
    krake.configure(watermarks={"min_free_local_bytes": 1 << 60, "min_free_dfs_bytes": 1 << 60})
    lines = krake("config").err.splitlines()
    assert [line.rpartition("watermarks.")[2].partition(" ")[0] for line in lines] == [
        "min_free_dfs_bytes",
        "min_free_local_bytes",
    ]
    assert all(line.endswith("; make room") for line in lines)


@pytest.mark.parametrize("option", ["ca_file", "key_file"])
def test_a_file_of_certificates_that_is_not_there_is_named(krake: Krake, option: str) -> None:
    krake.configure(dfs_primary="http://127.0.0.1:9/krake", dfs={option: "none.pem"})
    assert f"dfs.{option}: {krake.directory / 'none.pem'}: is not there" in krake("config").err


def test_servers_that_do_not_answer_are_named_within_seconds(krake: Krake) -> None:
    """Namenodes are asked once, though a stage would wait `dfs.wait_s` for them."""
    krake.configure(
        dfs_primary="http://127.0.0.1:9/krake", key_storage={"servers": ["127.0.0.1:9", "[::1]:9"]}
    )
    lines = [line for line in krake("config").err.splitlines() if line.startswith("krake: ")]
    for line, server in zip(
        lines, ("http://127.0.0.1:9/krake", "127.0.0.1:9", "[::1]:9"), strict=True
    ):
        assert line.startswith(f"krake: {server}: ")


def test_where_nodes_may_be_elsewhere_their_paths_are_warnings(krake: Krake) -> None:
    krake.configure(
        dfs_primary="http://127.0.0.1:9/krake",
        dfs={"wait_s": 0.0},
        queue={"local_dir": "no/queue"},
        scratch={"directory": "n/s"},
    )
    lines = krake("config").err.splitlines()
    assert [line.split(": ")[1] for line in lines if line.startswith("warning: ")] == [
        "queue.local_dir",
        "scratch.directory",
    ]
    assert "scratch.directory" not in krake("inject", "http://127.0.0.1/").err


@pytest.fixture
def elsewhere(tmp_path: Path) -> Config:
    """Two key servers that hold the same keys."""
    config = make_config(tmp_path, nodes=1)
    return dataclasses.replace(
        config,
        key_storage=dataclasses.replace(config.key_storage, servers=("db1", "db2"), replication=2),
    )


DOWN, DENIED = (
    KeyServerDownError("db1: does not answer"),
    KeyAccessError("db2: refuses the password"),
)


@pytest.mark.parametrize(
    ("answers", "kind", "says"),
    [
        ([DOWN, DOWN], None, ""),  # a machine that is restarted ends no run
        ([True, False], None, ""),  # the other one has the same keys
        ([False, False], ConfigError, "db1: has no key tables: run `krake keys create`"),
        ([DOWN, False], None, ""),
        ([True, DENIED], KeyAccessError, "db2: refuses the password"),
        ([DOWN, DENIED], ConfigError, "db1: does not answer\ndb2: refuses the password"),
    ],
)
def test_what_may_pass_by_itself_refuses_no_crawl(
    elsewhere: Config,
    answers: list[Any],
    kind: Any,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: Any,
) -> None:
    monkeypatch.setattr(ShardedKeyStore, "answers", lambda self: answers)
    monkeypatch.setattr(ShardedKeyStore, "ring_problem", lambda self: None)
    monkeypatch.setattr(MySqlKeyServer, "require_rights", lambda self: None)
    with caplog.at_level(logging.WARNING):
        if kind is None:
            require_usable(elsewhere, Secrets(), batch=True)
        else:
            with pytest.raises(kind, match=says):
                require_usable(elsewhere, Secrets(), batch=True)
    assert [record.message for record in caplog.records] == [
        str(answer) for answer in answers if answer is DOWN and kind is None
    ]


@pytest.mark.parametrize(
    "problem",
    [
        NoRoomError("a disk is full"),
        StorageError("nn1: does not answer"),
        KeyServerDownError("db1: is down"),
    ],
)
def test_such_a_thing_is_named_beside_what_does_not_pass(
    elsewhere: Config, problem: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usable, "shared_problems", lambda *arguments: iter([problem]))
    monkeypatch.setattr(
        usable, "local_problems", lambda *arguments, **named: iter([ConfigError("scratch: gone")])
    )
    with pytest.raises(ConfigError) as caught:
        require_usable(elsewhere, Secrets())
    assert caught.value.lines == [str(problem), "scratch: gone"]


@pytest.mark.parametrize(("min_nodes", "refused"), [(1.0, True), (0.5, False)])
def test_a_node_that_may_be_missing_does_not_stop_the_others(
    krake: Krake, min_nodes: float, refused: bool
) -> None:
    krake.configure(crawl={"min_nodes": min_nodes})
    (krake.directory / "queue").mkdir()
    (krake.directory / "queue/node-b").write_text("")
    assert krake("config").code == refused
    (krake.directory / "queue/node-a").write_text("")
    assert krake("config").code == 1
