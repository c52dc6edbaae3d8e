"""Fetchers of real time on machines of their own: two do nearly twice the work of one.

Each fetcher is held to a quarter of a core by the kernel (`cpu.cfs_quota_us`, or `cpu.max`), as a small machine would
hold it. All URLs wait from the beginning, on 2,000 hosts, so the fetchers alone limit the rate.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.crawl import make_config
from benchmarks.liveweb import HOSTS, address
from benchmarks.realtime import Service, ends_of, web
from benchmarks.report import Row
from crawl_lib.realtime import TokenFile, make_certificates
from crawl_lib.realtime.tokens import RIGHTS
from tests.e2e.crawl import write_config
from tests.ports import free_port

NAMES = ("live-1", "live-2")
PERIOD_US, QUOTA_US = 100_000, 25_000
URLS = 4_000
LEAST_TIMES = 1.7
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
def fetcher(folder: Path, name: str, port: int, held_there: list[bool]) -> Iterator[None]:
    """Run a fetcher in a directory of its own."""
    words = ["--listen", f"127.0.0.1:{port}", "--name", name, "--directory", str(folder / name)]
    command = [str(Path(sys.executable).with_name("krake")), "realtime", "fetcher", *words]
    with ExitStack() as stack:
        process = subprocess.Popen(
            [*command, "--certificates", str(folder / "certificates")],
            stdout=subprocess.PIPE,
            text=True,
        )
        held_there.append(stack.enter_context(held(process.pid)))
        with process:
            assert process.stdout is not None
            process.stdout.readline()
            try:
                yield
            finally:
                process.send_signal(signal.SIGTERM)


def rate(folder: Path, port: int, count: int) -> float | None:
    """Return the URLs a second of so many fetchers; None where the kernel holds no process to a share."""
    folder.mkdir()
    make_certificates(folder / "certificates", NAMES[:count])
    ports = {name: free_port() for name in NAMES[:count]}
    fetch: dict[str, Any] = {
        "host_delay_s": 0.1,
        "max_crawl_delay_s": 0.2,
        "ip_delay_s": 0.0,
        "connections": 200,
    }
    config = make_config(
        folder,
        urls={"scope": "any", "max_depth": 0},
        frontier={"order": "crawldb", "routing": "host"},
        fetch={**fetch, "allow_networks": ["127.0.0.0/8"], "contact": "bench@localhost"},
        realtime={
            "tokens": str(folder / "tokens.json"),
            "listen": "127.0.0.1:0",
            "certificates": str(folder / "certificates"),
            "fetchers": [{"name": name, "address": f"127.0.0.1:{ports[name]}"} for name in ports],
        },
    )
    token, held_there = (
        TokenFile(str(folder / "tokens.json")).add("bench", RIGHTS, URLS),
        list[bool](),
    )
    command = [
        str(Path(sys.executable).with_name("krake")),
        "--config",
        str(write_config(config, folder)),
    ]
    urls = [f"http://{address(number % HOSTS)}:{port}/0/{number}" for number in range(URLS)]
    with ExitStack() as stack:
        for name, listening in ports.items():
            stack.enter_context(fetcher(folder, name, listening, held_there))
        if not all(held_there):
            return None
        process = stack.enter_context(
            subprocess.Popen([*command, "serve", "realtime"], stdout=subprocess.PIPE, text=True)
        )
        assert process.stdout is not None
        said = process.stdout.readline()
        service = Service(config, said.split(": ")[1].strip(), token, psutil.Process(process.pid))
        try:
            return asyncio.run(_rate(service, urls))
        finally:
            process.send_signal(signal.SIGTERM)


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


def run(directory: Path) -> list[Row]:
    """Measure one and two fetchers."""
    with web() as (port, _):
        one, two = (rate(directory / str(count), port, count) for count in (1, 2))
    what = "fetchers: each held to a quarter of a core, two against one"
    if one is None or two is None:
        return [Row(what, "not measured: this machine holds no process to a share of a core")]
    found = f"{two / one:.2f} times ({one:.0f} and {two:.0f} URLs/s)"
    return [Row(what, found, f"at least {LEAST_TIMES} times", two / one >= LEAST_TIMES)]
