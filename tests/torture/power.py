"""A loss of power, simulated: what a crash may take back of what processes did to files, and no more.

In an attempt, `Recorder` notes, in order and for all its processes: names made, renamed, linked and deleted (from
Python's audit events), and how many bytes of which file, or which directory, were fsynced. After the kill, `lose_power`
takes back what no one had made durable, as POSIX allows it to be lost:

* names: what happened in a directory after its last fsync. A deleted or replaced file comes back;
* data: the bytes of a file beyond those that its last fsync found; a file that was never fsynced is empty.

Which of it is lost is chosen each time (`Loss`): names alone (data reached the disk first), data alone (names did: the
zero-length file after a rename), both, or of each directory's latest changes and each file's tail a random part.

What it does not know. SQLite's files are taken to be what SQLite promises (tests say which `synchronous` is set). Data
that are overwritten in place or cut off count as durable at once; nothing here overwrites. Files that C++ code makes
(Parquet) count as made durably; their data do not. A rename between two directories is lost as a whole or not at all.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from crawl_lib.storage import local

Event = list[Any]
_EXEMPT = (".sqlite", "ip-turns", "lock", ".log")


class Loss(StrEnum):
    """What goes when the power goes."""

    NAMES = "names"
    DATA = "data"
    BOTH = "both"
    SOME = "some"


class Recorder:
    """Notes what an attempt does below `root`. `install` is called in the attempt, before it does anything.

    `journal`: the file of notes; `graveyard`: a directory on the same file system, for what is deleted or replaced.
    """

    def __init__(self, root: Path, journal: Path, graveyard: Path) -> None:
        self._root, self._graveyard = f"{root}/", graveyard
        self._journal_path = journal
        self._busy = False
        self._buried = 0

    def install(self) -> None:
        """Begin to note; there is no way back."""
        self._journal = os.open(self._journal_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        fsync = os.fsync
        sys.addaudithook(self._on_event)

        def noting_fsync(descriptor: Any) -> None:
            number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
            before = os.fstat(number)
            fsync(descriptor)
            kind = "syncdir" if stat.S_ISDIR(before.st_mode) else "sync"
            self._note([kind, before.st_ino, before.st_size])

        def noting_rename(source: Path, target: Path) -> int:
            inode = _inode(str(source))
            code = real_rename(source, target)
            if code == 0:
                self._note(
                    ["rename", *self._place(str(source)), *self._place(str(target)), inode, ""]
                )
            return code

        real_rename = local._renameat2
        os.fsync = noting_fsync  # type: ignore[assignment]
        local._renameat2 = noting_rename

    def _note(self, event: Event) -> None:
        os.write(self._journal, json.dumps(event).encode() + b"\n")

    def _on_event(self, name: str, arguments: tuple[Any, ...]) -> None:
        handler = _HANDLERS.get(name)
        if handler is None or self._busy:
            return
        self._busy = True
        try:
            with suppress(FileNotFoundError):
                handler(self, *arguments)
        finally:
            self._busy = False

    def _path(self, given: Any, directory: int = -1) -> str | None:
        """The absolute path that a call means; None if it does not concern us."""
        if isinstance(given, int) or given is None:
            return None
        path = os.fsdecode(given)
        if not path.startswith("/"):
            path = str(
                Path(
                    f"/proc/self/fd/{directory}" if directory >= 0 else "/proc/self/cwd"
                ).readlink()
                / path
            )
        return (
            path
            if path.startswith(self._root) and not path.endswith(_EXEMPT) and ".sqlite" not in path
            else None
        )

    def _place(self, path: str) -> tuple[int, str]:
        parent, name = os.path.split(path)
        return Path(parent).stat().st_ino, name

    def _bury(self, path: str) -> str:
        """Keep a file that is about to lose its name; returns its name in the graveyard, "" if there is none."""
        self._buried += 1
        grave = f"{os.getpid()}-{self._buried}"
        try:
            os.link(path, self._graveyard / grave, follow_symlinks=False)
        except OSError:
            return ""
        return grave

    def on_open(self, given: Any, mode: Any, flags: int) -> None:
        path = self._path(given)
        if path is None or not flags & os.O_CREAT:
            return
        if not os.path.lexists(path):
            self._note(["create", *self._place(path)])
        elif flags & os.O_TRUNC:
            self._note(["cut", _inode(path)])

    def on_rename(self, source: Any, target: Any, source_dir: int, target_dir: int) -> None:
        here, there = self._path(source, source_dir), self._path(target, target_dir)
        if here is not None and there is not None:
            inode = _inode(here)
            self._note(
                ["rename", *self._place(here), *self._place(there), inode, self._bury(there)]
            )

    def on_remove(self, given: Any, directory: int) -> None:
        if (path := self._path(given, directory)) is not None:
            self._note(["remove", *self._place(path), self._bury(path)])

    def on_link(self, source: Any, target: Any, source_dir: int, target_dir: int) -> None:
        if (path := self._path(target, target_dir)) is not None:
            self._note(["create", *self._place(path)])

    def on_mkdir(self, given: Any, mode: int, directory: int) -> None:
        if (path := self._path(given, directory)) is not None and not os.path.lexists(path):
            self._note(["mkdir", *self._place(path)])

    def on_rmdir(self, given: Any, directory: int) -> None:
        if (path := self._path(given, directory)) is not None:
            self._note(["rmdir", *self._place(path), _inode(path)])


_HANDLERS: dict[str, Callable[..., None]] = {
    "open": Recorder.on_open,
    "os.rename": Recorder.on_rename,
    "os.remove": Recorder.on_remove,
    "os.link": Recorder.on_link,
    "os.mkdir": Recorder.on_mkdir,
    "os.rmdir": Recorder.on_rmdir,
}


def _inode(path: str) -> int:
    return os.lstat(path).st_ino


@dataclass
class Disk:
    """What is known to be durable below `root`, over all attempts of a crawl. `directory`: for notes, not in `root`.

    Call `settle` before the first attempt, and `lose_power` once all processes are dead.
    """

    root: Path
    directory: Path

    def __post_init__(self) -> None:
        self.graveyard = self.directory / "graveyard"
        self.journal = self.directory / "journal"
        self.synced: dict[int, int] = {}
        self._moved: dict[int, Path] = {}

    def recorder(self) -> Recorder:
        """For an attempt."""
        return Recorder(self.root, self.journal, self.graveyard)

    def settle(self) -> None:
        """What is there now is durable."""
        self.synced = {found.stat().st_ino: found.stat().st_size for found in _files(self.root)}
        shutil.rmtree(self.graveyard, ignore_errors=True)
        self.graveyard.mkdir(parents=True)
        self.journal.unlink(missing_ok=True)

    def lose_power(self, loss: Loss, rng: random.Random) -> list[str]:
        """Take back what was not durable; returns what, for a reader."""
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        events: list[Event] = [json.loads(line) for line in lines]
        lost: list[str] = []
        self._moved = {}
        if loss is not Loss.DATA:
            for event in reversed(self._volatile(events, loss, rng)):
                with suppress(KeyError):
                    lost += self._undo(event)
        self._count_synced(events)
        if loss is not Loss.NAMES:
            lost += self._cut(loss, rng)
        self.settle()
        return lost

    def _volatile(self, events: list[Event], loss: Loss, rng: random.Random) -> list[Event]:
        """The changes of names that no fsync of their directory followed."""
        durable: set[int] = set()
        found: list[Event] = []
        kept: dict[int, bool] = {}
        for event in reversed(events):
            if event[0] == "syncdir":
                durable.add(event[1])
            elif event[0] not in ("sync", "cut"):
                parents = {event[1], event[3]} if event[0] == "rename" else {event[1]}
                if parents <= durable:
                    continue
                if loss is Loss.SOME:  # what reached the disk by itself is the older part
                    for parent in parents:
                        kept[parent] = kept.get(parent, False) or rng.random() < 0.3
                    if all(kept[parent] for parent in parents):
                        continue
                found.append(event)
        return found[::-1]

    def _where(self, inode: int) -> Path:
        """The directory of this inode as it is called now. Raises KeyError."""
        if inode in self._moved:
            return self._moved[inode]
        for parent, _, _ in os.walk(self.root):
            if Path(parent).stat().st_ino == inode:
                return Path(parent)
        raise KeyError(inode)

    def _undo(self, event: Event) -> list[str]:
        kind, place, name = event[0], self._where(event[1]), event[2]
        path = place / name
        match kind:
            case "create" if path.exists():
                path.unlink()
            case "mkdir" if path.exists() and not any(path.iterdir()):
                path.rmdir()
            case "remove" if event[3] and not path.exists():
                os.link(self.graveyard / event[3], path)
            case "rmdir" if not path.exists():
                path.mkdir()
                self._moved[event[3]] = path
            case "rename":
                target = self._where(event[3]) / event[4]
                if (
                    not os.path.lexists(target)
                    or _inode(str(target)) != event[5]
                    or os.path.lexists(path)
                ):
                    return []
                target.rename(path)
                if event[6]:
                    os.link(self.graveyard / event[6], target)
                return [f"rename of {path.relative_to(self.root)} to {target.name}"]
            case _:
                return []
        return [f"{kind} of {path.relative_to(self.root)}"]

    def _count_synced(self, events: list[Event]) -> None:
        for kind, inode, *rest in events:
            if kind == "sync":
                self.synced[inode] = rest[0]
            elif kind == "cut":
                self.synced[inode] = 0

    def _cut(self, loss: Loss, rng: random.Random) -> Iterator[str]:
        for path in _files(self.root):
            size, durable = path.stat().st_size, self.synced.get(path.stat().st_ino, 0)
            if size > durable:
                keep = durable if loss is not Loss.SOME else rng.randint(durable, size)
                os.truncate(path, keep)
                yield f"{size - keep} of {size} bytes of {path.relative_to(self.root)}"


def _files(root: Path) -> list[Path]:
    return sorted(
        path
        for path in root.rglob("*")
        if path.is_file() and not path.name.endswith(_EXEMPT) and ".sqlite" not in path.name
    )
