"""Reasons to refuse a node's task before any change: each guard says what does not fit, and what to do.

**The directory is an older copy** (a backup that was put back, a machine that was rolled back, a wrong disk): its queue
would have URLs fetched again, and would never see those that it took in since, whose keys are known. The DFS tells:
segments of takes that the queue does not know of, or a settled note that says it had taken in more. What happened since
the last segment or note shows in the key tables only, which `krake fsck` compares.

**The crawl is not there** (a disk that is not mounted, another path in `dfs_primary`): its scope would be empty, and
what is fetched would lie where no one looks for it. Nothing that the queue has taken in is there, and no node has ever
settled. (Folders that were deleted by hand leave injected seeds, and the folder of settled notes.)
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

    Also, before the node has its segment, for options or code other than where the iteration was started.
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

    A new segment would be in the way of the repair. Raises ConfigError for an iteration of other nodes: no node would
    take in the outlinks.
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

    The URLs of the deleted segment were taken in, and URLs of a new one would never be. A clock that was set back names
    a folder like a deleted one.
    """
    if (segment.folder, segment.node) in queue.taken_in():
        raise OutputConflictError(
            f"{segment.path}: was there before, was taken in, and was deleted; move the folder {segment.folder} away,"
            " and run this task again, which names a new one"
        )


class Mismatch(NamedTuple):
    """Why a task does not go on with a queue. `name`: of the finding of `krake fsck`; `remedy`: what to do."""

    name: str
    problem: str
    remedy: str


def require_newest(stores: Stores, queue: Queue) -> None:
    """Raise QueueError if a queue does not fit the DFS.

    The caller holds its directory.
    """
    if found := mismatch(stores, queue):
        raise QueueError(f"{queue.directory}: {found.problem}; {found.remedy}")


def mismatch(stores: Stores, queue: Queue) -> Mismatch | None:
    """Return evidence that queue and DFS do not fit, if any.

    Before its first take there is no evidence for a queue made by people, or begun again by a repair.
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
