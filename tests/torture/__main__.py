"""`python -m tests.torture N`: kill until N processes are dead; see the package. Exit code 1 if there are findings."""

from __future__ import annotations

import argparse
import gc
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.cluster.versitygw import VersityGw
from tests.s3 import credential_variables
from tests.torture.children import adopt_orphans
from tests.torture.harness import memory_disk
from tests.torture.kills import Chance, EveryStep, Killer
from tests.torture.plants import PLANTS
from tests.torture.report import Tally, write_report
from tests.torture.rounds import FLAVOURS, OF_REQUISITES, Ground, Round

KILLS_OF_A_ROUND = 60
ROUNDS_FOR_EVERY_STEP = 6
KEPT: dict[str, Ground] = {}
"""By flavour: the grounds that this process has for any call of `main`; a process that tests fork from has some."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("kills", type=int, nargs="?", default=200, help="how many kills")
    parser.add_argument("--seed", type=int, default=1, help="number that all choices follow from")
    parser.add_argument(
        "--steps", action="store_true", help="one kill at every durable step, and none by chance"
    )
    parser.add_argument(
        "--power", action="store_true", help="each kill is also a loss of power (simulated)"
    )
    parser.add_argument(
        "--plant", choices=sorted(PLANTS), help="put a known mistake into the crawler"
    )
    parser.add_argument("--dfs", choices=("disk", "s3"), default="disk", help="where crawls lie")
    parser.add_argument(
        "--flavours", default="", help="names of the kinds of rounds, with commas; default: all"
    )
    parser.add_argument(
        "--requisites",
        action="store_true",
        help="the kinds of rounds in which pages have requisites",
    )
    parser.add_argument(
        "--until-found", action="store_true", help="end after the first round with findings"
    )
    parser.add_argument(
        "--directory", help="where crawls lie; default: a file system in memory, if there is one"
    )
    parser.add_argument(
        "--report", type=Path, help="a Markdown file whose table of results is written again"
    )
    return parser


def say(line: str) -> None:
    """A line of progress."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def keep(directory: Path, flavours: Sequence[str]) -> None:
    """Serve these flavours, and make their unbroken crawls in `directory`, for all processes forked from this one."""
    adopt_orphans()
    for flavour in FLAVOURS:
        if flavour.name in flavours:
            KEPT[flavour.name] = Ground(flavour, directory).__enter__()


class Torture:
    """Rounds, until there were enough kills."""

    def __init__(self, given: argparse.Namespace, directory: Path) -> None:
        self._given, self._directory = given, directory
        names = [name.strip() for name in given.flavours.split(",") if name]
        flavours = OF_REQUISITES if given.requisites else FLAVOURS
        self._flavours = [flavour for flavour in flavours if not names or flavour.name in names]
        self._turns = 0
        self.tally = Tally()

    def run(self) -> None:
        """All rounds."""
        with ExitStack() as stack:
            gateway = None
            if self._given.dfs == "s3":
                os.environ.update(credential_variables())
                gateway = stack.enter_context(VersityGw(self._directory / "s3"))
            grounds = [
                KEPT.get(flavour.name)
                or stack.enter_context(Ground(flavour, self._directory, gateway))
                for flavour in self._flavours
            ]
            say(
                f"unbroken crawls ({', '.join(flavour.name for flavour in self._flavours)}) are right"
            )
            if self._given.steps:
                for ground in grounds:
                    self._every_step(ground)
                return
            while self.tally.killed < self._given.kills and not (
                self._given.until_found and self.tally.findings
            ):
                self._by_chance(self._next(grounds))

    def _next(self, grounds: list[Ground]) -> Ground:
        """The kinds of rounds in turn, some less often."""
        while True:
            turn, self._turns = self._turns, self._turns + 1
            ground = grounds[turn % len(grounds)]
            if (
                turn // len(grounds) % ground.flavour.every == ground.flavour.every - 1
                or len(grounds) == 1
            ):
                return ground

    def _by_chance(self, ground: Ground) -> None:
        rng = random.Random(self._given.seed * 1_000_000 + self.tally.rounds)
        left = min(KILLS_OF_A_ROUND, self._given.kills - self.tally.killed)
        self._round(ground, rng, Chance(ground.known, rng, left, power=self._given.power), odd=True)

    def _every_step(self, ground: Ground) -> None:
        killer = EveryStep(ground.known)
        for _ in range(ROUNDS_FOR_EVERY_STEP):
            self._round(ground, random.Random(self._given.seed), killer, odd=False)
            if not any(killer.left.values()) or (self._given.until_found and self.tally.findings):
                return
        self.tally.findings.append(f"never reached, so never killed at: {killer.left}")

    def _round(self, ground: Ground, rng: random.Random, killer: Killer, *, odd: bool) -> None:
        began_s, number = time.monotonic(), self.tally.rounds + 1
        one = Round(
            ground,
            self._directory / f"round-{number}",
            rng,
            killer,
            odd=odd,
            power=self._given.power,
        )
        if self._given.plant:
            one.mutate = PLANTS[self._given.plant]
        one.run()
        self.tally.add(one, ground.flavour.name)
        say(
            f"round {number} ({ground.flavour.name}): {one.killed} kills, {time.monotonic() - began_s:.1f} s,"
            f" {one.refetched} broken fetches repeated; {self.tally.killed} of {self._given.kills} kills,"
            f" {len(self.tally.findings)} findings"
        )
        if one.findings:
            say(
                "\n".join(["", *one.story, *(f"FINDING {finding}" for finding in one.findings), ""])
            )
            say(f"files: {one.directory}")


def main() -> int:
    """The program."""
    given = _parser().parse_args()
    gc.freeze()
    adopt_orphans()
    began_s = time.monotonic()
    directory = Path(
        tempfile.mkdtemp(prefix="krake-torture-", dir=given.directory or memory_disk())
    )
    torture = Torture(given, directory)
    torture.run()
    if not torture.tally.findings:
        shutil.rmtree(directory)
    say(torture.tally.table())
    say(torture.tally.steps())
    for finding in torture.tally.findings:
        say(f"FINDING {finding}")
    if given.report:
        write_report(
            given.report,
            torture.tally,
            seed=given.seed,
            power=given.power,
            seconds=time.monotonic() - began_s,
        )
    return 1 if torture.tally.findings else 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
