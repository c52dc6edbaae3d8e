"""Queues on two machines: a URL that is lost on one is found on the other by the keys that nodes noted on the DFS.

A note is believed only while it holds: no one has worked on its node since, and no byte of it is another one.
"""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from crawl_lib import stages
from crawl_lib.config import load_config
from crawl_lib.crawldir import HeldNote, HeldNotes
from crawl_lib.keys import open_key_store
from crawl_lib.repair.keys import fill
from crawl_lib.rounds import start_iteration
from crawl_lib.stores import open_stores
from crawl_lib.urls import key_of
from demo import Serving
from tests.cli.conftest import Krake, run_in_process
from tests.contracts.mariadb import PASSWORD, MariaDb, mariadb
from tests.e2e.crawl import run_crawl, settle
from tests.harms import changed
from tests.repair.checked import REPAIR, all_keys, lose_a_url
from tests.repair.killed import run_killed

__all__ = ["mariadb"]


COMPARED = "queues noted elsewhere"


@dataclass(frozen=True)
class Machines:
    """`a` has the queue of node-a, `b` that of node-b, `c` none; one DFS, one key server."""

    a: Krake
    b: Krake
    c: Krake
    dfs: Path

    @property
    def both(self) -> list[tuple[Krake, str]]:
        return [(self.a, "node-a"), (self.b, "node-b")]

    def note(self) -> None:
        """Every node leaves its note."""
        for krake, node in self.both:
            assert report(krake, "--node", node)["noted"] == [node]

    def notes(self, node: str) -> list[Path]:
        """What lies on the DFS for a node, hidden names too."""
        folder = self.dfs / "crawl" / "held" / node
        return sorted(folder.iterdir()) if folder.exists() else []

    def set(self, **sections: Any) -> None:
        for krake in (self.a, self.b, self.c):
            krake.change(**sections)


@pytest.fixture(scope="session")
def two_nodes(web: Serving, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a crawl of two nodes on one machine, settled; both have URLs that wait."""
    directory = tmp_path_factory.mktemp("two")
    krake = Krake(directory, lambda words: run_killed(words, None))
    krake.configure(urls={"scope": "hosts"}, batch={"size": 4}, retry={"max": 0})
    config = load_config(str(krake.file))
    run_crawl(config, web.seeds, 2, run_id="one", process=False)
    stages.inject(open_stores(config), run_id="two", seeds="\n".join(strangers("old")))
    settle(config)
    return directory


def strangers(name: str) -> list[str]:
    """Seeds that no one fetches; each node owns some."""
    return [f"http://{name}-{number}.example/" for number in range(40)]


@pytest.fixture
def machines(
    two_nodes: Path,
    mariadb: MariaDb,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Machines:
    """A copy of it, with a key server, on two machines."""
    monkeypatch.setenv("KRAKE_KEY_STORAGE_PASSWORD", PASSWORD)
    a, b, c = (
        Krake(tmp_path / name, lambda words: run_in_process(capsys, words)) for name in "abc"
    )
    shutil.copytree(two_nodes, a.directory)
    dfs = a.directory / "dfs"
    key_storage = {"servers": [mariadb.server], "database": mariadb.new_database(), "user": "krake"}
    a.change(key_storage=key_storage, dfs_primary=str(dfs))
    a.ok(*REPAIR)
    for krake in (b, c):
        (krake.directory / "queue").mkdir(parents=True)
        shutil.copyfile(a.file, krake.file)
    shutil.move(a.directory / "queue" / "node-b", b.directory / "queue" / "node-b")
    return Machines(a, b, c, dfs)


def report(krake: Krake, *words: str) -> dict[str, Any]:
    return dict(krake("fsck", "--json", *words).json)


def names(krake: Krake) -> dict[str, int]:
    return {one["name"]: one["count"] for one in report(krake)["findings"]}


def compared(krake: Krake) -> bool:
    """Whether a check on this machine, which has one of the two queues, compares the keys of both, and finds nothing
    wrong."""
    found = report(krake)
    assert found["findings"] == []
    assert (found["checked"].get(COMPARED) == 1) != any(
        "were not compared" in text for text in found["skipped"]
    )
    return COMPARED in found["checked"]


def waits(krake: Krake, node: str) -> Counter[str]:
    path = krake.directory / "queue" / node
    numbers = list(map(int, (path / "state").read_text().split()))
    lines = [
        line
        for number in range(len(numbers) - 1)
        for line in (path / str(number)).read_text().split()
    ]
    return Counter(lines[numbers[0] :])


def note_of(machines: Machines, node: str) -> tuple[HeldNote, set[bytes]]:
    stores = open_stores(load_config(str(machines.a.file)))
    note = HeldNotes(stores.crawl, node).read()
    assert note is not None
    keys = [key for some in HeldNotes(stores.crawl, note.node).keys(note) for key in some]
    assert keys == sorted(set(keys))
    return note, set(keys)


def known(krake: Krake) -> set[bytes]:
    with open_key_store(load_config(str(krake.file)).key_storage, PASSWORD) as store:
        return set(all_keys(store.servers))


def test_a_lost_url_is_found_by_any_machine_and_comes_back(machines: Machines) -> None:
    a, b = machines.a, machines.b
    before = waits(b, "node-b")
    url = lose_a_url(b, "node-b")
    machines.note()
    assert note_of(machines, "node-b")[1] >= {key_of(one) for one in waits(b, "node-b")}
    for krake in (a, b):
        [one] = report(krake)["findings"]
        assert (one["name"], one["count"], one["severity"]) == ("key_without_url", 1, "error")
        assert key_of(url).hex() in one["problem"]
        assert krake("fsck").code == 1

    assert a(*REPAIR, "--dry-run", "--json").json["keys"]["dropped"] == 1
    done = a.ok(*REPAIR, "--json").json
    assert (done["keys"]["dropped"], done["keys"]["reread"], done["keys"]["elsewhere"]) == (
        1,
        ["node-a"],
        ["node-b"],
    )
    assert "run `krake settle --all-again` where these nodes are: node-b" in done["next"]
    for krake, node in machines.both:
        krake.ok("settle", "--node", node, *(["--all-again"] if krake is b else []))
    assert waits(b, "node-b") == before
    assert not compared(a), "the notes are of before"
    machines.note()
    assert compared(a)
    assert compared(b)


def test_a_check_says_which_node_has_not_noted_its_keys_and_which_command_does(
    machines: Machines,
) -> None:
    a, b = machines.a, machines.b
    text = report(a)["skipped"][-1]
    assert (
        "node node-b has not noted its keys since it was worked on last: run `krake fsck --node node-b`"
        in text
    )
    assert "node-a" not in text, "its queue is here"
    for node in ("node-a", "node-b"):
        assert f"`krake fsck --node {node}` on the node's machine" in machines.c("fsck").out
    assert "run `krake fsck --node node-b` on the node's machine" in a.ok(*REPAIR).out
    b.ok("fsck", "--node", "node-b")
    assert compared(a)
    assert not compared(b), "node-a has none yet"
    a.ok("fsck", "--node", "node-a")
    assert compared(b)
    found = report(machines.c)
    assert (found["findings"], found["checked"][COMPARED]) == ([], 2), (
        "a machine without a queue compares too"
    )


WORK = [
    ("settle", "--node", "node-b"),
    ("settle", "--node", "node-b", "--all-again"),
]


def test_a_note_is_of_no_use_once_somebody_has_worked_on_its_node(machines: Machines) -> None:
    for work in WORK:
        machines.b.ok("fsck", "--node", "node-b")
        assert len(machines.notes("node-b")) == 1
        machines.b.ok(*work)
        assert machines.notes("node-b") == [], work
    assert not compared(machines.a)
    assert "run `krake fsck --node node-b` on the node's machine" in machines.a(*REPAIR).out


def test_what_only_looks_leaves_the_note_alone_and_leaves_none(machines: Machines) -> None:
    a, b = machines.a, machines.b
    for words in (["--fast"], ["--dry-run"]):
        assert report(b, "--node", "node-b", *words)["noted"] == []
        assert machines.notes("node-b") == []
    machines.note()
    [note] = machines.notes("node-b")
    for words in (["fsck"], REPAIR, [*REPAIR, "--dry-run"], ["status"]):
        b.ok(*words)
    assert machines.notes("node-b") == [note]
    b.ok("fsck", "--node", "node-b")
    [again] = machines.notes("node-b")
    assert again.name != note.name, "its id says that it was made since"
    assert compared(a)


def test_where_all_queues_are_on_one_machine_nothing_is_noted(machines: Machines) -> None:
    shutil.move(
        machines.b.directory / "queue" / "node-b", machines.a.directory / "queue" / "node-b"
    )
    found = report(machines.a, "--node", "node-a", "--node", "node-b")
    assert (found["noted"], found["skipped"], found["findings"]) == ([], [], [])
    assert not (machines.dfs / "crawl" / "held").exists()


def test_a_node_that_began_to_work_while_keys_are_compared_is_no_damage(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its new keys are in the tables by then, and in no note."""
    a, b = machines.a, machines.b
    machines.note()
    stray = key_of(lose_a_url(a, "node-a"))
    before = known(a)
    machines.c.ok("inject", "\n".join(strangers("new")), "--run-id", "three")

    unheld = fill.unheld_keys

    def b_settles_first(*arguments: Any) -> Any:
        b.ok("settle", "--node", "node-b")
        return unheld(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(fill, "unheld_keys", b_settles_first)
        found = report(a)
    assert found["findings"] == []
    assert "somebody began to work on node-b meanwhile" in found["skipped"][-1]
    new = known(a) - before
    assert len(new) > 5, "that of node-b"

    b.ok("fsck", "--node", "node-b")
    with monkeypatch.context() as patched:
        patched.setattr(fill, "unheld_keys", b_settles_first)
        error = a(*REPAIR).out
    assert "somebody began to work on node-b meanwhile" in error
    assert "`krake fsck --node node-b`" in error
    assert known(a) >= {*new, stray}, "nothing was dropped"


def test_a_harmed_note_is_refused(machines: Machines) -> None:
    """So is the note of another node in its place."""
    a = machines.a
    machines.note()
    lose_a_url(a, "node-a")
    before = known(a)
    whole = a.directory / "whole"
    [note] = machines.notes("node-b")
    shutil.copytree(note, whole)
    for seed in range(8):
        rng = Random(seed)
        if seed:
            how = changed(note / rng.choice(("keys", "note.json")), rng)
        else:
            how = "another node's"
            shutil.rmtree(note)
            shutil.copytree(next((note.parents[1] / "node-a").iterdir()), note)
        found = report(a)
        [one] = found["findings"]
        assert one["name"] == "held_note_damaged", how
        assert "run `krake fsck --node node-b` on the node's machine" in one["problem"]
        assert any("node node-b has a damaged note" in text for text in found["skipped"]), how
        assert "run `krake fsck --node node-b`" in a(*REPAIR).out, how
        assert known(a) == before
        shutil.rmtree(note)
        shutil.copytree(whole, note)
    assert names(a) == {"key_without_url": 1}
    assert a.ok(*REPAIR, "--json").json["keys"]["dropped"] == 1


def test_a_note_made_with_another_config_is_refused(machines: Machines) -> None:
    machines.note()
    machines.a.change(urls={"scope": "hosts", "max_length_chars": 1000})
    assert not compared(machines.a)
    assert "another config" in machines.a(*REPAIR).out
    assert compared(machines.b), "the one that made it takes it"


def test_killed_while_it_notes_the_next_one_notes_anew(machines: Machines) -> None:
    b = machines.b
    b.ok("fsck", "--node", "node-b")
    assert (
        run_killed(
            ["--config", str(b.file), "fsck", "--node", "node-b"], "crawldir.held.written"
        ).code
        == -9
    )
    assert [path.name[0] for path in machines.notes("node-b")] == ["."], (
        "what it wrote is hidden; the old one is gone"
    )
    assert not compared(machines.a)
    b.ok("fsck", "--node", "node-b")
    assert [path.name[0] == "." for path in machines.notes("node-b")] == [False]
    assert compared(machines.a)


def test_urls_on_their_way_to_a_node_elsewhere_hold_their_keys(machines: Machines) -> None:
    """A node is retired, and the one that gets its queue has noted its keys before."""
    a, b = machines.a, machines.b
    machines.set(servers=["node-b"])
    assert report(b, "--node", "node-b")["noted"] == ["node-b"]
    assert "node node-a is not in `servers`, and was not retired" in machines.c("fsck").out
    count = waits(a, "node-a").total()
    assert a.ok("nodes", "retire", "node-a").code == 0
    assert count > 0
    assert compared(machines.c)
    b.ok("settle", "--node", "node-b")
    assert count < waits(b, "node-b").total()
    assert (report(b)["findings"], report(b)["skipped"]) == ([], []), "all queues are there now"


def test_a_queue_that_is_lost_is_found_again_from_all_machines(machines: Machines) -> None:
    a, b = machines.a, machines.b
    before = waits(b, "node-b")
    shutil.rmtree(b.directory / "queue" / "node-b")
    b.ok("nodes", "restart", "node-b")
    assert "run `krake fsck --node node-a`" in b(*REPAIR).out
    a.ok("fsck", "--node", "node-a")
    b("fsck", "--node", "node-b")
    found = report(a)
    assert found["findings"] == [], "what to do is said where it was found"
    assert "a repair found URLs gone that node-b held" in found["skipped"][-1]
    assert b.ok(*REPAIR, "--json").json["keys"]["dropped"] == before.total()
    b.ok("settle", "--node", "node-b")
    assert waits(b, "node-b") == before
    machines.note()
    assert compared(a)


@pytest.mark.parametrize("step", ["intake.chunk.inserted", "node.advanced"])
def test_a_node_that_was_killed_notes_what_it_holds(step: str, machines: Machines) -> None:
    """At any moment of its work: nothing is called lost, and its keys are in the note."""
    a, b = machines.a, machines.b
    machines.c.ok("inject", "\n".join(strangers("new")), "--run-id", "three")
    start_iteration(open_stores(load_config(str(a.file))), run_id="two", iteration=1, batch_size=3)
    words = ["crawl", "--run-id", "two", "--node", "node-b"]
    assert run_killed(["--config", str(b.file), *words], step).code == -9
    b.ok("fsck", "--node", "node-b")
    assert compared(a)
    url = lose_a_url(b, "node-b")
    b.ok("fsck", "--node", "node-b")
    assert names(a) == {"key_without_url": 1}, url
