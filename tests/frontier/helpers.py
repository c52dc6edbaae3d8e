"""What the tests of this room share: a key store in memory, whole directories as a value, killed children."""

from __future__ import annotations

import importlib
import os
import pkgutil
import signal
import sqlite3
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import fields, replace
from hashlib import sha1
from pathlib import Path
from typing import Any

import crawl_lib.frontier
import crawl_lib.repair.queue
import crawl_lib.seeds
from crawl_lib import durable
from crawl_lib.config import UrlsConfig
from crawl_lib.frontier import IntakeRules, NodeHome, NodeLock, Queue, Record
from crawl_lib.keys.server import Claim, KnownKeys
from crawl_lib.records import QueuedUrl
from crawl_lib.sealed import sealed_json, unsealed
from crawl_lib.states import KeyState
from crawl_lib.urlfiles import Source, encode_line
from crawl_lib.urls import Budgets, Owners


def held(place: Queue | Path) -> NodeHome:
    """Give a node's home without its lock: a test is alone."""
    queue = Queue(place) if isinstance(place, Path) else place
    lock = NodeLock(queue.directory, queue.node, 0.0)
    lock._is_held = True
    return NodeHome(queue.directory, queue.node, lock)


def key(url: str) -> bytes:
    return sha1(url.encode()).digest()


class Keys:
    """The part of a key store that intake uses, in a file so that it outlives a killed child.

    `down`: keys whose servers do not answer. `others`: keys that another node adds between our question and claim.
    """

    def __init__(
        self, path: Path | None = None, down: Collection[bytes] = (), others: Collection[bytes] = ()
    ) -> None:
        self.path = path
        self.memory: set[bytes] = set()
        self.down = set(down)
        self.others = set(others)
        self.calls: Counter[str] = Counter()

    @property
    def keys(self) -> set[bytes]:
        if self.path and self.path.exists():
            data = self.path.read_bytes()
            return {data[at : at + 20] for at in range(0, len(data), 20)}
        return set(self.memory)

    def _add(self, keys: Iterable[bytes]) -> None:
        more = sorted(set(keys) - self.keys)
        self.memory |= set(keys)
        if self.path:
            with self.path.open("ab") as file:
                file.write(b"".join(more))

    def unknown(self, keys: Collection[bytes]) -> KnownKeys:
        self.calls["unknown"] += 1
        known, asked = self.keys, set(keys)
        assert len(asked) == len(keys), "keys are asked for once"
        return KnownKeys(asked - known - self.down, asked & known - self.down, asked & self.down)

    def insert(self, keys: Collection[bytes], state: KeyState = KeyState.QUEUED) -> dict[str, int]:
        self.calls["insert"] += 1
        self._add(keys)
        return {}

    def claim(self, keys: Collection[bytes]) -> Claim:
        self.calls["claim"] += 1
        self._add(set(keys) & self.others)
        known = self.keys
        ours = set(keys) - known
        self._add(ours)
        return Claim(ours=ours, theirs=set(keys) - ours)


def lines_of(urls: Iterable[QueuedUrl], flags: str = "") -> Iterator[bytes]:
    return (encode_line(queued, flags) for queued in urls)


def source(folder: str, node: str, urls: Iterable[str | QueuedUrl], flags: str = "") -> Source:
    items = [QueuedUrl(url) if isinstance(url, str) else url for url in urls]
    return Source(folder, node, lambda: lines_of(items, flags))


def take_in(
    queue: Queue,
    keys: Any,
    *sources: Source,
    routing: str = "host",
    owners: Owners | None = None,
    **options: Any,
) -> Any:
    """What a node's task does: the queue is adopted if it is not ours, then sources are taken in."""
    limits = {
        name: options.pop(name)
        for name in options.keys() & {item.name for item in fields(UrlsConfig)}
    }
    if limits:
        options["budgets"] = Budgets(UrlsConfig(**limits))
    names = {item.name for item in fields(IntakeRules)}
    rules = IntakeRules(routing, **{name: options.pop(name) for name in names & options.keys()})
    held(queue).rewrites.adopt(keys, owners if routing == "host" else None)
    held(queue).intake.run(sources, keys, rules, **options)
    return queue.record().report()


def fill(queue: Queue, urls: Iterable[str], folder: str = "1") -> None:
    """Append URLs as one data file."""
    take_in(queue, Keys(), source(folder, "n", urls))


def urls_of(queue: Queue) -> list[str]:
    return [item.url for item in queue]


def hand_made(directory: Path, *files: list[str], processed: int = 0) -> Queue:
    directory.mkdir(parents=True, exist_ok=True)
    for number, urls in enumerate(files):
        (directory / str(number)).write_text("".join(f"{url}\n" for url in urls))
    totals = "".join(f"{len(urls)}\n" for urls in files)
    (directory / "state").write_text(f"{processed}\n{totals}")
    return Queue(directory)


def snapshot(directory: Path) -> dict[str, Any]:
    """Every file of a directory; the host counts as rows, since SQLite's bytes tell how often it was opened."""
    found: dict[str, Any] = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if not path.is_file() or path.name.startswith("hostcounts.sqlite-") or path.name == "lock":
            continue
        if path.name == "hostcounts.sqlite":
            base = sqlite3.connect(path)
            found[name] = sorted(base.execute("SELECT * FROM hosts"))
            base.close()
        else:
            found[name] = path.read_bytes()
        if path.name == "state.krake":
            found[name] = unsealed(found[name])
    return found


def modules() -> list[Any]:
    rooms = (crawl_lib.frontier, crawl_lib.seeds, crawl_lib.repair.queue)
    names = [
        item.name
        for room in rooms
        for item in pkgutil.walk_packages(room.__path__, f"{room.__name__}.")
    ]
    return [importlib.import_module(name) for name in names]


def steps_of(work: Callable[[], object]) -> list[str]:
    """Run some work in a child; return each durable step that it reached, in order."""
    read, write = os.pipe()

    def recording() -> None:
        for module in modules():
            if hasattr(module, "reached"):
                module.reached = lambda step: os.write(write, step.encode() + b"\n")
        work()

    child = _fork(recording)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        text = file.read().decode()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return text.splitlines()


def run_in_child(work: Callable[[], object], kill_at: str | None = None) -> int:
    """Run some work in a child, killed at a step; returns its exit code, -9 if it was killed."""

    def killing() -> None:
        durable._times.clear()
        if kill_at:
            os.environ[durable.KILL_VARIABLE] = kill_at
        work()

    return os.waitstatus_to_exitcode(os.waitpid(_fork(killing), 0)[1])


KILLED = -signal.SIGKILL


def _fork(work: Callable[[], object]) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def to_be_adopted(directory: Path) -> None:
    """Have the next intake adopt a queue that was changed, as a repair does: people begin `state` with 0 for that."""
    record = Record.read(directory)
    assert record is not None
    (directory / "state.krake").write_bytes(
        sealed_json(replace(record, state_sha1="").to_mapping())
    )
