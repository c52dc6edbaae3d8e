"""Requisites come first: the lines of a queue are written again with those of requisites before all others."""

from itertools import chain, compress

from crawl_lib.durable import reached
from crawl_lib.frontier.directory import NodeDirectory
from crawl_lib.frontier.move import Change, change_queue, move_id
from crawl_lib.frontier.queue import Queue
from crawl_lib.frontier.take import OTHERS, require_no_take, require_settled, write_lines
from crawl_lib.urlfiles import is_requisite


def bring_forward(queue: Queue) -> int:
    """Bring the requisites of a queue before all other lines; return how many there are.

    Requisites keep their order, and so do the other lines. The caller holds the lock, and has adopted the queue. Where
    a requisite is behind another line, one move replaces the queue, in time linear in its length: run again after a
    kill, the function finds nothing left to do. Raises QueueError, DamagedFileError or StorageError.
    """
    require_no_take(queue)
    require_settled(queue)
    state, record = queue.state(), queue.record()
    marks = bytearray(is_requisite(meta, is_meta=True) for _, meta in queue.lines(state))
    count = marks.count(1)
    if marks.rfind(1) < count:
        return count
    lines = chain(compress(queue.lines(state), marks), compress(queue.lines(state), marks.translate(OTHERS)))
    written = write_lines(queue, NodeDirectory.made_due, lines)
    reached("forward.written")
    change = Change(
        move_id=move_id("forward", record.last_move, written, count),
        state=state,
        record=record,
        ours=True,
        appended=(NodeDirectory.made_due, written),
        replaces=True,
    )
    change_queue(queue, change)
    return count
