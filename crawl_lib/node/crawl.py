"""A node's task of an iteration, from the lock to the segment, in seven steps; and `settle`, its last intake.

`docs/protocol.md` says what is true after each step.
"""

import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from crawl_lib.crawldir import FolderState, Iteration, Settled, delete_settled, write_settled
from crawl_lib.durable import fsync_dir, reached
from crawl_lib.errors import DamagedFileError, KrakeError, PathNotFoundError, QueueError, StoppedError
from crawl_lib.frontier import (
    NodeDirectory,
    Take,
    advance,
    close_take,
    decode_line,
    finish_open_move,
    make_take,
    open_take,
    pending_report,
    read_handed_on,
    read_leftover,
    read_scope_added,
    read_undecided,
)
from crawl_lib.node.fetching import fetch_take, origin
from crawl_lib.node.guards import require_new_name, require_part, require_room_for_segment
from crawl_lib.node.handover import drop_decision
from crawl_lib.node.lost import require_admitted
from crawl_lib.node.sources import take_in
from crawl_lib.node.task import NodeTask, locked_node
from crawl_lib.node.watermarks import wait_for_room
from crawl_lib.rounds import keep_late_scope, needed_segments, require_agreement, require_layout, share_of_node
from crawl_lib.segment import (
    Manifest,
    SegmentReader,
    build_segment,
    hidden_folder,
    publish,
    seal_all,
    utc_text,
)
from crawl_lib.states import KEY_STATE_OF_OUTCOME, KeyState, Outcome
from crawl_lib.stores import Stores
from crawl_lib.urls import Owners, host_of

URLS_OF_A_PROCESS = 1000


def crawl_node(stores: Stores, *, run_id: str, iteration: int, node: str) -> dict[str, Any]:
    """Crawl one node's batch of an iteration and commit its segment; what an earlier attempt left open is done first.

    Progress: see `crawldir.NodeProgress`. Returns the segment's counts. Raises what `guards` does, LockedError if
    another task holds the node, and StoppedError.
    """
    own = require_part(stores, run_id, iteration, node)
    segment = stores.crawl.segment(own.folder, node)
    with locked_node(stores, node, what=f"run {run_id}, iteration {iteration}") as task:  # 1. lock; finish what is open
        begin(task)
        if not segment.exists():  # 2. committed already?
            require_room_for_segment(stores, own, segment)
            fill_missed(task, own.folder)
            wait_for_room(task)
            take_in(task, own)  # 3. intake
            require_new_name(task.queue, segment)
            stores.go_on()
            take = _decide(task, own, share_of_node(stores, own, node))  # 4. the take
            complete(task, take)  # 5. fetch, 6. commit, 7. the queue moves on
        counts = segment.manifest()["counts"]
        task.progress.enter("done", queue=task.queue.length())
    return {"folder": own.folder, "node": node, **counts}


def require_ready(stores: Stores, *, run_id: str, iteration: int) -> None:
    """Ask, before an iteration gets its folder, whether the nodes can work, where all of them are on one machine.

    An iteration whose tasks are all refused would leave a folder that nothing comes into, and that keeps its share of
    `crawl.max_pages`. Nothing is asked where the iteration has its folder already. Raises what the crawl task of a node
    would be refused with, if so many are refused that commit would fail; StoppedError; ConfigError as `start` does.
    """
    if stores.crawl.find(run_id, iteration) is not None:
        return
    require_layout(stores)
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


def settle_node(stores: Stores, *, node: str, run_id: str | None = None) -> dict[str, Any]:
    """Take in everything that waits for a node, so that its queue is complete until the next run.

    `run_id`: of a run whose last iterations are settled; this machine must agree with them. Returns the intake's
    counts, and the length of the queue. Run again, it finds nothing left to take in. The note that it leaves lets
    `start` know that the list of nodes may change.
    """
    if (last := stores.crawl.newest()) and run_id is not None:
        own = stores.crawl.folder(last).iteration()
        if own.run_id == run_id:
            require_agreement(stores, own)
    with locked_node(stores, node, what="settle") as task:
        begin(task)
        fill_missed(task, None)
        newest = stores.crawl.newest()
        report = take_in(task, None)
        length = task.queue.length()
        undecided = sum(1 for _ in read_undecided(task.queue))
        write_settled(stores.crawl, Settled(node, newest, length, undecided, task.queue.taken_in()))
        task.progress.enter("done", queue=length)
    return {"node": node, "queue": length, **report.to_mapping()}


def begin(task: NodeTask) -> None:
    """What each task of a node does first: it may take part, is not being retired, and has nothing open."""
    require_admitted(task)
    drop_decision(task)
    finish_what_is_open(task)


def fill_missed(task: NodeTask, before: str | None) -> None:
    """Leave an empty segment in each older folder that was committed without this node, and of which it took nothing.

    A take of such a folder was finished before this is called. With the empty segment the folder is complete, and
    nothing waits for this node's any more. `before`: only folders older than this one; None: all.
    """
    crawl = task.crawl
    task.queue.create()
    taken_in = task.queue.taken_in()
    for folder in crawl.folders():
        if folder in taken_in.complete or (before is not None and int(folder) >= int(before)):
            continue
        if (folder, task.node) not in taken_in and task.node in FolderState.read(crawl, folder).missing:
            complete(task, _decide(task, crawl.folder(folder).iteration(), 0))


def finish_what_is_open(task: NodeTask) -> None:
    """Bring a move and a take that an earlier task left open to their end, whichever run they are of."""
    finish_open_move(task.queue)
    take = open_take(task.directory)
    if take is not None:
        if task.spool.exists():
            fsync_dir(task.spool)  # a part that is closed is believed
        complete(task, take)
    else:
        if NodeDirectory(task.directory).leftover.exists():  # killed between the two deletions of `close_take`
            close_take(task.directory)
        # A spool without a take is of no use, and must be gone before the next take: its positions mean other URLs.
        if task.spool.exists():
            shutil.rmtree(task.spool)


def _decide(task: NodeTask, own: Iteration, size: int) -> Take:
    """Write the take: which URLs this iteration fetches, `size` at most. The node is no longer settled."""
    delete_settled(task.crawl, task.node)
    processes = task.stores.config.fetch.processes or os.cpu_count() or 1
    queued = min(size, task.queue.length())
    return make_take(
        task.queue,
        size,
        take_id=uuid.uuid4().hex,
        run_id=own.run_id,
        iteration=own.iteration,
        folder=own.folder,
        processes=max(1, min(processes, queued // URLS_OF_A_PROCESS)),
        extra={"started_s": time.time()},
    )


def complete(task: NodeTask, take: Take) -> None:
    """From an open take to a published segment and a queue that has moved on; every step may be done again."""
    storage, built = task.stores.storage, NodeDirectory(task.directory).spool_segment
    segment = task.crawl.segment(take.header.folder, task.node)
    folder = task.crawl.at(segment.folder)
    if not segment.exists():
        own = _iteration_of(task, take)
        hidden = hidden_folder(folder, task.node, take.take_id)
        with _repair_named(task):
            if read_leftover(take) is None:
                task.stores.go_on()
                fetch_take(task, take, own, hidden)
            wait_for_room(task, local=False)
            task.progress.enter("commit")
            task.stores.go_on()
            seal_all(storage, hidden, task.spool, repair="krake fsck --repair")
            _build(task, take, own)
        task.stores.go_on()
    published = publish(storage, folder, task.node, take.take_id, built)
    keep_late_scope(task.stores, take.header.folder)
    leftover = read_leftover(take)
    if leftover is None:  # an empty one would lose its URLs
        raise task.queue.error(f"the segment of take {take.take_id} is there, and `leftover` is not there")
    advance(task.queue, take, take.select(leftover))
    reached("node.advanced")
    mark_pages(task.stores, published, task.node)
    reached("node.marked")
    close_take(task.directory)
    if task.spool.exists():
        shutil.rmtree(task.spool)


@contextmanager
def _repair_named(task: NodeTask) -> Iterator[None]:
    """Damage in the spool names the command that repairs it; the rooms that read a spool do not know whose it is."""
    try:
        yield
    except DamagedFileError as error:
        if "`krake " in str(error):
            raise
        raise DamagedFileError(f"{error}; run `krake fsck --repair`") from error


def _iteration_of(task: NodeTask, take: Take) -> Iteration:
    """The iteration of an open take. Raises QueueError if somebody deleted its folder: he must choose."""
    header = take.header
    with suppress(PathNotFoundError):
        own = task.crawl.folder(header.folder).iteration()
        if (own.run_id, own.iteration) == (header.run_id, header.iteration):
            return own
    raise QueueError(
        f"{take.path}: is open, and the folder of its iteration {header.folder} (run {header.run_id}) is gone: put"
        " the folder back, or delete the file, and its URLs are fetched (again) with the next batch"
    )


def _build(task: NodeTask, take: Take, own: Iteration) -> None:
    """Put the segment's files together from the workers' parts."""
    queue = task.queue
    facts = Manifest(
        take_id=take.take_id,
        run_id=take.header.run_id,
        iteration=take.header.iteration,
        folder=own.folder,
        node=task.node,
        **origin(task.stores),
        started=utc_text(take.header.extra["started_s"]),
        counts={"taken": take.count, "deferred": len(read_leftover(take) or [])},
        intake=pending_report(queue).to_mapping(),
        scope_added=list(read_scope_added(queue)),
    )
    owners = Owners(own.nodes)
    handed_on = (decode_line(line, "handed_on")[0] for line in read_handed_on(queue))
    build_segment(
        task.spool,
        NodeDirectory(task.directory).spool_segment,
        facts,
        own.nodes,
        handed_on=((owners.owner(host_of(queued.url)), queued) for queued in handed_on),
    )


def mark_pages(stores: Stores, segment: str, node: str | None = None) -> None:
    """Set the states of the keys of a segment's pages, crawled or gone; may be repeated.

    `segment`: its path. `node`: whose own server is asked first. Raises KeyStoreError, and what reading it raises.
    """
    with stores.keys(node) as keys:
        for batch in SegmentReader(stores.storage, segment).pages(["key", "outcome"], with_dropped=True):
            by_state: dict[KeyState, list[bytes]] = {}
            rows: list[list[Any]] = [column.to_pylist() for column in batch.columns]
            for key, outcome in zip(*rows, strict=True):
                by_state.setdefault(KEY_STATE_OF_OUTCOME[Outcome(outcome)], []).append(key)
            for state, marked in by_state.items():
                keys.set_state(marked, state)
