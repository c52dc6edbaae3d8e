"""A node's task of an iteration, from the lock to the segment, in seven steps; and `settle`, its last intake.

`docs/protocol.md` says what is true after each step.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from crawl_lib.config import to_mapping
from crawl_lib.crawldir import FolderState, Iteration, Settled, delete_settled, write_settled
from crawl_lib.durable import fsync_dir, reached
from crawl_lib.errors import DamagedFileError, PathNotFoundError, QueueError
from crawl_lib.fetch import HostStore, Turns, make_hosts_folder, user_agent_header
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
    write_leftover,
)
from crawl_lib.node.admission import require_admitted
from crawl_lib.node.guards import require_new_name, require_part, require_room_for_segment
from crawl_lib.node.handover import drop_decision
from crawl_lib.node.sources import scope_hosts, take_in
from crawl_lib.node.task import NodeTask, locked_node
from crawl_lib.node.watermarks import RoomWatch, wait_for_room
from crawl_lib.rounds import keep_late_scope, nodes_changed, require_agreement, share_of_node
from crawl_lib.segment import (
    Sealer,
    SegmentFacts,
    SegmentReader,
    build_segment,
    finished_positions,
    hidden_folder,
    part_prefix,
    publish,
    seal_all,
)
from crawl_lib.states import KEY_STATE_OF_OUTCOME, KeyState, Outcome
from crawl_lib.storage import Storage
from crawl_lib.stores import Stores, open_stores
from crawl_lib.urls import Owners, host_of
from crawl_lib.version import VERSION
from crawl_lib.worker import WorkerTask, run_workers

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
    crawl = task.stores.crawl
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
        _delete_spool(task)


def _delete_spool(task: NodeTask) -> None:
    """A spool without a take is of no use, and must be gone before the next take: its positions mean other URLs."""
    if task.spool.exists():
        shutil.rmtree(task.spool)


def _decide(task: NodeTask, own: Iteration, size: int) -> Take:
    """Write the take: which URLs this iteration fetches, `size` at most. The node is no longer settled."""
    delete_settled(task.stores.crawl, task.node)
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
    folder = task.stores.crawl.at(take.header.folder)
    if not storage.exists(f"{folder}/{task.node}"):
        own = _iteration_of(task, take)
        hidden = hidden_folder(folder, task.node, take.take_id)
        with _repair_named(task):
            if read_leftover(take) is None:
                task.stores.go_on()
                with Sealer(partial(_storage_of_a_thread, task), hidden, task.spool):
                    _fetch(task, take, own)
            wait_for_room(task, local=False)
            task.progress.enter("commit")
            task.stores.go_on()
            seal_all(storage, hidden, task.spool, repair="krake fsck --repair")
            _build(task, take, own)
        task.stores.go_on()
    segment = publish(storage, folder, task.node, take.take_id, built)
    keep_late_scope(task.stores, take.header.folder)
    leftover = read_leftover(take)
    if leftover is None:  # an empty one would lose its URLs
        raise task.queue.error(f"the segment of take {take.take_id} is there, and `leftover` is not there")
    advance(task.queue, take, take.select(leftover))
    reached("node.advanced")
    mark_pages(task.stores, segment, task.node)
    reached("node.marked")
    close_take(task.directory)
    _delete_spool(task)


@contextmanager
def _repair_named(task: NodeTask) -> Iterator[None]:
    """Damage in the spool names the command that repairs it; the rooms that read a spool do not know whose it is."""
    try:
        yield
    except DamagedFileError as error:
        if "`krake " in str(error):
            raise
        raise DamagedFileError(f"{error}; run `krake fsck --repair`") from error


def _storage_of_a_thread(task: NodeTask) -> Storage:
    """The store again, for a thread next to the task's own; it ends its waiting with the task."""
    return open_stores(task.stores.config, task.stores.secrets, stop=task.stores.stop).storage


def _iteration_of(task: NodeTask, take: Take) -> Iteration:
    """The iteration of an open take. Raises QueueError if somebody deleted its folder: he must choose."""
    header = take.header
    with suppress(PathNotFoundError):
        own = task.stores.crawl.folder(header.folder).iteration()
        if (own.run_id, own.iteration) == (header.run_id, header.iteration):
            return own
    raise QueueError(
        f"{take.path}: is open, and the folder of its iteration {header.folder} (run {header.run_id}) is gone: put"
        " the folder back, or delete the file, and its URLs are fetched (again) with the next batch"
    )


def _fetch(task: NodeTask, take: Take, own: Iteration) -> None:
    """Fetch what has no record yet, then decide what is left over."""
    task.spool.mkdir(exist_ok=True)
    fsync_dir(task.directory)
    finished_positions(task.spool)  # what cannot be trusted is named here, with its remedy; workers could not say it
    task.progress.enter("fetch", taken=take.count, queue=task.queue.length())
    if take.count:
        with HostStore(make_hosts_folder(task.directory)) as hosts:
            # Where hosts have another node now, the one before may just have asked them.
            if hosts.begin(hold=nodes_changed(task.stores, own)):
                _hold_turns(task)
            _run_workers_while_there_is_room(task, take, own)
            hosts.finish()
    done = finished_positions(task.spool)
    write_leftover(take, [position for position in range(take.count) if position not in done])


def _run_workers_while_there_is_room(task: NodeTask, take: Take, own: Iteration) -> None:
    """Run the workers until nothing is left or the time is over; below a watermark they end, and begin again later."""
    limit_s, fetched_s = task.stores.config.batch.time_limit_s, 0.0
    while True:
        wait_for_room(task)
        task.progress.enter("fetch")
        began_s = time.monotonic()
        with RoomWatch(task) as room:
            results = run_workers(
                [worker.as_json() for worker in _worker_tasks(task, take, own, limit_s - fetched_s)],
                log_dir=task.directory,
                lock_descriptor=task.lock.fileno(),
                stop=task.stores.stop.is_set,
                on_progress=task.progress.fetched,
                pause=room.is_short,
            )
        fetched_s += time.monotonic() - began_s
        if fetched_s >= limit_s or not any(result["paused"] for result in results):
            return


def _hold_turns(task: NodeTask) -> None:
    """After an unclean stop: turns that the dead processes held are free again, after one delay for everybody."""
    fetch = task.stores.config.fetch
    with Turns.of(NodeDirectory(task.directory).hosts, fetch) as turns:
        turns.reset(max(fetch.host_delay_s, fetch.ip_delay_s))


def _worker_tasks(task: NodeTask, take: Take, own: Iteration, seconds_left: float) -> list[WorkerTask]:
    config = task.stores.config
    try:
        take.scope()  # a damaged one is named here, with its remedy
    except FileNotFoundError:
        take.write_scope(scope_hosts(task, own))
        reached("node.scope")
    return [
        WorkerTask(
            config=to_mapping(config),
            nodes=list(own.nodes),
            node=task.node,
            node_dir=str(task.directory),
            spool=str(task.spool),
            prefix=part_prefix(own.folder, task.node, number),
            number=number,
            processes=take.header.processes,
            seconds_left=seconds_left,
            info={**_facts(task.stores), "part_of": f"{own.folder}/{task.node}"},
        )
        for number in range(take.header.processes)
    ]


def _facts(stores: Stores) -> dict[str, Any]:
    """What warcinfo and manifest say of how the segment came to be."""
    return {
        "krake_version": VERSION,
        "config_digest": stores.config_digest,
        "user_agent": user_agent_header(stores.config.fetch),
        "robots_policy": stores.config.fetch.robots,
    }


def _build(task: NodeTask, take: Take, own: Iteration) -> None:
    """Put the segment's files together from the workers' parts."""
    queue = task.queue
    facts = SegmentFacts(
        take_id=take.take_id,
        run_id=take.header.run_id,
        iteration=take.header.iteration,
        folder=own.folder,
        node=task.node,
        nodes=own.nodes,
        **_facts(task.stores),
        started_s=take.header.extra["started_s"],
        taken=take.count,
        deferred=len(read_leftover(take) or []),
        intake=pending_report(queue).to_mapping(),
        scope_added=tuple(read_scope_added(queue)),
    )
    owners = Owners(own.nodes)
    handed_on = (decode_line(line, "handed_on")[0] for line in read_handed_on(queue))
    build_segment(
        task.spool,
        NodeDirectory(task.directory).spool_segment,
        facts,
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
