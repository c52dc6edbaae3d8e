"""`python -m tests.torture.cluster N`: N acts against three fetchers and two schedulers. Exit code 1 for findings.

`RATE` URLs a second come in, half of them in chains of redirects that cross partitions. An act kills or stops a
process, cuts a line both ways, kills MariaDB, takes a fetcher away, or starts a process with another wall clock. At the
end: each URL with a 202 has a document with all hops of its chain, no host was asked within its delay by all fetchers
together, and no host with work was silent for longer than `SILENT_S`. A hop is work of its host from the 202 of its
URL, or from the request of the hop before it, until its own request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from crawl_lib.errors import KrakeError
from crawl_lib.realtime import Client, TokenFile, make_certificates
from crawl_lib.realtime.tokens import RIGHTS
from crawl_lib.urls import key_of
from tests.contracts.mariadb import PASSWORD, MariaDb, start_mariadb
from tests.e2e.crawl import make_config, write_config
from tests.torture.children import adopt_orphans

BEGIN, END = "<!-- realtime-cluster:begin -->", "<!-- realtime-cluster:end -->"
RATE = 100.0
"""URLs a second, unless the command says otherwise."""
BATCH, SUBMITTERS = 5, 4
"""URLs of a request; connections that submit at once."""
SITES = 120
DELAY_S, CRAWL_DELAY_S = 0.2, 1.0
"""Of a host, and of each tenth host by its robots.txt."""
SILENT_S, SILENT_AFTER_DATABASE_S = 8.0, 12.0
END_S = 120.0
"""The end is awaited until so long no URL got a document: hosts with a Crawl-delay have long queues."""
FETCHERS = ("live-1", "live-2", "live-3")
SCHEDULERS = ("one", "two")
CLOCK_LIBRARY = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
ACTS = (
    "kill fetcher",
    "stop fetcher",
    "kill scheduler",
    "stop scheduler",
    "cut",
    "MariaDB",
    "take away",
    "clock",
)


@dataclass(frozen=True)
class Work:
    """A hop that waits for its request, by monotonic time."""

    since_s: float
    done_s: float


@dataclass
class Site:
    """A web of `hosts` loopback hosts. A path names the hosts that redirects lead through: `/c/3.17/name`.

    `requests`: time, host and path of each, in order.
    """

    port: int = 0
    hosts: int = SITES
    requests: list[tuple[float, str, str]] = field(default_factory=list)

    def url(self, rng: random.Random) -> str:
        """Return a new URL; half of all lead through other hosts."""
        ways = [
            rng.randrange(self.hosts) for _ in range(1 + (rng.randrange(2) and rng.randrange(1, 4)))
        ]
        return self._chain(ways, f"{rng.getrandbits(48):x}")

    def work(self, accepted: dict[str, float]) -> dict[str, list[Work]]:
        """Return the work of each host, for accepted URLs with the times of their 202."""
        asked: dict[tuple[str, int], list[float]] = {}
        for at_s, _, path in self.requests:
            if path != "/robots.txt":
                _, _, ways, name = path.split("/")
                asked.setdefault((name, len(ways_of(ways))), []).append(at_s)
        found: dict[str, list[Work]] = {}
        for url, accepted_s in accepted.items():
            _, _, host, _, ways, name = url.split("/")
            left = ways_of(ways)
            since_s, hosts = accepted_s, [host.partition(":")[0], *map(host_of, left)]
            for place, at in enumerate(hosts):
                times = asked.get((name, len(left) - place), [])
                done_s = next((one for one in times if one >= since_s), math.inf)
                if times and place == 0:  # the request may come before the answer
                    done_s = min(times)
                found.setdefault(at, []).append(Work(since_s, done_s))
                later = asked.get((name, len(left) - place - 1), [])
                # A hop whose answer was lost with its fetcher is asked for again.
                since_s = max([one for one in times if later and one <= min(later)], default=done_s)
        return found

    def _chain(self, ways: list[int], name: str) -> str:
        return f"http://{host_of(ways[0])}:{self.port}/c/{'.'.join(map(str, ways[1:]))}/{name}"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection."""
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                while head := await reader.readuntil(b"\r\n\r\n"):
                    now_s = time.monotonic()
                    path = head.split(b" ", 2)[1].decode()
                    host = writer.get_extra_info("sockname")[0]
                    self.requests.append((now_s, host, path))
                    writer.write(self._response(host, path))
                    await writer.drain()
        finally:
            writer.close()

    def _response(self, host: str, path: str) -> bytes:
        if path == "/robots.txt":
            body = (
                f"User-agent: *\nCrawl-delay: {CRAWL_DELAY_S}\n"
                if delay_of(host) > DELAY_S
                else "User-agent: *\n"
            )
            return _message("200 OK", body, "Content-Type: text/plain\r\n")
        _, _, ways, name = path.split("/")
        if ways:
            target = self._chain(ways_of(ways), name)
            return _message("302 Found", "", f"Location: {target}\r\n")
        return _message("200 OK", f"<title>{name}</title>", "Content-Type: text/html\r\n")


def host_of(number: int) -> str:
    """Return the address of a site."""
    return f"127.7.{number // 200}.{number % 200 + 1}"


def ways_of(ways: str) -> list[int]:
    """Return the hosts that the redirects of a path lead through."""
    return [int(way) for way in ways.split(".") if way]


def delay_of(host: str) -> float:
    """Return the delay of a site."""
    return CRAWL_DELAY_S if host.endswith("0") else DELAY_S


def _message(status: str, body: str, fields: str) -> bytes:
    return f"HTTP/1.1 {status}\r\n{fields}Content-Length: {len(body)}\r\n\r\n{body}".encode()


class Loop:
    """A loop in a thread, for the web and for relays that can be cut."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._servers: list[asyncio.Server] = []
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def serve(self, answer: Any, host: str, port: int = 0) -> int:
        """Serve connections; return the port."""
        starting = asyncio.start_server(answer, host, port, limit=1 << 16)
        server = asyncio.run_coroutine_threadsafe(starting, self.loop).result()
        self._servers.append(server)
        found: int = server.sockets[0].getsockname()[1]
        return found

    def close(self) -> None:
        """Close the servers with their connections, and end the loop."""
        asyncio.run_coroutine_threadsafe(self._close_all(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()

    async def _close_all(self) -> None:
        for server in self._servers:
            server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0)  # closed connections give their sockets back


class Relay:
    """A network between schedulers and a fetcher. While `is_cut`, bytes arrive at neither end."""

    def __init__(self, port: int) -> None:
        self.is_cut = False
        self._port = port

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry the bytes of a connection."""
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(self._carry(reader, back), self._carry(there, writer))

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError):
                while data := await source.read(1 << 16):
                    while self.is_cut:
                        await asyncio.sleep(0.02)
                    target.write(data)
                    await target.drain()
        finally:
            target.close()


class Program:
    """A command of Krake, started again after each death. `offset_s`: of its wall clock at the next start."""

    def __init__(self, words: list[str], folder: Path, name: str) -> None:
        self._words, self._folder, self.name = words, folder, name
        self.offset_s = 0
        self.process: subprocess.Popen[str] | None = None
        self.said = ""

    def start(self) -> None:
        """Start the command, and wait for its first line."""
        environment = {**os.environ, "KRAKE_KEY_STORAGE_PASSWORD": PASSWORD}
        if self.offset_s:
            environment |= {
                "LD_PRELOAD": str(CLOCK_LIBRARY),
                "FAKETIME": f"{self.offset_s:+d}s",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
        command = [str(Path(sys.executable).with_name("krake")), *self._words]
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
            )
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        assert self.said, (self._folder / f"{self.name}.log").read_text()[-3000:]

    def end(self, number: signal.Signals) -> None:
        """End the command by a signal."""
        if self.process is not None and self.process.stdout is not None:
            self.process.send_signal(number)
            self.process.wait(60)
            self.process.stdout.close()

    def stop_for(self, seconds: float) -> None:
        """Stop the command's process for a while."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.process.send_signal(signal.SIGCONT)


class _Oldest:
    """The oldest work of a host that waits; asked in the order of time."""

    def __init__(self, work: list[Work]) -> None:
        self._work = sorted(work, key=lambda one: one.done_s)
        oldest_s, self._oldest_s = math.inf, list[float]()
        for one in reversed(self._work):
            oldest_s = min(oldest_s, one.since_s)
            self._oldest_s.append(oldest_s)
        self._oldest_s.reverse()
        self._place = 0

    def since_s(self, at_s: float) -> float:
        """Return since when the oldest work waits that is not done before a time."""
        while self._place < len(self._work) and self._work[self._place].done_s < at_s:
            self._place += 1
        return self._oldest_s[self._place] if self._place < len(self._work) else math.inf


@dataclass
class Judge:
    """What the web's log says of a run. `events_s`: of acts, each with the silence that it explains from then on."""

    site: Site
    accepted: dict[str, float]
    events_s: list[tuple[float, float]]
    began_s: float = 0.0
    longest_s: float = 0.0
    """The longest silence of a host with work, after the last act in it."""

    def findings(self, over_s: float) -> Iterator[str]:
        """Find requests within a delay, and hosts that were silent with work until the last URL came in."""
        by_host: dict[str, list[float]] = {}
        for at_s, host, _ in self.site.requests:
            by_host.setdefault(host, []).append(at_s)
        work = self.site.work(self.accepted)
        for host, times in by_host.items():
            oldest = _Oldest(work.get(host, []))
            for before_s, after_s in pairwise(times):
                gap_s = after_s - before_s
                if gap_s < delay_of(host) - 0.01:
                    yield f"asked again: {host} after {gap_s:.3f} s, its delay is {delay_of(host)}"
                since_s = max(before_s, oldest.since_s(after_s))
                last_s = max([since_s, *(at_s for at_s, _ in self.events_s if at_s <= after_s)])
                self.longest_s = max(self.longest_s, after_s - last_s)
                allowed_s = self._allowed_s(since_s, after_s) + delay_of(host)
                if since_s < over_s and after_s - since_s > allowed_s:
                    yield (
                        f"silent: {host} for {after_s - since_s:.1f} s until"
                        f" {after_s - self.began_s:.1f}, allowed are {allowed_s:.1f}"
                    )

    def _allowed_s(self, since_s: float, until_s: float) -> float:
        """Return how long a host may be silent: from the events of acts on, and at any time `SILENT_S`."""
        within = [
            (at_s, most_s) for at_s, most_s in self.events_s if since_s - 4 <= at_s <= until_s
        ]
        return max([SILENT_S, *(max(0.0, at_s - since_s) + most_s for at_s, most_s in within)])


class Cluster:
    """Three fetchers, two schedulers and MariaDB under a stream of URLs. `findings`: what must not be."""

    def __init__(self, folder: Path, seed: int, server: MariaDb, loop: Loop) -> None:
        self.rate = RATE
        self.folder, self.rng, self.server, self.site = folder, random.Random(seed), server, Site()
        self.site.port = loop.serve(self.site.answer, "0.0.0.0", 0)
        self.database = server.new_database()
        server.run(f"CREATE DATABASE {self.database}")
        make_certificates(folder / "certificates", FETCHERS)
        ports = {name: _free_port() for name in FETCHERS}
        self.relays = {name: Relay(ports[name]) for name in FETCHERS}
        addresses = {name: loop.serve(self.relays[name].answer, "127.0.0.1") for name in FETCHERS}
        self.fetchers = {name: self._fetcher(name, ports[name]) for name in FETCHERS}
        self.schedulers = {name: self._scheduler(name, addresses) for name in SCHEDULERS}
        self.token = TokenFile(str(folder / "tokens.json")).add("torture", RIGHTS)
        self.accepted: dict[str, float] = {}
        self.findings: list[str] = []
        self.acts: Counter[str] = Counter()
        self.longest_s = 0.0
        self.began_s = time.monotonic()
        self.events_s: list[tuple[float, float]] = []
        self._ends = threading.Event()

    def _fetcher(self, name: str, port: int) -> Program:
        given = {
            "--listen": f"127.0.0.1:{port}",
            "--name": name,
            "--directory": str(self.folder / name),
            "--certificates": str(self.folder / "certificates"),
        }
        return Program(
            ["realtime", "fetcher", *(word for pair in given.items() for word in pair)],
            self.folder,
            name,
        )

    def _scheduler(self, name: str, addresses: dict[str, int]) -> Program:
        place = self.folder / name
        place.mkdir()
        config = make_config(
            place,
            nodes=1,
            urls={"scope": "any"},
            frontier={"order": "crawldb"},
            fetch={
                "host_delay_s": DELAY_S,
                "max_crawl_delay_s": 2 * CRAWL_DELAY_S,
                "ip_delay_s": 0.0,
                "allow_networks": ["127.0.0.0/8"],
            },
            key_storage={
                "servers": [self.server.server],
                "database": self.database,
                "user": "krake",
            },
            realtime={
                "listen": "127.0.0.1:0",
                "tokens": str(self.folder / "tokens.json"),
                "certificates": str(self.folder / "certificates"),
                "fetchers": [
                    {"name": one, "address": f"127.0.0.1:{port}"} for one, port in addresses.items()
                ],
            },
        )
        return Program(
            ["--config", str(write_config(config, place)), "serve", "realtime"], self.folder, name
        )

    @property
    def programs(self) -> list[Program]:
        """All processes, fetchers first."""
        return [*self.fetchers.values(), *self.schedulers.values()]

    def client(self, scheduler: str) -> Client:
        """Return a client of a scheduler."""
        said = self.schedulers[scheduler].said
        return Client(said.partition(": ")[2].strip(), self.token, timeout_s=5)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run all processes."""
        for program in self.programs:
            program.start()
        try:
            yield
        finally:
            self._ends.set()
            for program in reversed(self.programs):
                program.end(signal.SIGTERM)

    def run(self, acts: int) -> None:
        """Carry out so many acts, then let all end."""
        with self.running():
            over_s = self._run(acts)
        judge = Judge(self.site, self.accepted, self.events_s, self.began_s)
        self.findings += judge.findings(over_s)
        self.longest_s = judge.longest_s

    def _run(self, acts: int) -> float:
        """Return when the last URL came in."""
        seeds = [self.rng.random() for _ in range(SUBMITTERS)]
        submitting = [
            threading.Thread(target=self._submit, args=(seed,), daemon=True) for seed in seeds
        ]
        for submitter in submitting:
            submitter.start()
        self._pause(5.0)
        for number in range(acts):
            self._act(ACTS[number % len(ACTS)])
            self._pause(self.rng.uniform(1.0, 4.0))
        self._ends.set()
        for submitter in submitting:
            submitter.join(60)
        over_s = time.monotonic()
        self._wait_for_all()
        return over_s

    def _pause(self, seconds: float) -> None:
        self._ends.wait(seconds)

    def _act(self, act: str) -> None:
        self.acts[act] += 1
        began_s = time.monotonic() - self.began_s
        if act not in ("cut", "MariaDB"):  # both count from their ends
            self.events_s.append((time.monotonic(), SILENT_S))
        program = self.rng.choice(
            list((self.schedulers if "scheduler" in act else self.fetchers).values())
        )
        if act == "clock":
            program = self.rng.choice(self.programs)
            program.offset_s = self.rng.choice((-60, 60)) if CLOCK_LIBRARY.exists() else 0
        if act.startswith("stop"):
            program.stop_for(self.rng.choice((0.1, 1.0, 2.5, 4.0, 10.0)))
        elif act == "cut":
            relay = self.rng.choice(list(self.relays.values()))
            relay.is_cut = True
            self._pause(self.rng.uniform(0.5, 5.0))
            relay.is_cut = False
        elif act == "MariaDB":
            self.server.kill()
            self._pause(self.rng.uniform(0.0, 3.0))
            self.server.start()
        else:
            program.end(signal.SIGKILL if act.startswith("kill") else signal.SIGTERM)
            self._pause(self.rng.uniform(0.0, 2.0))
            program.start()
        with (self.folder / "acts.log").open("a") as log:
            ended_s = time.monotonic() - self.began_s
            log.write(f"{began_s:.1f} to {ended_s:.1f}: {act} {program.name}\n")
        most_s = SILENT_AFTER_DATABASE_S if act == "MariaDB" else SILENT_S
        self.events_s.append((time.monotonic(), most_s))

    def _submit(self, seed: float) -> None:
        """Submit a share of `rate` URLs a second, in an open loop; where a scheduler does not answer, to the other."""
        rng, began_s, count = random.Random(seed), time.monotonic(), 0
        to = rng.randrange(len(SCHEDULERS))
        while not self._ends.is_set():
            urls = [self.site.url(rng) for _ in range(BATCH)]
            count += BATCH
            for _ in SCHEDULERS:
                to = (to + 1) % len(SCHEDULERS)
                with suppress(KrakeError, AssertionError), self.client(SCHEDULERS[to]) as client:
                    found = client.submit(urls)
                    taken = {"new", "waiting", "known"}
                    now_s = time.monotonic()
                    self.accepted |= {one.url: now_s for one in found if one.decision in taken}
                    break
            due_s = began_s + count * SUBMITTERS / self.rate
            self._ends.wait(max(0.0, due_s - time.monotonic()))

    def _wait_for_all(self) -> None:
        """Wait until each accepted URL has a document."""
        left, news_s = set(self.accepted), time.monotonic()
        while left and time.monotonic() - news_s < END_S:
            count = len(left)
            with suppress(KrakeError), self.client(random.choice(SCHEDULERS)) as client:
                urls = sorted(left)
                for start in range(0, len(urls), 300):
                    pages = client.pages(urls[start : start + 300])
                    left -= {
                        page.url
                        for page in pages
                        if page.document is not None and page.state == "known"
                    }
            if len(left) < count:
                news_s = time.monotonic()
            time.sleep(0.2)
        self.findings += [f"no document: {url}" for url in sorted(left)]
        self._check_documents(sorted(self.accepted.keys() - left))

    def _check_documents(self, urls: list[str]) -> None:
        """Compare documents with the web: the title of a chain's last page, through all hops."""
        for url in urls:
            rows = self.server.run(
                f"SELECT data FROM krakepages WHERE hash = x'{key_of(url).hex()}'",
                database=self.database,
            )
            document = json.loads(rows[0][0])
            hops = 1 + len(ways_of(url.split("/")[-2]))
            if document["outcome"] == "ok" and len(document["hops"]) != hops:
                self.findings.append(
                    f"wrong document: {url}: {len(document['hops'])} hops, and not {hops}"
                )

    def table(self) -> str:
        """Return the results in Markdown."""
        done = ", ".join(f"{number} {act}" for act, number in sorted(self.acts.items()))
        rows = {
            f"accepted URLs without a document, of {len(self.accepted)}": "no document",
            "documents without all hops of their chain": "wrong document",
            f"requests within the delay of a host, of {len(self.site.requests)}": "asked again",
            f"hosts with work silent for too long; the longest after an act: {self.longest_s:.1f} s": "silent",
        }
        head = [
            f"{self.acts.total()} acts ({done}), {self.rate:g} URLs a second.",
            "",
            "| what must not be | found |",
        ]
        found = (
            f"| {name} | {sum(one.startswith(word) for one in self.findings)} |"
            for name, word in rows.items()
        )
        return "\n".join([*head, "|---|---|", *found])


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        number: int = probe.getsockname()[1]
        return number


@contextmanager
def cluster(folder: Path, seed: int) -> Iterator[Cluster]:
    """A cluster and its MariaDB, durable after each commit."""
    loop = Loop()
    options = ("--innodb-flush-log-at-trx-commit=1", "--innodb-use-native-aio=0")
    try:
        with start_mariadb(*options) as server:
            yield Cluster(folder, seed, server, loop)
    finally:
        loop.close()


def write_report(path: Path, table: str, options: str) -> None:
    """Put the table between the marks of a Markdown file."""
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(
        f"{before}{BEGIN}\nMade by `make torture {options}`. {table}\n{END}{after}",
        encoding="utf-8",
    )


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.cluster", description=__doc__)
    parser.add_argument("acts", type=int, nargs="?", default=20, help="how many acts")
    parser.add_argument(
        "--seed", type=int, default=1, help="number that URLs, acts and pauses follow from"
    )
    parser.add_argument("--rate", type=float, default=RATE, help="URLs a second")
    parser.add_argument(
        "--report", type=Path, help="a Markdown file whose table of results is written again"
    )
    given = parser.parse_args()
    adopt_orphans()
    folder = Path(tempfile.mkdtemp(prefix="krake-torture-"))
    with cluster(folder, given.seed) as found:
        found.rate = given.rate
        found.site.hosts = math.ceil(
            SITES * min(1.0, given.rate / RATE)
        )  # fewer URLs leave a host without work
        found.run(given.acts)
    if given.report and not found.findings:
        write_report(given.report, found.table(), f"CLUSTER={given.acts} SEED={given.seed}")
    lines = [
        found.table(),
        *(f"FINDING {finding}" for finding in found.findings),
        f"files: {folder}",
        "",
    ]
    sys.stdout.write("\n".join(lines))
    return 1 if found.findings else 0


if __name__ == "__main__":
    sys.exit(main())
