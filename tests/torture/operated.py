"""A crawl that an operator works on with `krake`: each command a process, some of which are killed and run again.

After each action `fsck` must be clean, no page may have been crawled more often than the actions explain (`allowed`),
and at the end nothing of the web's truth may be missing.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from crawl_lib import cli
from crawl_lib.config import load_config
from crawl_lib.segment import SegmentReader
from crawl_lib.stores import open_stores
from crawl_lib.urls import key_of
from tests.e2e.crawl import Result
from tests.torture import checks
from tests.torture.children import Attempt, Kill
from tests.torture.rounds import small_constants

MOST_ITERATIONS = 40
MOST_KILLS_OF_A_COMMAND = 3
ROUNDS_OF_ADVICE = 6
BY_STEP = 0.6
LOOK_AFTER_A_KILL = 0.3
ANOTHER_AFTER_A_KILL = 0.3
TWO_WORDS = ("keys", "queue", "folder", "segment", "nodes")


class FindingError(Exception):
    """Something that must not be."""


class AbandonedError(Exception):
    """A command was killed, and the operator does not run it again. `words`: of the command."""

    def __init__(self, words: tuple[str, ...]) -> None:
        super().__init__(" ".join(words))
        self.words = words


@dataclass
class Known:
    """What commands showed so far, by kind: how long they take, and how often they reach which durable step."""

    seconds: dict[str, float] = field(default_factory=dict)
    steps: dict[str, Counter[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Done:
    """What became of one process. `code`: None if it was killed."""

    code: int | None
    out: str = ""
    err: str = ""


def kind_of(words: tuple[str, ...]) -> str:
    """Which command it is, without its arguments."""
    return " ".join(words[:2]) if words[0] in TWO_WORDS else words[0]


class Operated:
    """One crawl below `home`. `mapping`: its config; `rng`: of the action under way.

    `allowed`: how often each URL may be crawled besides the first time. `made_up`: URLs that damage made of others.
    `pages`: rows of each segment that ever stood. `usual`: findings of `fsck` that an action has explained, by name.
    `deleted`: URLs of folders deleted by hand. `counts_fetches`: whether doubles are a finding at all.
    """

    def __init__(
        self, home: Path, mapping: dict[str, Any], known: Known, *, kill: float = 0.0
    ) -> None:
        self.home, self.known, self.kill = home, known, kill
        home.mkdir(parents=True)
        self.file = home / "krake.yml"
        self.mapping = mapping
        self.write()
        self.rng = random.Random(0)
        self.abandon = 0.0
        self.between: Callable[[], None] | None = None
        self.is_between = False
        self.story: list[str] = []
        self.commands = self.killed = self.runs = 0
        self.pages: dict[str, Counter[str]] = {}
        self.live: Counter[str] = Counter()
        self.allowed: Counter[str] = Counter()
        self.made_up: set[str] = set()
        self.deleted: set[str] = set()
        self.usual = ""
        self.counts_fetches = mapping["frontier"]["routing"] == "host"

    def write(self) -> None:
        """Make the config's file say what `mapping` says."""
        self.file.write_text(yaml.safe_dump(self.mapping))

    @property
    def nodes(self) -> list[str]:
        """The nodes of the config."""
        return list(self.mapping["servers"])

    def queue(self, node: str) -> Path:
        """A node's directory."""
        return self.home / "queue" / node

    def folders(self) -> list[Path]:
        """The iterations' folders, oldest first."""
        return sorted(
            (path for path in (self.home / "dfs/crawl").glob("[0-9]*")),
            key=lambda path: int(path.name),
        )

    def segments(self) -> list[Path]:
        """All segments that are there."""
        inside = (path for folder in self.folders() for path in sorted(folder.iterdir()))
        return [path for path in inside if path.is_dir() and not path.name.startswith(".")]

    def waiting(self, node: str) -> int:
        """How many URLs a queue has."""
        state = self.queue(node) / "state"
        numbers = [int(line) for line in state.read_text().split()] if state.exists() else [0]
        return sum(numbers[1:]) - numbers[0]

    def run_id(self) -> str:
        """A name that no other run has."""
        self.runs += 1
        return f"run-{self.runs}"

    def say(self, text: str) -> None:
        """A line of the story."""
        self.story.append(text.replace(str(self.home), "~").replace("\n", " ")[:600])

    # Commands

    def once(self, *words: str, kill: Kill | None = None) -> Done:
        """Run a command in a process of its own."""
        said = self.home.with_name(f"{self.home.name}-said")
        said.unlink(missing_ok=True)

        def call() -> dict[str, Any]:
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = cli.main(["--config", str(self.file), *words])
            said.write_text(json.dumps([code, out.getvalue(), err.getvalue()]))
            return {}

        ended = Attempt(call, self.home, kill, prepare=small_constants).wait()
        self.commands += 1
        if ended.unexpected:
            raise FindingError(f"{' '.join(words)}: {ended.unexpected}")
        if ended.killed:
            self.killed += 1
            self.say(
                f"  killed after {ended.steps[-1] if ended.steps else 'nothing'}: {' '.join(words)}"
            )
            return Done(None)
        kind, seconds = kind_of(words), min(2.0, ended.end - ended.start)
        self.known.seconds[kind] = max(self.known.seconds.get(kind, 0.0), seconds)
        self.known.steps[kind] = self.known.steps.get(kind, Counter()) | Counter(ended.steps)
        done = Done(*json.loads(said.read_text()))
        if done.code and "died (signal 9)" in done.err:  # a step killed a fetching process
            self.killed += 1
            return Done(None)
        return done

    def krake(
        self, *words: str, refused: str = "", each_time: Callable[[], None] = lambda: None
    ) -> Done:
        """Run a command until it is done, however often it is killed. `refused`: what an error may say."""
        for attempt in range(MOST_KILLS_OF_A_COMMAND + 1):
            each_time()
            may_die = attempt < MOST_KILLS_OF_A_COMMAND and not self.is_between
            done = self.once(*words, kill=self._kill(kind_of(words)) if may_die else None)
            if done.code is not None:
                break
            self._after_a_kill(words)
        text = f"{' '.join(words)}: {done.code}: {done.err.strip()} {done.out.strip()[-1000:] if done.code else ''}"
        self.say(f"  {text}")
        if done.code and not self.is_between and self._follow_refusal(words, done, refused):
            return self.krake(*words, refused=refused, each_time=each_time)
        if (
            done.code
            and not self.is_between
            and not (refused and re.search(refused, done.err + done.out))
        ):
            raise FindingError(text)
        return done

    def _kill(self, kind: str) -> Kill | None:
        if self.rng.random() >= self.kill:
            return None
        steps = sorted(self.known.steps.get(kind, Counter()).items())
        if steps and self.rng.random() < BY_STEP:
            step, times = self.rng.choice(steps)
            return Kill(step=f"{step}:{self.rng.randint(1, times)}")
        return Kill(after_s=self.rng.random() * self.known.seconds.get(kind, 0.2) * 1.05)

    def _after_a_kill(self, words: tuple[str, ...]) -> None:
        """Look around, do something else first, or never do it again."""
        if self.rng.random() < LOOK_AFTER_A_KILL:
            self.fsck()
        if self.rng.random() < self.abandon:
            raise AbandonedError(words)
        if self.between and self.rng.random() < ANOTHER_AFTER_A_KILL:
            self.is_between = True
            try:
                self.between()
            finally:
                self.is_between = False

    def fsck(self) -> list[dict[str, Any]]:
        """What is wrong; notes are not."""
        done = self.once("fsck", "--json")
        if not done.out:
            raise FindingError(f"fsck: {done.err}")
        return [found for found in json.loads(done.out)["findings"] if found["severity"] != "note"]

    def follow(self, expected: str) -> None:
        """Do what `fsck` says until it is clean. `expected`: which findings there may be, by name."""
        for _ in range(ROUNDS_OF_ADVICE):
            found = self.fsck()
            if not found:
                return
            for one in found:
                text = f"fsck: {one['name']}: {one['where']}: {one['problem']}; {one['repair']}"
                self.say(f"  {text}")
                if one["room"] != "export" and not re.fullmatch(
                    expected or self.usual, one["name"]
                ):
                    raise FindingError(text)
            self._move_away(" ".join(one["repair"] for one in found))
            for command in _commands([one for one in found if one["room"] != "export"]):
                words = command.split()
                self.krake(*words, each_time=self.again(words))
        raise FindingError(f"fsck is not clean when its advice was followed: {self.fsck()}")

    def _follow_refusal(self, words: tuple[str, ...], done: Done, refused: str) -> bool:
        """Do what a command that did nothing says has to come first, if that is no choice; whether there was such."""
        if words[:2] == ("fsck", "--repair"):
            return self._move_away(done.out)
        if reused := re.search(r"move the folder (\d+) away, and run this task again", done.err):
            shutil.rmtree(self.home / "dfs/crawl" / reused[1])
            return True
        may_be = bool(refused and re.search(refused, done.err))
        if may_be or not re.search("settled: .*: run `krake settle --node", done.err):
            return False
        self.krake("settle")
        return True

    def _move_away(self, said: str) -> bool:
        """Exports that cannot go on: which of them goes is a choice of people. Whether there were any."""
        folders = [
            self.home / "dfs" / name for name in re.findall(r"move the folder (\S+) away", said)
        ]
        there = [folder for folder in dict.fromkeys(folders) if folder.exists()]
        for folder in there:
            shutil.rmtree(folder)
        return bool(there)

    def again(self, words: list[str]) -> Callable[[], None]:
        """What a command allows to be crawled again: pages whose folders are gone, once keys are rebuilt."""
        return self.allow(self.deleted if words[:2] == ["fsck", "--repair"] else ())

    def allow(self, urls: Any) -> Callable[[], None]:
        """These may be crawled once more, for each time that the function is called."""
        return lambda: self.allowed.update(list(urls))

    # Looking

    def look(self) -> dict[str, Any]:
        """Note all pages that are there; returns the export's digests and keys, if there is an export `out`."""
        said = self.home.with_name(f"{self.home.name}-look")

        def call() -> dict[str, Any]:
            said.write_text(json.dumps(self._look()))
            return {}

        ended = Attempt(call, self.home).wait()
        if ended.error or ended.unexpected:
            raise FindingError(f"reading the segments: {ended.error}{ended.unexpected}")
        value: dict[str, Any] = json.loads(said.read_text())
        for name, urls in value["pages"].items():
            self.pages[name] = self.pages.get(name, Counter()) | Counter(urls)
        self.live = Counter(value["live"])
        return value

    def _look(self) -> dict[str, Any]:
        config = load_config(str(self.file))
        stores = open_stores(config, make=False)
        value: dict[str, Any] = {"pages": {}, "live": []}
        for segment in self.segments():
            reader = SegmentReader(stores.storage, str(segment.relative_to(self.home / "dfs")))
            every, kept = (
                [
                    str(url)
                    for batch in reader.pages(["url", "retry_at"], with_dropped=dropped)
                    for url in batch.filter(batch.column(1).is_null())
                    .column(0)
                    .to_pylist()  # else it comes again
                ]
                for dropped in (True, False)
            )
            value["pages"][f"{segment.parent.name}/{segment.name}"] = every
            value["live"] += kept
        mapping = self.home / "dfs/export/out/urlmapping"
        if mapping.exists():
            data = mapping.read_bytes()
            value["keys"] = [data[at : at + 20].hex() for at in range(4, len(data), 20)]
            value["exported"] = checks.exported(Result(config, export="out"))
        return value

    def total(self) -> Counter[str]:
        """How often each URL was crawled, or imported."""
        return sum(self.pages.values(), Counter())

    def check(self, truth: set[str]) -> None:
        """No page that is not of the web, and none too often. `truth`: all URLs of the web."""
        self.look()
        total = self.total()
        if strange := set(total) - truth - self.made_up:
            raise FindingError(f"I1: not of this web: {checks.some(strange)}")
        twice = [f"{url} {count}" for url, count in total.items() if count > 1 + self.allowed[url]]
        if twice and self.counts_fetches:
            raise FindingError(f"I2: crawled too often: {checks.some(twice)}")

    def to_the_end(self) -> None:
        """Crawl until nothing waits, and export."""
        for _ in range(MOST_ITERATIONS):
            self.krake("settle")
            if self.folders() and not any(map(self.waiting, self.nodes)) and self._took_nothing():
                break
            self.krake("crawl", "--run-id", self.run_id())
        else:
            raise FindingError(f"I1: the crawl did not end in {MOST_ITERATIONS} iterations")
        self.krake("keys", "check")
        while self.krake(
            "export", "--label", "out", refused="other segments"
        ).code:  # somebody crawled in between
            shutil.rmtree(self.home / "dfs/export/out")
        for stage in ("link", "finalize"):
            self.krake("graph", stage, "--export", "out")

    def _took_nothing(self) -> bool:
        index = self.folders()[-1] / "index.json"
        return index.exists() and json.loads(index.read_text())["counts"]["taken"] == 0

    def check_end(self, truth: set[str], unbroken: dict[str, Any]) -> None:
        """Everything was crawled, and the export is that of a crawl that no one touched, but for what was taken out."""
        self.check(truth)
        if lost := truth - set(self.total()):
            raise FindingError(f"I1: lost: {checks.some(lost)}")
        self.follow("")
        value = self.look()
        by_key = {key_of(url).hex(): url for url in truth}
        wanted = {key for key in unbroken["keys"] if by_key[key] in self.live}
        if wanted ^ set(value["keys"]):
            raise FindingError(
                f"I4: exported or not: {checks.some(by_key[key] for key in wanted ^ set(value['keys']))}"
            )
        if len(wanted) == len(unbroken["keys"]) and value["exported"] != unbroken["exported"]:
            raise FindingError("I4: the export differs from that of a crawl that no one touched")


def _commands(found: list[dict[str, Any]]) -> list[str]:
    """The commands that findings name, each once, without those that leave something to be filled in."""
    named = [command for one in found for command in re.findall(r"`krake ([^`]+)`", one["repair"])]
    commands = [command for command in dict.fromkeys(named) if not re.search(r"[A-Z]{4}", command)]
    if found and not commands:
        raise FindingError(f"fsck names no command: {found}")
    return commands
