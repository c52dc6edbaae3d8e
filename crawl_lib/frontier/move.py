"""The only way in which a queue changes: a durable list of steps, then the steps, repeatable."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from hashlib import sha1
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crawl_lib.dataclass import dataclass
from crawl_lib.durable import fsync_dir, fsync_file, reached, write_durable
from crawl_lib.errors import QueueError, os_errors
from crawl_lib.frontier.directory import META, NodeDirectory
from crawl_lib.frontier.hostcounts import HostCounts, read_counts
from crawl_lib.frontier.queue import Queue, State
from crawl_lib.frontier.record import NEXT_TO_QUEUE, UNKNOWN_SIZE, Record, digest_of
from crawl_lib.frontier.take import Take
from crawl_lib.sealed import own_file, sealed_json, unsealed

if TYPE_CHECKING:
    from crawl_lib.frontier.lock import NodeLock


@dataclass(frozen=True, slots=True)
class Step:
    """Delete the file `name`, or rename it to `target`. `inode`: the intended file, whatever its name is now."""

    name: str
    inode: int
    target: str | None = None


@dataclass(frozen=True)
class Move:
    """The content of the file `move`.

    `groups`: steps in order; within a group in any order. `state`, `record`: the content of `state` and `state.krake`
    afterwards. `counts_hosts`: digest of the file `new.hosts`, whose counts are added once by `move_id`; "" without the
    file.
    """

    move_id: str
    groups: tuple[tuple[Step, ...], ...]
    state: str
    record: dict[str, Any]
    counts_hosts: str = ""

    def to_bytes(self) -> bytes:
        """Return the bytes of the file."""
        groups = [[[step.name, step.inode, step.target] for step in group] for group in self.groups]
        return sealed_json({**vars(self), "groups": groups})

    @classmethod
    def read(cls, directory: Path) -> "Move | None":
        """Read the open move, None without one.

        Raises DamagedFileError, StorageError.
        """
        path = NodeDirectory(directory).move
        with suppress(FileNotFoundError), own_file(path, "is not a move"):
            value = unsealed(path.read_bytes())
            value["groups"] = tuple(
                tuple(Step(*step) for step in group) for group in value["groups"]
            )
            return cls(**value)
        return None


@dataclass
class Change:
    """The change of a queue by a move; `state` is its checked state.

    `consumed`: the number of URLs that leave at the front. `appended`: a durable data file (name, and `<name>.meta`)
    with its number of lines, which joins at the end; a file without lines is deleted. `replaces`: the whole queue goes
    (adoption). `deletes`, `renames`: other files, done last. `record`: the next record, whose state, sizes, digests and
    offsets are filled in here; `ours`: the queue is known to be Krake's. `offsets`: the place of the first unprocessed
    line afterwards; None: the present place.
    """

    move_id: str
    state: State
    record: Record
    ours: bool
    consumed: int = 0
    appended: tuple[str, int] | None = None
    replaces: bool = False
    deletes: Sequence[str] = ()
    renames: Sequence[tuple[str, str]] = ()
    counts_hosts: bool = False
    offsets: tuple[int, int] | None = None
    groups: list[tuple[Step, ...]] = field(default_factory=list)


def move_id(kind: str, *facts: object) -> str:
    """Return an id that no other move of a queue has.

    The id is a digest of the move's facts, with the id of the last move.
    """
    return f"{kind}-{sha1(json.dumps(facts, sort_keys=True).encode()).hexdigest()}"


class HeldQueue(Queue):
    """The queue of a node whose lock is held, with all changes of the queue: see `NodeHome.queue`.

    After the release of the lock, a change raises LockedError, and nothing has happened.
    """

    def __init__(self, directory: Path, node: str, lock: "NodeLock") -> None:
        """Prepare the queue. `lock`: the node's."""
        super().__init__(directory, node)
        self.lock = lock

    def create(self) -> None:
        """Make an empty queue unless a queue exists.

        An unfinished attempt is completed.
        """
        self.lock.require_held()
        if self.files.state.exists() or self.files.move.exists():
            return
        files = self.files.data_files()
        if any(self.files.data(number).stat().st_size for number in files) or len(files) > 1:
            raise self.error(f"there is no `state` next to {len(files)} data files")
        write_durable(self.files.data(0), b"")
        write_durable(self.files.state, State().to_bytes())

    def change(self, change: Change) -> None:
        """Plan a move, make it durable, and carry it out.

        After a kill `finish_open_move` goes on. Raises QueueError, StorageError.
        """
        self.lock.require_held()
        move = _plan(self, change)
        write_durable(self.files.move, move.to_bytes())
        reached("queue.move.written")
        _carry_out(self, move)

    def finish_open_move(self) -> bool:
        """Carry out the move that a killed task left, if any.

        Returns whether there was an open move. The holder of the node's lock calls this first. A killed task may have
        renamed files in the directory; afterwards these renames are durable. Raises QueueError if files have changed
        since the plan of the move.
        """
        self.lock.require_held()
        fsync_dir(self.directory)
        move = Move.read(self.directory)
        if move is None:
            return False
        if problem := next(impossible_steps(self, move), None):
            raise self.error(
                f"the open move {problem}; the directory may have been copied within the move"
            )
        _carry_out(self, move)
        return True

    def write_record(self, record: Record) -> None:
        """Replace `state.krake`, durably, without another change of the queue."""
        self.lock.require_held()
        write_durable(self.files.record, sealed_json(record.to_mapping()))

    def write_lines(self, name: str, lines: Iterable[tuple[bytes, bytes]]) -> int:
        """Write a data file and its meta under new names, durably.

        Returns the number of lines. Without lines nothing is synced: the move that follows deletes both files. Raises
        StorageError naming the path.
        """
        self.lock.require_held()
        count = 0
        path = self.directory / name
        meta_path = self.files.meta_of(path)
        with os_errors(path, "cannot be written"):
            with path.open("wb") as data, meta_path.open("wb") as meta:
                for url, line in lines:
                    data.write(b"%b\n" % url)
                    meta.write(b"%b\n" % line)
                    count += 1
                if count:
                    fsync_file(data)
                    fsync_file(meta)
            if count:
                fsync_dir(self.directory)
        return count

    def require_no_take(self) -> None:
        """Raise QueueError if a take is open.

        The unfetched URLs of a take are not in the queue.
        """
        if Take.open(self.directory) is not None:
            raise QueueError(
                f"{self.directory}: a take is open; run the crawl task of this node again to finish the take"
            )

    def require_settled(self) -> None:
        """Raise QueueError if a move is open.

        Positions mean nothing before the move is carried out.
        """
        if self.files.move.exists():
            raise QueueError(
                f"{self.directory}: a move is open; run the crawl task of this node again to finish the move"
            )

    def offsets_after(self, state: State, count: int) -> tuple[int, int]:
        """Return where the first unprocessed line will begin.

        `count` more URLs are processed by then.
        """
        after, gone = state.after(count)
        if gone == len(state.totals) or not after.processed:
            return 0, 0
        known = self._offsets(state, self.record()) if gone == 0 else None
        lines = after.processed - (state.processed if known else 0)
        data, meta = known or (0, 0)
        return _after_lines(self.files.data(gone), data, lines), _after_lines(
            self.files.meta(gone), meta, lines
        )


def _after_lines(path: Path, offset: int, count: int) -> int:
    """Return the byte where `count` lines end.

    The lines begin at `offset`. 0: the file is missing.
    """
    if not path.exists():
        return 0
    with path.open("rb") as file:
        file.seek(offset)
        return offset + sum(map(len, islice(file, count)))


def _plan(queue: Queue, change: Change) -> Move:
    """Plan a move.

    The plan changes no file, except that an empty queue gets an empty file.
    """
    files = len(change.state.totals)
    state, gone = (State(), files) if change.replaces else change.state.after(change.consumed)
    names = [str(number) for number in range(gone, files)]
    deletes, (appended, count) = list(change.deletes), change.appended or ("", 0)
    if count:
        names.append(appended)
        state = State(state.processed, (*(state.totals if gone < files else ()), count))
    elif appended:
        deletes += [appended, f"{appended}{META}"]
    old = queue.files.data_files() if change.replaces else range(gone)
    if not names and change.state == State():  # the queue is empty, and stays so
        names, gone, old = ["0"], 0, []
    elif not names:
        write_durable(queue.files.empty, b"")
        names.append(NodeDirectory.empty)
    for number in old:
        _add(queue, change, str(number), None)
    for number, name in enumerate(names):
        if name != str(number):
            _add(queue, change, name, str(number))
    others = [queue_step(queue, name) for name in deletes]
    others += [queue_step(queue, name, target) for name, target in change.renames]
    change.groups.append(tuple(step for step in others if step))
    before = (change.record.offset, change.record.meta_offset) if change.ours else (None, None)
    offsets = (change.offsets or before) if gone < files and state.processed else (0, 0)
    own = _own_digests(queue, change.record) if gone < files else {}
    sizes, datas, metas = zip(
        *(_facts(queue, name, own, ours=change.ours) for name in names), strict=True
    )
    kept = {name: digest for name, digest in change.record.files.items() if name not in deletes}
    new = {
        target: digest_of(queue.directory / name)
        for name, target in change.renames
        if target in NEXT_TO_QUEUE
    }
    record = replace(
        change.record,
        state_sha1=state.sha1() if change.ours else "",
        sizes=sizes,
        datas=datas,
        metas=metas,
        files=kept | {name: digest for name, digest in new.items() if digest},
        offset=offsets[0],
        meta_offset=offsets[1],
        last_move=change.move_id,
    )
    groups = tuple(group for group in change.groups if group)
    hosts = digest_of(queue.files.new_hosts) if change.counts_hosts else ""
    return Move(change.move_id, groups, state.to_bytes().decode(), record.to_mapping(), hosts)


def _own_digests(queue: Queue, record: Record) -> dict[str, str]:
    """Return the digests of Krake's data files and metas by name.

    "": the digest is unknown.
    """
    own, known = map(str, queue.own_files(record)), record.digests()
    return {name: known.get(name, "") for number in own for name in (number, f"{number}{META}")}


def _facts(queue: Queue, name: str, own: Mapping[str, str], *, ours: bool) -> tuple[int, str, str]:
    """Return a data file's size and digest, and its meta's digest.

    The digests come from the record. `own`: see `_own_digests`.
    """
    path = queue.directory / name
    meta = queue.files.meta_of(path)
    if not name.isdecimal():
        return path.stat().st_size, digest_of(path), digest_of(meta)
    size = path.stat().st_size if ours or name in own else UNKNOWN_SIZE
    return size, own.get(name, ""), own.get(meta.name, "")


def _add(queue: Queue, change: Change, name: str, target: str | None) -> None:
    meta = f"{target}{META}" if target is not None else None
    steps = (queue_step(queue, name, target), queue_step(queue, f"{name}{META}", meta))
    change.groups.append(tuple(step for step in steps if step))


def queue_step(queue: Queue, name: str, target: str | None = None) -> Step | None:
    """Return the step for a file at its present place.

    None: the file is missing.
    """
    inode = _inode(queue, name)
    return None if inode is None else Step(name, inode, target)


def impossible_steps(queue: Queue, move: Move) -> Iterator[str]:
    """Yield the contradictions between an open move and the files.

    In words. A copy of the directory has such contradictions: its files would not be deleted, and handed-on URLs would
    be handed on again. A name that the move itself gives to another file is no evidence.
    """
    if (there := digest_of(queue.files.new_hosts)) and move.counts_hosts not in {"", there}:
        yield "counts hosts by `new.hosts`, and that is not what was written"
    steps = [step for group in move.groups for step in group]
    given = {step.target for step in steps}
    for step in steps:
        inode = _inode(queue, step.name)
        if step.target is None:
            if inode not in {None, step.inode} and step.name not in given:
                yield f"deletes `{step.name}`, and another file has that name"
        elif step.inode not in {inode, _inode(queue, step.target)}:
            yield f"renames `{step.name}` to `{step.target}`, and neither is that file"


def _carry_out(queue: Queue, move: Move) -> None:
    """Carry out a move.

    A crash may undo some steps; the file `move` then repeats all steps.
    """
    for number, group in enumerate(move.groups):
        if number:
            # A file system may make renames durable in any order, and this group takes names freed by the last group.
            fsync_dir(queue.directory)
        for step in group:
            _do(queue, step)
        reached("queue.move.step")
    write_durable(queue.files.state, move.state.encode(), sync_folder=False)
    reached("queue.move.state")
    if move.counts_hosts:
        HostCounts(queue.directory).add(move.move_id, lambda: read_counts(queue.files.new_hosts))
        reached("queue.move.hosts")
        queue.files.new_hosts.unlink(missing_ok=True)
        reached("queue.move.hosts_deleted")
    write_durable(
        queue.files.record, sealed_json(move.record)
    )  # and all names changed by the lines above
    reached("queue.move.record")
    queue.files.move.unlink(
        missing_ok=True
    )  # a loss of power may bring the file back: all its steps are done then
    reached("queue.move.done")


def _do(queue: Queue, step: Step) -> None:
    path = queue.directory / step.name
    there = is_there(queue, step)
    if step.target is None:
        if there:
            path.unlink()
    elif there:
        path.replace(queue.directory / step.target)
    elif _inode(queue, step.target) != step.inode:
        raise queue.error(
            f"the open move renames `{step.name}` to `{step.target}`, and that file is not there"
        )


def is_there(queue: Queue, step: Step) -> bool:
    """Return whether the file of a step still has its old name."""
    return _inode(queue, step.name) == step.inode


def _inode(queue: Queue, name: str) -> int | None:
    try:
        return os.stat(queue.directory / name).st_ino  # noqa: PTH116 (a hot path of long queues)
    except FileNotFoundError:
        return None
