"""This checkout and another commit: crawls of the same web in turn, and the median of the pairs' ratios.

The commit gets a worktree and an environment of its own in a temporary folder, made by its own `make setup`. Each side
crawls with its own code, its own benchmark's config included; the web is served by this one for both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.crawl import served
from benchmarks.report import Row, ahead

PROJECT = Path(__file__).resolve().parents[1]
PAIRS = 15
_CRAWL = """
import json, sys
from pathlib import Path
from benchmarks.crawl import crawl_to_the_end, make_config
from benchmarks.report import measure

config = make_config(Path(sys.argv[1]), **json.loads(sys.argv[2]))
measured = measure(crawl_to_the_end, config, sys.argv[3:])
print(json.dumps([measured.result, measured.cpu_s]))
"""


def crawl(
    checkout: Path, seeds: Sequence[str], directory: Path, sections: dict[str, Any] | None = None
) -> tuple[int, float]:
    """Crawl by the code of a checkout; return the number of URLs and the CPU seconds.

    `directory`: a new one. `sections`: of the config, in place of those of the benchmark.
    """
    directory.mkdir()
    command = [
        str(checkout / ".venv/bin/python"),
        "-c",
        _CRAWL,
        str(directory),
        json.dumps(sections or {}),
        *seeds,
    ]
    said = subprocess.run(
        command, check=True, cwd=checkout, stdout=subprocess.PIPE, text=True
    ).stdout
    urls, cpu_s = json.loads(said.splitlines()[-1])
    return urls, cpu_s


@contextmanager
def checkout_of(commit: str, directory: Path) -> Iterator[Path]:
    """A worktree of a commit with its environment, while the `with` block runs. `commit`: as git names it."""
    place = directory / "against"
    git = ["git", "-C", str(PROJECT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(place), commit], check=True)
    try:
        # Without the variables of a make that runs this: its own would refuse them.
        variables = {
            name: value for name, value in os.environ.items() if not name.startswith("MAKE")
        }
        subprocess.run(
            ["make", "--quiet", "setup"], check=True, cwd=place, env=variables, stdout=sys.stderr
        )
        subprocess.run(
            [place / ".venv/bin/python", "-m", "compileall", "-q", "crawl_lib"],
            check=True,
            cwd=place,
        )
        yield place
    finally:
        subprocess.run([*git, "remove", "--force", str(place)], check=True)


def in_pairs(
    other: Path, seeds: Sequence[str], directory: Path, pairs: int = PAIRS
) -> list[tuple[float, float]]:
    """CPU seconds a URL of this checkout and of the other one, pair by pair; who begins changes each time."""
    found = []
    for number in range(1, pairs + 1):
        costs = {}
        for side in (PROJECT, other) if number % 2 else (other, PROJECT):
            urls, cpu_s = crawl(
                side, seeds, directory / f"{number}-{'this' if side == PROJECT else 'other'}"
            )
            costs[side] = cpu_s / urls
        found.append((costs[PROJECT], costs[other]))
        told = f"{1000 * costs[PROJECT]:.3f} and {1000 * costs[other]:.3f} ms CPU a URL"
        print(
            f"  pair {number} of {pairs}: {told}, {costs[PROJECT] / costs[other]:.3f}",
            file=sys.stderr,
            flush=True,
        )
    return found


def rows_of(found: Sequence[tuple[float, float]], commit: str) -> list[Row]:
    """The median ratio, and the median cost of each side."""
    ratios = sorted(this / other for this, other in found)
    this_ms, other_ms = (1000 * median(pair[side] for pair in found) for side in (0, 1))
    return [
        Row(
            f"pairs: CPU a URL, this checkout against {commit}, median of {len(found)} pairs",
            f"{median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}); medians {this_ms:.3f}, {other_ms:.3f} ms",
        )
    ]


def run(directory: Path, commit: str) -> list[Row]:
    """Crawl in turn, by the code of this checkout and by that of a commit."""
    with checkout_of(commit, directory) as other, served() as web, ahead():
        return rows_of(in_pairs(other, web.seeds, directory), commit)
