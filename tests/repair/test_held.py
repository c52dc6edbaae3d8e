"""Keys that are queued, and the URLs that wait: each without the other is found and repaired; a healthy crawl has none.

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
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_lib.config import load_config
from crawl_lib.keys import KeyHeap, open_key_store
from crawl_lib.repair.fsck import fsck
from crawl_lib.stores import open_stores
from crawl_lib.urls import key_of
from demo import Serving
from tests.cli.conftest import Krake
from tests.contracts.mariadb import PASSWORD, MariaDb, mariadb
from tests.e2e.crawl import make_config, run_crawl
from tests.frontier.helpers import to_be_adopted
from tests.repair.killed import run_killed
from tests.repair.test_damages import another_url, both, found, queue, visited, waiting, whole

__all__ = ["mariadb", "whole"]
DROP = ("fsck", "--repair")
STRANGER = "http://nobody.example/"


def finding(krake: Krake, name: str) -> dict[str, Any]:
    [one] = [one for one in krake("fsck", "--json").json["findings"] if one["name"] == name]
    return dict(one)


def take_line_out(krake: Krake) -> str:
    """Somebody takes a waiting URL out of the last data file, and repairs `state`, as the fixed format lets him."""
    path = queue(krake.directory)
    numbers = (path / "state").read_bytes().split()
    last = path / str(len(numbers) - 2)
    lines = last.read_bytes().splitlines(keepends=True)
    (path / "state").write_bytes(b"\n".join([*numbers[:-1], b"%d" % (len(lines) - 1)]) + b"\n")
    last.write_bytes(b"".join(lines[:-1]))
    to_be_adopted(path)
    return lines[-1].decode().strip()


@pytest.mark.parametrize("state", ["settled", "intake.chunk.inserted"])
def test_a_key_whose_url_nothing_holds_is_dropped_and_its_url_found_again(
    state: str, copy: Callable[..., Krake], whole: tuple[Counter[str], Counter[str]]
) -> None:
    krake = copy(None if state == "settled" else state)
    url = take_line_out(krake)
    one = finding(krake, "key_without_url")
    assert (one["count"], one["severity"]) == (1, "error")
    assert key_of(url).hex() in one["problem"]
    assert "key_without_url" not in found(krake, "--fast")
    krake.ok("settle")
    assert url not in waiting(krake), "links to the URL are dropped"
    planned = krake(*DROP, "--dry-run", "--json").json["keys"]
    assert (planned["dropped"], planned["reread"]) == (1, ["node-a"])
    assert finding(krake, "key_without_url")["count"] == 1
    done = krake.ok(*DROP, "--json").json["keys"]
    assert (done["dropped"], done["added"], done["reread"]) == (1, 0, ["node-a"])
    assert krake.ok(*DROP, "--json").json["keys"] is None
    assert found(krake) == {}
    krake.ok("settle")
    assert waiting(krake) == whole[1]
    assert found(krake) == {}


def test_killed_before_keys_are_dropped_the_segments_are_read_again_all_the_same(
    copy: Callable[..., Krake], whole: tuple[Counter[str], Counter[str]]
) -> None:
    """Else the next one would find no key to drop, and no one would look for its URL."""
    krake = copy()
    take_line_out(krake)
    assert run_killed(["--config", str(krake.file), *DROP], "repair.rebuild.reread").code == -9
    krake.ok("settle")
    assert "key_without_url" in found(krake)
    krake.ok(*DROP)
    krake.ok("settle")
    assert waiting(krake) == whole[1]


def test_an_open_intake_reads_again_what_it_had_read(
    copy: Callable[..., Krake], whole: tuple[Counter[str], Counter[str]]
) -> None:
    """A key was dropped that the intake's first sources had: it had dropped their lines as known."""
    krake = copy("intake.hosts_written")
    take_line_out(krake)
    krake.ok(*DROP)
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
    krake.ok(*DROP)
    assert found(krake) == {}


def test_a_url_that_became_another_one_is_found_and_comes_back(
    copy: Callable[..., Krake], whole: tuple[Counter[str], Counter[str]]
) -> None:
    """A byte of a data file, and the line is canonical all the same."""
    krake = copy()
    another_url(queue(krake.directory) / "0")
    assert found(krake) == {"key_without_url": 1, "queued_key_unknown": 1, "data_changed": 1}
    krake.ok(*DROP)
    krake.ok(*DROP)
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
    krake.ok(*DROP)
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
    before = rows(krake)
    both("DELETE FROM kraakekeys WHERE keyinfo = 1")(krake.directory)
    krake.ok(*DROP)
    assert rows(krake) == before
    assert found(krake) == {}


def rows(krake: Krake) -> dict[str, int]:
    config = load_config(str(krake.file)).key_storage
    with open_key_store(config) as store:
        return {
            key.hex(): info
            for server in store.servers
            for key, info in server.scan(bytes(20), b"\xff" * 20)
        }


STEPS = [
    "intake.planned",
    "intake.chunk.appended",
    "queue.move.state",
    "take.put_back",
    "node.advanced",
    "node.marked",
    "take.deleted",
]


@pytest.mark.parametrize("step", STEPS)
def test_what_a_kill_leaves_is_no_damage(step: str, copy: Callable[..., Krake]) -> None:
    assert found(copy(step)) == {}


@pytest.mark.parametrize(
    "step", ["adopt.written", "adopt.inserted", "queue.move.written", "queue.move.step"]
)
def test_a_queue_made_by_hand_is_no_damage_at_any_step(
    step: str, copy: Callable[..., Krake]
) -> None:
    krake = copy()
    path = queue(krake.directory)
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
    krake.ok(*DROP)
    assert found(krake) == {}
    known, stray = key_of(min(waiting(krake))), sha1(b"stray").digest()
    with open_stores(load_config(str(krake.file))).keys() as store:
        store.forget([known])
        store.insert([stray])
    assert found(krake) == {"key_without_url": 1, "queued_key_unknown": 1}
    assert stray.hex() in finding(krake, "key_without_url")["problem"]

    shutil.move(queue(krake.directory), krake.directory / "away")
    report = krake("fsck", "--json").json
    assert report["clean"]
    elsewhere, unknown = report["skipped"]
    assert "`krake fsck --node node-a` where it has to be" in elsewhere
    assert "were not compared" in unknown
    assert set(found(krake, "--node", "node-a")) == {"queue_missing"}
    monkeypatch.setattr(socket, "gethostname", lambda: "node-a.example")
    assert set(found(krake)) == {"queue_missing"}, "the machine of that name"

    shutil.move(krake.directory / "away", queue(krake.directory))
    krake.ok(*DROP)
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
