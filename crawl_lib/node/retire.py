"""Retiring a node: what its queue holds goes to the nodes that are left, and it takes part no more.

`docs/protocol.md` says what is durable after each step. All of them hold the node's lock, on its machine or where its
directory was copied to. What was undecided goes through the key check of the new owners, all else past it.

A node whose directory is gone is another case (`lost`).
"""

import uuid
from collections.abc import Iterator
from hashlib import sha1
from pathlib import Path
from typing import Any

from crawl_lib.crawldir import Settled, write_settled
from crawl_lib.durable import delete_durable, reached, write_durable
from crawl_lib.errors import PathNotFoundError
from crawl_lib.frontier import (
    NodeDirectory,
    Queue,
    QueueReader,
    finish_open_move,
    join_line,
    open_take,
    pending_report,
    read_handed_on,
    read_scope_added,
    read_undecided,
)
from crawl_lib.node.crawl import fill_missed, finish_what_is_open
from crawl_lib.node.guards import require_newest
from crawl_lib.node.handover import (
    empty_queue,
    read_decision,
    require_others_settled,
    require_out,
    result_of,
)
from crawl_lib.node.sources import take_in, waiting_sources
from crawl_lib.node.task import NodeTask, locked_directory
from crawl_lib.rounds import is_retired
from crawl_lib.sealed import sealed_json
from crawl_lib.seeds import Division, hand_over
from crawl_lib.stores import Stores

_CHUNK = 50_000


def retire_node(stores: Stores, *, node: str, directory: Path | None = None) -> dict[str, Any]:
    """Hand a node's queue to the nodes of the config, among which it is no more.

    `directory`: where the node's directory lies, None: at its place on this machine. Returns what was handed over:
    `handed_over` (URLs), `path` (their folder). Run again, it goes on where it stopped, or says that it is done.
    Raises ConfigError if the node is in the config, or the others have not settled, PathNotFoundError if its directory
    is not there, and what a crawl task raises.
    """
    require_out(stores, node)
    place = directory or stores.node_dir(node)
    if is_retired(stores, node) and not NodeDirectory(place).retire.exists():
        return {"node": node, "retired": True, "handed_over": 0}
    _require_directory(place, node)
    require_others_settled(stores, node)
    with locked_directory(stores, node, place, what="retire") as task:
        require_newest(stores, task.queue)
        decision = read_decision(task.directory) or _decide(task)
        finish_open_move(task.queue)
        queue = task.queue
        task.progress.enter("retire", queue=queue.length())
        facts = {"retired": node, "intake": pending_report(queue).to_mapping()}
        lines = stores.until_stopped(_queue_lines(queue))
        to = Division(decision["nodes"], decision["routing"])
        manifest = hand_over(stores.crawl, decision["name"], lines, to, scope=read_scope_added(queue), facts=facts)
        reached("retire.handed_over")
        empty_queue(queue, decision["name"])
        reached("retire.emptied")
        elsewhere = place != stores.node_dir(node)  # the directory at its own place has the queue of before
        newest = stores.crawl.newest()
        write_settled(stores.crawl, Settled(node, newest, 0, 0, task.queue.taken_in(), retired=True, lost=elsewhere))
        delete_durable(NodeDirectory(task.directory).retire)
        reached("retire.done")
    return result_of(stores, node, manifest)


def plan_retirement(stores: Stores, *, node: str, directory: Path | None) -> dict[str, Any]:
    """What `retire_node` would do, without doing anything: what is queued and open, and what has yet to be taken in."""
    require_out(stores, node)
    place = directory or stores.node_dir(node)
    _require_directory(place, node)
    require_others_settled(stores, node)
    queue = Queue(place, node)
    sources, _ = waiting_sources(stores, node, queue.taken_in(), before=None, planned=[])
    take = open_take(place)
    return {
        "node": node,
        "queue": queue.length(),
        "undecided": sum(1 for _ in read_undecided(queue)),
        "handed_on": sum(1 for _ in read_handed_on(queue)),
        "open_take": take.count if take else 0,
        "sources_to_take_in": len(sources),
        "to": list(stores.config.servers),
    }


def _require_directory(place: Path, node: str) -> None:
    if not NodeDirectory(place).state.exists():
        raise PathNotFoundError(
            f"{place}: holds no queue of node {node}; run this on its machine, name a copy of its directory with --dir,"
            " or, if its disk is lost, use --lost"
        )


def _decide(task: NodeTask) -> dict[str, Any]:
    """Finish what is open, take in all there is, then decide, durably, what is handed over and to whom."""
    finish_what_is_open(task)
    fill_missed(task, None)
    take_in(task, None)
    config = task.stores.config
    decision = {
        "name": sha1(f"retire {task.node} {uuid.uuid4().hex}".encode()).hexdigest(),
        "nodes": list(config.servers),
        "routing": config.frontier.routing,
    }
    write_durable(NodeDirectory(task.directory).retire, sealed_json(decision))
    reached("retire.decided")
    return decision


def _queue_lines(queue: Queue) -> Iterator[bytes]:
    """Everything that waits, as outlink lines: their keys are in, but for those that are undecided."""
    for url, meta in QueueReader(queue, queue.state()).lines():
        yield join_line(url, meta, b"h")
    yield from read_handed_on(queue)
    yield from read_undecided(queue)
