"""Reasons to refuse a node's task before any change: each guard says what does not fit, and what to do.

**The directory is an older copy** (a backup put back, a machine rolled back, a wrong disk). URLs of the old queue would
be fetched again. URLs taken in since would never be fetched, because their keys are known. The DFS gives the evidence:
a segment of a take unknown to the queue, or a settled note with more segments taken in. Changes after the last segment
or note show in the key tables only; `krake fsck` compares these.

**The crawl is missing** (a disk that is not mounted, another path in `dfs_primary`). The scope would be empty, and
fetched pages would lie in the wrong place. Evidence: no segment or seed that the queue has taken in exists,
and no node has ever settled. (After folders are deleted by hand, injected seeds and settled notes are still there.)
"""

from contextlib import suppress
from typing import NamedTuple

from crawl_lib.crawldir import FileName, Iteration, SegmentRef, SettledNotes
from crawl_lib.errors import ConfigError, DamagedFileError, OutputConflictError, QueueError
from crawl_lib.frontier import Queue, Record, Take
from crawl_lib.rounds import require_agreement
from crawl_lib.stores import Stores


def require_part(stores: Stores, current: Iteration, node: str) -> None:
    """Raise ConfigError for a node that an iteration did not begin with.

    Before the node has its segment, also raise for options or code unlike those at the iteration's start.
    """
    if node not in current.nodes:
        raise ConfigError(
            f"node {node!r} is not in iteration {current.folder}, which began with {', '.join(current.nodes)}; trigger"
            " a new run"
        )
    if not stores.crawl.segment(current.folder, node).exists():
        require_agreement(stores, current)


def require_room_for_segment(stores: Stores, current: Iteration, segment: SegmentRef) -> None:
    """Raise DamagedFileError while a segment's repair is unfinished.

    A new segment would be in the way of the repair. Raises ConfigError if the config has other nodes than the
    iteration: a node outside the iteration would not take in the outlinks.
    """
    decision = stores.crawl.at(
        segment.folder, f"{FileName.SWAP_PREFIX}{segment.node}{FileName.SWAP_SUFFIX}"
    )
    if stores.storage.exists(decision):
        raise DamagedFileError(
            f"{decision}: a repair of this segment was stopped half-way: run `krake fsck --repair`, which goes on"
        )
    if set(current.nodes) != set(stores.config.servers):
        raise ConfigError(
            f"servers: iteration {current.folder} began with {', '.join(current.nodes)}, and the config of this machine"
            f" has {', '.join(stores.config.servers)}; make the list the same on all machines, or trigger a new run"
        )


def require_new_name(queue: Queue, segment: SegmentRef) -> None:
    """Raise OutputConflictError for the name of a deleted segment.

    The URLs of the deleted segment were taken in; a new segment of this name would never be. Only a clock that was set
    back names a folder like a deleted folder.
    """
    if (segment.folder, segment.node) in queue.taken_in():
        raise OutputConflictError(
            f"{segment.path}: was there before, was taken in, and was deleted; move the folder {segment.folder} away,"
            " and run this task again, which names a new one"
        )


class Mismatch(NamedTuple):
    """Why a task refuses a queue. `name`: of the finding of `krake fsck`; `remedy`: what to do."""

    name: str
    problem: str
    remedy: str


def require_newest(stores: Stores, queue: Queue) -> None:
    """Raise QueueError if a queue does not fit the DFS.

    The caller holds the lock of the queue's directory.
    """
    if found := mismatch(stores, queue):
        raise QueueError(f"{queue.directory}: {found.problem}; {found.remedy}")


def mismatch(stores: Stores, queue: Queue) -> Mismatch | None:
    """Return evidence that queue and DFS do not fit, if any.

    A queue without any move gives no evidence: people made the queue, or a repair began the queue again.
    """
    crawl, node = stores.crawl, queue.node
    with suppress(DamagedFileError):  # the next reader of the file raises it
        record = Record.read(queue.directory)
        if record is None or not record.last_move:
            return None
        taken_in = record.taken_in.without_lists()  # which are deleted once they are over
        known = {*taken_in.complete, *taken_in.partial}
        folders = crawl.folders()
        is_there = known.intersection(folders) or known.intersection(crawl.inbox.seeds())
        if known and not (is_there or SettledNotes.nodes(crawl)):
            return Mismatch(
                "crawl_missing",
                f"is of a crawl of which nothing is in {stores.storage.name}/{crawl.path}",
                "put dfs_primary, or the disk that is mounted there, back as it was; to begin again, delete the queues"
                " and the key tables too",
            )
        settled = SettledNotes(crawl, node).read()
        if segment := _younger_segment(stores, queue, record, folders):
            problem = f"its newest take was of {record.took}, and {segment.path} is there"
        elif (
            settled
            and not settled.retired
            and not settled.taken_in.without_lists() <= record.taken_in
        ):  # a retired one may begin again
            problem = f"node {node} has settled since, and had taken in more than this one"
        else:
            return None
        return Mismatch(
            "queue_rolled_back",
            f"holds an older copy of the queue: {problem}",
            f"put the newest directory back; if that is lost, move this one away and run `krake nodes restart {node}`",
        )
    return None


def _younger_segment(
    stores: Stores, queue: Queue, record: Record, folders: list[str]
) -> SegmentRef | None:
    """Return the newest segment from after the queue's last take.

    The segment of an open take does not count.
    """
    take, crawl = Take.open(queue.directory), stores.crawl
    ours = take.header.folder if take else None
    younger = [name for name in folders if record.took is not None and int(name) > int(record.took)]
    segments = (crawl.segment(folder, queue.node) for folder in reversed(younger) if folder != ours)
    return next((segment for segment in segments if segment.exists()), None)
