"""Key servers join and leave in the middle of a crawl, which refuses to go on before `krake keys reshard`."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Krake
from tests.repair.killed import run_killed
from tests.repair.test_damages import found, visited, waiting


def change(krake: Krake, servers: list[str], replication: int) -> Path:
    """Other key servers in the config; returns a copy of the config as it was."""
    old = krake.directory / "old.yml"
    shutil.copyfile(krake.file, old)
    krake.change(key_storage={"servers": servers, "replication": replication})
    return old


def refused_on_another_machine(krake: Krake, old: Path) -> None:
    """No crawl begins anywhere while keys move: neither with the config as it was, nor with the new one.

    No one holds the locks of the other machine's nodes.
    """
    queue = "queue-of-another-machine"
    shutil.copytree(krake.directory / "queue", krake.directory / queue)
    segments = sorted(krake.directory.rglob("manifest.json"))
    queued = sorted((krake.directory / queue).rglob("*/0"))
    before = [path.read_bytes() for path in queued]
    assert before
    for file in (krake.file, old):
        value = yaml.safe_load(file.read_text())
        value["queue"] = {"local_dir": queue}
        other = krake.directory / "other.yml"
        other.write_text(yaml.safe_dump(value))
        for words in (["settle"], ["crawl", "--run-id", "two"]):
            error = krake("--config", str(other), *words).error()
            assert "under way: run `krake keys reshard`" in error
    assert sorted(krake.directory.rglob("manifest.json")) == segments
    assert [path.read_bytes() for path in queued] == before
    shutil.rmtree(krake.directory / queue)


@pytest.mark.parametrize(
    ("servers", "replication"),
    [
        (["keys/0.sqlite", "keys/1.sqlite", "keys/2.sqlite"], 2),
        (["keys/2.sqlite", "keys/1.sqlite"], 1),
    ],
)
def test_a_crawl_goes_on_where_the_keys_are_now(
    copy: Callable[..., Krake], servers: list[str], replication: int
) -> None:
    krake = copy()
    queued = waiting(krake)
    total = krake.status()["keys"][0]["total"]
    old = change(krake, servers, replication)
    for words in (
        ["settle"],
        ["crawl", "--run-id", "two"],
        ["forget", "--yes", "http://a.example/"],
    ):
        error = krake(*words).error()
        assert "krake keys reshard" in error or "run `krake fsck --repair`" in error
    assert {"ring_differs"} <= set(found(krake, "--fast"))

    planned = krake.ok("keys", "reshard", "--from", str(old), "--dry-run", "--json").json
    words = ["--config", str(krake.file), "keys", "reshard", "--from", str(old)]
    assert run_killed(words, "keys.reshard.copied").code == -9
    refused_on_another_machine(krake, old)
    done = krake.ok("keys", "reshard", "--from", str(old), "--json").json
    assert sum(planned["copied"].values()) >= sum(done["copied"].values())
    assert krake.ok("keys", "reshard", "--json").json["done_already"]

    assert found(krake) == Counter()
    assert sum(server["total"] for server in krake.status()["keys"]) == replication * total
    krake.ok("settle")
    assert waiting(krake) == queued
    krake.ok("crawl", "--run-id", "two", "--batch-size", "3")
    assert max(visited(krake).values()) == 1
    assert found(krake) == Counter()


def test_a_dump_brings_back_what_all_servers_lost(copy: Callable[..., Krake]) -> None:
    krake = copy()
    before = [server["total"] for server in krake.status()["keys"]]
    file = str(krake.directory / "keys.dump")
    krake.ok("keys", "dump", file)
    krake.ok("keys", "create", "--drop", "--yes")
    assert found(krake)["page_key_unknown"] == 3
    assert (
        sum(krake.ok("keys", "load", file, "--dry-run", "--json").json["by_state"].values())
        == before[0]
    )
    krake.ok("keys", "load", file)
    assert [server["total"] for server in krake.status()["keys"]] == before
    assert found(krake) == Counter()
