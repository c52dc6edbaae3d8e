"""A node's task of an iteration, from the lock to the segment, in seven steps; and `settle`, the node's last intake.

`docs/protocol.md` tells the state after each step.
"""

import time
from contextlib import suppress
from typing import Any

from crawl_lib.crawldir import Settled
from crawl_lib.dataclass import dataclass
from crawl_lib.errors import KrakeError, StoppedError, StorageError
from crawl_lib.fetch import hosts_in_back_off
from crawl_lib.frontier import IntakeReport
from crawl_lib.node.due import follow_notes
from crawl_lib.node.guards import require_new_name, require_part, require_room_for_segment
from crawl_lib.node.retire import drop_decision, require_admitted
from crawl_lib.node.sources import take_in
from crawl_lib.node.take import complete, decide, fill_missed, finish_what_is_open
from crawl_lib.node.task import NodeTask, locked_node
from crawl_lib.node.watermarks import wait_for_room
from crawl_lib.rounds import (
    NodeLayout,
    needed_segments,
    require_agreement,
    share_of_node,
    start_iteration,
)
from crawl_lib.segment import Part
from crawl_lib.stores import Stores


@dataclass(frozen=True)
class NodeCrawled:
    """A node's part of an iteration.

    `counts`: of the segment; `bytes`: size of its WARC files; `hosts_in_back_off`: their number.
    """

    folder: str
    node: str
    counts: dict[str, Any]
    bytes: int
    hosts_in_back_off: int


@dataclass(frozen=True)
class NodeSettled:
    """A node after its last intake. `queue`: the number of URLs in the queue."""

    node: str
    queue: int
    intake: IntakeReport


def crawl_node(
    stores: Stores, *, run_id: str, iteration: int, node: str, batch_size: int | None = None
) -> NodeCrawled:
    """Crawl one node's batch of an iteration and commit its segment.

    The open work of an earlier attempt is finished first. The first node of an iteration names its folder
    (`start_iteration`), once the node can work. `batch_size`: the most URLs of a node; None: as in the config; only the
    node that names the folder uses this number. Progress: see `crawldir.NodeProgress`. Raises the errors of `guards`
    and `start_iteration`, LockedError if another task holds the node, and StoppedError.
    """
    current = stores.crawl.find(run_id, iteration)
    if current is not None:
        require_part(stores, current, node)
    with locked_node(
        stores, node, what=f"run {run_id}, iteration {iteration}"
    ) as task:  # 1. lock; finish what is open
        _begin(task)
        if current is None:
            current = start_iteration(
                stores, run_id=run_id, iteration=iteration, batch_size=batch_size
            )
            require_part(stores, current, node)  # another machine may have named the folder
        segment = stores.crawl.segment(current.folder, node)
        if not segment.exists():  # 2. committed already?
            require_room_for_segment(stores, current, segment)
            fill_missed(task, current.folder)
            wait_for_room(task)
            take_in(task, current)  # 3. intake
            require_new_name(task.queue, segment)
            follow_notes(task)
            stores.go_on()
            take = decide(
                task, current, *share_of_node(stores, current, node), first=_requisites(task)
            )  # 4. the take
            complete(task, take)  # 5. fetch, 6. commit, 7. the queue moves on
        manifest, waiting = segment.manifest(), _hosts_in_back_off(task)
        task.progress.enter("done", queue=task.queue.length())
    sizes = [
        file["size_bytes"] for file in manifest["files"] if file["name"].endswith(Part.WARC_SUFFIX)
    ]
    return NodeCrawled(current.folder, node, manifest["counts"], sum(sizes), waiting)


def _requisites(task: NodeTask) -> int:
    """Move requisites before all other URLs of a queue; return their number.

    The queue stays as it is if requisites are not wanted.
    """
    return task.home.rewrites.bring_forward() if task.stores.config.parse.wants_requisites else 0


def _hosts_in_back_off(task: NodeTask) -> int:
    """Count a node's hosts in back-off.

    0 if their file is unreadable: the next take reports the error.
    """
    with suppress(StorageError):
        return len(
            hosts_in_back_off(task.directory, time.time(), task.stores.config.retry.max_wait_s)
        )
    return 0


def require_ready(stores: Stores, *, run_id: str, iteration: int) -> None:
    """Raise an error unless the nodes can work.

    Used before an iteration gets its folder, if all nodes are on one machine: if all tasks of an iteration were
    refused, an empty folder would stay behind, with a share of `crawl.max_pages`. If the iteration has a folder
    already, nothing is checked. Raises the refusal of a node's crawl task, if so many are refused that commit would
    fail; StoppedError; ConfigError as `start_iteration` does.
    """
    if stores.crawl.find(run_id, iteration) is not None:
        return
    NodeLayout(stores).require()
    nodes = stores.config.servers
    refused: list[KrakeError] = []
    for node in nodes:
        try:
            with locked_node(stores, node, what="crawl") as task:
                require_admitted(task)
                with stores.keys(node):
                    pass
        except StoppedError:
            raise
        except KrakeError as error:
            refused.append(error)
        if len(nodes) - len(refused) < needed_segments(len(nodes), stores.config.crawl.min_nodes):
            raise refused[0]


def settle_node(stores: Stores, *, node: str, run_id: str | None = None) -> NodeSettled:
    """Take in everything that waits for a node.

    The queue is complete then until the next run.

    `run_id`: the run whose last iterations are settled; this machine must agree with these iterations. A second run
    finds nothing left to take in. The note of this task tells `start` that the list of nodes may change.
    """
    newest = stores.crawl.newest_iteration()
    if newest is not None and newest.run_id == run_id:
        require_agreement(stores, newest)
    with locked_node(stores, node, what="settle") as task:
        _begin(task)
        fill_missed(task, None)
        folder = stores.crawl.newest()
        report = take_in(task, None)
        length = task.queue.length()
        undecided = sum(1 for _ in task.queue.undecided())
        Settled(node, folder, length, undecided, task.queue.taken_in()).write(stores.crawl)
        task.progress.enter("done", queue=length)
    return NodeSettled(node, length, report)


def _begin(task: NodeTask) -> None:
    """Begin a task of a node.

    The node may take part, is not being retired, and has no open work.
    """
    require_admitted(task)
    drop_decision(task)
    finish_what_is_open(task)
