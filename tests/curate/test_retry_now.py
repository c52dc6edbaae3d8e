"""`krake retry --now`: what waits is fetched with the next take, whatever dies, and what hosts ask for holds."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from crawl_lib import node as nodes_of_crawl
from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.crawldir import FileName, RetryNow, RetryNowNotes
from crawl_lib.curate import Failures, RetryNowReport, retry_now
from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.errors import DamagedFileError
from crawl_lib.fetch import HostStore
from crawl_lib.frontier import Queue
from crawl_lib.repair import fsck, repair_crawl, sweep
from crawl_lib.rounds import start_iteration
from crawl_lib.states import Outcome
from crawl_lib.stores import open_stores
from tests.cli.conftest import Krake
from tests.e2e.crawl import Result, make_config, run_iteration, write_config
from tests.forked import run_forked
from tests.serving import Answering, running
from tests.worker.children import run_stage

NODE = "node-0"
ASKED_S = 7200


class Server(ThreadingHTTPServer):
    """A site that fails while `status` says so. `is_robots_ill`: robots.txt alone fails."""

    status = 503
    retry_after: int | None = None
    is_robots_ill = False
    asked: Counter[str]

    def __init__(self, number: int) -> None:
        super().__init__((f"127.0.0.{number}", 0), _Answers)
        self.asked = Counter()
        self.host = f"127.0.0.{number}"
        self.url = f"http://{self.host}:{self.server_address[1]}/"


class _Answers(Answering):
    server: Server

    def do_GET(self) -> None:
        server = self.server
        server.asked[self.path] += 1
        fails = server.is_robots_ill if self.path == "/robots.txt" else server.status != 200
        status = server.status if fails else 404 if self.path == "/robots.txt" else 200
        asks = fails and server.retry_after is not None
        self.answer(status, headers={"Retry-After": str(server.retry_after) if asks else None})


@contextmanager
def serving(number: int, status: int = 503, **settings: Any) -> Iterator[Server]:
    with running(Server(number)) as server:
        server.status = status
        vars(server).update(settings)
        yield server


class Crawl:
    """A crawl of some pages of each server, by hand."""

    def __init__(self, directory: Path, *servers: Server, pages: int = 1, **sections: Any) -> None:
        settings: dict[str, Any] = {
            "fetch": {"host_delay_s": 0.0, "robots": "ignore"},
            "retry": {"max": 4},
        }
        self.config: Config = make_config(directory, nodes=1, **(settings | sections))
        self.iteration = 0
        seeds = "\n".join(f"{server.url}{page}" for server in servers for page in range(pages))
        stages.inject(open_stores(self.config), run_id="r", seeds=seeds)

    def go_on(self) -> dict[str, Any]:
        """One more iteration; returns its counts."""
        self.iteration += 1
        return run_iteration(self.config, "r", self.iteration)

    def list_and_go_on(self) -> dict[str, Any]:
        """One more iteration with a CrawlDb."""
        stages.generate(open_stores(self.config), run_id="r", iteration=self.iteration + 1)
        counts = self.go_on()
        stages.update_crawldb(open_stores(self.config))
        return counts

    @property
    def queue(self) -> Queue:
        return Queue(Path(self.config.queue.local_dir) / NODE, NODE)

    def now(
        self, outcome: Outcome | None = None, *, ignore: bool = False, **which: Any
    ) -> RetryNowReport:
        failures = Failures(outcome, waits=True, **which)
        return retry_now(open_stores(self.config), failures, ignore_retry_after=ignore)

    def outcomes(self) -> Counter[str]:
        return Counter(row["outcome"] for row in Result(self.config).rows("pages", ["outcome"]))


def test_all_that_waits_is_fetched_with_the_next_take(tmp_path: Path) -> None:
    """Once: what fails again waits again, and what is final is not asked for."""
    with serving(1) as ill, serving(2, 403) as final:
        crawl = Crawl(tmp_path, ill, final, pages=3)
        assert crawl.go_on()["taken"] == 6
        assert crawl.go_on()["taken"] == 0
        report = crawl.now()
        assert (report.waiting, report.hosts, report.asked, report.elsewhere, report.listed) == (
            3,
            1,
            {},
            [],
            0,
        )
        ill.asked.clear()
        final.asked.clear()
        assert crawl.go_on()["taken"] == 3
        assert crawl.go_on()["taken"] == 0, "one note, one take"
        crawl.now()
        ill.status = 200
        assert crawl.go_on()["outcomes"] == {"ok": 3}
        assert not final.asked
    assert fsck(open_stores(crawl.config)).findings == []


def test_a_run_asks_once(tmp_path: Path) -> None:
    """Its task may be run again; another run, or a person, may ask once more."""
    with serving(1) as site:
        crawl = Crawl(tmp_path, site)
        crawl.go_on()
        first = stages.retry_now(open_stores(crawl.config), run_id="r")
        assert (first["waiting"], first["hosts"]) == (1, 1)
        assert stages.retry_now(open_stores(crawl.config), run_id="r") == {"note": first["note"]}
        assert stages.retry_now(open_stores(crawl.config), run_id="r2")["note"] != first["note"]
        assert crawl.go_on()["taken"] == 1
        stages.retry_now(open_stores(crawl.config), run_id="r")
        assert crawl.go_on()["taken"] == 0


@pytest.mark.parametrize("which", ["url", "host", "outcome"])
def test_only_what_is_named_is_due(which: str, tmp_path: Path) -> None:
    with serving(1) as busy, serving(2, 500) as ill:
        crawl = Crawl(tmp_path, busy, ill, pages=2)
        crawl.go_on()
        crawl.go_on()
        busy.status = ill.status = 200
        if which == "url":
            report = crawl.now(url=f"{ill.url}1")
        elif which == "host":
            report = crawl.now(host=ill.host)
        else:  # the page of the busy host that was tried has this outcome too; the other one has not
            report = crawl.now(Outcome.HOST_GAVE_UP)
        expected = {"url": 1, "host": 2, "outcome": 1}[which]
        assert report.waiting == expected
        assert crawl.go_on()["outcomes"] == {"ok": expected}
        assert crawl.go_on()["taken"] == 0


def test_an_outcome_is_that_of_the_newest_try(tmp_path: Path) -> None:
    with serving(1, 500) as site:
        crawl = Crawl(tmp_path, site)
        crawl.go_on()
        crawl.now()
        site.status = 503
        crawl.go_on()
        rows = Result(crawl.config).rows("pages", ["outcome", "status"])
        assert [row["status"] for row in rows] == [500, 503]
        assert crawl.now(Outcome.SERVER_ERROR).waiting == 1
        assert crawl.now(Outcome.TIMEOUT).waiting == 0


@pytest.mark.parametrize("status", [503, 500])
def test_what_a_host_asked_for_holds(status: int, tmp_path: Path) -> None:
    with serving(1, status, retry_after=ASKED_S) as site:
        crawl = Crawl(tmp_path, site, pages=2)
        crawl.go_on()
        site.status = 200
        report = crawl.now()
        assert report.asked[site.host] == pytest.approx(time.time() + ASKED_S, abs=60)
        assert crawl.go_on()["taken"] == 0
        assert crawl.now(ignore=True).asked == {}
        assert crawl.go_on()["outcomes"] == {"ok": 2}
        with HostStore(crawl.queue.files.hosts) as hosts:
            assert hosts.asked_until(time.time(), 86400.0) == {}


def test_a_kept_failure_of_robots_txt_is_dropped(tmp_path: Path) -> None:
    """The rules of another host, which were read, stay; and so does what robots.txt asked for."""
    settings = {"fetch": {"host_delay_s": 0.0, "robots": "obey"}}
    with serving(1, 500, is_robots_ill=True) as ill, serving(2, 200) as fine:
        crawl = Crawl(tmp_path, ill, fine, **settings)
        assert crawl.go_on()["outcomes"] == {"ok": 1, "robots_unreachable": 1}
        ill.status = 200
        crawl.now()
        assert crawl.go_on()["outcomes"] == {"ok": 1}
        assert fine.asked["/robots.txt"] == 1
    with serving(3, 503, is_robots_ill=True, retry_after=ASKED_S) as site:
        (tmp_path / "asked").mkdir()
        crawl = Crawl(tmp_path / "asked", site, **settings)
        crawl.go_on()
        site.status = 200
        crawl.now()
        assert crawl.go_on()["taken"] == 0
        crawl.now(ignore=True)
        assert crawl.go_on()["outcomes"] == {"ok": 1}


def test_the_delay_of_a_host_and_the_count_of_its_back_offs_stay(tmp_path: Path) -> None:
    with serving(1) as site:
        crawl = Crawl(tmp_path, site)
        crawl.go_on()
        with HostStore(crawl.queue.files.hosts) as hosts:
            asked, before = hosts.host(site.host), hosts.back_off(site.host)
            hosts.let_go(lambda host: True, {})
            assert hosts.host(site.host) == asked
            after = hosts.back_off(site.host)
        assert after.times == before.times == 1
        assert after.until <= time.time() < before.until
        crawl.now()
        crawl.go_on()
        with HostStore(crawl.queue.files.hosts) as hosts:
            again = hosts.back_off(site.host)
            since = hosts.back_offs_since(time.time(), 86400.0)
        assert again.times == 2
        assert since == pytest.approx(before.until - 600, abs=5), "the first of the row"
        assert again.until - time.time() > 1800, "it grows as if nobody had asked"


OWN_STEPS = sorted(
    {
        step
        for path in Path(nodes_of_crawl.__file__).parents[1].rglob("*.py")
        for step in re.findall(
            r'reached\("(retry_now[a-z._]+)"\)', path.read_text(encoding="utf-8")
        )
    }
)
STEPS = [*OWN_STEPS, "queue.move.written", "queue.move.record", "queue.move.done"]


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_each_step_of_following_a_note(step: str, tmp_path: Path) -> None:
    with serving(1) as site:
        crawl = Crawl(tmp_path, site, pages=3)
        crawl.go_on()
        crawl.now()
        site.status = 200
        site.asked.clear()
        start_iteration(open_stores(crawl.config), run_id="r", iteration=2)
        options = {"run_id": "r", "iteration": 2, "node": NODE}
        assert run_stage(crawl.config, "crawl_node", step, **options), f"{step} was not reached"
        assert crawl.go_on()["outcomes"] == {"ok": 3}
        assert site.asked == Counter({"/0": 1, "/1": 1, "/2": 1})
    assert fsck(open_stores(crawl.config)).findings == []


@pytest.mark.parametrize(("status", "asked_s"), [(503, None), (500, None), (500, ASKED_S)])
def test_with_a_crawldb_a_list_has_what_waits(
    status: int, asked_s: int | None, tmp_path: Path
) -> None:
    """What its host asked for holds there, too; what a list has already is not listed again."""
    with serving(1, status, retry_after=asked_s) as ill, serving(2, 403) as final:
        crawl = Crawl(tmp_path, ill, final, frontier={"order": "crawldb"})
        assert crawl.list_and_go_on()["taken"] == 2
        assert "ended" in stages.generate(open_stores(crawl.config), run_id="r", iteration=2)
        report = crawl.now()
        assert (report.listed, report.hosts) == (1, int(status == 503))
        assert crawl.now().listed == 0
        ill.status = 200
        assert crawl.list_and_go_on().get("outcomes", {}) == ({} if asked_s else {"ok": 1})
        assert fsck(open_stores(crawl.config)).findings == []


def _ask_killed(config: Config, kill_at: str) -> None:
    os.environ[KILL_VARIABLE] = kill_at
    retry_now(open_stores(config), Failures(None, waits=True))


@pytest.mark.parametrize(
    ("step", "order"), [("crawldir.retry_now.noted", "fifo"), ("inject.renamed", "crawldb")]
)
def test_a_command_that_was_killed_may_be_run_again(step: str, order: str, tmp_path: Path) -> None:
    with serving(1) as site:
        crawl = Crawl(tmp_path, site, frontier={"order": order})
        go_on = crawl.go_on if order == "fifo" else crawl.list_and_go_on
        go_on()
        assert run_forked(_ask_killed, crawl.config, step), f"{step} was not reached"
        assert crawl.now().listed == 0, "the list is there already"
        site.status = 200
        site.asked.clear()
        assert go_on()["outcomes"] == {"ok": 1}
        assert site.asked == Counter({"/0": 1})


def test_a_note_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Each other byte is noticed, and named with its repair; a note that is over is deleted."""
    crawl = open_stores(make_config(tmp_path, nodes=1)).crawl
    note = RetryNow.made({"a.test"}, {b"\0" * 20, b"\n" * 20}, ignore_retry_after=True)
    assert RetryNow.from_bytes(note.to_bytes(), note.name) == note
    RetryNowNotes(crawl).write(note)
    path = next(tmp_path.rglob(note.name))
    data = path.read_bytes()
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        with pytest.raises(DamagedFileError, match="krake fsck --repair"):
            RetryNowNotes(crawl).read(note.name)
    path.write_bytes(data)
    assert RetryNowNotes(crawl).names(60.0) == [note.name]
    assert RetryNowNotes(crawl).names(60.0, over=True) == []
    assert RetryNowNotes(crawl).names(-60.0) == []
    assert RetryNowNotes(crawl).names(-60.0, over=True) == [note.name]


def test_fsck_and_sweep_know_notes(tmp_path: Path) -> None:
    with serving(1) as site:
        crawl = Crawl(tmp_path, site)
        crawl.go_on()
        folder = Path(crawl.config.dfs_primary) / crawl.config.crawl.directory / FileName.RETRY_NOW
        crawl.now()
        note = next(folder.iterdir())
        over = folder / f"1-{note.name.partition('-')[2]}"
        over.write_bytes(note.read_bytes())
        assert [one.name for one in fsck(open_stores(crawl.config)).findings] == ["leftover"]
        assert [path.rpartition("/")[2] for path in sweep(open_stores(crawl.config)).deleted] == [
            over.name
        ]
        assert [path.name for path in folder.iterdir()] == [note.name]
        note.write_bytes(b"{}\n")
        found = fsck(open_stores(crawl.config)).findings
        assert [one.name for one in found] == ["retry_now_damaged"]
        repair_crawl(open_stores(crawl.config))
        assert not note.exists()
        assert fsck(open_stores(crawl.config)).findings == []


def test_the_command(tmp_path: Path, krake: Krake) -> None:
    """What goes together, what does not; what it says, and what a dry run leaves."""
    with serving(1, retry_after=ASKED_S) as site:
        crawl = Crawl(tmp_path, site, pages=2)
        krake.file.write_text(write_config(crawl.config, tmp_path).read_text())
        crawl.go_on()
        folder = Path(crawl.config.dfs_primary) / crawl.config.crawl.directory / FileName.RETRY_NOW
        asked = krake.ok("retry", "--now", "http://elsewhere.test/", "--dry-run").out
        assert "nothing to do; `krake why URL`" in asked, "it does not wait"
        for wrong in (
            ["--ignore-retry-after"],
            [site.url],
            [],
            ["--now", site.url, "--host", site.host],
        ):
            assert krake("retry", *wrong).error()
        said = krake.ok("retry", "--now", "--dry-run").out
        assert not folder.exists()
        assert "2 URLs wait on this machine" in said
        assert f"{site.host} asked to be left alone until" in said
        shown = krake.ok("retry", "--now", "--host", site.host, "--json").json
        assert (shown["waiting"], shown["hosts"]) == (2, 1)
        assert [one.name for one in folder.iterdir()] == [shown["note"].rpartition("/")[2]]


CLOCK = r"(\d{4}-\d\d-\d\dT)?\d\d:\d\dZ"


def test_people_are_told_until_when_what_waits_and_how_it_is_fetched_at_once(
    tmp_path: Path, krake: Krake
) -> None:
    with serving(1) as site, serving(2, 500, retry_after=ASKED_S) as other:
        crawl = Crawl(tmp_path, site, pages=3)
        krake.file.write_text(write_config(crawl.config, tmp_path).read_text())
        url, later = f"{site.url}1", f"{other.url}0"
        committed = crawl.go_on()
        line = rf"1 host in back-off since {CLOCK}, 3 URLs wait until {CLOCK}( or later)?"
        assert [*committed][-1] == "waiting"
        assert re.fullmatch(line, committed["waiting"])
        assert re.fullmatch(line, krake.status()["waiting"])
        assert re.search(rf"{line} \(`krake retry --now`", " ".join(krake.ok("status").out.split()))

        assert krake.ok("why", url, "--json").json["at_once"] == f"krake retry --now {url}"
        [said] = stages.inject(open_stores(crawl.config), run_id="r2", seeds=url)["waiting"]
        hint = f"next try {CLOCK}: `krake retry --now"
        assert re.fullmatch(f"{url} waits already, {hint} {url}` fetches it at once", said)
        assert "waiting" not in stages.inject(
            open_stores(crawl.config), run_id="r3", seeds=f"{site.url}new"
        )
        assert re.search(f"{url}: {hint} {url}`", krake.ok("forget", "--yes", url).out)
        assert re.search(
            f"{site.host}: {hint} --host {site.host}`", krake.ok("forget", "--yes", site.host).out
        )
        said_of_retry = krake.ok("retry", "--outcome", "server_error").out
        assert re.search(
            f"1 URLs that ended so wait, {hint} --outcome server_error`", said_of_retry
        )

        stages.inject(open_stores(crawl.config), run_id="r4", seeds=later)
        crawl.go_on()
        assert (
            krake.ok("why", later, "--json").json["at_once"]
            == f"krake retry --now --ignore-retry-after {later}"
        )
        site.status = other.status = 200
        crawl.now(ignore=True)
        assert "waiting" not in crawl.go_on()
        found = krake.ok("why", url, "--json").json
        assert (found["at_once"], found["answer"]) == (None, "ended as ok")
    assert "waiting" not in krake.status()
