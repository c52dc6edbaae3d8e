"""Random damage to every kind of file: it is found or harmless, what fsck says repairs it, and no URL is lost.

`python -m tests.repair.damage 2000 --seed N` does it N times by hand; `test_random_damage` does it in `make test`.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from crawl_lib import cli
from crawl_lib.config import load_config
from crawl_lib.urls import key_of
from demo import Serving
from tests.cli.conftest import Done, Krake
from tests.e2e.crawl import Result
from tests.harms import changed
from tests.pythons import impatient
from tests.repair.scenes import (
    LABEL,
    SCENES,
    WEB,
    Kind,
    Scene,
    copy_scene,
    dropped_page,
    files_of,
    known,
    links,
    make_base,
    make_scene,
)

LOOKS = (("fsck", "--fast", "--json"), ("keys", "check"), ("status", "--json"), ("show", "0"))
TABLES = (
    ("crawldb", "stats"),
    ("linkdb", "dump"),
    ("linkdb", "dump", "--table", "ranks"),
    ("crawldb", "explain", "0"),
)
TIMES = 5
"""How often the advice of findings is followed until `krake fsck` has to be clean."""
BY_PEOPLE = {("adopted", "data file"), ("adopted", "state")}
"""What somebody made by hand has no digest yet."""
PRECIOUS = re.compile(r".*\.(warc\.gz|parquet)|outlinks|index\.cdxj")
"""Names of files that no advice deletes, neither they nor a folder with some."""
CHOICES = ("pages_lost",)
"""Notes whose advice is followed too: lost pages are queued again."""
ADVICE = re.compile(
    r"`krake ([^`]+)`|inject the same|\bdelete (?:(?:its|that|the) file|its tables|its folder|it|them)\b"
    r"|\bdelete (?:the folder )?([\w./-]+/[\w./-]+)"
    r"|\bmove (?:that file|it|its folder|(?:the folder )?([\w./-]+/[\w./-]+)) away"
)
EXPORT = (
    ("export", "--label", LABEL),
    ("graph", "link", "--export", LABEL),
    ("graph", "finalize", "--export", LABEL),
)


def run_here(words: list[str]) -> Done:
    """`krake` in this process. Whatever it raises is a crash."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = cli.main(words)
    return Done(code, out.getvalue(), err.getvalue())


@dataclass
class Trial:
    """One damage and what came of it. `acts`: what was done as advised; `wrong`: what must not be."""

    seed: int
    scene: str = ""
    file: str = ""
    kind: str = ""
    way: str = ""
    found: list[str] = field(default_factory=list)
    acts: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def to_text(self) -> str:
        """A line, and one for each thing that is wrong."""
        head = f"seed {self.seed}: {self.scene}: {self.file} ({self.kind}): {self.way}; found {self.found or 'nothing'}"
        return "\n".join([head, *(f"    {one}" for one in (*self.acts, *self.wrong))])


class Whole(NamedTuple):
    """What an undamaged crawl knows in the end: its URLs, and the links of its pages."""

    known: set[str]
    links: set[tuple[str, str]]


class Ground:
    """The crawls that are damaged, made once."""

    def __init__(self, directory: Path, web: Serving, scenes: Sequence[Scene] = SCENES) -> None:
        self._directory, self._web = directory, web
        self.scenes = scenes
        bases = {
            order: directory / f"base-{order}"
            for order in sorted({scene.order for scene in scenes})
        }
        self.files: dict[str, dict[str, Kind]] = {}
        with impatient(directory / "python"):
            for order, base in bases.items():
                base.mkdir()
                make_base(base, web, order)
            for scene in scenes:
                make_scene(scene, bases[scene.order], directory / scene.name)
                self.files[scene.name] = files_of(directory / scene.name)
        self.dropped = {order: dropped_page(base) for order, base in bases.items()}
        truth = web.truth()
        self.truth, self.seeds = set(truth.visits), set(web.seeds)
        self._whole: dict[str, Whole] = {}

    def whole(self, scene: Scene) -> Whole:
        """The same crawl without damage."""
        if scene.name not in self._whole:
            copy = self._directory / "copies" / scene.name
            copy_scene(self._directory / scene.name, copy)
            krake = Krake(copy, run_here)
            with impatient(self._directory / "python"):
                for words in scene.more:
                    krake.ok(*words)
            self._whole[scene.name] = Whole(known(krake), links(krake))
            shutil.rmtree(copy)
        return self._whole[scene.name]

    def trial(self, seed: int, only: str = "") -> Trial:
        """Damage one file of a copy of one crawl, and see. `only`: a kind."""
        rng, trial = Random(seed), Trial(seed)
        choices = [
            (scene, name, kind)
            for scene in self.scenes
            for name, kind in self.files[scene.name].items()
            if only in {"", kind.name} and (scene.name, kind.name) not in BY_PEOPLE
        ]
        scene, trial.file, kind = _weighted(choices, rng)
        trial.scene, trial.kind = scene.name, kind.name
        copy = self._directory / "copies" / str(seed)
        try:
            copy_scene(self._directory / scene.name, copy)
            trial.way = changed(copy / trial.file, rng)
            with impatient(self._directory / "python"):
                _Course(Krake(copy, run_here), scene, kind, trial, self).run(
                    full=rng.random() < 0.2
                )
        finally:
            shutil.rmtree(copy, ignore_errors=True)
        return trial

    def place(self, scene: Scene) -> Path:
        """The crawl before any damage."""
        return self._directory / scene.name


def _weighted(choices: list[tuple[Scene, str, Kind]], rng: Random) -> tuple[Scene, str, Kind]:
    """A kind by its weight, then a scene that has it, then a file of it."""
    kinds = list({kind.name: kind for _, _, kind in choices}.values())
    [kind] = rng.choices(kinds, [kind.weight for kind in kinds])
    scenes = list({scene.name: scene for scene, _, other in choices if other is kind}.values())
    scene = rng.choice(scenes)
    return rng.choice([one for one in choices if one[0] is scene and one[2] is kind])


class _Course:
    """What is done to a damaged crawl."""

    def __init__(
        self, krake: Krake, scene: Scene, kind: Kind, trial: Trial, ground: Ground
    ) -> None:
        self.krake, self.scene, self.kind, self.trial, self.ground = (
            krake,
            scene,
            kind,
            trial,
            ground,
        )

    def run(self, *, full: bool) -> None:
        trial = self.trial
        looks = [
            *LOOKS,
            *(TABLES if self.scene.order == "crawldb" else ()),
            *([("export", "--label", "f")] if full else []),
        ]
        for words in looks:
            self._krake(*words)
        shutil.rmtree(self.krake.directory / "dfs/export/f", ignore_errors=True)
        found = self._fsck()
        trial.found = sorted({one["name"] for one in found})
        if not found and self.kind.found:
            self._must_be_the_same()
        if found and not self._follow(found):
            return
        if not self.trial.file.startswith(
            "dfs/export/"
        ):  # nothing of a crawl is decided by an export
            self._finish(named=bool(found))

    def _krake(self, *words: str) -> Done | None:
        """Run a command that must not crash."""
        try:
            done = self.krake(*words)
        except (Exception, SystemExit):
            lines = traceback.format_exc().splitlines()
            self.trial.wrong.append(f"crash: {' '.join(words)[:60]}: {' | '.join(lines[-5:])}")
            return None
        if "Traceback" in done.err:
            self.trial.wrong.append(f"traceback: {' '.join(words)[:60]}: {done.err[-300:]}")
        return done

    def _fsck(self, *more: str) -> list[dict[str, Any]]:
        """What it finds, or leaves after a repair."""
        done = self._krake("fsck", *more, "--json")
        if done is None:
            return []
        if not done.out:
            self.trial.wrong.append(f"fsck fails: {done.err}")
            return []
        self.trial.acts += [f"repair: {line}" for line in done.json["done"]]
        return [
            one
            for one in done.json["findings"]
            if one["severity"] != "note" or one["name"] in CHOICES
        ]

    def _not_found_yet(self) -> set[str]:
        """URLs that no visited page links to: a repaired queue has another order, so others were visited so far."""
        visited = set(Result(load_config(str(self.krake.file))).visited())
        found = self.ground.whole(self.scene).links
        return (
            {target for _, target in found}
            - {target for source, target in found if source in visited}
            - self.ground.seeds
        )

    def _dropped(self) -> set[str]:
        """Keys of pages that people took out, as segments say: they stay known, and no repair queues them again."""
        files = self.krake.directory.glob("dfs/crawl/1*/node-*/dropped-*")
        return {key for file in files for key in file.read_text(errors="replace").split()}

    def _must_be_the_same(self) -> None:
        """Bytes that no reader looks at may be others."""
        name = self.trial.file
        if not (name.endswith(".parquet") and self.kind.name == "table of an export"):
            self.trial.wrong.append("not found")
        elif pq.read_table(self.krake.directory / name) != pq.read_table(
            self.ground.place(self.scene) / name
        ):
            self.trial.wrong.append("not found, and its rows are others")

    def _follow(self, found: list[dict[str, Any]]) -> bool:
        """Do what fsck says until it is clean; False if it never is."""
        found = self._fsck("--repair")
        for _ in range(TIMES if found else 0):
            if self.trial.wrong:
                return False
            for words in _advice(found):
                if error := self._carry_out(words):
                    for more in _commands(error, error.split(": ")[1]):
                        self._carry_out(more)
            found = self._fsck()
            if not found:
                return True
        if not found:
            return not self.trial.wrong
        self.trial.wrong += [
            f"left: {one['name']}: {one['where']}: {one['problem']}; {one['repair']}"
            for one in found
        ]
        return False

    def _carry_out(self, words: tuple[str, ...]) -> str:
        """Take away what is to be deleted or moved, or run a command; returns the error of one that fails."""
        directory = self.krake.directory
        if words[0] in ("delete", "move"):
            path = next(
                (
                    path
                    for path in (directory / "dfs" / words[1], directory / words[1])
                    if path.exists()
                ),
                None,
            )
            if path is None:
                return ""
            inside = str(path.relative_to(directory))
            files = [path, *path.rglob("*")]
            if words[0] == "delete" and (
                precious := [one.name for one in files if PRECIOUS.fullmatch(one.name)]
            ):
                self.trial.wrong.append(f"wrong advice: delete {inside} with {precious[0]}")
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            self.trial.acts.append(f"{words[0]}: {inside}")
            return ""
        if words == ("segment", "drop"):
            words = (*words, self.ground.dropped[self.scene.order], "--yes")
        words = tuple(
            "\n".join(sorted(self.ground.seeds)) if word == "SEEDS" else word for word in words
        )
        done = self._krake(*words)
        error = (
            next((line for line in done.err.splitlines() if line.startswith("krake: ")), "")
            if done
            else ""
        )
        self.trial.acts.append(
            f"did {' '.join(words)[:80]}" + (f": {error[:300]}" if error else "")
        )
        return error

    def _finish(self, *, named: bool) -> None:
        """Go on with the crawl. `named`: the damage was found; then a URL with a wrong byte may have been kept."""
        for words in self.scene.more:
            done = self._krake(*words)
            if done is not None and done.code != 0:
                self.trial.wrong.append(f"then {' '.join(words)} fails: {done.err[-300:]}")
                return
        after = known(self.krake)
        lost, dropped = (
            self.ground.whole(self.scene).known - after - self._not_found_yet(),
            self._dropped(),
        )
        if lost := {url for url in lost if key_of(url).hex() not in dropped}:
            self.trial.wrong.append(f"lost: {len(lost)}: {sorted(lost)[:3]}")
        if not named and (strange := after - self.ground.truth):
            self.trial.wrong.append(f"not of this web: {sorted(strange)[:3]}")
        left = self._fsck()
        if left and not (named and self._follow(left)):
            text = "; ".join(f"{one['name']}: {one['where']}: {one['problem']}" for one in left[:3])
            self.trial.wrong.append(f"fsck after it: {text}")


def _advice(found: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """The commands that findings name, each once; "delete PATH" and "move PATH away" are ("delete" or "move", path)."""
    done: set[tuple[str, ...]] = set()
    for one in found:
        text = one["repair"]
        if text.startswith("do "):  # as the problem says
            text = f"{one['problem']}; {text}"
        for words in _commands(text, one["where"]):
            if words not in done:
                done.add(words)
                yield words
        if one["room"] == "export":
            yield from EXPORT


def _commands(text: str, where: str) -> Iterator[tuple[str, ...]]:
    for match in ADVICE.finditer(text):
        if match[1]:
            yield tuple(match[1].split())
        elif match[0].startswith("inject"):
            yield "inject", "SEEDS", "--run-id", "one"
        elif match[0] in ("delete its folder", "move its folder away"):
            yield match[0].split()[0], str(Path(where).parent)
        else:
            yield match[0].split()[0], (match[2] or match[3] or where).rstrip(";,.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Do it by hand; exit code 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.repair.damage", description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=100, help="how many")
    parser.add_argument(
        "--seed", type=int, default=1, help="the first number; each damage follows from its number"
    )
    parser.add_argument("--kind", default="", help="only files of this kind")
    parser.add_argument("--scene", default="", help="only this crawl")
    given = parser.parse_args(arguments)
    wrong, kinds, begun = 0, Counter[str](), time.monotonic()
    scenes = [scene for scene in SCENES if given.scene in {"", scene.name}]
    with tempfile.TemporaryDirectory(prefix="krake-damage-") as directory, Serving(WEB) as web:
        ground = Ground(Path(directory), web, scenes)
        for seed in range(given.seed, given.seed + given.count):
            trial = ground.trial(seed, given.kind)
            kinds[trial.kind] += 1
            if trial.wrong:
                wrong += 1
                print(trial.to_text(), flush=True)
            if (seed - given.seed + 1) % 50 == 0:
                print(
                    f"-- {seed - given.seed + 1} done, {wrong} wrong, {time.monotonic() - begun:.0f} s",
                    flush=True,
                )
    print(
        f"{given.count} damages of {len(kinds)} kinds, {wrong} wrong, {time.monotonic() - begun:.0f} s"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
