"""`krake retry`: pages that failed are listed, past the key check, and fetched exactly once more, whatever dies."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.curate import Failures, RetryReport, compact_segment, drop_pages, retry
from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.errors import ConfigError, InputError
from crawl_lib.frontier import Queue
from crawl_lib.node.retire import retire_lost
from crawl_lib.repair import fsck, restart_node, sweep
from crawl_lib.rounds import start_iteration
from crawl_lib.states import Outcome
from crawl_lib.stores import open_stores
from tests.cli.conftest import Krake
from tests.e2e.crawl import make_config, run_crawl, run_iteration, settle, write_config
from tests.forked import run_forked
from tests.serving import Answering, running
from tests.worker.children import run_stage

LEAVES = ("1", "2", "3")


class Site(Answering):
    """A page that links to three others, which are refused while the host is ill."""

    def do_GET(self) -> None:
        server: Any = self.server
        server.asked[f"http://{server.host}{self.path}"] += 1
        is_leaf = self.path != "/"
        body = (
            b"" if is_leaf else b"".join(b'<a href="/%s">x</a>' % leaf.encode() for leaf in LEAVES)
        )
        status = 403 if is_leaf and server.is_ill else 200
        self.answer(status, body, {"Content-Type": "text/html"})


class Sites:
    """Some hosts; all that they were asked for, and whether those of an address are ill."""

    def __init__(self, stack: ExitStack, count: int) -> None:
        self.asked: Counter[str] = Counter()
        self.servers: list[Any] = []
        for number in range(1, count + 1):
            server: Any = ThreadingHTTPServer((f"127.0.0.{number}", 0), Site)
            server.asked, server.is_ill = self.asked, True
            server.host = f"127.0.0.{number}:{server.server_address[1]}"
            self.servers.append(stack.enter_context(running(server)))
        self.seeds = [f"http://{server.host}/" for server in self.servers]
        self.leaves = {f"{seed}{leaf}" for seed in self.seeds for leaf in LEAVES}

    def heal(self) -> None:
        for server in self.servers:
            server.is_ill = False
        self.asked.clear()


@contextmanager
def _sites(count: int) -> Iterator[Sites]:
    with ExitStack() as stack:
        yield Sites(stack, count)


@pytest.fixture
def sites() -> Iterator[Sites]:
    with _sites(4) as found:
        yield found


@pytest.fixture
def site() -> Iterator[Sites]:
    with _sites(1) as found:
        yield found


def config_of(directory: Path, nodes: int = 1, **sections: Any) -> Config:
    return make_config(
        directory, nodes=nodes, **({"fetch": {"host_delay_s": 0.0, "robots": "ignore"}} | sections)
    )


def list_failed(config: Config, **options: Any) -> RetryReport:
    return retry(open_stores(config), Failures(Outcome.CLIENT_ERROR), **options)


def lists(config: Config) -> list[str]:
    return open_stores(config).crawl.inbox.lists()


def assert_clean(config: Config) -> None:
    assert fsck(open_stores(config)).findings == []


@pytest.mark.parametrize(("nodes", "routing"), [(1, "host"), (3, "host"), (3, "local")])
def test_each_page_that_failed_is_fetched_exactly_once_more(
    nodes: int, routing: str, sites: Sites, tmp_path: Path
) -> None:
    config = config_of(tmp_path, nodes, frontier={"routing": routing})
    result = run_crawl(config, sites.seeds, process=False)
    assert Counter(result.outcomes().values()) == {"ok": 4, "client_error": 12}
    scope = open_stores(config).crawl.newest_iteration()
    sites.heal()
    assert list_failed(config, dry_run=True).listed == 12
    assert lists(config) == []
    report = list_failed(config)
    assert (report.failed, report.listed, report.waiting) == (12, 12, 0)
    assert lists(config) == [report.path.rpartition("/")[2]]
    again = list_failed(config)
    assert (again.failed, again.listed, again.waiting) == (12, 0, 12), "they are not listed twice"
    assert_clean(config)

    commit = run_iteration(config, "again", 1)
    assert (commit["taken"], commit["retried"]) == (12, {"ok": 12})
    assert sites.asked == Counter(dict.fromkeys(sites.leaves, 1))
    assert result.visited() == Counter(dict.fromkeys(sites.seeds, 1)) + Counter(
        dict.fromkeys(sites.leaves, 2)
    )
    assert run_iteration(config, "again", 2)["taken"] == 0
    newest = open_stores(config).crawl.newest_iteration()
    assert scope is not None
    assert newest is not None
    assert newest.scope_sha256 == scope.scope_sha256, "a list has no effect on the scope"
    assert newest.taken_before == 16, "a URL counts once"
    settle(config)
    assert_clean(config)

    over = list_failed(config)
    assert (over.failed, over.listed, len(over.deleted)) == (0, 0, 1), (
        "a page that succeeded is not listed"
    )
    assert lists(config) == []
    assert run_iteration(config, "later", 1)["taken"] == 0
    settle(config)
    assert_clean(config)


def test_what_fails_again_is_listed_again(site: Sites, tmp_path: Path) -> None:
    config = config_of(tmp_path)
    run_crawl(config, site.seeds, process=False)
    first = list_failed(config)
    run_iteration(config, "again", 1)
    stages.settle_node(open_stores(config), node="node-0")
    second = list_failed(config)
    assert (second.listed, second.waiting, second.deleted) == (
        3,
        0,
        [first.path.rpartition("/")[2]],
    )
    assert second.path != first.path
    site.heal()
    run_iteration(config, "again", 2)
    assert site.asked == Counter(dict.fromkeys(site.leaves, 1))


def test_of_one_host_alone(sites: Sites, tmp_path: Path) -> None:
    config = config_of(tmp_path, retry={"max": 4})
    sites.servers[0].is_ill = False
    run_crawl(config, sites.seeds, process=False)
    assert retry(open_stores(config), Failures(Outcome.CLIENT_ERROR, "127.0.0.1")).failed == 0
    report = retry(open_stores(config), Failures(Outcome.CLIENT_ERROR, "127.0.0.2"))
    assert (report.failed, report.listed) == (3, 3)
    assert list_failed(config).listed == 6, "the others; one host is listed already"
    with pytest.raises(
        InputError, match=r"127\.0\.0\.9: no page of a host of that name was crawled"
    ):
        retry(open_stores(config), Failures(Outcome.CLIENT_ERROR, "127.0.0.9"))


def test_a_failure_that_passes_is_not_listed(tmp_path: Path) -> None:
    with _sites(1) as site:
        seed = site.seeds[0]
    config = config_of(tmp_path, retry={"max": 4})  # no one listens there now
    stages.inject(open_stores(config), run_id="r", seeds=seed)
    assert run_iteration(config, "r", 1)["outcomes"] == {"connect_failed": 1}
    assert retry(open_stores(config), Failures(Outcome.CONNECT_FAILED)).failed == 0


def test_a_listed_page_whose_failure_passes_waits_with_its_mark(tmp_path: Path) -> None:
    config = config_of(tmp_path, retry={"max": 4})
    with _sites(1) as site:
        run_crawl(config, site.seeds, process=False)
        list_failed(config)
    retried = run_iteration(config, "again", 1)["retried"]
    assert retried["connect_failed"] > 0
    assert sum(retried.values()) == 3
    waiting = list(Queue(Path(config.queue.local_dir) / "node-0"))
    assert [queued.list_name for queued in waiting] == lists(config) * 3
    assert max(queued.retries for queued in waiting) == 1
    report = list_failed(config)
    assert (report.failed, report.listed, report.waiting) == (3, 0, 3)
    settle(config)
    assert list_failed(config).deleted == []
    assert_clean(config)


STEPS = [
    *(
        "intake.planned",
        "intake.chunk.appended",
        "intake.chunk.journalled",
        "intake.chunk.inserted",
    ),
    *(
        "intake.hosts_written",
        "queue.move.written",
        "queue.move.step",
        "queue.move.state",
        "queue.move.record",
    ),
    *(
        "queue.move.done",
        "take.written",
        "segment.part.closed",
        "take.leftover",
        "segment.publish.renamed",
    ),
    *("take.put_back", "node.advanced", "node.marked", "take.deleted"),
]
CLAIM_STEPS = ["intake.claim.written", "intake.claim.journalled", "intake.claimed"]


@pytest.mark.parametrize(
    ("step", "routing"),
    [*((step, "host") for step in STEPS), *((step, "local") for step in CLAIM_STEPS)],
)
def test_killed_at_each_step_of_taking_in_a_list(
    step: str, routing: str, site: Sites, tmp_path: Path
) -> None:
    config = config_of(tmp_path, frontier={"routing": routing})
    run_crawl(config, site.seeds, 2, process=False)
    list_failed(config)
    site.heal()
    start_iteration(open_stores(config), run_id="again", iteration=1)
    options = {"run_id": "again", "iteration": 1, "node": "node-0"}
    assert run_stage(config, "crawl_node", step, **options), (
        f"{step} was not reached, so nothing was tested"
    )
    assert stages.crawl_node(open_stores(config), **options)["retried"] == {"ok": 3}
    stages.crawl_node(open_stores(config), **options)
    stages.commit_iteration(open_stores(config), run_id="again", iteration=1)
    assert run_iteration(config, "again", 2)["taken"] == 0
    assert site.asked == Counter(dict.fromkeys(site.leaves, 1))


def _list_killed(config: Config, kill_at: str) -> None:
    os.environ[KILL_VARIABLE] = kill_at
    list_failed(config)


@pytest.mark.parametrize("step", ["inject.written", "inject.renamed", "curate.retry.deleted"])
def test_the_command_killed_at_each_step(step: str, site: Sites, tmp_path: Path) -> None:
    config = config_of(tmp_path)
    run_crawl(config, site.seeds, process=False)
    if step == "curate.retry.deleted":
        list_failed(config)
        run_iteration(config, "more", 1)
        stages.settle_node(open_stores(config), node="node-0")
    assert run_forked(_list_killed, config, step) == -9
    site.heal()
    list_failed(config)
    assert len(lists(config)) == 1
    run_iteration(config, "again", 1)
    assert site.asked == Counter(dict.fromkeys(site.leaves, 1))
    left = [finding.where for finding in fsck(open_stores(config)).findings]
    assert len(left) == (step == "inject.written"), left
    assert sweep(open_stores(config)).deleted == left
    assert_clean(config)


def test_what_does_not_fit_into_a_batch_comes_with_the_next(site: Sites, tmp_path: Path) -> None:
    config = config_of(tmp_path, batch={"size": 2})
    run_crawl(config, site.seeds, process=False)
    list_failed(config)
    site.heal()
    assert [run_iteration(config, "again", number)["retried"] for number in (1, 2)] == [
        {"ok": 2},
        {"ok": 1},
    ]
    assert run_iteration(config, "again", 3)["taken"] == 0
    assert site.asked == Counter(dict.fromkeys(site.leaves, 1))


def test_a_url_that_waits_is_not_queued_twice(site: Sites, tmp_path: Path) -> None:
    """Also where the list that it came from was deleted."""
    config = config_of(tmp_path, batch={"size": 1})
    run_crawl(config, site.seeds, process=False)
    report = list_failed(config)
    stages.settle_node(open_stores(config), node="node-0")
    shutil.rmtree(Path(config.dfs_primary) / report.path)
    assert_clean(config)
    assert list_failed(config).listed == 3
    (Path(config.dfs_primary) / report.path).rename(
        Path(config.dfs_primary) / f"{report.path}-again"
    )
    report = stages.settle_node(open_stores(config), node="node-0")
    assert (report["queue"], report["known"]) == (3, 3)


def test_a_list_outlives_a_lost_queue(site: Sites, tmp_path: Path) -> None:
    """Its pages were crawled, and the rule that drops such pages where all is read again lets them pass."""
    config = config_of(tmp_path)
    run_crawl(config, site.seeds, process=False)
    list_failed(config)
    stages.settle_node(open_stores(config), node="node-0")
    shutil.rmtree(Path(config.queue.local_dir) / "node-0")
    restart_node(open_stores(config), "node-0")
    site.heal()
    assert run_iteration(config, "again", 1)["taken"] == 3
    assert site.asked == Counter(dict.fromkeys(site.leaves, 1))


def with_nodes(config: Config, count: int) -> Config:
    return dataclasses.replace(config, servers=tuple(f"node-{number}" for number in range(count)))


def test_other_nodes_wait_until_a_list_is_taken_in_and_get_what_is_theirs(
    sites: Sites, tmp_path: Path
) -> None:
    one = config_of(tmp_path)
    run_crawl(one, sites.seeds, process=False)
    name = list_failed(one).path.rpartition("/")[2]
    three = with_nodes(one, 3)
    with pytest.raises(ConfigError, match=f"node-0 has not taken in {name}/lists"):
        start_iteration(open_stores(three), run_id="x", iteration=1)
    settle(one)
    sites.heal()
    taken = [run_iteration(three, "x", number)["taken"] for number in (1, 2, 3)]
    assert sum(taken) == 12
    assert taken[1], "else nothing was handed on"
    assert sites.asked == Counter(dict.fromkeys(sites.leaves, 1))
    settle(three)
    assert len(list_failed(three).deleted) == 1


def test_a_lost_node_s_part_of_a_list_goes_to_the_others(sites: Sites, tmp_path: Path) -> None:
    three = config_of(tmp_path, 3)
    run_crawl(three, sites.seeds, process=False)
    settle(three)
    path = Path(three.dfs_primary) / list_failed(three).path
    lost = max(
        three.servers,
        key=lambda node: json.loads((path / "manifest.json").read_text())["outlinks"][node][
            "count"
        ],
    )
    rest = dataclasses.replace(three, servers=tuple(node for node in three.servers if node != lost))
    shutil.rmtree(Path(three.queue.local_dir) / lost)
    with pytest.raises(ConfigError, match=f"has lists for {lost}, which is not in servers"):
        start_iteration(open_stores(rest), run_id="x", iteration=1)
    settle(rest)
    assert retire_lost(open_stores(rest), node=lost).handed_over > 0
    sites.heal()
    for number in (1, 2):
        run_iteration(rest, "x", number)
    assert sites.asked == Counter(dict.fromkeys(sites.leaves, 1))


def test_a_damaged_list_is_found_and_listed_again(site: Sites, tmp_path: Path) -> None:
    config = config_of(tmp_path)
    run_crawl(config, site.seeds, process=False)
    path = Path(config.dfs_primary) / list_failed(config).path
    (path / "outlinks").write_bytes(b"x")
    [finding] = fsck(open_stores(config)).findings
    assert (finding.name, finding.repair) == (
        "seeds_damaged",
        "run the same `krake retry` again: that puts this folder aside",
    )
    assert list_failed(config).listed == 3
    assert_clean(config)
    [aside] = path.parent.glob(".damaged-*")
    assert sweep(open_stores(config)).deleted == []
    assert [Path(one).name for one in sweep(open_stores(config), damaged=True).deleted] == [
        aside.name
    ]
    site.heal()
    run_iteration(config, "again", 1)
    assert site.asked == Counter(dict.fromkeys(site.leaves, 1))


def test_it_counts_once_for_its_host_and_for_the_crawl(site: Sites, tmp_path: Path) -> None:
    config = config_of(tmp_path, urls={"max_pages_per_host": 4}, crawl={"max_pages": 7})
    run_crawl(config, site.seeds, process=False)
    list_failed(config)
    site.heal()
    assert run_iteration(config, "again", 1)["taken"] == 3
    stages.inject(open_stores(config), run_id="more", seeds=f"{site.seeds[0]}4")
    assert run_iteration(config, "more", 1)["taken"] == 0, "the host is full"
    loose = dataclasses.replace(config, urls=dataclasses.replace(config.urls, max_pages_per_host=9))
    more = "\n".join(f"{site.seeds[0]}{number}" for number in range(5, 10))
    stages.inject(open_stores(loose), run_id="loose", seeds=more)
    assert run_iteration(loose, "loose", 1)["taken"] == 3, (
        "four URLs of the host and of the crawl; three are free"
    )


def test_a_crawl_that_has_all_its_pages_still_fetches_what_failed(
    site: Sites, tmp_path: Path
) -> None:
    """What is listed counts already, and what is new has no room."""
    config = config_of(tmp_path, crawl={"max_pages": 4}, batch={"size": 2})
    run_crawl(config, site.seeds, process=False)
    stages.inject(open_stores(config), run_id="more", seeds=f"{site.seeds[0]}4")
    list_failed(config)
    site.heal()
    assert [run_iteration(config, "again", number)["taken"] for number in (1, 2, 3)] == [2, 1, 0]
    assert site.asked == Counter(dict.fromkeys(site.leaves, 1))
    assert [queued.url for queued in Queue(Path(config.queue.local_dir) / "node-0")] == [
        f"{site.seeds[0]}4"
    ]


def test_a_compacted_segment_counts_the_same(site: Sites, tmp_path: Path) -> None:
    config = config_of(tmp_path)
    run_crawl(config, site.seeds, process=False)
    list_failed(config)
    folder = run_iteration(config, "again", 1)["folder"]
    stores = open_stores(config)
    drop_pages(stores, [f"{site.seeds[0]}1"])
    compact_segment(stores, stores.crawl.segment(folder, "node-0"))
    assert stores.crawl.segment(folder, "node-0").manifest()["counts"]["retried"] == {
        "client_error": 2
    }


def test_the_command(krake: Krake, site: Sites, tmp_path: Path) -> None:
    write_config(config_of(tmp_path), tmp_path).rename(krake.file)
    assert "nothing was crawled yet" in krake("retry", "--outcome", "timeout").error()
    krake.ok("inject", site.seeds[0])
    krake.ok("crawl", "--iterations", "2")
    assert (
        krake.ok("retry", "--outcome", "timeout").out == "nothing to do: no page ended as timeout\n"
    )
    assert (
        "no page of a host of that name"
        in krake("retry", "--outcome", "timeout", "--host", "a.example").error()
    )
    assert (
        "is a URL, and --host takes a host"
        in krake("retry", "--outcome", "gone", "--host", site.seeds[0]).error()
    )
    assert krake.ok("retry", "--outcome", "client_error", "--dry-run", "--json").json["listed"] == 3
    out = krake.ok("retry", "--outcome", "client_error", "--host", "127.0.0.1").out
    assert out.startswith(
        "listed 3 of 3 pages of 127.0.0.1 that ended as client_error\nlist crawl/lists/retry-"
    )
    assert "3 wait in an earlier list" in krake.ok("retry", "--outcome", "client_error").out
    site.heal()
    krake.ok("crawl")
    assert site.asked == Counter(dict.fromkeys(site.leaves, 1))


@pytest.mark.parametrize("word", ["ok", "redirect", "slow"])
def test_what_is_no_failure_is_refused_with_the_names_of_those_that_are(
    word: str, krake: Krake, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        krake("retry", "--outcome", word)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert f"not '{word}'" in said
    assert "dns_failed, connect_failed" in said
