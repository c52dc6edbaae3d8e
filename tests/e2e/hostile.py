"""A crawl of good hosts, alone and then with hostile ones, and what must hold of it. Small and large tests run it."""

import socket
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from crawl_lib.states import Outcome
from tests.e2e.crawl import Result, check_counts, check_warcs, make_config, run_crawl
from tests.web.catalogue import GOOD, HOSTILE, REFUSED, Host, good_hosts
from tests.web.crowd import CrowdServing
from tests.web.lookups import python_of, says
from tests.web.loopback import listen_everywhere
from tests.web.names import NameServer

MOST_BYTES = 400_000_000
"""Of a fetching process."""
LOOK_S = 0.1


@dataclass(frozen=True)
class Shape:
    """How large the web is, and how it is crawled. `time_limit_s`: of a request; `pages`: of a good host."""

    good: int
    pages: int
    hostile: int
    urls: int
    delay_s: float
    time_limit_s: float
    connections: int


class Memory:
    """The most memory that any process below this one ever had, and their CPU, but of those there were before."""

    def __init__(self) -> None:
        self.peaks: dict[int, int] = {}
        self.cpu_s: dict[int, float] = {}
        self._before = {process.pid for process in psutil.Process().children(recursive=True)}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Memory":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def peak_bytes(self) -> int:
        return max(self.peaks.values())

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            for process in psutil.Process().children(recursive=True):
                if process.pid not in self._before:
                    with suppress(OSError, StopIteration, psutil.NoSuchProcess):  # it has ended
                        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
                        peak = next(line for line in lines if line.startswith("VmHWM:"))
                        self.peaks[process.pid] = int(peak.split()[1]) * 1024
                        self.cpu_s[process.pid] = sum(process.cpu_times()[:2])


@contextmanager
def other_ports() -> Iterator[dict[str, int]]:
    """`closed`: a port on which no one listens, and `deaf`: one on which no one answers, of all loopback addresses."""
    with socket.socket() as closed, listen_everywhere() as deaf:
        closed.bind(("127.0.0.1", 0))
        deaf.listen(1)
        yield {"closed": closed.getsockname()[1], "deaf": deaf.getsockname()[1]}


def crawl(directory: Path, seeds: list[str], shape: Shape) -> Result:
    """Crawl these pages and where they redirect to; names are looked up by `lookups`."""
    directory.mkdir()
    config = make_config(
        directory,
        nodes=1,
        crawl={"max_iterations": 8},
        batch={"time_limit_s": 200},
        urls={"max_depth": 0},
        segment={"sync_interval_s": 5.0},
        fetch={
            "contact": "tests@localhost",
            "processes": 2,
            "host_delay_s": shape.delay_s,
            "connections": shape.connections,
            "time_limit_s": shape.time_limit_s,
            "connect_timeout_s": shape.time_limit_s / 2,
            "max_redirects": 1,
            "allow_networks": [f"{GOOD}.0.0/16", f"{HOSTILE}.0.0/16"],
        },
    )
    with NameServer(says) as names, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", python_of(directory / "python", names.address))
        return run_crawl(config, seeds, process=False)


def seconds_of_good_pages(result: Result, good: list[str]) -> float:
    """From the start of the iteration until the last good page was there."""
    rows = {row["url"]: row for row in rows_of(result)}
    begun_s = int(result.segments()[0].parent.name)
    return (
        max(rows[url]["time"].timestamp() + rows[url]["duration_ms"] / 1000 for url in good)
        - begun_s
    )


def wrong_good_pages(result: Result, good: list[str]) -> list[str]:
    """The good pages that were not there at the first try."""
    rows = {row["url"]: row for row in rows_of(result)}
    found = [(url, rows[url]["outcome"], rows[url]["attempts"]) for url in good]
    wrong = [
        f"{url}: {outcome} at try {tries}"
        for url, outcome, tries in found
        if (outcome, tries) != (Outcome.OK, 1)
    ]
    return [f"{len(wrong)} of {len(good)} good pages, such as", *wrong[:3]] if wrong else []


def rows_of(result: Result) -> list[dict[str, Any]]:
    """The rows of `pages`, as far as it matters here."""
    return result.rows(
        "pages", ["url", "outcome", "attempts", "truncated", "time", "duration_ms", "redirect_url"]
    )


def wrong_hostile_pages(
    result: Result, hosts: list[Host], port: int, others: dict[str, int]
) -> list[str]:
    """The hostile pages that ended otherwise than the catalogue says, or whose redirect's target did."""
    rows = {row["url"]: row for row in rows_of(result)}
    wrong = []
    for host in hosts:
        for url in host.urls(port, others):
            row, case = rows[url], host.case
            then = (
                rows.get(row["redirect_url"], {}).get("outcome") if case.then is not None else None
            )
            ends = (row["outcome"], then) == (case.outcome, case.then)
            if not ends or row["truncated"] not in (
                case.truncated.split("|") if case.truncated else [None]
            ):
                found = f"{row['outcome']}, truncated {row['truncated']}, then {then}"
                wrong.append(f"{host.name}: {url}, robots.txt {host.robots}: {found}")
    return wrong


def missing_rejections(result: Result, hosts: list[Host]) -> list[str]:
    """The rejections that the catalogue names, where there were fewer than pages that have them."""
    counted = sum(
        (Counter(manifest["counts"]["rejections"]) for manifest in result.manifests()),
        Counter[str](),
    )
    expected = Counter(
        host.case.rejection for host in hosts for _ in host.paths if host.case.rejection
    )
    return [
        f"{counted[name]} rejections `{name}`, not {least}"
        for name, least in expected.items()
        if counted[name] < least
    ]


def check(directory: Path, seed: int, shape: Shape) -> dict[str, float]:
    """Crawl the good hosts alone, then with the hostile ones. Returns what was measured; all that is wrong fails.

    Good pages that came late are looked at once more: other tests run at the same time.
    """
    late, measured = crawl_both(directory / "first", seed, shape)
    if late:
        late, measured = crawl_both(directory / "second", seed, shape)
    assert not late, late
    return measured


def crawl_both(directory: Path, seed: int, shape: Shape) -> tuple[str, dict[str, float]]:
    """What to say of good pages that were late, "" if they were not, and what was measured. All else fails."""
    directory.mkdir(exist_ok=True)
    with CrowdServing(seed, shape.hostile, shape.urls) as crowd, other_ports() as others:
        good = [
            f"http://{host}:{crowd.port}/good/{page}"
            for page in range(shape.pages)
            for host in good_hosts(shape.good)
        ]
        bad = [url for host in crowd.hosts for url in host.urls(crowd.port, others)]
        alone_s = seconds_of_good_pages(crawl(directory / "alone", good, shape), good)
        before = crowd.log().counts()
        with Memory() as memory:
            result = crawl(directory / "together", [*bad, *good], shape)
        log = crowd.log()
    together_s = seconds_of_good_pages(result, good)
    measured = {"alone_s": alone_s, "together_s": together_s, "peak_mb": memory.peak_bytes / 1e6}
    measured["cpu_s"] = sum(memory.cpu_s.values())
    wrong = wrong_good_pages(result, good) + wrong_hostile_pages(
        result, crowd.hosts, crowd.port, others
    )
    wrong += missing_rejections(result, crowd.hosts)
    if memory.peak_bytes >= MOST_BYTES:
        wrong.append(f"a process had {memory.peak_bytes:,} bytes")
    after = log.counts()
    wrong += [f"{url} was asked again" for url in good if (before[url], after[url]) != (1, 2)][:3]
    wrong += [
        f"{request.host} was asked" for request in log.requests if request.host.startswith(REFUSED)
    ]
    assert not wrong, "\n".join(["", *wrong, str(measured)])
    check_counts(result)
    check_warcs(result)
    print(measured)
    is_late = together_s > alone_s + max(0.2 * alone_s, 10)
    return f"good pages took {together_s:.1f} s, alone {alone_s:.1f} s" if is_late else "", measured
