"""What a node fetches in one iteration: the durable file `take`, the decision `leftover`, and the queue's advance."""

from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field, replace
from hashlib import file_digest, sha1
from itertools import chain, compress, count
from pathlib import Path
from typing import Any

from crawl_lib.dataclass import dataclass
from crawl_lib.durable import delete_durable, fsync_dir, fsync_file, reached, rename_durable, write_durable
from crawl_lib.errors import DamagedFileError, QueueError, os_errors
from crawl_lib.frontier.directory import NodeDirectory
from crawl_lib.frontier.fairness import Run, Shares, choose, next_due, positions_of, runs_of
from crawl_lib.frontier.move import Change, change_queue, finish_open_move
from crawl_lib.frontier.queue import Queue, State
from crawl_lib.records import QueuedUrl, TakenUrl
from crawl_lib.sealed import own_file, sealed_json, unsealed
from crawl_lib.urlfiles import decode_meta, encode_meta

_TO_BE_FILLED_IN = 40 * "0"
OTHERS = bytes.maketrans(b"\0\1", b"\1\0")
"""Turns the marks of some lines into those of all other lines."""


@dataclass(frozen=True)
class TakeHeader:
    """The first line of `take`.

    `position_before`, `position_after`: the queue's state when it was taken, and once it is used up (without the
    leftover). `looked_at`: how many lines of the queue's head that is; `runs`: which of them were taken (older versions
    took them all); `next_due`: if that was the whole queue, from when on the first of those that were not taken is due.
    `count`: URLs in it. `processes`: among how many workers its hosts are divided, also in a rerun.
    `extra`: what the caller wants to find again. `lines_sha1`: hex digest of all lines of URLs; where older versions
    wrote the take it is "", and the scope of the take (`Take.scope`) has none either.
    """

    take_id: str
    run_id: str
    iteration: int
    folder: str
    processes: int
    extra: dict[str, Any] = field(default_factory=dict)
    node: str = ""
    position_before: State = field(default_factory=State)
    position_after: State = field(default_factory=State)
    looked_at: int = 0
    runs: Sequence[Run] = ()
    next_due: int | None = None
    count: int = 0
    lines_sha1: str = _TO_BE_FILLED_IN

    def to_mapping(self) -> dict[str, Any]:
        """The form that the file has."""
        return {
            **self.__dict__,
            "position_before": [self.position_before.processed, *self.position_before.totals],
            "position_after": [self.position_after.processed, *self.position_after.totals],
        }


@dataclass(frozen=True)
class Take:
    """An open take. Its URLs stream from the file; `take.header` says whose it is."""

    path: Path
    header: TakeHeader

    @classmethod
    def open(cls, directory: Path) -> "Take | None":
        """Open the take of a node's directory; return None if there is none.

        Raises DamagedFileError naming it and the command that repairs it, StorageError if the disk refuses it.
        """
        path = NodeDirectory(directory).take
        with suppress(FileNotFoundError), own_file(path, "is not a take"):
            with path.open("rb") as file:
                value = {"lines_sha1": "", **unsealed(file.readline())}
            for name in ("position_before", "position_after"):
                processed, *totals = value[name]
                value[name] = State(processed, tuple(totals))
            looked_at = value["position_before"].length - value["position_after"].length
            value = {"looked_at": looked_at, "runs": [(0, looked_at)], **value}
            value["runs"] = [(start, stop) for start, stop in value["runs"]]
            _require_sums(header := TakeHeader(**value))
            return cls(path, header)
        return None

    @classmethod
    def readable(cls, directory: Path) -> "Take | None":
        """Open the take for a repair; return None also for a damaged file, which is a finding of the queue."""
        with suppress(DamagedFileError):
            return cls.open(directory)
        return None

    @property
    def take_id(self) -> str:
        """The id that names the take's segment."""
        return self.header.take_id

    @property
    def count(self) -> int:
        """URLs in it."""
        return self.header.count

    def urls(self, keys: Container[bytes] | None = None) -> Iterator[TakenUrl]:
        """The URLs in batch order; those with these keys only. Raises DamagedFileError as `lines` does."""
        where = str(self.path)
        for position, (url, meta) in enumerate(self.lines()):
            key = sha1(url).digest()
            if keys is None or key in keys:
                yield TakenUrl(position, key, decode_meta(url, meta, where))

    @property
    def passed_over(self) -> int:
        """Lines that were looked at and not taken."""
        return self.header.looked_at - sum(stop - start for start, stop in self.header.runs)

    def select(self, positions: Iterable[int]) -> Iterator[QueuedUrl]:
        """The URLs at these positions, ascending: what a leftover puts back."""
        wanted = set(positions)
        for position, (url, meta) in enumerate(self.lines()):
            if position in wanted:
                yield decode_meta(url, meta, str(self.path))

    def lines(self) -> Iterator[tuple[bytes, bytes]]:
        """The lines of data and meta, in batch order, as they are in the file.

        Raises DamagedFileError: before the first one if they have another digest than the header says; at the end if
        they are not as many.
        """
        seen = 0
        with own_file(self.path, "is not the take that was written"), self.path.open("rb") as file:
            start = len(file.readline())
            if said := self.header.lines_sha1:
                _require(
                    file_digest(file, "sha1").hexdigest() == said, "its URLs have another digest than its header says"
                )
            file.seek(start)
            for line in file:
                url, _, meta = line.rstrip(b"\n").partition(b"\t")
                seen += 1
                yield url, meta
            _require(seen == self.count, f"has {seen} URLs, and its header says {self.count}")

    def leftover(self) -> list[int] | None:
        """Return the positions that were left over, ascending; None while fetching is not over.

        Raises DamagedFileError naming the file and the command that repairs it.
        """
        path = self.path.with_name(NodeDirectory.leftover)
        with suppress(FileNotFoundError), own_file(path, "cannot be read"):
            value = unsealed(path.read_bytes())
            if value["take_id"] == self.take_id:
                found = [*positions_of(value["runs"])]
                _require(not found or 0 <= found[0] <= found[-1] < self.count, f"names position beyond {self.count}")
                return found
        return None

    def write_scope(self, hosts: Iterable[str]) -> None:
        """Decide, durably, which hosts' links are followed while this take is fetched, in all attempts.

        Raises StorageError naming the path.
        """
        sealed, known = self.header.lines_sha1, sorted(hosts)
        lines = "".join(f"{host}\n" for host in known)
        write_durable(self.scope_path, sealed_json({"hosts": known}) if sealed else lines.encode())

    @property
    def scope_path(self) -> Path:
        """The file of those hosts."""
        return NodeDirectory(self.path.parent).spool_scope

    def scope(self) -> list[str]:
        """Those hosts, sorted.

        Raises FileNotFoundError if they are not decided, DamagedFileError: a host less, and its links are dropped.
        """
        with own_file(self.scope_path, "is not the list of hosts that was written", self.header.node):
            data = self.scope_path.read_bytes()
            hosts = unsealed(data)["hosts"] if self.header.lines_sha1 else data.decode("ascii").splitlines()
            _require(all(isinstance(host, str) and host for host in hosts), "a host is no text")
        return list(hosts)


def _require(holds: bool, problem: str) -> None:
    """Within `own_file`: ValueError, if something does not hold."""
    if not holds:
        raise ValueError(problem)


def make_take(queue: Queue, shares: Shares, header: TakeHeader) -> Take:
    """Take what `shares` allow of the next URLs of the queue, durably. `state` does not move yet.

    `header`: whose take it is; node, positions and counts are filled in here. Raises QueueError if a take or a move is
    open: finish it first.
    """
    require_no_take(queue)
    require_settled(queue)
    state = queue.state()
    taken = choose(queue.lines(state), shares)
    due = None
    if len(taken) == state.length and 0 in taken:
        due = next_due(compress(queue.lines(state), taken.translate(OTHERS)), shares)
    return take_lines(queue, taken, replace(header, node=queue.node, next_due=due))


def take_lines(queue: Queue, taken: bytearray, header: TakeHeader) -> Take:
    """Write the take of some lines of the queue's head, durably. `taken`: of each line that was looked at, 0 or 1."""
    state = queue.state()
    return write_take(
        queue.directory,
        replace(header, count=taken.count(1), **position(state, taken)),
        compress(queue.lines(state, len(taken)), taken),
    )


def position(state: State, taken: bytearray) -> dict[str, Any]:
    """The fields of a header that say which lines of a queue in this state were taken. `taken`: see `take_lines`."""
    return {
        "position_before": state,
        "position_after": state.after(len(taken))[0],
        "looked_at": len(taken),
        "runs": runs_of(compress(count(), taken)),
    }


def require_no_take(queue: Queue) -> None:
    """Raise QueueError if a take is open: what it left over is not in the queue."""
    if Take.open(queue.directory) is not None:
        raise QueueError(f"{queue.directory}: a take is open; run the crawl task of this node again, which finishes it")


def require_settled(queue: Queue) -> None:
    """Raise QueueError if a move is open: positions mean nothing before it is carried out."""
    if queue.files.move.exists():
        raise QueueError(f"{queue.directory}: a move is open; run the crawl task of this node again, which finishes it")


def write_take(directory: Path, header: TakeHeader, lines: Iterable[tuple[bytes, bytes]]) -> Take:
    """Write the file `take`: the header, then data and meta lines, streamed; durable when it returns.

    Raises StorageError naming the path: nothing is taken then.
    """
    unfinished, path = directory / f".{NodeDirectory.take}.tmp", NodeDirectory(directory).take
    with os_errors(path, "cannot be written"):
        with unfinished.open("wb") as file:
            file.write(sealed_json(header.to_mapping()))
            digest = sha1()
            for pair in lines:
                digest.update(line := b"%b\t%b\n" % pair)
                file.write(line)
            if header.lines_sha1:
                header = replace(header, lines_sha1=digest.hexdigest())
                file.seek(0)
                file.write(sealed_json(header.to_mapping()))  # as long as before
            fsync_file(file)
        rename_durable(unfinished, path)
    reached("take.written")
    return Take(path, header)


def _require_sums(header: TakeHeader) -> None:
    """Within `own_file`: ValueError, if what a header says of the lines that were looked at contradicts itself."""
    ends = [0, *chain.from_iterable(header.runs), header.looked_at]
    _require(ends == sorted(ends), "its runs are not among the lines that were looked at")
    taken = sum(stop - start for start, stop in header.runs)  # a repair may have found less in the queue
    _require(taken <= header.count, f"its runs are {taken} lines, and it has {header.count} URLs")
    after = header.position_before.after(header.looked_at)[0]
    _require(after == header.position_after, "it ends elsewhere than the lines that were looked at")


def write_leftover(take: Take, positions: Collection[int]) -> None:
    """Decide, durably, that the fetching of a take is over, and that these positions of it were not fetched."""
    decision = {"take_id": take.take_id, "runs": runs_of(sorted(positions))}
    write_durable(take.path.with_name(NodeDirectory.leftover), sealed_json(decision))
    reached("take.leftover")


def close_take(directory: Path) -> None:
    """Delete the take, then what belongs to it. The caller deletes the spool afterwards."""
    delete_durable(NodeDirectory(directory).take)
    reached("take.deleted")
    delete_durable(NodeDirectory(directory).leftover)
    reached("take.leftover_deleted")


def advance(queue: Queue, take: Take, leftover: Iterable[QueuedUrl] = (), again: Iterable[QueuedUrl] = ()) -> None:
    """Move the queue past a take whose segment is committed.

    To its end go `leftover`, then what the take passed over, then `again`: failures that pass, which are not due yet.

    Repeatable: at the position after, nothing happens. Anywhere else QueueError: somebody changed the queue. What
    the segment has carried (handed-on URLs, hosts for the scope, the counts of intakes) goes by the same move.
    """
    finish_open_move(queue)
    record = queue.record()
    move_id = f"take-{take.take_id}"
    if record.last_move == move_id:
        return
    state = queue.state()
    if state != take.header.position_before:
        raise queue.error(
            f"take {take.take_id} begins at {_words(take.header.position_before)}, and `state` is {_words(state)}"
        )
    looked_at = take.header.looked_at
    lines = chain(_lines(leftover), _passed_over(queue.lines(state, looked_at), take.header), _lines(again))
    number = write_lines(queue, NodeDirectory.put_back, lines)
    reached("take.put_back")
    change = Change(
        move_id=move_id,
        state=state,
        record=replace(record, pending={}, took=max(record.took or "0", take.header.folder, key=int)),
        ours=queue.is_ours(state, record),
        consumed=looked_at,
        appended=(NodeDirectory.put_back, number),
        deletes=[NodeDirectory.handed_on, NodeDirectory.scope_added],
        offsets=queue.offsets_after(state, looked_at),
    )
    change_queue(queue, change)


def _lines(urls: Iterable[QueuedUrl]) -> Iterator[tuple[bytes, bytes]]:
    return ((item.url.encode(), encode_meta(item)) for item in urls)


def _passed_over(lines: Iterable[tuple[bytes, bytes]], header: TakeHeader) -> Iterator[tuple[bytes, bytes]]:
    """Those of the lines that were looked at which were not taken; no line is read where that is none."""
    if header.runs == [(0, header.looked_at)]:
        return
    passed = bytearray(b"\1") * header.looked_at
    for start, stop in header.runs:
        passed[start:stop] = bytes(stop - start)
    yield from compress(lines, passed)


def _words(state: State) -> str:
    return "/".join(map(str, (state.processed, *state.totals[:5]))) + ("..." if len(state.totals) > 5 else "")


def write_lines(queue: Queue, name: str, lines: Iterable[tuple[bytes, bytes]]) -> int:
    """Write a data file and its meta under a name of their own, durably; returns the number of lines.

    Without lines nothing is synced: the move that follows deletes both files. Raises StorageError naming the path.
    """
    count = 0
    path = queue.directory / name
    meta_path = queue.files.meta_of(path)
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
            fsync_dir(queue.directory)
    return count
