"""The fetching of a take: worker processes fill the spool, while a thread seals its files and one looks after the room.

What is in the spool needs no second look: an attempt after a kill fetches only what has no record there.
"""

import time
from typing import Any

from crawl_lib.config import to_mapping
from crawl_lib.crawldir import Iteration
from crawl_lib.durable import fsync_dir, reached
from crawl_lib.fetch import HostStore, Turns, make_hosts_folder, user_agent_header
from crawl_lib.frontier import NodeDirectory, Take, write_leftover
from crawl_lib.node.sources import scope_hosts
from crawl_lib.node.task import NodeTask
from crawl_lib.node.watermarks import RoomWatch, wait_for_room
from crawl_lib.rounds import nodes_changed
from crawl_lib.segment import Sealer, finished_positions, part_prefix
from crawl_lib.storage import Storage
from crawl_lib.stores import Stores, open_stores
from crawl_lib.version import VERSION
from crawl_lib.worker import WorkerTask, run_workers


def fetch_take(task: NodeTask, take: Take, own: Iteration, hidden: str) -> None:
    """Fetch what has no record yet, then decide what is left over. `hidden`: the segment's hidden folder on the DFS."""

    def store_of_a_thread() -> Storage:  # for a thread next to the task's own; it ends its waiting with the task
        return open_stores(task.stores.config, task.stores.secrets, stop=task.stores.stop).storage

    with Sealer(store_of_a_thread, hidden, task.spool):
        task.spool.mkdir(exist_ok=True)
        fsync_dir(task.directory)
        finished_positions(task.spool)  # damage is named here, with its remedy; workers could not say it
        task.progress.enter("fetch", taken=take.count, queue=task.queue.length())
        if take.count:
            _visit_hosts(task, take, own)
        done = finished_positions(task.spool)
        write_leftover(take, [position for position in range(take.count) if position not in done])


def _visit_hosts(task: NodeTask, take: Take, own: Iteration) -> None:
    fetch = task.stores.config.fetch
    with HostStore(make_hosts_folder(task.directory)) as hosts:
        # Where hosts have another node now, the one before may just have asked them.
        if hosts.begin(hold=nodes_changed(task.stores, own)):
            # After an unclean stop: turns that the dead processes held are free again, after one delay for everybody.
            with Turns.of(NodeDirectory(task.directory).hosts, fetch) as turns:
                turns.reset(max(fetch.host_delay_s, fetch.ip_delay_s))
        try:
            take.scope()  # a damaged one is named here, with its remedy
        except FileNotFoundError:
            take.write_scope(scope_hosts(task, own))
            reached("node.scope")
        _run_workers_while_there_is_room(task, take, own)
        hosts.finish()


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


def _worker_tasks(task: NodeTask, take: Take, own: Iteration, seconds_left: float) -> list[WorkerTask]:
    config = task.stores.config
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
            info={**origin(task.stores), "part_of": f"{own.folder}/{task.node}"},
        )
        for number in range(take.header.processes)
    ]


def origin(stores: Stores) -> dict[str, Any]:
    """What warcinfo and manifest say of how the segment came to be."""
    return {
        "krake_version": VERSION,
        "config_digest": stores.config_digest,
        "user_agent": user_agent_header(stores.config.fetch),
        "robots_policy": stores.config.fetch.robots,
    }
