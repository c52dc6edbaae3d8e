"""The stage `crawl`: one node's task of one iteration, from the lock to the segment. See the package's docstring."""

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
from crawl_lib.crawldir import SWAP_PREFIX, SWAP_SUFFIX, Iteration, awaited, take_mark_away
from crawl_lib.durable import fsync_dir, reached, write_durable
from crawl_lib.errors import ConfigError, DamagedFileError, OutputConflictError, PathNotFoundError, QueueError
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
    write_leftover,
)
from crawl_lib.node.admission import require_admitted
from crawl_lib.node.handover import drop_decision
from crawl_lib.node.keystates import mark_pages
from crawl_lib.node.sources import scope_hosts, take_in
from crawl_lib.node.task import NodeTask, locked_node
from crawl_lib.node.watermarks import RoomWatch, wait_for_room
from crawl_lib.rounds import keep_late_scope, nodes_changed, require_agreement, require_iteration, share_of_node
from crawl_lib.segment import (
    Sealer,
    SegmentFacts,
    build_segment,
    finished_positions,
    hidden_folder,
    part_prefix,
    publish,
    seal_all,
)
from crawl_lib.storage import Storage
from crawl_lib.stores import Stores, open_stores
from crawl_lib.urls import Owners, host_of
from crawl_lib.version import VERSION
from crawl_lib.worker import WorkerTask, run_workers

URLS_OF_A_PROCESS = 1000


def crawl_node(stores: Stores, *, run_id: str, iteration: int, node: str) -> dict[str, Any]:
    """Crawl a node's batch of an iteration. Arguments, result and errors: see `stages`.

    Raises ConfigError too, for a node that the iteration did not begin with.
    """
    own = require_iteration(stores, run_id, iteration)
    if node not in own.nodes:
        raise ConfigError(
            f"node {node!r} is not in iteration {own.folder}, which began with {', '.join(own.nodes)}; trigger a new"
            " run"
        )
    if not stores.storage.exists(segment_path(stores, own.folder, node)):
        require_agreement(stores, own)
    what = f"run {run_id}, iteration {iteration}"
    with locked_node(stores, node, what=what) as task:
        require_admitted(task)
        drop_decision(task)
        finish_what_is_open(task)
        if not stores.storage.exists(segment_path(stores, own.folder, node)):
            _require_no_repair(stores, own, node)
            _require_nodes(stores, own)
            fill_missed(task, own.folder)
            wait_for_room(task)
            take_in(task, own)
            _refuse_used_name(task, own)
            task.go_on()
            complete(task, _decide(task, own, share_of_node(stores, own, node)))
        counts = stores.crawl.segment(own.folder, node).manifest()["counts"]
        task.progress.enter("done", queue=task.queue.length())
    return {"folder": own.folder, "node": node, **counts}


def segment_path(stores: Stores, folder: str, node: str) -> str:
    """Where a node's segment of an iteration stands, relative to the storage's root."""
    return stores.crawl.segment(folder, node).path


def _require_no_repair(stores: Stores, own: Iteration, node: str) -> None:
    """Raise DamagedFileError for a segment that a repair, killed since, put aside: another one would be in its way."""
    decision = f"{stores.crawl.path}/{own.folder}/{SWAP_PREFIX}{node}{SWAP_SUFFIX}"
    if stores.storage.exists(decision):
        raise DamagedFileError(
            f"{decision}: a repair of this segment was stopped half-way: run"
            f" `krake segment salvage {own.folder}/{node}`, which goes on"
        )


def _require_nodes(stores: Stores, own: Iteration) -> None:
    """Raise ConfigError for an iteration of other nodes: what it found for them, nobody would take in."""
    if set(own.nodes) != set(stores.config.servers):
        raise ConfigError(
            f"servers: iteration {own.folder} began with {', '.join(own.nodes)}, and the config of this machine has"
            f" {', '.join(stores.config.servers)}; make the list the same on all machines, or trigger a new run"
        )


def fill_missed(task: NodeTask, before: str | None) -> None:
    """Leave an empty segment in each older folder that was committed without this node, and of which it took nothing.

    A take of such a folder was finished before this is called. With the empty segment the folder is complete, and
    nobody waits for this node's any more. `before`: only folders older than this one; None: all.
    """
    crawl = task.stores.crawl
    task.queue.create()
    taken_in = task.queue.taken_in()
    for folder in crawl.folders():
        if folder in taken_in.complete or (before is not None and int(folder) >= int(before)):
            continue
        index = crawl.folder(folder).index() or {}
        if task.node in awaited(index, crawl.folder(folder).segments()) and (folder, task.node) not in taken_in:
            complete(task, _decide(task, crawl.folder(folder).iteration(), 0))


def _refuse_used_name(task: NodeTask, own: Iteration) -> None:
    """Raise OutputConflictError if the URLs of a segment of this name were taken in before somebody deleted it.

    What this one found would never be taken in. A clock that was set back names a folder like a deleted one.
    """
    if (own.folder, task.node) in task.queue.taken_in():
        raise OutputConflictError(
            f"{segment_path(task.stores, own.folder, task.node)}: stood before, was taken in, and was deleted; delete"
            f" the folder {own.folder}, and run the iteration's start again, which names a new one"
        )


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
    """A spool without a take is rubbish, and must be gone before the next take: its positions mean other URLs."""
    if task.spool.exists():
        shutil.rmtree(task.spool)


def _decide(task: NodeTask, own: Iteration, size: int) -> Take:
    """Write the take: which URLs this iteration fetches, `size` at most. The node does not rest any more."""
    take_mark_away(task.stores.crawl, task.node)
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
                task.go_on()
                with Sealer(partial(_storage_of_a_thread, task), hidden, task.spool):
                    _fetch(task, take, own)
            wait_for_room(task, local=False)
            task.progress.enter("commit")
            task.go_on()
            seal_all(storage, hidden, task.spool, repair=f"krake queue repair --node {task.node}")
            _build(task, take, own)
        task.go_on()
    segment = publish(storage, folder, task.node, take.take_id, built)
    keep_late_scope(task.stores, take.header.folder)
    leftover = read_leftover(take)
    if leftover is None:  # an empty one would lose its URLs
        raise task.queue.error(f"the segment of take {take.take_id} stands, and `leftover` is not there")
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
        raise DamagedFileError(f"{error}; run `krake queue repair --node {task.node}`") from error


def _storage_of_a_thread(task: NodeTask) -> Storage:
    """The store again, for a thread beside the task's own; it ends its waiting with the task."""
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
    scope_file = NodeDirectory(task.directory).spool_scope
    if not scope_file.exists():  # decided once a take
        write_durable(scope_file, "".join(f"{host}\n" for host in sorted(scope_hosts(task, own))).encode())
        reached("node.scope")
    return [
        WorkerTask(
            config=to_mapping(config),
            nodes=list(own.nodes),
            node=task.node,
            node_dir=str(task.directory),
            spool=str(task.spool),
            scope=str(scope_file),
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
