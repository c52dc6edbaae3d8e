"""The only way in which a queue changes: a durable list of what is to be done, then the doing, repeatable."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha1
from typing import Any

from crawl_lib.durable import delete_durable, fsync_dir, reached, write_durable
from crawl_lib.frontier.directory import NodeDirectory
from crawl_lib.frontier.hostcounts import HostCounts, read_counts
from crawl_lib.frontier.queue import Queue, State
from crawl_lib.frontier.record import UNKNOWN_SIZE, Record, digest_of
from crawl_lib.sealed import own_file, sealed_json, unsealed


@dataclass(frozen=True, slots=True)
class Step:
    """Delete the file `name`, or rename it to `target`. `inode` is the file that is meant, whatever its name is now."""

    name: str
    inode: int
    target: str | None = None


@dataclass(frozen=True)
class Move:
    """The content of the file `move`.

    `groups`: steps in order; within a group in any order. `state`, `record`: what `state` and `state.krake` say
    afterwards. `counts_hosts`: digest of the file `new.hosts`, which is added to the host counts, once by `move_id`; ""
    for none (older versions: True or False).
    """

    move_id: str
    groups: tuple[tuple[Step, ...], ...]
    state: str
    record: dict[str, Any]
    counts_hosts: str | bool = ""

    def to_bytes(self) -> bytes:
        """The bytes of the file."""
        groups = [[[step.name, step.inode, step.target] for step in group] for group in self.groups]
        return sealed_json({**vars(self), "groups": groups})


@dataclass(frozen=True, slots=True)
class Appended:
    """A prepared data file (`name`, `<name>.meta`), durable, of `count` lines, that becomes the last one."""

    name: str
    count: int


@dataclass
class Change:
    """What a move is to do to a queue whose checked state is `state`.

    `consumed`: URLs that leave at the front. `appended`: what joins at the end; of a prepared file without lines the
    move is rid. `replaces`: the whole queue goes (adoption). `deletes`, `renames`: other files, done last. `record`:
    the record to be written; state, sizes, metas and offsets of it are filled in here; `ours`: the queue is known to be
    as Krake writes it. `offsets`: where the first unprocessed line begins afterwards; None: where it begins now.
    """

    move_id: str
    state: State
    record: Record
    ours: bool
    consumed: int = 0
    appended: Appended | None = None
    replaces: bool = False
    deletes: Sequence[str] = ()
    renames: Sequence[tuple[str, str]] = ()
    counts_hosts: bool = False
    offsets: tuple[int, int] | None = None
    groups: list[tuple[Step, ...]] = field(default_factory=list)


def move_id(kind: str, *facts: object) -> str:
    """An id that no other move of a queue has: a digest of what it is made of, the id of the move before among it."""
    return f"{kind}-{sha1(json.dumps(facts, sort_keys=True).encode()).hexdigest()}"


def plan_move(queue: Queue, change: Change) -> Move:
    """Work out a move; nothing happens yet, but for an empty file that an empty queue needs."""
    state, gone = (State(), len(change.state.totals)) if change.replaces else change.state.after(change.consumed)
    appended = change.appended if change.appended and change.appended.count else None
    if gone == len(change.state.totals):
        state, gone, appended = _emptied(queue, change.state, gone, appended)
    elif appended:
        state = State(state.processed, (*state.totals, appended.count))
    kept = len(change.state.totals) - gone
    files = _data_steps(queue, change, gone, appended)
    unused = change.appended.name if change.appended and not change.appended.count else None
    deletes = [*change.deletes, *([unused, f"{unused}.meta"] if unused else [])]
    others = [queue_step(queue, name) for name in deletes]
    others += [queue_step(queue, name, target) for name, target in change.renames]
    change.groups.append(tuple(step for step in others if step))
    before = (change.record.offset, change.record.meta_offset) if change.ours else (None, None)
    offsets = (change.offsets or before) if kept and state.processed else (0, 0)
    record = replace(
        change.record,
        state_sha1=state.sha1() if change.ours else "",
        sizes=tuple(size for size, _, _ in files),
        datas=tuple(data for _, data, _ in files),
        metas=tuple(meta for _, _, meta in files),
        files=_digests(queue, change, deletes),
        offset=offsets[0],
        meta_offset=offsets[1],
        last_move=change.move_id,
    )
    groups = tuple(group for group in change.groups if group)
    hosts = digest_of(queue.files.new_hosts) if change.counts_hosts else ""
    return Move(change.move_id, groups, state.to_bytes().decode(), record.to_mapping(), hosts)


def _digests(queue: Queue, change: Change, deletes: Sequence[str]) -> dict[str, str]:
    """Digests of the other files that the queue has afterwards."""
    kept = {name: digest for name, digest in change.record.files.items() if name not in deletes}
    new = {target: digest_of(queue.directory / name) for name, target in change.renames}
    return kept | {name: digest for name, digest in new.items() if digest}


def _emptied(queue: Queue, before: State, gone: int, appended: Appended | None) -> tuple[State, int, Appended | None]:
    if appended:
        return State(0, (appended.count,)), gone, appended
    if before == State():
        return State(), 0, None
    write_durable(queue.files.empty, b"")
    return State(), gone, Appended(NodeDirectory.empty, 0)


def _data_steps(queue: Queue, change: Change, gone: int, appended: Appended | None) -> list[tuple[int, str, str]]:
    """Add the steps of the data files; returns of those that will be there the size, the digest, and the meta's."""
    files = len(change.state.totals)
    metas = queue.own_files(change.record)
    datas, known = dict(enumerate(change.record.datas)), dict(enumerate(change.record.metas))
    found = [
        (
            queue.files.data(number).stat().st_size if change.ours or number in metas else UNKNOWN_SIZE,
            datas.get(number, "") if number in metas else "",
            known.get(number, "") if number in metas else "",
        )
        for number in range(gone, files)
    ]
    for number in range(gone):
        _add(queue, change, (str(number), None))
    if gone:
        for number in range(gone, files):
            _add(queue, change, (str(number), str(number - gone)))
    if appended:
        path = queue.directory / appended.name
        found.append((path.stat().st_size, digest_of(path), digest_of(queue.files.meta_of(path))))
        _add(queue, change, (appended.name, str(files - gone)))
    return found


def _add(queue: Queue, change: Change, pair: tuple[str, str | None]) -> None:
    name, target = pair
    steps = (
        queue_step(queue, name, target),
        queue_step(queue, f"{name}.meta", f"{target}.meta" if target is not None else None),
    )
    change.groups.append(tuple(step for step in steps if step))


def queue_step(queue: Queue, name: str, target: str | None = None) -> Step | None:
    """The step for a file as it lies there now; None if it is not there."""
    inode = _inode(queue, name)
    return None if inode is None else Step(name, inode, target)


def carry_out_move(queue: Queue, move: Move) -> None:
    """Make a move durable, and carry it out."""
    write_durable(queue.files.move, move.to_bytes())
    reached("queue.move.written")
    _carry_out(queue, move)


def finish_open_move(queue: Queue) -> bool:
    """Carry out the move that a killed task left, if there is one; True if there was.

    Whoever holds the node's lock does this first. What a killed task renamed in the directory, and could not make
    durable any more, is durable then. Raises QueueError if the files are not those that it names.
    """
    fsync_dir(queue.directory)
    move = read_move(queue)
    if move is None:
        return False
    if problem := next(impossible_steps(queue, move), None):
        raise queue.error(f"the open move {problem}; the directory may have been copied within the move")
    _carry_out(queue, move)
    return True


def impossible_steps(queue: Queue, move: Move) -> Iterator[str]:
    """What an open move wants of files that are others now, in words: as in a copy of the directory.

    In a copy nothing would be deleted, and URLs that were handed on would be handed on again. A name that the move
    itself gives to another file says nothing.
    """
    if (there := digest_of(queue.files.new_hosts)) and move.counts_hosts not in {"", True, False, there}:
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


def read_move(queue: Queue) -> Move | None:
    """The open move, None if there is none. Raises DamagedFileError, StorageError if the disk refuses it."""
    with suppress(FileNotFoundError), own_file(queue.files.move, "is not a move"):
        value = unsealed(queue.files.move.read_bytes())
        value["groups"] = tuple(tuple(Step(*step) for step in group) for group in value["groups"])
        return Move(**value)
    return None


def _carry_out(queue: Queue, move: Move) -> None:
    for group in move.groups:
        for step in group:
            _do(queue, step)
        # A file system may make renames durable in any order; the next group takes names that this one frees.
        fsync_dir(queue.directory)
        reached("queue.move.step")
    write_durable(queue.files.state, move.state.encode())
    reached("queue.move.state")
    if move.counts_hosts:
        _count_hosts(queue, move)
    write_durable(queue.files.record, sealed_json(move.record))
    reached("queue.move.record")
    delete_durable(queue.files.move)
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
        raise queue.error(f"the open move renames `{step.name}` to `{step.target}`, and that file is not there")


def _count_hosts(queue: Queue, move: Move) -> None:
    path = queue.files.new_hosts
    HostCounts(queue.directory).add(move.move_id, lambda: read_counts(path))
    reached("queue.move.hosts")
    delete_durable(path)
    reached("queue.move.hosts_deleted")


def is_there(queue: Queue, step: Step) -> bool:
    """Whether the file of a step has its old name yet."""
    return _inode(queue, step.name) == step.inode


def _inode(queue: Queue, name: str) -> int | None:
    try:
        return os.stat(queue.directory / name).st_ino  # noqa: PTH116 (a hot path of long queues)
    except FileNotFoundError:
        return None
