"""A round: one crawl of a small web, from seeds to web graph, whose tasks die again and again."""

from __future__ import annotations

import json
import random
import shutil
import socket
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crawl_lib.config import Config
from crawl_lib.frontier import IntakeRules
from crawl_lib.frontier.intake import Intake
from crawl_lib.node import take as node_take
from crawl_lib.rounds import requisite_rounds
from crawl_lib.segment import Sealer
from crawl_lib.storage.s3 import S3Storage
from crawl_lib.storage.s3_claims import Times
from crawl_lib.storage.s3_client import S3Client
from crawl_lib.urlfiles import Source
from demo import AGAIN_PATH, RequestLog, Serving, SynthWeb, TruthOptions
from tests.cluster.versitygw import VersityGw
from tests.e2e.crawl import Result, make_config
from tests.e2e.moved import in_bucket
from tests.pythons import python_of, wait_for_nothing
from tests.torture import checks
from tests.torture.children import Attempt, Ended, Kill
from tests.torture.kills import Killer, Unbroken
from tests.torture.moods import refuse_at_first
from tests.torture.power import Disk, Loss
from tests.torture.tasks import OF_LINKS, OF_SCORES, Task

MOST_ITERATIONS = 40
ODD = 0.2
"""The chance that before a task one of those that are done runs again."""
TWICE = 0.1
"""The chance that two attempts at a task run at once."""
GIVEN_UP = 0.3
"""The chance that a round's first run is given up somewhere."""
DARK_AFTERWARDS = 0.3
"""The chance that the power goes after an attempt that was to be killed and was not."""
STARTED_AS_ALWAYS = 0.1
"""The share of rounds whose fork servers are started, as always."""
SMALL_CHUNK_LINES = 40
SMALL_TAKE_URLS = 10
RETRIES = 3
"""`retry.max` where pages fail at first, and some always."""


@dataclass(frozen=True)
class Flavour:
    """A kind of round: a web, and how it is crawled. `delay_s`: between requests to a host; `least_s`: that a
    page takes; `every`: it is the turn of this kind in every so many rounds only; `batch`: options of the batch;
    `crawldb`: of the CrawlDb, None: there is none; `derived`: tasks that make of the crawl what may be made again.
    `requisites`: pages need images and style sheets, and rounds of requisites follow the first iteration."""

    name: str
    web: SynthWeb
    nodes: int = 1
    delay_s: float = 0.0
    least_s: float = 0.0
    routing: str = "host"
    max_redirects: int = 10
    every: int = 1
    batch: dict[str, int] = field(default_factory=dict)
    crawldb: dict[str, Any] | None = None
    derived: tuple[str, ...] = ()
    requisites: bool = False

    def config(self, directory: Path) -> Config:
        """The config of a crawl below a directory."""
        fetch = {"host_delay_s": self.delay_s, "processes": 2, "max_redirects": self.max_redirects}
        segment = {"max_warc_bytes": 1 << 16, "sync_interval_s": 0.05}
        retry = {"max": RETRIES if self.web.busy else 0, "max_wait_s": 0.0}
        sections = {"fetch": fetch, "segment": segment, "retry": retry, "batch": self.batch}
        sections["crawl"] = {"max_iterations": MOST_ITERATIONS}
        if self.requisites:
            sections["parse"] = {"requisites": "all"}
        if self.crawldb is not None:
            sections |= {
                "frontier": {"order": "crawldb", "routing": self.routing},
                "crawldb": self.crawldb,
            }
            sections |= {"text": {"processes": 1}, "graphs": {"make": ["hosts", "domains", "bv"]}}
            sections["commoncrawl"] = {"make": ["index", "wet"]}
        return make_config(directory, nodes=self.nodes, routing=self.routing, **sections)


FLAVOURS = (
    Flavour("one node", SynthWeb(seed=5, sites=3, pages_per_site=12, specials=False), least_s=0.01),
    Flavour(
        "two nodes",
        SynthWeb(seed=6, sites=4, pages_per_site=6, specials=False),
        nodes=2,
        delay_s=0.01,
        derived=OF_LINKS,
    ),
    Flavour(
        "several parts", SynthWeb(seed=7, sites=1, pages_per_site=120, specials=False), nodes=1
    ),
    Flavour(
        "odd things",
        SynthWeb(seed=9, sites=2, pages_per_site=5),
        nodes=2,
        delay_s=0.005,
        max_redirects=3,
        every=6,
    ),
    Flavour(
        "failures that pass",
        SynthWeb(seed=12, sites=3, pages_per_site=18, specials=False, busy=4),
        nodes=2,
        batch={"size": 12, "max_per_host": 3},
    ),
    Flavour(
        "lists",
        SynthWeb(seed=13, sites=3, pages_per_site=8, specials=False, busy=3),
        nodes=2,
        batch={"size": 8},
        crawldb={"keep_versions": 1, "signature": "text"},
        derived=OF_SCORES,
    ),
    Flavour(
        "local routing",
        SynthWeb(seed=8, sites=4, pages_per_site=6, specials=False),
        nodes=2,
        routing="local",
    ),
)


OF_REQUISITES = (
    Flavour(
        "requisites",
        SynthWeb(seed=14, sites=3, pages_per_site=10, specials=False, busy=3),
        nodes=2,
        batch={"size": 12},
        requisites=True,
    ),
    Flavour(
        "requisites of lists",
        SynthWeb(seed=15, sites=2, pages_per_site=6, specials=False),
        nodes=2,
        batch={"size": 10},
        crawldb={"keep_versions": 1},
        requisites=True,
    ),
)
"""The kinds of rounds of `make torture REQUISITES=1`."""

TIMES = (5.0, 20.0, 30.0, 1.0)
"""Of claims of an object store: a crawl whose task was killed does not wait for minutes, in the order of `Times`."""


def small_constants() -> None:
    """Small takes go to two processes, intakes have several chunks, sealing and failed tries do not wait: all paths are
    gone."""
    wait_for_nothing()
    node_take.URLS_OF_A_PROCESS = SMALL_TAKE_URLS
    run = Intake.run

    def in_chunks(
        self: Intake, sources: Sequence[Source], keys: Any, rules: IntakeRules, **more: Any
    ) -> None:
        run(self, sources, keys, replace(rules, chunk_lines=SMALL_CHUNK_LINES), **more)

    Intake.run = in_chunks
    Sealer.__init__.__kwdefaults__["interval_s"] = 0.01
    Times.__init__.__defaults__ = TIMES


def begin_again(serving: Serving) -> None:
    """Have all pages that fail at first do so again."""
    with socket.create_connection((serving.web.addresses()[0], serving.port)) as connection:
        connection.sendall(f"GET {AGAIN_PATH} HTTP/1.1\r\nConnection: close\r\n\r\n".encode())
        while connection.recv(1024):
            pass


class Ground:
    """A flavour that is served, and its unbroken crawl, which all rounds of it are compared with.

    `gateway`: where crawls lie, None: on the disk.
    """

    def __init__(self, flavour: Flavour, directory: Path, gateway: VersityGw | None = None) -> None:
        self.flavour, self.directory, self.gateway = flavour, directory, gateway
        self.known = Unbroken()
        self.output: dict[str, Any] = {}
        self.serving = Serving(flavour.web, least_s=flavour.least_s)

    def __enter__(self) -> Ground:
        self.serving.__enter__()
        options = TruthOptions(
            max_redirects=self.flavour.max_redirects, requisites=self.flavour.requisites
        )
        self.truth = self.serving.truth(options=options)
        self.seeds = "\n".join(self.serving.seeds)
        unbroken = Round(
            self, self.directory / f"unbroken {self.flavour.name}", random.Random(0), None
        )
        findings = unbroken.run()
        if findings:
            raise RuntimeError(
                f"the unbroken crawl of {self.flavour.name!r} is not right: {findings}"
            )
        rows = {
            name: list(map(tuple, unbroken.output[name]))
            for name in ("rows", "believed")
            if name in unbroken.output
        }
        self.output = {**unbroken.output, **rows}
        return self

    def __exit__(self, *error: object) -> None:
        self.serving.__exit__(None, None, None)

    def log_since(self, start_s: float) -> RequestLog:
        """The requests that began at `start_s` or later."""
        return RequestLog(
            [request for request in self.serving.log().requests if request.start >= start_s]
        )

    def heard(self) -> float:
        """The time, once the server has read what reached it before: a request may wait there longer than its process.

        Its log would say that the process had died before it asked.
        """
        with socket.create_connection(
            (self.flavour.web.addresses()[0], self.serving.port)
        ) as connection:
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1024):
                pass
        return time.monotonic()

    def delays(self) -> dict[str, float]:
        """The delay in seconds that each host's robots.txt asks for."""
        port = self.serving.port
        return {
            f"{host}:{port}": self.flavour.web.delay_s(host)
            for host in self.flavour.web.addresses()
        }


@dataclass
class Round:
    """One crawl. `killer`: None: no one is killed, and nothing odd happens. `odd`: tasks run again, twice at once,
    and in runs that are given up.

    `mutate`: runs in each attempt first. `power`: each kill is a loss of power.
    """

    ground: Ground
    directory: Path
    rng: random.Random
    killer: Killer | None
    odd: bool = True
    mutate: Callable[[], None] = lambda: None
    power: bool = False
    deaths: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By kind of task, and the durable step that it had reached last."""
    at_steps: Counter[str] = field(default_factory=Counter)
    """By kind of task: right after a durable step, and not at some instant."""
    findings: list[str] = field(default_factory=list)
    refetched: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """Errors of attempts next to another one."""
    output: dict[str, Any] = field(default_factory=dict)
    story: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.config = self.looked_at = self.ground.flavour.config(self.directory / "crawl")
        if (gateway := self.ground.gateway) is not None:
            self.config = in_bucket(self.config, gateway, uuid.uuid4().hex)
            files = gateway.files(self.config.dfs_primary.rpartition("/")[2])
            self.looked_at = replace(self.looked_at, dfs_primary=str(files))
        self.disk = Disk(self.directory / "crawl", self.directory / "power") if self.power else None
        self.done: list[Task] = []
        self.crawl_deaths: list[tuple[float, float]] = []
        self.fork_server = (
            not self.killer or not self.odd or self.power or self.rng.random() >= STARTED_AS_ALWAYS
        )

    @property
    def killed(self) -> int:
        """Kills so far."""
        return self.deaths.total()

    def run(self) -> list[str]:
        """Crawl to the end, then check; returns the findings."""
        shutil.rmtree(self.directory, ignore_errors=True)
        (self.directory / "crawl").mkdir(parents=True)
        self.python = python_of(
            self.directory / "python", "import tests.pythons; tests.pythons.wait_for_nothing()"
        )
        if self.disk:
            self.disk.settle()
        begin_again(self.ground.serving)
        start_s = time.monotonic()
        try:
            self._crawl()
        except BrokenRoundError as error:
            self.findings.append(str(error))
        else:
            self._check(start_s)
        if not self.findings:
            shutil.rmtree(self.directory)
            shutil.rmtree(self.looked_at.dfs_primary, ignore_errors=True)
        return self.findings

    def _crawl(self) -> None:
        if self.killer and self.odd and self.rng.random() < GIVEN_UP:
            self._give_up_somewhere()
        run, iteration = "run-2" if self.done else "run-1", 0
        self._task(Task("inject", run, seeds=self.ground.seeds))
        if self.ground.flavour.requisites:
            self._rounds_of_requisites(run)
            run = f"{run}-more"
        while True:
            iteration += 1
            if iteration > MOST_ITERATIONS:
                raise BrokenRoundError(f"the crawl did not end in {MOST_ITERATIONS} iterations")
            if self._is_last(run, iteration):
                queued = [
                    self._task(Task("settle", run, node=node))["queue"] for node in self._nodes()
                ]
                if not any(queued):
                    break
        for kind in (
            "maintain_keys",
            "export",
            "linker",
            "finalizer",
            *self.ground.flavour.derived,
        ):
            self._task(Task(kind, run))

    def _rounds_of_requisites(self, run: str) -> None:
        """Have an iteration done, then rounds of requisites, until one leaves none."""
        for iteration in (1, *requisite_rounds(self.config)):
            waiting = 0
            for task in self._of_iteration(run, iteration):
                result = self._task(task)
                if "ended" in result:
                    return
                waiting += result.get("requisites", 0)
            if not waiting:
                return

    def _give_up_somewhere(self) -> None:
        """A first run, which stops before some task and is never continued."""
        tasks = [Task("inject", "run-1", seeds=self.ground.seeds)]
        for iteration in (1, 2):
            tasks += self._of_iteration("run-1", iteration)
        stop = self.rng.randrange(1, len(tasks))
        for task in tasks[:stop]:
            self._task(task)
        if self.rng.random() < 0.7:  # in the middle of it
            self._attempt(
                tasks[stop], self.killer.next(tasks[stop].kind, 0) if self.killer else None
            )

    def _is_last(self, run: str, iteration: int) -> bool:
        """Have an iteration done; whether nothing was taken, or, where lists say so, nothing was due."""
        for task in self._of_iteration(run, iteration):
            result = self._task(task)
            if "ended" in result:
                return True
            if task.kind == "commit" and self.ground.flavour.crawldb is None:
                return bool(result["taken"] == 0)
        return False

    def _of_iteration(self, run: str, iteration: int) -> list[Task]:
        has_lists = self.ground.flavour.crawldb is not None
        crawls = [Task("crawl", run, iteration=iteration, node=node) for node in self._nodes()]
        return [
            *([Task("generate", run, iteration=iteration)] if has_lists else []),
            *crawls,
            Task("commit", run, iteration=iteration),
            *([Task("update", run)] if has_lists else []),
        ]

    def _nodes(self) -> list[str]:
        nodes = list(self.config.servers)
        self.rng.shuffle(nodes)
        return nodes

    def _task(self, task: Task) -> dict[str, Any]:
        """Have a task done, however often it is killed; now and then another one is run again before."""
        if self.killer and self.odd and self.done and self.rng.random() < ODD:
            again = self.rng.choice(self.done)
            self.story.append(f"again: {again}")
            self._until_done(again)
        result = self._until_done(task)
        self.done.append(task)
        return result

    def _until_done(self, task: Task) -> dict[str, Any]:
        killed = 0
        while True:
            kill = None
            kill = self.killer.next(task.kind, killed) if self.killer else None
            if kill and self.odd and not self.power and self.rng.random() < TWICE:
                self._two_attempts(task, kill)
                killed += 1
                continue
            ended = self._attempt(task, kill)
            if ended.result is not None:
                return ended.result
            if not ended.killed:
                raise BrokenRoundError(f"I4: {task}: {ended.error}")
            killed += 1

    def _two_attempts(self, task: Task, kill: Kill) -> None:
        """Two attempts at once, one of which is killed: both may end well, or one may be refused."""
        first, second = self._begin(task, kill), self._begin(task, None)
        for ended, its_kill in ((first.wait(), kill), (second.wait(), None)):
            self._note(task, ended, its_kill, beside=True)
            if self.killer and ended.killed:
                self.killer.died(task.kind, ended, its_kill)
            if ended.error and not ended.killed:
                self.refused[ended.error.partition(":")[0]] += 1

    def _attempt(self, task: Task, kill: Kill | None) -> Ended:
        ended = self._begin(task, kill).wait()
        self._note(task, ended, kill)
        self.findings += checks.open_takes(self.config)
        if self.killer is None:
            self.ground.known.note(task.kind, ended)
        elif kill:
            self.killer.died(task.kind, ended, kill)
        if self.disk and (ended.killed or (kill and self.rng.random() < DARK_AFTERWARDS)):
            loss = self.rng.choice(list(Loss))
            self.story += [
                f"  power: {loss}: {line}" for line in self.disk.lose_power(loss, self.rng)
            ]
        return ended

    def _begin(self, task: Task, kill: Kill | None) -> Attempt:
        web = self.ground.flavour.web

        def prepare() -> None:
            small_constants()
            if web.busy:
                refuse_at_first(web.addresses()[1], self.directory / "refused")
            self.mutate()
            if self.disk:
                self.disk.recorder().install()
            if not self.fork_server:
                sys.executable = self.python

        return Attempt(
            lambda: task.call(self.config),
            self.directory,
            kill,
            prepare=prepare,
            fork_server=self.fork_server,
        )

    def _note(self, task: Task, ended: Ended, kill: Kill | None, *, beside: bool = False) -> None:
        last = ended.last_step(kill) or "before the first"
        if ended.killed:
            self.deaths[task.kind, last] += 1
            self.at_steps[task.kind] += bool(kill and kill.step) and not beside
            if task.kind in ("crawl", "settle"):
                # Next to another attempt, that one may have gone on before this one's end was seen.
                self.crawl_deaths.append(
                    (ended.start if beside else ended.end, self.ground.heard())
                )
        self.story.append(
            f"{task}: {'killed after ' + last if ended.killed else ended.error or 'done'}"
        )
        if ended.unexpected:
            raise BrokenRoundError(f"{task}: {ended.unexpected}")

    def _check(self, start_s: float) -> None:
        """All invariants, in a process of its own, since it reads with threads."""
        findings_path = self.directory / "findings.json"

        def look() -> dict[str, Any]:
            if self.ground.gateway is not None:  # what no later task would take over for minutes
                S3Storage(S3Client(self.config), Times(takeover_s=-1.0)).sweep()
            findings, output = look_at(self.looked_at, self.ground)
            findings_path.write_text(json.dumps({"findings": findings, "output": output}))
            return {}

        ended = Attempt(look, self.directory).wait()
        if ended.unexpected or ended.error:
            self.findings.append(f"the checks ended with: {ended.error}{ended.unexpected}")
            return
        found = json.loads(findings_path.read_text())
        self.output = found["output"]
        self.findings += found["findings"]
        self._look_at_requests(self.ground.log_since(start_s))

    def _look_at_requests(self, log: RequestLog) -> None:
        flavour = self.ground.flavour
        if flavour.routing == "local":
            return
        self.refetched, findings = checks.refetched(log, self.crawl_deaths)
        if not self.power:  # a loss of power takes the last seconds' records
            self.findings += findings
        self.findings += checks.polite(
            log, flavour.delay_s, self.ground.delays(), self.crawl_deaths
        )


class BrokenRoundError(Exception):
    """The round cannot go on."""


def look_at(config: Config, ground: Ground) -> tuple[list[str], dict[str, Any]]:
    """Findings, and what later rounds are compared with."""
    result = Result(config, export="out")
    has_crawldb = config.order.has_crawldb
    doubles = (
        ground.flavour.routing == "local"
    )  # I2 has an exception for intakes that are killed there
    findings: list[str] = []
    derived = checks.derived(result)  # before a CrawlDb is made again
    looks: Sequence[Callable[[], Any]] = (
        lambda: checks.visited(result, ground.truth, doubles=doubles),
        lambda: checks.retried(result),
        lambda: checks.segments(result),
        lambda: (
            checks.table(result, ground.output)
            if has_crawldb
            else checks.keys(result, ground.truth)
        ),
        lambda: checks.nothing_left(result),
        lambda: checks.same_output(result, ground.output, doubles=doubles) if ground.output else (),
        lambda: checks.same_derived(derived, ground.output["derived"]) if ground.output else (),
    )
    for look in looks:
        try:
            findings += look()
        except Exception as error:
            findings.append(f"{type(error).__name__}: {error}")
    output = {"rows": checks.rows(result), "exported": checks.exported(result), "derived": derived}
    return findings, {**output, "believed": checks.believed(result)} if has_crawldb else output
