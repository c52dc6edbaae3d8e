"""`krake retry --now` in a queue: lines that wait are written again with another time, by one move."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from crawl_lib.durable import reached
from crawl_lib.frontier.directory import NodeDirectory
from crawl_lib.frontier.move import Change, change_queue, move_id
from crawl_lib.frontier.queue import Queue
from crawl_lib.frontier.take import require_no_take, require_settled, write_lines
from crawl_lib.urlfiles import decode_meta, due_of, encode_meta


def make_due(queue: Queue, new_due: Callable[[bytes, bytes], int], notes: Sequence[str]) -> int:
    """Give lines of the queue another time, and record the notes that ask for it; return how many lines changed.

    `new_due`: the POSIX seconds from which on a line (of data and meta) may be taken. `notes`: the names of all notes
    that the queue has followed now. The queue keeps its order. The caller holds the lock, and has adopted the queue.
    One move does all: run again after a kill, it finds the notes recorded, or nothing changed.

    Raises QueueError, DamagedFileError or StorageError.
    """
    require_no_take(queue)
    require_settled(queue)
    state, record, where = queue.state(), queue.record(), str(queue.directory)

    def lines() -> Iterator[tuple[bytes, bytes]]:
        for url, meta in queue.lines(state):
            due = new_due(url, meta)
            is_same = due == due_of(meta)
            yield url, meta if is_same else encode_meta(replace(decode_meta(url, meta, where), due=due))

    changed = sum(new_due(*line) != due_of(line[1]) for line in queue.lines(state))
    count = write_lines(queue, NodeDirectory.made_due, lines()) if changed else 0
    reached("retry_now.written")
    change = Change(
        move_id=move_id("due", record.last_move, [*notes]),
        state=state,
        record=replace(record, made_due=tuple(notes)),
        ours=True,
        appended=(NodeDirectory.made_due, count),
        replaces=bool(changed),
    )
    change_queue(queue, change)
    return changed
