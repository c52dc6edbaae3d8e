"""Other crawlers on the same web, in the same run: figures of two machines, or of two days, say nothing.

Nor do those of two hours, on a machine that has other work. So Krake and its peers run in turn, ROUNDS times, and what
counts is the median of each.
"""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.crawl import TREES, crawl_to_the_end, make_config, served
from benchmarks.report import Row, ahead, measure

PROJECT = Path(__file__).resolve().parents[1]
SCRAPY_PYTHON = PROJECT / ".venv-bench/bin/python"
"""What `make setup-bench` makes: Scrapy's needs must not move Krake's."""
ROUNDS = 5
_FOLLOWED = "--follow-tags=a,area,frame,iframe"


@dataclass(frozen=True)
class Peer:
    """What a crawler did: the URLs it fetched (responses in its WARC file), and what a CPU second was good for."""

    urls: int
    urls_per_cpu_s: float


def krake(seeds: Sequence[str], directory: Path) -> Peer | None:
    """What the others are compared with."""
    measured = measure(crawl_to_the_end, make_config(directory), list(seeds))
    return Peer(measured.result, measured.result / measured.cpu_s)


def wget(seeds: Sequence[str], directory: Path) -> Peer | None:
    """wget, which writes requests and responses as WARC, and a mirror; None if it is not installed, or left no WARC.

    It follows the elements that Krake follows, obeys robots.txt, and never leaves the seeds' hosts.
    """
    program = shutil.which("wget")
    if program is None:
        return None
    warc = directory / "wget"
    arguments = [
        "--quiet",
        "--no-config",
        "--recursive",
        "--level=inf",
        _FOLLOWED,
        f"--warc-file={warc}",
    ]
    return _peer(
        [program, *arguments, f"--directory-prefix={directory / 'mirror'}", *seeds],
        Path(f"{warc}.warc.gz"),
    )


def scrapy(seeds: Sequence[str], directory: Path) -> Peer | None:
    """Scrapy with a WARC pipeline (`scrapy_peer`); None if its environment is not there, or it left no WARC file."""
    if not SCRAPY_PYTHON.exists():
        return None
    warc = directory / "scrapy.warc.gz"
    return _peer([str(SCRAPY_PYTHON), "-m", "benchmarks.scrapy_peer", str(warc), *seeds], warc)


def _peer(command: Sequence[str], warc: Path) -> Peer | None:
    measured = measure(_run, command)
    if not warc.exists():
        return None
    with gzip.open(warc) as file:
        responses = sum(line == b"WARC-Type: response\r\n" for line in file)
    return Peer(responses, responses / measured.cpu_s)


def _run(command: Sequence[str]) -> None:
    subprocess.run(
        command, check=False, cwd=PROJECT
    )  # wget ends with 8 where an answer was an error, as 404


CRAWLERS: dict[str, Callable[[Sequence[str], Path], Peer | None]] = {
    "Krake": krake,
    "wget with WARC": wget,
    "Scrapy with a WARC pipeline": scrapy,
}
BUDGETS = {"wget with WARC": 1.9, "Scrapy with a WARC pipeline": 11.0}
"""How many times as many URLs a CPU second Krake must fetch."""


def in_turn(seeds: Sequence[str], directory: Path, rounds: int = ROUNDS) -> dict[str, list[Peer]]:
    """Let each crawl the same web, one after the other, in each round; a crawler that failed has fewer figures."""
    found: dict[str, list[Peer]] = {name: [] for name in CRAWLERS}
    for number in range(1, rounds + 1):
        for name, crawl in CRAWLERS.items():
            place = directory / "crawl"
            place.mkdir()
            peer = crawl(seeds, place)
            shutil.rmtree(place)  # a mirror and a WARC file of every round would fill a small disk
            told = (
                "failed, or is not installed"
                if peer is None
                else f"{peer.urls_per_cpu_s:,.0f} URLs/s of CPU"
            )
            print(f"  round {number} of {rounds}, {name}: {told}", file=sys.stderr, flush=True)
            found[name] += [] if peer is None else [peer]
    return found


def rows_of(found: dict[str, list[Peer]], whole: bool) -> list[Row]:
    """Medians, and Krake's against the others'. `whole`: all five trees were crawled, for which the budgets are."""
    medians = {
        name: median(peer.urls_per_cpu_s for peer in peers)
        for name, peers in found.items()
        if peers
    }
    rows = []
    for name, peers in found.items():
        budget = BUDGETS.get(name)
        if not peers:
            value, met = "not measured: it is not installed, or failed", None
        else:
            slowest, fastest = (
                choose(peer.urls_per_cpu_s for peer in peers) for choose in (min, max)
            )
            value = f"{medians[name]:,.0f} URLs/s of CPU ({slowest:,.0f} to {fastest:,.0f}; {peers[0].urls:,} URLs)"
            met = None
            if budget:
                times = medians["Krake"] / medians[name]
                value, met = f"{times:.2f} x: {value}", times >= budget if whole else None
        what = (
            f"peers: {name}" if budget is None else f"peers: Krake against {name}, per CPU-second"
        )
        rows.append(Row(what, value, f"{budget:g} x" if budget else "", met))
    return rows


def run(directory: Path) -> list[Row]:
    """Krake and its peers in turn."""
    with served() as web, ahead():
        return rows_of(in_turn(web.seeds, directory), len(web.names) == len(TREES))
