"""`python -m tests.torture N`: kill until N processes are dead; see the package. Exit code 1 if there are findings."""

from __future__ import annotations

import argparse
import gc
import os
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from tests.torture.children import adopt_orphans
from tests.torture.rounds import FLAVOURS, Flavour, Ground, Round

KILLS_OF_A_ROUND = 60


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("kills", type=int, nargs="?", default=200, help="how many kills")
    parser.add_argument("--seed", type=int, default=1, help="number that all choices follow from")
    parser.add_argument("--power", action="store_true", help="each kill is also a loss of power (simulated)")
    parser.add_argument("--flavours", default="", help="names of the kinds of rounds, with commas; default: all")
    parser.add_argument("--directory", help="where crawls lie; default: a file system in memory, if there is one")
    return parser


def memory_disk() -> str | None:
    """A file system in memory, if there is one: nobody cuts the power, and fsync costs nothing there."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Torture:
    def __init__(
        self, wanted: int, seed: int, flavours: tuple[Flavour, ...], directory: Path, *, power: bool = False
    ) -> None:
        self.power = power
        self.wanted, self.seed, self.flavours, self.directory = wanted, seed, flavours, directory
        self.deaths: Counter[tuple[str, str]] = Counter()
        self.findings: list[str] = []
        self.refetched = 0
        self.rounds = self.turns = 0

    def run(self) -> None:
        with ExitStack() as stack:
            grounds = [stack.enter_context(Ground(flavour, self.directory)) for flavour in self.flavours]
            say(f"unbroken crawls of {', '.join(flavour.name for flavour in self.flavours)} are right")
            while self.deaths.total() < self.wanted:
                self._round(self._next(grounds))

    def _next(self, grounds: list[Ground]) -> Ground:
        """The kinds of rounds in turn, some less often."""
        while True:
            turn, self.turns = self.turns, self.turns + 1
            ground = grounds[turn % len(grounds)]
            if turn // len(grounds) % ground.flavour.every == ground.flavour.every - 1 or len(grounds) == 1:
                return ground

    def _round(self, ground: Ground) -> None:
        seed = self.seed * 1_000_000 + self.rounds
        left = self.wanted - self.deaths.total()
        began_s = time.monotonic()
        directory = self.directory / f"round-{self.rounds}"
        one = Round(ground, directory, random.Random(seed), min(left, KILLS_OF_A_ROUND), power=self.power)
        findings = one.run()
        self.rounds += 1
        self.deaths += one.deaths
        self.refetched += one.refetched
        say(
            f"round {self.rounds} ({ground.flavour.name}): {one.killed} kills, {time.monotonic() - began_s:.1f} s,"
            f" {one.refetched} fetches broken and repeated, refused {dict(one.refused)};"
            f" {self.deaths.total()} of {self.wanted} kills, {len(self.findings)} findings"
        )
        for finding in findings:
            self.findings.append(f"round {self.rounds}: {finding}")
            say(f"  FINDING {finding}")
        if findings:
            say("  " + "\n  ".join(one.story))
            say(f"  files: {one.directory}")


def main() -> int:
    given = _parser().parse_args()
    gc.freeze()
    adopt_orphans()
    names = [name for name in given.flavours.split(",") if name]
    flavours = tuple(flavour for flavour in FLAVOURS if not names or flavour.name in names)
    torture = Torture(
        given.kills,
        given.seed,
        flavours,
        Path(tempfile.mkdtemp(prefix="krake-torture-", dir=given.directory or memory_disk())),
    )
    torture.power = given.power
    torture.run()
    for (kind, step), count in sorted(torture.deaths.items()):
        say(f"{kind:15} {step:32} {count}")
    return 1 if torture.findings else 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
