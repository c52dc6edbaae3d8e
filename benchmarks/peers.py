"""Other crawlers on the same web, in the same run: figures of two machines, or of two days, say nothing."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import measure

_FOLLOWED = "--follow-tags=a,area,frame,iframe"


def wget_urls_per_cpu_s(seeds: Sequence[str], directory: Path) -> float | None:
    """URLs a CPU second of wget, which writes requests and responses as WARC and a mirror; None if it is not installed.

    It follows the elements that Krake follows, obeys robots.txt, and never leaves the seeds' hosts.
    """
    program = shutil.which("wget")
    if program is None:
        return None
    warc = directory / "wget"
    arguments = ["--quiet", "--no-config", "--recursive", "--level=inf", _FOLLOWED, f"--warc-file={warc}"]
    command = [program, *arguments, f"--directory-prefix={directory / 'mirror'}", *seeds]
    measured = measure(_run, command)
    with gzip.open(f"{warc}.warc.gz") as file:
        responses = sum(line == b"WARC-Type: response\r\n" for line in file)
    return responses / measured.cpu_s


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=False)  # it ends with 8 where an answer was an error, as 404
