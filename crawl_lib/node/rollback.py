"""A node's directory that does not fit what stands on the DFS: one of the two is not what it was.

**The directory is an older copy**: a backup that was put back, a machine that was rolled back, a wrong disk.

Its queue would have URLs fetched again, and would never see those that it took in since, whose keys are known. What
stands on the DFS tells: segments of takes that the queue knows nothing of, or a mark that says it had taken in more.
What happened since the last segment or mark shows nowhere but in the key tables, which `krake fsck` compares.

**The crawl is not there**: a disk that is not mounted, another path in `dfs_primary`. Its scope would be empty, and
what is fetched would lie where nobody looks for it. Nothing of what the queue has taken in stands there, and no node
has ever settled. (Folders that were deleted by hand leave injected seeds, and the folder of the marks.)
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from crawl_lib.crawldir import marked_nodes, read_mark
from crawl_lib.errors import DamagedFileError, QueueError
from crawl_lib.frontier import Queue, Record, TakenIn, open_take, read_record
from crawl_lib.stores import Stores


class Mismatch(NamedTuple):
    """Why a queue is not gone on with. `name`: of the finding of `krake fsck`; `remedy`: what to do."""

    name: str
    problem: str
    remedy: str


def require_newest(stores: Stores, queue: Queue) -> None:
    """Raise QueueError if a queue and the DFS do not fit each other. The caller holds its directory."""
    if found := mismatch(stores, queue):
        raise QueueError(f"{queue.directory}: {found.problem}; {found.remedy}")


def mismatch(stores: Stores, queue: Queue) -> Mismatch | None:
    """What shows that queue and DFS do not fit each other; None if nothing does, or nobody can tell.

    Nobody can of a queue that people made, or that a repair made anew, before its first take.
    """
    with suppress(DamagedFileError):  # an error of whoever reads them next
        record = read_record(queue.directory)
        if record is None:
            return None
        if problem := _nothing_stands(stores, record):
            return Mismatch("crawl_missing", problem, _BRING_BACK)
        if problem := _younger_segment(stores, queue, record) or _younger_mark(stores, queue, record.taken_in):
            return Mismatch("queue_rolled_back", problem, _remedy(queue))
    return None


_BRING_BACK = (
    "put dfs_primary, or the disk that is mounted there, back as it was; to begin anew, delete the queues and the key"
    " tables too"
)


def _remedy(queue: Queue) -> str:
    return (
        "put the newest directory back; if that is lost, move this one away and run"
        f" `krake queue repair --node {queue.node} --lost`"
    )


def _nothing_stands(stores: Stores, record: Record) -> str | None:
    known = {*record.taken_in.complete, *record.taken_in.partial}
    if not known or known.intersection(stores.crawl.folders()):
        return None
    if known.intersection(stores.crawl.seeds()) or marked_nodes(stores.crawl):
        return None
    return f"is of a crawl of which nothing stands in {stores.config.dfs_primary}/{stores.crawl.path}"


def _younger_segment(stores: Stores, queue: Queue, record: Record) -> str | None:
    if record.took is None:
        return None
    take = open_take(queue.directory)
    for folder in reversed(stores.crawl.folders()):
        if int(folder) <= int(record.took):
            return None
        path = stores.crawl.segment(folder, queue.node).path
        if (take is None or take.header.folder != folder) and stores.storage.exists(path):
            return f"holds an older copy of the queue: its newest take was of {record.took}, and {path} stands"
    return None


def _younger_mark(stores: Stores, queue: Queue, taken_in: TakenIn) -> str | None:
    mark = read_mark(stores.crawl, queue.node)
    if mark is None or mark.retired or mark.taken_in <= taken_in:  # a retired node may begin anew
        return None
    return f"holds an older copy of the queue: node {queue.node} has settled since, and had taken in more than this one"
