"""A node's directory that is an older copy: a backup that was put back, a machine that was rolled back, a wrong disk.

Its queue would have URLs fetched again, and would never see those that it took in since, whose keys are known. What
stands on the DFS tells: segments of takes that the queue knows nothing of, or a mark that says it had taken in more.
What happened since the last segment or mark shows nowhere but in the key tables, which `krake fsck` compares.
"""

from __future__ import annotations

from contextlib import suppress

from crawl_lib.crawl.marks import read_mark
from crawl_lib.crawl.places import list_folders
from crawl_lib.errors import DamagedFileError, QueueError
from crawl_lib.frontier import Queue, TakenIn, open_take
from crawl_lib.frontier.record import Record, read_record
from crawl_lib.stores import Stores


def require_newest(stores: Stores, queue: Queue) -> None:
    """Raise QueueError if a queue is an older copy. The caller holds its directory."""
    if problem := rollback_problem(stores, queue):
        raise QueueError(f"{queue.directory}: {problem}; {rollback_remedy(queue)}")


def rollback_problem(stores: Stores, queue: Queue) -> str | None:
    """What shows that a queue is an older copy, in words; None if nothing does, or nobody can tell.

    Nobody can of a queue that people made, or that a repair made anew, before its first take.
    """
    with suppress(DamagedFileError):  # an error of whoever reads them next
        record = read_record(queue.directory)
        if record is not None:
            return _younger_segment(stores, queue, record) or _younger_mark(stores, queue, record.taken_in)
    return None


def rollback_remedy(queue: Queue) -> str:
    """What to do about it."""
    return (
        "put the newest directory back; if that is lost, move this one away and run"
        f" `krake queue repair --node {queue.node} --lost`"
    )


def _younger_segment(stores: Stores, queue: Queue, record: Record) -> str | None:
    if record.took is None:
        return None
    take = open_take(queue.directory)
    for folder in reversed(list_folders(stores.storage, stores.crawl_dir)):
        if int(folder) <= int(record.took):
            return None
        path = f"{stores.crawl_dir}/{folder}/{queue.node}"
        if (take is None or take.header.folder != folder) and stores.storage.exists(path):
            return f"holds an older copy of the queue: its newest take was of {record.took}, and {path} stands"
    return None


def _younger_mark(stores: Stores, queue: Queue, taken_in: TakenIn) -> str | None:
    mark = read_mark(stores, queue.node)
    if mark is None or mark.lost or mark.taken_in <= taken_in:
        return None
    return f"holds an older copy of the queue: node {queue.node} has settled since, and had taken in more than this one"
