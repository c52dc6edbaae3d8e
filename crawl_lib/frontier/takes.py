"""The takes of a node: decided from the queue's head, written, and once committed, what the queue moves past."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from hashlib import sha1
from itertools import chain, compress

from crawl_lib.durable import delete_durable, fsync_file, reached, rename_durable, write_durable
from crawl_lib.errors import os_errors
from crawl_lib.frontier.directory import NodeDirectory
from crawl_lib.frontier.fairness import Shares, choose, next_due, runs_of
from crawl_lib.frontier.move import Change, HeldQueue
from crawl_lib.frontier.queue import State
from crawl_lib.frontier.take import Take, TakeHeader
from crawl_lib.records import QueuedUrl
from crawl_lib.sealed import sealed_json
from crawl_lib.urlfiles import encode_meta

OTHERS = bytes.maketrans(b"\0\1", b"\1\0")
"""Turns the marks of some lines into those of all other lines."""


class Takes:
    """The takes of a node whose lock is held: see `NodeHome.takes`. One take is open at a time."""

    def __init__(self, queue: HeldQueue) -> None:
        self._queue = queue

    def make(self, shares: Shares, header: TakeHeader) -> Take:
        """Take the queue's next URLs within `shares`, durably.

        `state` does not move yet.

        `header`: whose take it is; node, positions and counts are filled in here. Raises QueueError if a take or a move
        is open: finish it first.
        """
        queue = self._queue
        queue.require_no_take()
        queue.require_settled()
        state = queue.state()
        taken = choose(queue.lines(state), shares)
        due = None
        if len(taken) == state.length and 0 in taken:
            due = next_due(compress(queue.lines(state), taken.translate(OTHERS)), shares)
        return self.take_lines(taken, replace(header, node=queue.node, next_due=due))

    def take_lines(self, taken: bytearray, header: TakeHeader) -> Take:
        """Write the take of some lines of the queue's head, durably.

        `taken`: of each line that was looked at, 0 or 1.
        """
        state = self._queue.state()
        lines = compress(self._queue.lines(state, len(taken)), taken)
        return self.write(replace(header.at(state, taken), count=taken.count(1)), lines)

    def write(self, header: TakeHeader, lines: Iterable[tuple[bytes, bytes]]) -> Take:
        """Write the file `take`, durably.

        The header comes first, then the data and meta lines, streamed. Raises StorageError naming the path: nothing is
        taken then.
        """
        self._queue.lock.require_held()
        path = self._queue.files.take
        unfinished = path.with_name(f".{NodeDirectory.take}.tmp")
        with os_errors(path, "cannot be written"):
            with unfinished.open("wb") as file:
                file.write(sealed_json(header.to_mapping()))
                digest = sha1()
                for pair in lines:
                    digest.update(line := b"%b\t%b\n" % pair)
                    file.write(line)
                header = replace(header, lines_sha1=digest.hexdigest())
                file.seek(0)
                file.write(sealed_json(header.to_mapping()))  # as long as before
                fsync_file(file)
            rename_durable(unfinished, path)
        reached("take.written")
        return Take(path, header)

    def leave_over(self, take: Take, positions: Collection[int]) -> None:
        """Record durably that fetching is over, with its leftover.

        `positions`: the URLs of the take that were not fetched.
        """
        self._queue.lock.require_held()
        decision = {"take_id": take.take_id, "runs": runs_of(sorted(positions))}
        write_durable(self._queue.files.leftover, sealed_json(decision))
        reached("take.leftover")

    def close(self) -> None:
        """Delete the take, then its other files.

        The caller deletes the spool afterwards.
        """
        self._queue.lock.require_held()
        delete_durable(self._queue.files.take)
        reached("take.deleted")
        delete_durable(self._queue.files.leftover)
        reached("take.leftover_deleted")

    def advance(
        self, take: Take, leftover: Iterable[QueuedUrl] = (), again: Iterable[QueuedUrl] = ()
    ) -> None:
        """Move the queue past a take whose segment is committed.

        To its end go `leftover`, then what the take passed over, then `again`: failures that pass, which are not due
        yet.

        Repeatable: at the position after, nothing happens. Anywhere else QueueError: somebody changed the queue. The
        cargo of the segment (handed-on URLs, hosts for the scope, the counts of intakes) leaves by the same move.
        """
        queue = self._queue
        queue.finish_open_move()
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
        lines = chain(
            _lines(leftover),
            _passed_over(queue.lines(state, looked_at), take.header),
            _lines(again),
        )
        number = queue.write_lines(NodeDirectory.put_back, lines)
        reached("take.put_back")
        change = Change(
            move_id=move_id,
            state=state,
            record=replace(
                record, pending={}, took=max(record.took or "0", take.header.folder, key=int)
            ),
            ours=queue.is_ours(state, record),
            consumed=looked_at,
            appended=(NodeDirectory.put_back, number),
            deletes=[NodeDirectory.handed_on, NodeDirectory.scope_added],
            offsets=queue.offsets_after(state, looked_at),
        )
        queue.change(change)

    def write_scope(self, take: Take, hosts: Iterable[str]) -> None:
        """Record durably the hosts whose links this take follows.

        The decision holds in all attempts. Raises StorageError naming the path.
        """
        self._queue.lock.require_held()
        write_durable(take.scope_path, sealed_json({"hosts": sorted(hosts)}))


def _lines(urls: Iterable[QueuedUrl]) -> Iterator[tuple[bytes, bytes]]:
    return ((item.url.encode(), encode_meta(item)) for item in urls)


def _passed_over(
    lines: Iterable[tuple[bytes, bytes]], header: TakeHeader
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the lines that were looked at and not taken.

    If there are none, no line is read.
    """
    if header.runs == [(0, header.looked_at)]:
        return
    passed = bytearray(b"\1") * header.looked_at
    for start, stop in header.runs:
        passed[start:stop] = bytes(stop - start)
    yield from compress(lines, passed)


def _words(state: State) -> str:
    return "/".join(map(str, (state.processed, *state.totals[:5]))) + (
        "..." if len(state.totals) > 5 else ""
    )
