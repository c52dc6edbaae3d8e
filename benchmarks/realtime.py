"""The real-time service: added latency, CPU against a batch crawl of the same pages, reads, and overload.

The web has 2,000 hosts with own answer times (`liveweb`). URLs arrive in an open loop (Poisson). An ideal fetcher is
simulated from arrivals, answer times, robots.txt and delays: the added time is the service's time beyond the ideal
fetcher's. In the environment: `REALTIME_SECONDS` and `REALTIME_ROWS`, a shorter load and a smaller table;
`REALTIME_STORE=mariadb`, the load with the table on MariaDB instead of in a file.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from urllib.parse import quote

import httpx
import psutil

from benchmarks.crawl import crawl_to_the_end, make_config
from benchmarks.keys import SETTINGS
from benchmarks.liveweb import HOSTS, address, answer_s, next_host
from benchmarks.report import Row, ahead, measure
from crawl_lib import Config
from crawl_lib.realtime import TokenFile, collect_parts
from crawl_lib.realtime.documents import Document, Request, encoded, request_bytes
from crawl_lib.realtime.pages import Finished, Wish, part_of
from crawl_lib.realtime.pages_sqlite import SqlitePages
from crawl_lib.realtime.places import FETCHER
from crawl_lib.realtime.tokens import RIGHTS
from crawl_lib.stores import PASSWORD_VARIABLE, open_stores
from crawl_lib.urls import host_of, key_of
from tests.contracts.mariadb import PASSWORD, start_mariadb
from tests.e2e.crawl import write_config

DELAY_S = 0.5
RATE, SECONDS = 150, 300
FAST, QUIET = 250, 50
OVERLOAD, OVERLOAD_S = 750, 60
ROWS = 1_000_000
READ_MS = {1: 0.25, 20: 0.65, 300: 6.0}
MOST_TIMES, MOST_MB, MEDIAN_S, P99_S = 3.0, 400, 0.1, 0.5
LAST_S = 120.0
CONNECTIONS = 64
SERIES, SILENT_S = 5, 5.0
READERS, READ_S, READ_P99_MS = 8, 15.0, 25.0
CALM_S = 30
OK, ACCEPTED = 200, 202


@dataclass(frozen=True)
class Arrival:
    """A URL to submit. `due_s`: seconds from the start; `host`: of the first hop."""

    due_s: float
    host: int
    hops: int
    number: int

    def url(self, port: int) -> str:
        """Return the URL."""
        return f"http://{address(self.host)}:{port}/{self.hops}/{self.number}"


def arrivals(
    rng: random.Random, rate: float, seconds: float, hosts: Sequence[int] = range(HOSTS)
) -> list[Arrival]:
    """Return arrivals of an open loop: Poisson in time, hosts uniform, 0 to 5 hops, 1 in the mean."""
    found, due_s = list[Arrival](), 0.0
    while (due_s := due_s + rng.expovariate(rate)) < seconds:
        hops = rng.choices(range(6), [42, 32, 16, 6, 3, 1])[0]
        found.append(Arrival(due_s, rng.choice(hosts), hops, len(found)))
    return found


def ideal(
    given: Sequence[Arrival], delay_s: float = DELAY_S, *, is_cold: bool = True
) -> list[float]:
    """Simulate an ideal fetcher; return when each URL ends, in seconds from the start.

    A host is asked for one thing at a time, with the delay after each answer. `is_cold`: first for robots.txt.
    """
    free: dict[int, float] = {}
    ends = [0.0] * len(given)
    waiting = [(one.due_s, place, one.host, one.hops) for place, one in enumerate(given)]
    heapq.heapify(waiting)
    while waiting:
        ready_s, place, host, hops = heapq.heappop(waiting)
        if host not in free:
            free[host] = ready_s + answer_s(host) + delay_s if is_cold else ready_s
        if free[host] > ready_s:  # another URL may be ready earlier
            heapq.heappush(waiting, (free[host], place, host, hops))
            continue
        end_s = ready_s + answer_s(host)
        free[host] = end_s + delay_s
        if hops:
            heapq.heappush(waiting, (end_s, place, next_host(host, given[place].number), hops - 1))
        else:
            ends[place] = end_s
    return ends


@dataclass
class Service:
    """`krake serve realtime` under measurement. `cpu_s`: of both processes, start-up included."""

    config: Config
    url: str
    token: str
    process: psutil.Process
    peak_mb: dict[int, float] = field(default_factory=dict)
    apart: list[psutil.Process] = field(default_factory=list)

    def processes(self) -> list[psutil.Process]:
        """The service and its children, and fetchers of their own with theirs."""
        roots = [self.process, *self.apart]
        return [*roots, *(child for root in roots for child in root.children(recursive=True))]

    def cpu_s(self) -> float:
        """The CPU of all processes so far."""
        return sum(sum(one.cpu_times()[:2]) for one in self.processes())

    def note_memory(self) -> None:
        """Note the resident memory of each process."""
        for one in self.processes():
            self.peak_mb[one.pid] = max(
                self.peak_mb.get(one.pid, 0.0), one.memory_info().rss / (1 << 20)
            )

    def client(self) -> httpx.AsyncClient:
        """A client with all rights."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.AsyncClient(
            base_url=self.url, headers=headers, timeout=60.0, limits=httpx.Limits()
        )


@dataclass
class Line:
    """A connection to the service. Requests are written by hand: a client library costs more than the service."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    head: str

    @classmethod
    async def open(cls, service: Service) -> Line:
        """Connect."""
        host, port = service.url.strip("/").rpartition("/")[2].split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        return cls(
            reader,
            writer,
            f"HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {service.token}\r\n",
        )

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        """Send a request; return the answer's status and body."""
        data = b"" if body is None else json.dumps(body).encode()
        self.writer.write(
            f"{method} {path} {self.head}Content-Length: {len(data)}\r\n\r\n".encode() + data
        )
        told = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        length = int(told.partition(b"content-length:")[2].partition(b"\r\n")[0])
        return int(told.split(b" ", 2)[1]), await self.reader.readexactly(length)

    def close(self) -> None:
        """Disconnect."""
        self.writer.close()


@contextmanager
def web() -> Iterator[tuple[int, dict[str, Any]]]:
    """Serve the hosts; gives the port, and a mapping that has the server's notes at the end."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.liveweb"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        notes: dict[str, Any] = {}
        yield json.loads(process.stdout.readline())["port"], notes
        process.stdin.close()
        notes.update(json.loads(process.stdout.readline()))


def config_of(
    folder: Path,
    realtime: dict[str, Any] | None = None,
    fetch: dict[str, Any] | None = None,
    **sections: Any,
) -> Config:
    """Return the config of the service, or of the batch crawl."""
    folder.mkdir(parents=True, exist_ok=True)
    usual = {
        "host_delay_s": DELAY_S,
        "ip_delay_s": 0.0,
        "connections": 500,  # 150 URLs/s are 430 requests/s at first, and each takes 0.14 s in the mean
        "processes": 1,
        "allow_networks": ["127.0.0.0/8"],
        "contact": "bench@localhost",
    }
    tokens = {"tokens": str(folder / "tokens.json"), "listen": "127.0.0.1:0"}
    return make_config(
        folder,
        urls={"scope": "any", "max_depth": 0},
        fetch={**usual, **(fetch or {})},
        parse={"facts": True},
        realtime={**tokens, **(realtime or {})},
        **sections,
    )


@contextmanager
def served(
    folder: Path,
    realtime: dict[str, Any] | None = None,
    urls_per_s: float | None = None,
    **sections: Any,
) -> Iterator[Service]:
    """Run the service. `realtime`, `sections`: of its config, besides those of `config_of`.

    `urls_per_s`: the limit of its token, None for the usual one.
    """
    order = {"order": "crawldb", "routing": "host"}
    config = config_of(folder, realtime, frontier=order, **sections)
    token = TokenFile(config.realtime.tokens).add("bench", RIGHTS, urls_per_s)
    command = [
        str(Path(sys.executable).with_name("krake")),
        "--config",
        str(write_config(config, folder)),
    ]
    environment = {**os.environ, PASSWORD_VARIABLE: PASSWORD}
    with subprocess.Popen(
        [*command, "serve", "realtime"], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        try:
            yield Service(config, said.split(": ")[1].strip(), token, psutil.Process(process.pid))
        finally:
            process.send_signal(signal.SIGTERM)


@contextmanager
def store() -> Iterator[dict[str, Any]]:
    """Start the key server that the environment asks for; gives sections of the config."""
    if os.environ.get("REALTIME_STORE") != "mariadb":
        yield {}
        return
    with mariadb() as keys:
        yield {"key_storage": keys()}


@contextmanager
def mariadb() -> Iterator[Callable[[], dict[str, Any]]]:
    """Start MariaDB; gives a function that makes a database, and returns the section `key_storage` for it."""
    with start_mariadb(*SETTINGS) as server, ahead(server.process.pid):

        def keys() -> dict[str, Any]:
            database = server.new_database()
            server.run(f"CREATE DATABASE {database}")
            return {"servers": [server.server], "database": database, "user": "krake"}

        yield keys


async def submit_all(
    service: Service, given: Sequence[Arrival], port: int
) -> tuple[float, Counter[str]]:
    """Submit each URL alone when it is due; return the start in POSIX seconds, and the decisions.

    The URLs go on `CONNECTIONS` connections.
    """
    decisions, due = Counter[str](), asyncio.Queue[str | None]()
    workers = [asyncio.create_task(_post(service, due, decisions)) for _ in range(CONNECTIONS)]
    began_s = time.time()
    for number, one in enumerate(given):
        await asyncio.sleep(max(0.0, began_s + one.due_s - time.time()))
        due.put_nowait(one.url(port))
        if not number % 200:
            service.note_memory()
    for _ in workers:
        due.put_nowait(None)
    await asyncio.gather(*workers)
    return began_s, decisions


async def _post(service: Service, due: asyncio.Queue[str | None], decisions: Counter[str]) -> None:
    """Submit the URLs of a queue on a connection, until its end."""
    line = await Line.open(service)
    while url := await due.get():
        status, answer = await line.ask("POST", "/v1/urls", {"urls": [url]})
        decisions[
            json.loads(answer)["decisions"][0]["decision"] if status == ACCEPTED else str(status)
        ] += 1
    line.close()


async def ends_of(service: Service, urls: Sequence[str]) -> dict[str, float]:
    """Wait for the documents of URLs; return when each was written, in POSIX seconds."""
    found: dict[str, float] = {}
    until_s = time.monotonic() + LAST_S
    async with service.client() as client:
        while len(found) < len(urls) and time.monotonic() < until_s:
            left = [url for url in urls if url not in found]
            for start in range(0, len(left), 300):
                answer = await client.post(
                    "/v1/pages:batch", json={"urls": left[start : start + 300]}
                )
                pages = answer.json()["pages"]
                found |= {
                    one["url"]: one["fetched_ms"] / 1000 for one in pages if one["state"] == "known"
                }
            await asyncio.sleep(1.0)
    return found


def added_by(
    service: Service, given: Sequence[Arrival], port: int, *, is_cold: bool = True
) -> list[float]:
    """Submit arrivals, and return by how much each URL took longer than the ideal fetcher's."""
    began_s, _ = asyncio.run(submit_all(service, given, port))
    ends = asyncio.run(ends_of(service, [one.url(port) for one in given]))
    best = ideal(given, is_cold=is_cold)
    return [
        ends[one.url(port)] - began_s - best[place]
        for place, one in enumerate(given)
        if one.url(port) in ends
    ]


def load(folder: Path, seconds: float) -> list[Row]:
    """Measure latency at the rate, and CPU against a batch crawl of the same pages."""
    given = arrivals(random.Random(1), RATE, seconds)
    with web() as (port, notes), ahead(), store() as sections:
        urls = [one.url(port) for one in given]
        with served(folder / "live", **sections) as service:
            added = added_by(service, given, port)
            cpu_s = service.cpu_s()
        collected = None if sections else measure(_collect, service.config)
        batch = None if sections else measure(crawl_to_the_end, config_of(folder / "batch"), urls)
    middle, p99 = median(added), quantiles(added, n=100)[98]
    where = "MariaDB" if sections else "a file"
    what = f"realtime: {RATE} URLs/s for {seconds:.0f} s, {where}, {len(added):,} of {len(given):,} URLs"
    rows = [
        Row(
            f"{what}: added to an ideal fetcher",
            f"median {middle:.3f} s",
            f"{MEDIAN_S} s",
            middle < MEDIAN_S,
        ),
        Row(f"{what}: the same", f"p99 {p99:.3f} s", f"{P99_S} s", p99 < P99_S),
        Row(
            "realtime: shortest pause of a host",
            f"{notes['closest_s']:.3f} s",
            f"{DELAY_S} s",
            _is_polite(notes),
        ),
    ]
    if collected is None or batch is None:
        return rows
    times = (cpu_s + collected.cpu_s) / batch.cpu_s
    what = f"realtime: CPU against a batch crawl of the same {batch.result:,} URLs"
    told = f"{times:.2f} times (service {cpu_s:.1f} s, collect {collected.cpu_s:.1f}, batch {batch.cpu_s:.1f})"
    return [*rows, Row(what, told, f"at most {MOST_TIMES:.0f} times", times <= MOST_TIMES)]


def fast(folder: Path, seconds: float) -> list[Row]:
    """Measure the queue at a higher rate: its length in the middle and at the end."""
    given = arrivals(random.Random(4), FAST, seconds)
    with web() as (port, _), ahead(), served(folder) as service:
        half, end = asyncio.run(_lengths(service, given, port))
    what = (
        f"realtime: {FAST} URLs/s for {seconds:.0f} s: URLs that wait, in the middle and at the end"
    )
    return [Row(what, f"{half:,} and {end:,}", "no growth", end <= 1.25 * half + 25)]


async def _lengths(service: Service, given: Sequence[Arrival], port: int) -> tuple[int, int]:
    submitting = asyncio.create_task(submit_all(service, given, port))
    await asyncio.sleep(given[-1].due_s / 2)
    half = await _waiting(service)
    await submitting
    return half, await _waiting(service)


async def _waiting(service: Service) -> int:
    """Return how many URLs are in the service's memory, the median of nine looks."""
    line, found = await Line.open(service), list[int]()
    for _ in range(9):
        _, text = await line.ask("GET", "/metrics")
        (number,) = [
            row.split()[1]
            for row in text.decode().splitlines()
            if row.startswith("krake_realtime_waiting ")
        ]
        found.append(int(float(number)))
        await asyncio.sleep(0.05)
    line.close()
    return int(median(found))


def _is_polite(notes: dict[str, Any]) -> bool:
    return float(notes["closest_s"]) >= DELAY_S


def _collect(config: Config) -> int:
    return collect_parts(open_stores(config), FETCHER).pages


def reads(folder: Path, rows: int) -> list[Row]:
    """Measure the service's CPU for reads of 1, 20 and 300 URLs, and the time of reads that come at once."""
    found: list[Row] = []
    with web() as (port, _), ahead(), served(folder) as service:
        fill(folder / "keys" / "0-pages.sqlite", rows)
        for size, most_ms in READ_MS.items():
            cpu_ms = asyncio.run(_read_ms(service, rows, size))
            what = f"realtime: {rows:,} rows, a read of {size} URLs"
            found.append(Row(what, f"{cpu_ms:.2f} ms of CPU", f"{most_ms} ms", cpu_ms <= most_ms))
        alone_ms = asyncio.run(_at_once(service, rows, ()))
        given = arrivals(random.Random(5), QUIET, READ_S)
        busy_ms = asyncio.run(_at_once(service, rows, [one.url(port) for one in given]))
    what = f"realtime: {rows:,} rows, reads of 20 URLs on {READERS} connections"
    times, told = busy_ms / alone_ms, f"{what}, {QUIET} URLs/s come in"
    return [
        *found,
        Row(what, f"p99 {alone_ms:.1f} ms", f"{READ_P99_MS} ms", alone_ms <= READ_P99_MS),
        Row(told, f"p99 {busy_ms:.1f} ms, {times:.2f} times", "at most 2 times", times <= 2),
    ]


def fill(path: Path, rows: int) -> None:
    """Write documents of usual size into the table of the service."""
    pages = SqlitePages(path)
    pages.ensure()
    facts = {"title": "A title of usual length for a page", "description": "words " * 40}
    for start in range(0, rows, 1000):
        urls = [_known(number) for number in range(start, min(rows, start + 1000))]
        wishes = [
            Wish(key_of(url), part_of(host_of(url)), request_bytes(Request(url=url)))
            for url in urls
        ]
        pages.submit(wishes)
        document = [
            encoded(Document(url=url, outcome="ok", final_url=url, status=200, facts=facts))
            for url in urls
        ]
        day_ms = 86_400_000
        pages.finish(
            [
                Finished(wish.key, data, day_ms, 1)
                for wish, data in zip(wishes, document, strict=True)
            ]
        )
    pages.close()


def _known(number: int) -> str:
    return f"http://h{number % 20_000}.example/{number}"


async def _read_ms(service: Service, rows: int, size: int) -> float:
    """Return the median CPU of a read in milliseconds, over five series, without what a silent service spends."""
    rng, series = random.Random(size), max(50, 2000 // size)
    idle = await _silent(service)
    line = await Line.open(service)
    spent: list[float] = []
    for _ in range(SERIES):
        before_s, began_s = service.cpu_s(), time.monotonic()
        for _ in range(series):
            await _read(line, [_known(rng.randrange(rows)) for _ in range(size)])
        took_s = time.monotonic() - began_s
        spent.append(1000 * (service.cpu_s() - before_s - idle * took_s) / series)
    line.close()
    return median(spent)


async def _silent(service: Service) -> float:
    """Return the CPU of the service without requests, in seconds of a second."""
    before_s, began_s = service.cpu_s(), time.monotonic()
    await asyncio.sleep(SILENT_S)
    return (service.cpu_s() - before_s) / (time.monotonic() - began_s)


async def _read(line: Line, urls: Sequence[str]) -> None:
    if len(urls) == 1:
        status, answer = await line.ask("GET", f"/v1/pages?url={quote(urls[0], safe='')}")
    else:
        status, answer = await line.ask("POST", "/v1/pages:batch", {"urls": urls})
    assert status == OK, answer


async def _at_once(service: Service, rows: int, submitted: Sequence[str]) -> float:
    """Return the 99th percentile of reads in a closed loop, in milliseconds, while URLs are submitted at their rate."""
    took_ms: list[float] = []
    until_s = time.monotonic() + READ_S

    async def read(number: int) -> None:
        rng, line = random.Random(number), await Line.open(service)
        while time.monotonic() < until_s:
            began_s = time.monotonic()
            await _read(line, [_known(rng.randrange(rows)) for _ in range(20)])
            took_ms.append(1000 * (time.monotonic() - began_s))
        line.close()

    async def submit() -> None:
        line = await Line.open(service)
        for url in submitted:
            await line.ask("POST", "/v1/urls", {"urls": [url]})
            await asyncio.sleep(1 / QUIET)
        line.close()

    await asyncio.gather(submit(), *map(read, range(READERS)))
    return quantiles(took_ms, n=100)[98]


def overload(folder: Path, seconds: float) -> list[Row]:
    """Measure the service above its rate: memory, refusals, delays; then at its rate again."""
    given = arrivals(random.Random(2), OVERLOAD, seconds)
    with web() as (port, notes), ahead(), served(folder) as service:
        _, decisions = asyncio.run(submit_all(service, given, port))
        service.note_memory()
        memory_mb = sum(sorted(service.peak_mb.values())[-2:])
        time.sleep(CALM_S)
        later = [
            replace(one, number=one.number + 1_000_000)
            for one in arrivals(random.Random(6), RATE, READ_S)
        ]
        added = added_by(service, later, port, is_cold=False)
    what = f"realtime: {OVERLOAD} URLs/s for {seconds:.0f} s"
    refused = decisions["429"]
    return [
        Row(
            f"{what}: memory of both processes",
            f"{memory_mb:.0f} MB",
            f"{MOST_MB} MB",
            memory_mb < MOST_MB,
        ),
        Row(f"{what}: answers", f"{refused:,} of {len(given):,} are 429"),
        Row(
            f"{what}, {CALM_S} s later {RATE} URLs/s: added to an ideal fetcher",
            f"median {median(added):.3f} s, {len(added):,} of {len(later):,} URLs",
            f"{MEDIAN_S} s",
            median(added) < MEDIAN_S and len(added) == len(later),
        ),
        Row(
            f"{what}: shortest pause of a host",
            f"{notes['closest_s']:.3f} s",
            f"{DELAY_S} s",
            _is_polite(notes),
        ),
    ]


def one_busy_host(folder: Path, seconds: float) -> list[Row]:
    """Measure 1,000 quiet hosts next to a host with 10,000 URLs."""
    quiet = arrivals(random.Random(3), RATE, seconds, range(1000))
    chain = [Arrival(one.due_s, one.host, 0, one.number) for one in quiet]
    p99: dict[bool, float] = {}
    for is_busy in (False, True):
        with web() as (port, _), ahead(), served(folder / str(is_busy)) as service:
            if is_busy:
                asyncio.run(_flood(service, port))
            began_s, _ = asyncio.run(submit_all(service, chain, port))
            ends = asyncio.run(ends_of(service, [one.url(port) for one in chain]))
            took = [
                ends[one.url(port)] - began_s - one.due_s for one in chain if one.url(port) in ends
            ]
            p99[is_busy] = quantiles(took, n=100)[98]
    times = p99[True] / p99[False]
    what = "realtime: quiet hosts next to a host with 10,000 URLs"
    return [Row(what, f"p99 {p99[True]:.2f} s, {times:.2f} times", "at most 2 times", times <= 2)]


async def _flood(service: Service, port: int) -> None:
    urls = [f"http://{address(HOSTS - 1)}:{port}/0/{number}" for number in range(10_000)]
    async with service.client() as client:
        for start in range(0, len(urls), 300):
            await client.post("/v1/urls", json={"urls": urls[start : start + 300]})


def run(directory: Path) -> list[Row]:
    """Measure all."""
    seconds = float(os.environ.get("REALTIME_SECONDS", SECONDS))
    rows = int(os.environ.get("REALTIME_ROWS", ROWS))
    most_s = min(seconds, OVERLOAD_S)
    parts = (
        lambda: load(directory / "load", seconds),
        lambda: fast(directory / "fast", most_s),
        lambda: reads(directory / "reads", rows),
        lambda: overload(directory / "overload", most_s),
        lambda: one_busy_host(directory / "busy", most_s),
    )
    return list(itertools.chain.from_iterable(part() for part in parts))
