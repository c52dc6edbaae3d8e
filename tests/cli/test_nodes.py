"""`krake status` and `krake nodes`: who is behind, who was retired; looking makes nothing."""

from __future__ import annotations

from crawl_lib.frontier import Move
from demo import Serving
from tests.cli.conftest import Krake

ONE = {"servers": ["node-a"]}


def test_looking_makes_nothing(krake: Krake) -> None:
    before = sorted(krake.directory.rglob("*"))
    status = krake.status()
    assert "no such file" in status["keys"][0]["error"]
    assert status["iterations"] == []
    assert krake.ok("status").out
    assert krake.ok("nodes", "list").out
    assert sorted(krake.directory.rglob("*")) == before


def test_an_open_move_is_shown_and_is_no_damage(krake: Krake, serving: Serving) -> None:
    """Between two states the files fit none; the length is that of the state to come."""
    krake.ok("inject", "\n".join(serving.seeds))
    krake.ok("crawl")
    queue = krake.directory / "queue" / "node-a"
    (queue / "move").write_bytes(Move("m", (), "0\n7\n", {}).to_bytes())
    (queue / "0").unlink()
    found = krake.status()["queues"]["node-a"]
    assert found == {"length": 7, "open_move": "m"}
    assert "a move is open" in krake.ok("status").out


def test_nodes_that_are_behind_and_missing_and_retired_are_shown(
    krake: Krake, serving: Serving
) -> None:
    krake.configure(crawl={"min_nodes": 0.5})
    krake.ok("inject", "\n".join(serving.seeds), "--run-id", "r")
    krake.ok("crawl", "--run-id", "r")
    for node in ("node-a", "node-b"):
        assert "settled" not in krake.status()["nodes"][node]
    krake.ok("settle")
    newest = krake.status()["iterations"][-1]["folder"]
    assert {node["settled"] for node in krake.status()["nodes"].values()} == {newest}
    blocked = krake.directory / "queue" / "node-b" / "lock"
    blocked.unlink()
    blocked.mkdir()
    krake.ok("crawl", "--iterations", "2", "--run-id", "r")
    status = krake.status()
    folder = status["iterations"][-1]["folder"]
    assert status["nodes"]["node-b"] | {"queue": 0} == {
        "late": [folder], "settled": newest, "behind": True, "queue": 0, "undecided": 0,
    }  # fmt: skip
    assert (status["iterations"][-1]["complete"], status["iterations"][-1]["committed"]) == (
        False,
        True,
    )
    for shown in (krake.ok("status").out, krake.ok("nodes", "list").out):
        assert f"late in {folder}" in shown
        assert "and is behind" in shown
    assert "committed without node-b" in krake.ok("status").out
    blocked.rmdir()
    krake.ok("settle")
    assert krake.status()["nodes"]["node-b"]["late"] == []
    shares = krake.ok("nodes", "list", "--json").json
    assert sum(node["hosts"] for node in shares.values()) == len(
        {seed.split("/")[2] for seed in serving.seeds}
    )

    assert "node-b is in servers" in krake("nodes", "retire", "node-b").error()
    krake.configure(crawl={"min_nodes": 0.5, "max_iterations": 8}, **ONE)
    assert "node-b is not retired: run `krake nodes retire node-b`" in krake("crawl").error()
    assert (
        "--lost is for a node with a lost directory"
        in krake("nodes", "retire", "node-b", "--lost", "--dir", "x").error()
    )
    assert "queue" in krake.ok("nodes", "retire", "node-b", "--dry-run").out
    krake.ok("nodes", "retire", "node-b")
    assert krake.status()["nodes"]["node-b"]["retired"]
    assert "retired" in krake.ok("nodes", "list").out
    krake.ok("crawl", "--iterations", "8")
    krake.ok("settle")
    assert krake.status()["totals"]["fetched"] == len(serving.truth().visits)


def test_a_node_that_has_not_worked_yet_reads_all_anyway(krake: Krake, serving: Serving) -> None:
    """There is no directory whose lock could be held; it was an error."""
    krake.ok("inject", "\n".join(serving.seeds))
    krake.ok("settle", "--all-again")
    assert krake.status()["nodes"]["node-b"]["settled"] == ""


def test_a_retired_node_that_is_back_may_take_in_everything_anew(
    krake: Krake, serving: Serving
) -> None:
    """Its mark says that it had taken in more; that is no sign of an older copy, since its queue was handed over."""
    krake.ok("inject", "\n".join(serving.seeds), "--run-id", "r")
    krake.ok("crawl", "--run-id", "r", "--iterations", "2")
    krake.ok("settle")
    krake.configure(**ONE)
    krake.ok("nodes", "retire", "node-b")
    krake.configure()
    krake.ok("settle", "--all-again")
    assert krake.status()["nodes"]["node-b"].get("retired") is None
