"""`python -m tests.torture.operators N`: N crawls whose operators do whatever they may; exit code 1 for findings.

Each crawl follows from its seed: how many nodes and key servers it has, which actions (`acts`) are done to it in which
order, and which of their commands are killed, run again, or given up. A finding is found again with the same seed, and
made shorter with `--only`.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from demo import Serving, SynthWeb
from tests.torture.acts import ACTIONS, NODES, SERVERS, Acts
from tests.torture.children import adopt_orphans
from tests.torture.harness import memory_disk
from tests.torture.operated import FindingError, Known, Operated
from tests.torture.rounds import begin_again

WEB = SynthWeb(seed=5, sites=3, pages_per_site=8, specials=False, busy=4)
KILL = 0.3
KILL_AT_THE_END = 0.15
IMPORTED_LATE = (
    *(
        "crawl_lib.curate",
        "crawl_lib.repair",
        *(
            f"crawl_lib.cli.{name}"
            for name in ("program", "crawling", "keys", "nodes", "repairing", "segments")
        ),
        "duckdb",
        "numpy.ma",
        "pyarrow.compute",
        "rich.jupyter",
        "rich.table",
    ),
)
"""What commands import when they need it; here, before they are forked."""


def mapping_of(rng: random.Random | None) -> dict[str, Any]:
    """A config by chance; None: of the crawl that no one touches."""
    servers = rng.choice((1, 1, 2, 3)) if rng else 1
    fetch = {"host_delay_s": 0.0, "ip_delay_s": 0.0, "processes": 2, "time_limit_s": 10}
    return {
        "servers": list(NODES[: rng.randint(1, 3) if rng else 1]),
        "dfs_primary": "dfs",
        "key_storage": {
            "servers": list(SERVERS[:servers]),
            "replication": rng.randint(1, min(2, servers)) if rng else 1,
        },
        "queue": {"local_dir": "queue", "lock_timeout_s": 5.0},
        "scratch": {"directory": "scratch"},
        "crawl": {},
        "batch": {"max_per_host": 3},
        "retry": {"max": 3, "max_wait_s": 0},
        "frontier": {"routing": rng.choice(("host", "host", "host", "local")) if rng else "host"},
        "urls": {"scope": "hosts"},
        "segment": {"sync_interval_s": 0.05, "max_warc_bytes": 1 << 16},
        "watermarks": {"min_free_local_bytes": 0, "min_free_dfs_bytes": 0},
        "fetch": {**fetch, "allow_networks": ["127.0.0.0/8"]},
    }


class Operators:
    """Crawls of one web, each below `directory`. `unbroken`: the export of the crawl that no one touched."""

    def __init__(self, serving: Serving, directory: Path, *, actions: int, kill: float) -> None:
        self.serving, self.directory, self.actions, self.kill = serving, directory, actions, kill
        self.known = Known()
        self.truth = set(serving.truth().visits)
        self.counts: Counter[str] = Counter()
        crawl = Operated(directory / "unbroken", mapping_of(None), self.known)
        self._begin(crawl)
        crawl.to_the_end()
        crawl.check(self.truth)
        self.unbroken = crawl.look()
        self.archives = sorted(map(str, (crawl.home / "dfs/crawl").glob("*/*/*.warc.gz")))

    def _begin(self, crawl: Operated) -> None:
        begin_again(self.serving)
        crawl.krake("inject", "\n".join(self.serving.seeds), "--run-id", "seeds")

    def run(self, seed: int, only: list[int] | None = None) -> tuple[Operated, str]:
        """One crawl; returns it with the finding, "" if there is none. `only`: numbers of the actions that are done."""
        crawl = Operated(
            self.directory / f"seed-{seed}",
            mapping_of(random.Random(f"{seed}")),
            self.known,
            kill=self.kill,
        )
        acts = Acts(crawl, self.serving.web, self.truth, self.archives)
        finding = ""
        try:
            self._begin(crawl)
            for number in range(self.actions):
                rng = random.Random(f"{seed} {number}")
                [name] = rng.choices(list(ACTIONS), list(ACTIONS.values())) if number else ["crawl"]
                if only is None or number in only:
                    crawl.say(f"{number}:")
                    self._act(acts, name, rng)
            crawl.rng, crawl.kill, crawl.abandon = (
                random.Random(f"{seed} end"),
                min(self.kill, KILL_AT_THE_END),
                0.0,
            )
            crawl.to_the_end()
            crawl.check_end(self.truth, self.unbroken)
        except FindingError as error:
            finding = str(error)
        self.counts.update(
            crawls=1, commands=crawl.commands, kills=crawl.killed, findings=bool(finding)
        )
        return crawl, finding

    def _act(self, acts: Acts, name: str, rng: random.Random) -> None:
        if acts.do(name, rng):
            self.counts["actions"] += 1
            acts.it.follow("")
            acts.it.check(self.truth)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.torture.operators", description=__doc__)
    parser.add_argument("crawls", type=int, nargs="?", default=20, help="how many crawls")
    parser.add_argument("--seed", type=int, default=1, help="of the first one")
    parser.add_argument("--actions", type=int, default=16, help="done to each")
    parser.add_argument("--kill", type=float, default=KILL, help="chance that a command is killed")
    parser.add_argument(
        "--only", help="numbers of the actions that are done, with commas; default: all"
    )
    parser.add_argument(
        "--directory", help="where crawls lie; default: a file system in memory, if there is one"
    )
    return parser


def _run(given: argparse.Namespace, directory: Path) -> int:
    only = (
        None if given.only is None else [int(number) for number in given.only.split(",") if number]
    )
    with Serving(WEB) as serving:
        operators = Operators(serving, directory, actions=given.actions, kill=given.kill)
        for seed in range(given.seed, given.seed + given.crawls):
            began_s = time.monotonic()
            crawl, finding = operators.run(seed, only)
            print(
                f"seed {seed}: {crawl.commands} commands, {crawl.killed} kills, {time.monotonic() - began_s:.1f} s"
            )
            if finding:
                print(
                    "\n".join(
                        [*crawl.story, f"FINDING seed {seed}: {finding}", f"files: {crawl.home}"]
                    )
                )
            else:
                shutil.rmtree(crawl.home)
            sys.stdout.flush()
    print(
        ", ".join(
            f"{operators.counts[name]} {name}"
            for name in ("crawls", "actions", "commands", "kills", "findings")
        )
    )
    return int(bool(operators.counts["findings"]))


def main() -> int:
    """The program."""
    given = _parser().parse_args()
    for name in IMPORTED_LATE:
        importlib.import_module(name)
    gc.freeze()
    adopt_orphans()
    directory = Path(
        tempfile.mkdtemp(prefix="krake-operators-", dir=given.directory or memory_disk())
    )
    code = _run(given, directory)
    if not code:
        shutil.rmtree(directory)
    return code


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
