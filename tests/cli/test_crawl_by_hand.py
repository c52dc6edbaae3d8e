"""A crawl with commands alone, from seeds to the web graph, and what can be asked about it afterwards."""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Callable

import pytest

from crawl_lib.crawldir.progress import NodeProgress
from crawl_lib.frontier import NodeLock
from demo import Serving
from tests.cli.conftest import Krake
from tests.screens import KRAKE, run_in_terminal

STAGES = [("settle",), ("fsck", "--repair"), ("export",), ("graph", "link"), ("graph", "finalize")]


@pytest.fixture
def crawled(krake: Krake, serving: Serving) -> Krake:
    """Crawled to the end and processed."""
    krake.ok("inject", "\n".join(serving.seeds), "--run-id", "one")
    for iterations in ("8",):
        krake.ok("crawl", "--iterations", iterations, "--run-id", "one")
    for words in STAGES:
        krake.ok(*words)
    return krake


def test_a_crawl_by_hand_finds_the_truth_and_says_so(crawled: Krake, serving: Serving) -> None:
    truth = serving.truth()
    status = crawled.status()
    assert status["totals"]["outcomes"] == {
        str(word): count for word, count in truth.counts().items() if count
    }
    done = status["iterations"]
    assert {entry["complete"] for entry in done} == {True}
    assert [entry["counts"]["taken"] == 0 for entry in done] == [False] * (len(done) - 1) + [
        True
    ], "it ended early"
    assert len(done) < 8
    assert [queue["length"] for queue in status["queues"].values()] == [0, 0]
    assert status["keys"][0]["total"] == len(truth.visits)
    [export] = status["exports"]
    assert export["complete"]
    assert export["pages"] == len(truth.contents())

    shown = crawled.ok("status").out
    for word in (
        str(crawled.directory / "dfs"),
        "node-a",
        "node-b",
        "ok",
        f"one / {len(done)}",
        export["name"],
        "crawled",
    ):
        assert word in shown

    stats = crawled.ok("graph", "stats").out
    assert f"{len(truth.arcs):,}" in stats
    assert crawled.ok("graph", "stats", "--export", export["name"]).out == stats
    assert crawled.ok("graph", "stats", "--json").json["arcs"] == len(truth.arcs)
    assert (
        f"{len(truth.arcs):,}"
        in crawled.ok("graph", "export", str(crawled.directory / "arcs.tsv")).out
    )
    lines = (crawled.directory / "arcs.tsv").read_text().splitlines()
    assert {tuple(line.split("\t")) for line in lines} == {
        (source, target) for source, target in truth.arcs
    }
    _show_by_url_key_and_node_id(
        crawled, serving.seeds[0], len({arc for arc in truth.arcs if arc[0] == serving.seeds[0]})
    )
    _stages_again_find_their_work_done(crawled, status)


def _show_by_url_key_and_node_id(krake: Krake, url: str, out_links: int) -> None:
    page = krake.ok("show", url, "--json").json
    assert page["url"] == url
    assert page["key"] == hashlib.sha1(url.encode()).hexdigest()
    assert page["out_degree"] == out_links
    # Another spelling is the same page, and so are its key and its NodeID.
    for name in (url.replace("http:", "HTTP:") + "#x", page["key"], str(page["node_id"])):
        assert krake.ok("show", name, "--json").json == page
    for missing in ("http://127.0.0.1:1/none", "0" * 40):
        assert f"{missing}: was not crawled; `krake why` explains" in krake("show", missing).error()
    assert "4000000: is not among the" in krake("show", "4000000").error()
    assert "is neither a URL that Krake crawls (scheme)" in krake("show", "ftp://x/").error()
    assert "none-such" in krake("show", url, "--export", "none-such").error()


def _stages_again_find_their_work_done(krake: Krake, status: dict[str, object]) -> None:
    files = {file: file.stat().st_mtime_ns for file in (krake.directory / "dfs").rglob("*")}
    again = krake.ok("crawl", "--iterations", "8", "--run-id", "one")
    assert "ended with iteration" in again.out
    assert "nothing is queued" in again.out
    for words in STAGES:
        krake.ok(*words)
    assert {file: file.stat().st_mtime_ns for file in files} == files
    assert krake.status() == status


def other_key_servers(krake: Krake) -> Callable[[], None]:
    krake.configure(key_storage={"servers": ["keys/0.sqlite", "keys/1.sqlite"]})
    return krake.configure


def no_directory(krake: Krake) -> Callable[[], None]:
    krake.configure(queue={"local_dir": "nowhere/queue", "lock_timeout_s": 0.2})
    return krake.configure


def somebody_at_work(krake: Krake) -> Callable[[], None]:
    (krake.directory / "queue" / "node-b").mkdir(exist_ok=True)
    lock = NodeLock(krake.directory / "queue" / "node-b", "node-b", 0.0, what="a test")
    lock.__enter__()
    return lambda: lock.__exit__(None, None, None)


@pytest.mark.parametrize(
    ("prepare", "says"),
    [
        (other_key_servers, "krake keys reshard"),
        (no_directory, "queue.local_dir"),
        (somebody_at_work, "node node-b is locked by"),
    ],
)
def test_a_crawl_whose_nodes_are_refused_leaves_no_folder(
    prepare: Callable[[Krake], Callable[[], None]], says: str, krake: Krake, serving: Serving
) -> None:
    krake.ok("inject", "\n".join(serving.seeds))
    krake.ok("crawl")
    before = sorted((krake.directory / "dfs").rglob("*"))
    mend = prepare(krake)
    assert says in krake("crawl").error()
    assert sorted((krake.directory / "dfs").rglob("*")) == before
    mend()
    krake.ok("crawl", "--iterations", "2")
    assert [entry["complete"] for entry in krake.status()["iterations"]] == [True] * 3


def test_forgotten_urls_are_fetched_again_when_they_are_injected(
    krake: Krake, serving: Serving
) -> None:
    first, _ = serving.seeds
    krake.configure(urls={"scope": "hosts", "max_depth": 0})
    krake.ok("inject", "\n".join(serving.seeds))
    krake.ok("crawl")
    assert krake.status()["totals"]["fetched"] == 2

    done = krake.ok(
        "forget", "--yes", first.upper().replace("HTTP", "http"), "http://never.example/"
    )
    assert done.out == "forgot 1 of 2 URLs; 1 were not known\n"
    krake.ok("inject", "\n".join(serving.seeds))
    krake.ok("crawl")
    status = krake.status()
    assert status["iterations"][1]["counts"]["fetched"] == 1
    assert "not a URL" in krake("forget", "--yes", "nonsense").error()


def test_forget_is_refused_while_a_replica_is_down_and_names_it(krake: Krake) -> None:
    servers = [str(krake.directory / "keys" / name) for name in ("0.sqlite", "1.sqlite")]
    krake.configure(key_storage={"servers": servers, "replication": 2, "timeout_s": 0.2})
    krake.ok("keys", "create")
    krake.ok("inject", "http://127.0.0.1/a")
    krake.ok("settle")
    whole = krake.ok("keys", "check", "--json").json["servers"]
    (krake.directory / "keys" / "1.sqlite").write_bytes(b"no database at all" * 100)
    for wal in (krake.directory / "keys").glob("1.sqlite-*"):
        wal.unlink()
    assert servers[1] in krake("forget", "--yes", "http://127.0.0.1/a").error()
    report = krake("keys", "check", "--json")
    assert report.code == 1
    assert report.json["servers"][0] == whole[0], "nothing was deleted on the other server"
    assert list(report.json["failed"]) == [servers[1]]
    assert servers[1] in krake("keys", "check").out


def test_keys_are_created_once_and_dropped_only_when_told(krake: Krake) -> None:
    assert str(krake.directory / "keys" / "0.sqlite") in krake.ok("keys", "create").out
    krake.ok("inject", "http://127.0.0.1/a")
    krake.ok("settle")
    assert "are there on every server" in krake.ok("keys", "create").out
    assert krake.status()["keys"][0]["queued"] == 1
    krake.ok("keys", "create", "--drop", "--yes")
    assert krake.status()["keys"][0]["total"] == 0


def test_repair_fills_a_replica_that_was_lost(krake: Krake) -> None:
    servers = [str(krake.directory / "keys" / name) for name in ("0.sqlite", "1.sqlite")]
    krake.configure(key_storage={"servers": servers, "replication": 2})
    krake.ok("inject", "\n".join(f"http://127.0.0.1/{number}" for number in range(20)))
    krake.ok("settle")
    assert "all replicas are whole" in krake.ok("keys", "check").out
    for file in (krake.directory / "keys").glob("1.sqlite*"):
        file.unlink()
    assert krake("keys", "check").code == 1
    krake.ok("fsck", "--repair")
    assert [server["total"] for server in krake.ok("keys", "check", "--json").json["servers"]] == [
        20,
        20,
    ]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ("crawl", "--node", "node-x", "--run-id", "r"),
            "node 'node-x' is not in servers: node-a, node-b",
        ),
        (("settle", "--node", "node-x"), "node 'node-x' is not in servers: node-a, node-b"),
        (("nodes", "restart", "node-x"), "node 'node-x' is not in servers: node-a, node-b"),
        (("fsck", "--only", "keys"), "--only is for --repair"),
        (("fsck", "--repair", "--node", "a"), "`krake settle --all-again --node a`"),
        (("crawl", "--node", "node-a"), "--run-id"),
        (("crawl", "--iterations", "9"), "crawl.max_iterations (8)"),
        (("graph", "link"), "run `krake export` first"),
        (("graph", "finalize"), "run `krake export` first"),
        (("show", "1"), "run `krake export` first"),
        (("graph", "stats"), "run `krake export` first"),
        (("export",), "crawl first"),
        (("export", "--folders", "1700000000"), "no iteration 1700000000; there are none yet"),
        (("export", "--label", "../x"), "label '../x'"),
        (("inject", "no-such-file.txt"), "no-such-file.txt: no such file or directory"),
        (("forget", "--yes", "http://127.0.0.1/"), "run `krake keys create`"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    krake: Krake, words: tuple[str, ...], problem: str
) -> None:
    assert problem in krake(*words).error()


WRONG = [
    ["crawl", "--iterations", "0"],
    ["crawl", "--batch-size", "-1"],
    ["forget", "--older-than", "-1"],
    ["forget", "--older-than", "nan"],
    ["nonsense"],
]


@pytest.mark.parametrize("words", WRONG)
def test_a_wrong_argument_exits_with_2(
    krake: Krake, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        krake(*words)
    assert ended.value.code == 2
    assert "usage: krake" in capsys.readouterr().err


def test_a_crawl_without_seeds_says_what_is_missing(krake: Krake, serving: Serving) -> None:
    hint = "no URL was queued: `krake inject` adds seeds, `krake forget` makes known ones new"
    done = krake("crawl")
    assert done.code == 0
    assert hint in done.err
    krake.ok("inject", serving.url(0, "/"))
    assert hint not in krake("crawl").err


def test_a_crawl_of_what_is_not_due_says_so(krake: Krake) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    krake.ok("inject", f"http://127.0.0.1:{port}/")
    hint = "no URL was due: the waiting URLs have failed, and are tried again later"
    assert hint not in krake.ok("crawl").err
    again = krake.ok("crawl").err
    assert hint in again
    assert "krake inject" not in again


def test_brackets_in_names_of_seeds_are_shown_as_they_are(krake: Krake) -> None:
    """Tables of the terminal have a markup with brackets; paths may have brackets too."""
    file = krake.directory / "[bold]:smile:[" / "b]"
    file.parent.mkdir()
    file.write_text("no url\nhttp://127.0.0.1/\n")
    shown = krake.ok("inject", str(file)).out
    assert "[bold]:smile:[/b]:1: no http" in shown.replace("\n", "")


def test_each_node_alone_with_a_run_that_was_started(krake: Krake, serving: Serving) -> None:
    """What many machines do: the folder is there, and each does its own part."""
    krake.ok("inject", "\n".join(serving.seeds), "--run-id", "r")
    krake.ok("crawl", "--run-id", "r")
    folder = krake.status()["iterations"][0]["folder"]
    done = krake.ok("crawl", "--run-id", "r", "--node", "node-a")
    assert folder in done.out
    assert "node-b" not in done.out
    assert krake.ok("settle", "--node", "node-b").out.count("settled") == 1


def test_a_status_without_the_dfs_tells_what_this_machine_knows(krake: Krake) -> None:
    """Why a node failed is asked most when the DFS is gone; the exit code says that something is wrong."""
    krake.ok("inject", "http://127.0.0.1/", "--run-id", "r")
    krake.ok("settle")
    NodeProgress("node-a", krake.directory / "queue" / "node-a", None).enter(
        "failed", "no namenode has answered for 120 s"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    krake.configure(dfs_primary=f"http://127.0.0.1:{port}/krake", dfs={"wait_s": 0.0})
    done = krake("status")
    assert done.code == 1
    assert "failed: no namenode has answered for 120 s" in done.out
    assert "Connection refused" in done.out
    found = krake("status", "--json").json
    assert f"127.0.0.1:{port}" in found["error"]
    assert sum(queue["length"] for queue in found["queues"].values()) == 1
    assert found["keys"][0]["queued"] == 1


def test_a_status_where_nothing_is_yet(krake: Krake) -> None:
    status = krake.status()
    assert status["iterations"] == status["exports"] == []
    assert set(status["queues"]) == {"node-a", "node-b"}
    assert "not on this machine, or not used yet" in json.dumps(status["queues"])
    assert krake.ok("status").out.count("not on this machine, or not used yet") == 2, (
        "0 would be no answer"
    )
    assert "node-a" in krake.ok("status").out


def test_a_terminal_gets_one_table_of_all_rounds(krake: Krake, serving: Serving) -> None:
    """Each part of a round was a box of its own. On a pipe it still is."""
    krake.ok("inject", "\n".join(serving.seeds))
    terminal = run_in_terminal(KRAKE, ["--config", krake.file, "crawl", "--iterations", "2"])
    assert terminal.finish() == 0, terminal.written
    shown = [line.split() for line in terminal.screen.lines if line.strip()]
    assert shown.count(["iteration", "part", "taken", "pages", "links"]) == 1
    parts = [tuple(line[:2]) for line in shown if line[0] in {"1", "2"}]
    assert parts == [("1", "node-a"), ("1", "node-b"), ("2", "node-a"), ("2", "node-b")]
    assert krake.ok("crawl", "--run-id", "piped").out.count("piped: iteration 1, node-") == 2
