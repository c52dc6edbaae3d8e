"""Key tables, and the URLs that wait: each without the other is found and repaired; a healthy crawl has none.

Healthy is a crawl at any moment: killed anywhere, settled or not, after each tool.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections import Counter
from collections.abc import Callable
from hashlib import sha1
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from crawl_lib.config import load_config
from crawl_lib.errors import KeyAccessError
from crawl_lib.frontier import NodeLock
from crawl_lib.keys import KeyHeap
from crawl_lib.keys.sqlite import SqliteKeyServer
from crawl_lib.repair.fsck import fsck
from crawl_lib.stores import open_stores
from crawl_lib.urls import key_of
from demo import Serving
from tests.cli.conftest import Krake
from tests.contracts.mariadb import PASSWORD, MariaDb, mariadb
from tests.e2e.crawl import make_config, run_crawl
from tests.frontier.helpers import to_be_adopted
from tests.repair.checked import (
    REPAIR,
    another_url,
    both,
    finding,
    findings,
    found,
    keys_of,
    lose_a_url,
    node_a,
    sql,
    visited,
    waiting,
)
from tests.repair.killed import run_killed

__all__ = ["mariadb"]
STRANGER = "http://nobody.example/"


@pytest.mark.parametrize("state", ["settled", "intake.chunk.inserted"])
def test_a_key_whose_url_nothing_holds_is_dropped_and_its_url_found_again(
    state: str, copy: Callable[..., Krake], whole: tuple[Counter[str], Counter[str]]
) -> None:
    krake = copy(None if state == "settled" else state)
    url = lose_a_url(krake)
    one = finding(krake, "key_without_url")
    assert (one["count"], one["severity"]) == (1, "error")
    assert key_of(url).hex() in one["problem"]
    assert "key_without_url" not in found(krake, "--fast")
    krake.ok("settle")
    assert url not in waiting(krake), "links to the URL are dropped"
    planned = krake(*REPAIR, "--dry-run", "--json").json["keys"]
    assert (planned["dropped"], planned["reread"]) == (1, ["node-a"])
    assert finding(krake, "key_without_url")["count"] == 1
    done = krake.ok(*REPAIR, "--json").json["keys"]
    assert (done["dropped"], done["added"], done["reread"]) == (1, 0, ["node-a"])
    assert krake.ok(*REPAIR, "--json").json["keys"] is None
    assert found(krake) == {}
    krake.ok("settle")
    assert waiting(krake) == whole[1]
    assert found(krake) == {}


def test_killed_before_keys_are_dropped_the_segments_are_read_again_all_the_same(
    copy: Callable[..., Krake], whole: tuple[Counter[str], Counter[str]]
) -> None:
    """Else the next one would find no key to drop, and no one would look for its URL."""
    krake = copy()
    lose_a_url(krake)
    assert run_killed(["--config", str(krake.file), *REPAIR], "repair.rebuild.reread").code == -9
    krake.ok("settle")
    assert "key_without_url" in found(krake)
    krake.ok(*REPAIR)
    krake.ok("settle")
    assert waiting(krake) == whole[1]


def test_an_open_intake_reads_again_what_it_had_read(
    copy: Callable[..., Krake], whole: tuple[Counter[str], Counter[str]]
) -> None:
    """A key was dropped that the intake's first sources had: it had dropped their lines as known."""
    krake = copy("intake.hosts_written")
    lose_a_url(krake)
    krake.ok(*REPAIR)
    krake.ok("crawl", "--run-id", "one", "--iterations", "4")
    krake.ok("settle")
    assert found(krake) == {}
    assert set(visited(krake)) | set(waiting(krake)) >= set(whole[0]) | set(whole[1])
    assert max(visited(krake).values()) == 1


def test_a_url_without_its_key_is_named(copy: Callable[..., Krake]) -> None:
    krake = copy()
    url = min(waiting(krake))
    both(f"DELETE FROM kraakekeys WHERE hash = '{key_of(url).hex()}'")(krake.directory)
    assert url in finding(krake, "queued_key_unknown")["problem"]
    krake.ok(*REPAIR)
    assert found(krake) == {}


def test_a_url_that_became_another_one_is_found_and_comes_back(
    copy: Callable[..., Krake], whole: tuple[Counter[str], Counter[str]]
) -> None:
    """A byte of a data file, and the line is canonical all the same."""
    krake = copy()
    another_url(node_a(krake.directory) / "0")
    assert found(krake) == {"key_without_url": 1, "queued_key_unknown": 1, "data_changed": 1}
    krake.ok(*REPAIR)
    krake.ok(*REPAIR)
    assert found(krake) == {}
    krake.ok("settle")
    assert not whole[1] - waiting(krake)
    assert (waiting(krake) - whole[1]).total() == 1


def test_urls_on_their_way_to_another_node_hold_their_keys_and_need_them(
    copy: Callable[..., Krake],
) -> None:
    krake = copy()
    urls = waiting(krake)
    krake.change(servers=["node-b"])
    krake.ok("nodes", "retire", "node-a")
    assert found(krake) == {}, "its queue is handed over, and not taken in"
    both("DELETE FROM kraakekeys WHERE keyinfo = 1")(krake.directory)
    one = finding(krake, "handed_key_unknown")
    assert one["count"] == urls.total()
    assert one["problem"].split("key of ")[1].split(", ")[0] in urls
    krake.ok(*REPAIR)
    assert found(krake) == {}
    krake.ok("settle")
    node_b = krake.directory / "queue" / "node-b"
    assert Counter((node_b / "0").read_text().split()) == urls
    assert found(krake) == {}


@pytest.mark.parametrize("step", ["retire.decided", "retire.handed_over", "retire.emptied"])
def test_a_retirement_that_was_killed_is_no_damage(step: str, copy: Callable[..., Krake]) -> None:
    krake = copy()
    krake.change(servers=["node-b"])
    assert run_killed(["--config", str(krake.file), "nodes", "retire", "node-a"], step).code == -9
    assert set(found(krake)) == {"node_not_retired"}
    krake.ok("nodes", "retire", "node-a")
    assert found(krake) == {}


def test_a_move_that_is_open_does_not_hide_what_waits(copy: Callable[..., Krake]) -> None:
    """Its URLs get their keys again: no one else would insert them."""
    krake = copy("queue.move.step")
    before = keys_of(krake)
    both("DELETE FROM kraakekeys WHERE keyinfo = 1")(krake.directory)
    krake.ok(*REPAIR)
    assert keys_of(krake) == before
    assert found(krake) == {}


KILLED_AT = [
    "intake.planned",
    "intake.chunk.appended",
    "queue.move.state",
    "take.put_back",
    "node.advanced",
    "node.marked",
    "take.deleted",
]


@pytest.mark.parametrize("step", KILLED_AT)
def test_what_a_kill_leaves_is_no_damage(step: str, copy: Callable[..., Krake]) -> None:
    assert found(copy(step)) == {}


@pytest.mark.parametrize(
    "step", ["adopt.written", "adopt.inserted", "queue.move.written", "queue.move.step"]
)
def test_a_queue_made_by_hand_is_no_damage_at_any_step(
    step: str, copy: Callable[..., Krake]
) -> None:
    krake = copy()
    path = node_a(krake.directory)
    numbers = (path / "state").read_bytes().split()
    (path / str(len(numbers) - 1)).write_text(
        "HTTP://Nobody.example:80/#f\nhttp://nobody.example/a\n"
    )
    (path / "state").write_bytes(b"\n".join([*numbers, b"2"]) + b"\n")
    to_be_adopted(path)
    assert found(krake) == {}
    assert run_killed(["--config", str(krake.file), "settle"], step).code == -9
    assert found(krake) == {}
    krake.ok("settle")
    assert found(krake) == {}
    assert STRANGER in waiting(krake)


@pytest.mark.parametrize(
    "step", ["intake.claim.journalled", "intake.claimed", "intake.chunk.journalled"]
)
def test_claims_are_no_damage_at_any_step(step: str, web: Serving, tmp_path: Path) -> None:
    krake = Krake(tmp_path, lambda words: run_killed(words, None))
    krake.configure(servers=["node-a"], frontier={"routing": "local"})
    krake.ok("inject", "\n".join(web.seeds), "--run-id", "one")
    assert run_killed(["--config", str(krake.file), "crawl", "--run-id", "one"], step).code == -9
    assert found(krake) == {}


def test_a_url_that_waits_is_not_forgotten(copy: Callable[..., Krake]) -> None:
    """It is fetched anyway; without its key it would be taken in, and fetched, once more."""
    krake = copy()
    url = min(waiting(krake))
    report = krake.ok("forget", url, "--yes", "--json").json
    assert (report["forgotten"], report["waiting"]) == (0, 1)
    assert found(krake) == {}


def test_where_not_all_queues_are_in_sight_nothing_is_said_of_keys(
    copy: Callable[..., Krake], mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With key servers: both ways of damage are found where the queue is; elsewhere nothing is, nor called damaged."""
    krake = copy()
    servers_of(krake, mariadb, monkeypatch)
    krake.ok(*REPAIR)
    assert found(krake) == {}
    known, stray = key_of(min(waiting(krake))), sha1(b"stray").digest()
    with open_stores(load_config(str(krake.file))).keys() as store:
        store.forget([known])
        store.insert([stray])
    assert found(krake) == {"key_without_url": 1, "queued_key_unknown": 1}
    assert stray.hex() in finding(krake, "key_without_url")["problem"]

    shutil.move(node_a(krake.directory), krake.directory / "away")
    report = krake("fsck", "--json").json
    assert report["clean"]
    elsewhere, unknown = report["skipped"]
    assert "`krake settle --node node-a` on its machine refuses" in elsewhere
    assert "were not compared" in unknown
    monkeypatch.setattr(socket, "gethostname", lambda: "node-a.example")
    assert set(found(krake)) == {"queue_missing"}, "the machine of that name"

    shutil.move(krake.directory / "away", node_a(krake.directory))
    krake.ok(*REPAIR)
    assert found(krake) == {}


def servers_of(krake: Krake, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRAKE_KEY_STORAGE_PASSWORD", PASSWORD)
    place = {"servers": [mariadb.server], "database": mariadb.new_database(), "user": "krake"}
    krake.change(key_storage=place)


def test_two_nodes_are_healthy_while_urls_travel(web: Serving, tmp_path: Path) -> None:
    config = make_config(tmp_path, nodes=2, batch={"size": 6}, fetch={"host_delay_s": 0.0})
    run_crawl(config, "\n".join(web.seeds), 2, process=False)
    report = fsck(open_stores(config))
    assert report.findings == []
    assert report.skipped == []


keys = st.binary(min_size=20, max_size=20)


@given(st.lists(st.lists(keys, max_size=20), max_size=5), st.integers(0, 100))
def test_a_heap_of_keys_is_a_set_that_is_read_in_order(added: list[list[bytes]], most: int) -> None:
    """Whatever of it is in files."""
    with tempfile.TemporaryDirectory() as room:
        heap = KeyHeap(lambda: Path(room), most=most)
        for some in added:
            heap.add([*some, *some[::2]])
        assert list(heap) == sorted({key for some in added for key in some})


def test_new_tables_get_exactly_the_keys_and_states_that_the_crawl_wrote(
    copy: Callable[..., Krake],
) -> None:
    crawl = copy()
    before = keys_of(crawl)
    assert set(before.values()) >= {1, 2}
    crawl.ok("keys", "create", "--drop", "--yes")
    planned = crawl(*REPAIR, "--dry-run", "--json").json["keys"]
    assert keys_of(crawl) == {}
    done = crawl.ok(*REPAIR, "--json").json["keys"]
    assert (planned["added"], planned["pages"], planned["queued"]) == (
        done["added"],
        done["pages"],
        done["queued"],
    )
    assert done["added"] == len(before)
    assert keys_of(crawl) == before
    assert crawl.ok(*REPAIR, "--json").json["keys"] is None


def test_what_has_not_been_taken_in_stays_unknown(copy: Callable[..., Krake]) -> None:
    """An intake was killed after it had decided, and before it told the key servers; links are not keys."""
    krake = copy("intake.chunk.journalled")
    before = keys_of(krake)
    krake.ok(*REPAIR)
    assert keys_of(krake) == before
    krake.ok("crawl", "--run-id", "one", "--iterations", "4")
    assert "clean" in krake.ok("fsck").out


@pytest.mark.parametrize("step", ["dropped", "folder", "node", "unheld"])
def test_killed_after_any_step_it_is_run_again(copy: Callable[..., Krake], step: str) -> None:
    crawl = copy()
    before = keys_of(crawl)
    both("INSERT INTO kraakekeys VALUES ('" + "a" * 40 + "', 1)")(crawl.directory)
    words = ["--config", str(crawl.file), *REPAIR]
    assert run_killed(words, f"repair.rebuild.{step}").code == -9
    crawl.ok(*REPAIR)
    assert keys_of(crawl) == before


def test_it_waits_for_nobody_and_names_who_works_on_a_node(copy: Callable[..., Krake]) -> None:
    crawl = copy()
    directory = crawl.directory / "queue" / "node-a"
    with NodeLock(directory, "node-a", 1, what="a crawl"):
        assert "a crawl" in crawl.ok(*REPAIR).out
        done = crawl("fsck", "--json")
        assert (done.code, done.json["checked"].get("queues")) == (0, None)
        busy, unknown = done.json["skipped"]
        assert "a crawl" in busy, "fsck says which node is busy, and looks at the rest"
        assert "node node-a is worked on" in unknown


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


def test_a_fast_repair_rebuilds_the_keys_of_all_servers(copy: Callable[..., Krake]) -> None:
    krake = copy()
    before = keys_of(krake)
    for table in krake.directory.glob("keys/*.sqlite*"):
        table.unlink()
    krake.ok("fsck", "--repair", "--fast", "--only", "keys")
    assert keys_of(krake) == before
    assert found(krake) == Counter()


def test_key_tables_are_filled_from_the_queue_of_a_node_that_left(
    copy: Callable[..., Krake],
) -> None:
    """They lacked its keys for good, and no task could begin."""
    krake = copy()
    krake.change(servers=["node-b"])
    for table in krake.directory.glob("keys/*.sqlite"):
        table.unlink()
    krake("fsck", "--repair")
    assert findings(krake).keys() == {"node_not_retired"}
    krake.ok("nodes", "retire", "node-a")
    assert krake("fsck", "--json").json["findings"] == []


def test_states_that_nobody_knows(copy: Callable[..., Krake]) -> None:
    krake = copy()
    both("UPDATE kraakekeys SET keyinfo = 9 WHERE hash < '8'")(krake.directory)
    names = found(krake)
    assert names["keyinfo_unknown"] == 2
    assert found(krake, "--fast") == {"keyinfo_unknown": 2}
    krake.ok(*REPAIR)
    assert found(krake) == {}


def test_key_tables_of_an_older_version_have_no_table_of_turns(copy: Callable[..., Krake]) -> None:
    """It is a warning: a crawl of one node needs none. A dry run makes none, the repair does."""
    krake = copy()
    both("DROP TABLE kraakeslots")(krake.directory)
    assert found(krake) == found(krake, "--fast") == {"slots_missing": 2}
    assert "has no table of turns; one is made" in krake("fsck", "--repair", "--dry-run").out
    assert found(krake, "--fast") == {"slots_missing": 2}
    krake.ok(*REPAIR)
    assert found(krake) == {}


def test_who_may_make_no_tables_is_told_what_is_left_and_all_else_is_repaired(
    copy: Callable[..., Krake], monkeypatch
):
    def refuse(server: SqliteKeyServer) -> None:
        raise KeyAccessError(
            f"{server.name}: CREATE command denied: an administrator runs GRANT ALL"
        )

    krake = copy()
    both("DROP TABLE kraakeslots")(krake.directory)
    sql(1, "UPDATE krakenote SET note = '{'")(krake.directory)
    monkeypatch.setattr(SqliteKeyServer, "make_slots", refuse)
    report = krake(*REPAIR)
    assert "CREATE command denied" in report.out
    assert "has no table of turns; one is made" not in report.out
    assert found(krake) == {"slots_missing": 2}


def test_missing_tables_are_told_how_they_are_made_and_filled_once(
    copy: Callable[..., Krake],
) -> None:
    krake = copy()
    lost, broken = sorted(krake.directory.glob("keys/*.sqlite"))
    lost.unlink()
    broken.write_bytes(b"no tables\n" * 1000)
    told = {
        Path(one["where"]).name: one for one in krake("fsck", "--fast", "--json").json["findings"]
    }
    assert told[lost.name]["problem"] == "no such file"
    for one in told.values():
        assert one["repair"] == "put it back as it was, or run `krake fsck --repair`"


@pytest.mark.parametrize(
    "keys", ["hash > '8'", "hash = (SELECT min(hash) FROM kraakekeys)", "keyinfo = 1"]
)
def test_a_replica_that_lacks_what_pages_and_queues_say(
    copy: Callable[..., Krake], keys: str
) -> None:
    """It is filled, and the repair that did it says so and no more that it is missing."""
    krake = copy()
    sql(1, f"DELETE FROM kraakekeys WHERE {keys}")(krake.directory)
    assert "replica_missing" in found(krake)
    done = krake.ok(*REPAIR)
    assert "were copied to replicas that lacked them" in done.out
    assert found(krake) == {}


@pytest.mark.parametrize("step", ["repair.tables.marked", "keys.tables.aside", "keys.tables.made"])
def test_tables_that_were_made_again_are_not_asked_before_they_are_filled(
    step: str, copy: Callable[..., Krake], whole: tuple[Counter[str], Counter[str]]
) -> None:
    """Killed in between, each page would be crawled again."""
    krake = copy()
    before = keys_of(krake)
    for path in krake.directory.glob("keys/*"):
        path.write_bytes(b"nothing" * 1000) if path.suffix == ".sqlite" else path.unlink()
    assert run_killed(["--config", str(krake.file), *REPAIR], step).code == -9
    assert "lack keys" in krake("settle").error()
    assert found(krake)["keys_unfilled"]
    krake.ok(*REPAIR)
    assert keys_of(krake) == before
    assert found(krake) == {}
    assert list(krake.directory.glob("keys/*.damaged-*")), "what was broken is kept"
    krake.ok("settle")
    assert waiting(krake) == whole[1]
