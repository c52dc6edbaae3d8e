"""Other crawlers on the same web, in the same run: figures of two machines, or of two days, say nothing."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import measure

PROJECT = Path(__file__).resolve().parents[1]
SCRAPY_PYTHON = PROJECT / ".venv-bench/bin/python"
"""What `make setup-bench` makes: Scrapy's needs must not move Krake's."""
_FOLLOWED = "--follow-tags=a,area,frame,iframe"


@dataclass(frozen=True)
class Peer:
    """What another crawler did: the responses in its WARC file, and what a CPU second was good for."""

    urls: int
    urls_per_cpu_s: float


def wget(seeds: Sequence[str], directory: Path) -> Peer | None:
    """wget, which writes requests and responses as WARC, and a mirror; None if it is not installed, or left no WARC.

    It follows the elements that Krake follows, obeys robots.txt, and never leaves the seeds' hosts.
    """
    program = shutil.which("wget")
    if program is None:
        return None
    warc = directory / "wget"
    arguments = ["--quiet", "--no-config", "--recursive", "--level=inf", _FOLLOWED, f"--warc-file={warc}"]
    return _peer([program, *arguments, f"--directory-prefix={directory / 'mirror'}", *seeds], Path(f"{warc}.warc.gz"))


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
    subprocess.run(command, check=False, cwd=PROJECT)  # wget ends with 8 where an answer was an error, as 404
