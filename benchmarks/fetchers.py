"""Fetchers of real time on machines of their own: two do nearly twice the work of one.

Each fetcher is held to a quarter of a core by the kernel (`cpu.cfs_quota_us`, or `cpu.max`), as a small machine would
hold it. All URLs wait from the beginning, on 2,000 hosts, so the fetchers alone limit the rate.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx
import psutil

from benchmarks.liveweb import HOSTS, address
from benchmarks.realtime import (
    DELAY_S,
    MEDIAN_S,
    P99_S,
    RATE,
    SECONDS,
    Arrival,
    Service,
    added_by,
    arrivals,
    ends_of,
    mariadb,
    served,
    web,
)
from benchmarks.report import Row, ahead
from crawl_lib.realtime import make_certificates
from tests.ports import free_port

NAMES = ("live-1", "live-2")
PERIOD_US, QUOTA_US = 100_000, 25_000
URLS = 4_000
LEAST_TIMES, MOST_TIMES = 1.7, 1.15
CGROUPS = Path("/sys/fs/cgroup")


@contextmanager
def held(pid: int) -> Iterator[bool]:
    """Hold a process and its children to a quarter of a core; gives whether the kernel and its rights allow it."""
    is_v1 = (CGROUPS / "cpu").is_dir()
    group = (CGROUPS / "cpu" if is_v1 else CGROUPS) / f"krake-bench-{pid}"
    limit = ("cpu.cfs_quota_us", f"{QUOTA_US}") if is_v1 else ("cpu.max", f"{QUOTA_US} {PERIOD_US}")
    try:
        group.mkdir()
        (group / limit[0]).write_text(limit[1])
        (group / "cgroup.procs").write_text(str(pid))
    except OSError:
        yield False
        return
    yield True
    # The process has ended; its group is empty.
    group.rmdir()


@contextmanager
def fetcher(folder: Path, name: str, port: int, held_there: list[bool] | None) -> Iterator[int]:
    """Run a fetcher in a directory of its own; gives its process."""
    words = ["--listen", f"127.0.0.1:{port}", "--name", name, "--directory", str(folder / name)]
    command = [str(Path(sys.executable).with_name("krake")), "realtime", "fetcher", *words]
    with ExitStack() as stack:
        process = subprocess.Popen(
            [*command, "--certificates", str(folder / "certificates")],
            stdout=subprocess.PIPE,
            text=True,
        )
        if held_there is not None:
            held_there.append(stack.enter_context(held(process.pid)))
        with process:
            assert process.stdout is not None
            process.stdout.readline()
            try:
                yield process.pid
            finally:
                process.send_signal(signal.SIGTERM)


@contextmanager
def cluster(
    folder: Path, count: int, held_there: list[bool] | None, **sections: Any
) -> Iterator[Service]:
    """Run a service with so many fetchers. `held_there` takes whether each one is held to its share."""
    folder.mkdir()
    make_certificates(folder / "certificates", NAMES[:count])
    ports = {name: free_port() for name in NAMES[:count]}
    with ExitStack() as stack:
        pids = [
            stack.enter_context(fetcher(folder, name, listening, held_there))
            for name, listening in ports.items()
        ]
        realtime = {
            "certificates": str(folder / "certificates"),
            "fetchers": [{"name": name, "address": f"127.0.0.1:{ports[name]}"} for name in ports],
        }
        service = stack.enter_context(served(folder, realtime, URLS, **sections))
        service.apart = [psutil.Process(pid) for pid in pids]
        yield service


def rate(folder: Path, port: int, count: int) -> float | None:
    """Return the URLs a second of so many fetchers; None where the kernel holds no process to a share."""
    held_there = list[bool]()
    fetch = {"host_delay_s": 0.1, "max_crawl_delay_s": 0.2, "connections": 200}
    urls = [f"http://{address(number % HOSTS)}:{port}/0/{number}" for number in range(URLS)]
    with cluster(folder, count, held_there, fetch=fetch) as service:
        return asyncio.run(_rate(service, urls)) if all(held_there) else None


async def _rate(service: Service, urls: list[str]) -> float:
    async with service.client() as client:
        while (await client.get("/readyz")).status_code != httpx.codes.OK:  # noqa: ASYNC110  # of another process
            await asyncio.sleep(0.2)
        began_s = time.time()
        for start in range(0, len(urls), 300):
            answer = await client.post("/v1/urls", json={"urls": urls[start : start + 300]})
            assert answer.status_code == httpx.codes.ACCEPTED, answer.text
    ends = await ends_of(service, urls)
    return len(ends) / (max(ends.values()) - began_s)


@dataclass
class Spent:
    """The CPU of a load, in microseconds a URL, and the times added to an ideal fetcher's."""

    cpu_us: float
    median_s: float
    p99_s: float


def spent(service: Service, given: Sequence[Arrival], port: int) -> Spent:
    """Give a service a load."""
    before_s = service.cpu_s()
    added = added_by(service, given, port)
    cpu_us = 1e6 * (service.cpu_s() - before_s) / len(added)
    return Spent(cpu_us, median(added), quantiles(added, n=100)[98])


def apart(folder: Path, seconds: float) -> list[Row]:
    """Measure CPU and latency of two fetchers on machines of their own against a child process, on MariaDB."""
    given = arrivals(random.Random(1), RATE, seconds)
    # A new owner lets each unknown host wait for so long, at the first start too.
    fetch = {"max_crawl_delay_s": DELAY_S}
    with mariadb() as keys, web() as (port, _), ahead():
        with served(folder / "child", key_storage=keys(), fetch=fetch) as service:
            child = spent(service, given, port)
        with cluster(folder / "two", 2, None, key_storage=keys(), fetch=fetch) as service:
            two = spent(service, given, port)
    what = f"fetchers: two on their own, {RATE} URLs/s for {seconds:.0f} s, MariaDB"
    times = two.cpu_us / child.cpu_us
    return [
        Row(
            f"{what}: CPU a URL, against a child process",
            f"{times:.2f} times ({two.cpu_us:.0f} and {child.cpu_us:.0f} us)",
            f"at most {MOST_TIMES} times",
            times <= MOST_TIMES,
        ),
        Row(
            f"{what}: added to an ideal fetcher",
            f"median {two.median_s:.3f} s, p99 {two.p99_s:.3f} s",
            f"{MEDIAN_S} and {P99_S} s",
            two.median_s < MEDIAN_S and two.p99_s < P99_S,
        ),
    ]


def run(directory: Path) -> list[Row]:
    """Measure one and two fetchers, and two against a child process."""
    with web() as (port, _):
        one, two = (rate(directory / str(count), port, count) for count in (1, 2))
    found = apart(directory / "apart", float(os.environ.get("REALTIME_SECONDS", SECONDS)))
    what = "fetchers: each held to a quarter of a core, two against one"
    if one is None or two is None:
        return [
            Row(what, "not measured: this machine holds no process to a share of a core"),
            *found,
        ]
    told = f"{two / one:.2f} times ({one:.0f} and {two:.0f} URLs/s)"
    return [Row(what, told, f"at least {LEAST_TIMES} times", two / one >= LEAST_TIMES), *found]
