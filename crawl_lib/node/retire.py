"""Retiring a node: what its queue holds goes to the nodes that are left, and it takes part no more.

The steps, each durable before the next, under the node's lock, on its machine or where its directory was copied to:

1. What is open is finished: a move; a take, which is fetched and committed in its folder; empty segments where the
   node was missed. Then all that was found for it is taken in.
2. The file `retire` is written: the decision, with a name and the nodes that are left. From here the queue is fixed.
3. The queue, what was undecided and what was to be handed on go to `<crawl>/seeds/<name>/`, in the form of injected
   seeds, past the key check (the undecided lines: to it): one rename.
4. One move empties the queue.
5. The mark on the DFS says that the node is retired; then `retire` is deleted.

Killed before 2: nothing was handed over. After it: the next call goes on at 3 with the same name, and finds the folder
if it stands. Run again after the end, it says so. If the node is put back into the config instead, its next task
empties the queue if the folder exists, and deletes `retire` (`handover`).

**A node that is lost**: its directory is gone. Every URL that was ever sent to it still exists in the folders it was
sent in, unless somebody deleted them. Its key tells what became of it: unknown: it was never taken in, and goes to its
new owner as it is; queued: it was in the lost queue (or fetched in a take that is lost), and goes past the key check;
crawled or gone: nothing is to be done. What only the disk held is gone: URLs that people put into the queue by hand.
A node of that name is refused from then on, until it is admitted (`admission`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from hashlib import sha1
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Any

from crawl_lib.crawldir import Settled, read_settled, take_note_away, write_settled
from crawl_lib.durable import delete_durable, reached, write_durable
from crawl_lib.errors import ConfigError, PathNotFoundError
from crawl_lib.frontier import (
    NodeDirectory,
    Queue,
    QueueReader,
    Source,
    TakenIn,
    finish_open_move,
    join_line,
    open_take,
    pending_report,
    read_handed_on,
    read_scope_added,
    read_undecided,
)
from crawl_lib.keys import KeyStore
from crawl_lib.node.crawl import fill_missed, finish_what_is_open
from crawl_lib.node.guards import require_newest
from crawl_lib.node.handover import empty_queue, read_decision
from crawl_lib.node.sources import take_in, waiting_sources
from crawl_lib.node.task import NodeTask, locked_directory
from crawl_lib.rounds import at_work, is_retired, newest_iteration
from crawl_lib.sealed import sealed_json
from crawl_lib.seeds import Division, hand_over
from crawl_lib.states import KeyState
from crawl_lib.stopping import until_stopped
from crawl_lib.stores import Stores

_CHUNK = 50_000


def retire_node(stores: Stores, *, node: str, directory: Path | None = None) -> dict[str, Any]:
    """Hand a node's queue to the nodes of the config, among which it is no more.

    `directory`: where the node's directory lies, None: at its place on this machine. Returns what was handed over:
    `handed_over` (URLs), `path` (their folder). Run again, it goes on where it stopped, or says that it is done.
    Raises ConfigError if the node is in the config, or the others have not settled, PathNotFoundError if its directory
    is not there, and what a crawl task raises.
    """
    _require_out(stores, node)
    place = directory or stores.node_dir(node)
    if is_retired(stores, node) and not NodeDirectory(place).retire.exists():
        return {"node": node, "retired": True, "handed_over": 0}
    _require_directory(place, node)
    _require_others_settled(stores, node)
    with locked_directory(stores, node, place, what="retire") as task:
        require_newest(stores, task.queue)
        decision = read_decision(task.directory) or _decide(task)
        finish_open_move(task.queue)
        manifest = _hand_over(task, decision)
        reached("retire.handed_over")
        empty_queue(task.queue, decision["name"])
        reached("retire.emptied")
        elsewhere = place != stores.node_dir(node)  # the directory at its own place has the queue of before
        newest = stores.crawl.newest()
        write_settled(stores.crawl, Settled(node, newest, 0, 0, task.queue.taken_in(), retired=True, lost=elsewhere))
        delete_durable(NodeDirectory(task.directory).retire)
        reached("retire.done")
    return _result(stores, node, manifest)


def plan_retirement(stores: Stores, *, node: str, directory: Path | None) -> dict[str, Any]:
    """What `retire_node` would do, without doing anything: what is queued and open, and what has yet to be taken in."""
    _require_out(stores, node)
    place = directory or stores.node_dir(node)
    _require_directory(place, node)
    _require_others_settled(stores, node)
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


def retire_lost(stores: Stores, *, node: str, dry_run: bool = False) -> dict[str, Any]:
    """Retire a node whose directory is gone: what was sent to it is sent to others, as far as it was not crawled.

    Returns `handed_over` and, of these, `requeued`: URLs that were in the lost queue. Folders that were committed
    without it count as complete from now on. With local routing, a URL that another node claimed may be fetched twice.
    Raises ConfigError if its directory is on this machine, StoppedError once `stores.stop` is set, and as `retire_node`
    does.
    """
    _require_out(stores, node)
    place = stores.node_dir(node)
    if NodeDirectory(place).state.exists():
        raise ConfigError(f"{place}: is on this machine; retire {node} without --lost, or move the directory away")
    if is_retired(stores, node):
        return {"node": node, "retired": True, "handed_over": 0}
    _require_others_settled(stores, node)
    newest = stores.crawl.newest()
    name = sha1(f"lost {node} {newest}".encode()).hexdigest()
    counts = {"seen": 0, "requeued": 0, "new": 0}
    sources, _ = waiting_sources(stores, node, TakenIn(), before=None, planned=[])
    with stores.keys(make=not dry_run) as keys:
        lines = _lost_lines(sources, keys, counts, stores.stop)
        if dry_run:
            return {"node": node, "handed_over": sum(1 for _ in lines), **counts, "to": list(stores.config.servers)}
        facts = {"retired": node, "lost": counts}
        manifest = hand_over(stores.crawl, name, lines, Division.of(stores.config), facts=facts)
    reached("retire.handed_over")
    before = read_settled(stores.crawl, node)
    take_note_away(stores.crawl, node)
    taken_in = before.taken_in if before else TakenIn()
    taken_in = taken_in.with_sources((source.folder, source.node) for source in sources)
    write_settled(stores.crawl, Settled(node, newest, 0, 0, taken_in, retired=True, lost=True))
    return {**_result(stores, node, manifest), **manifest["lost"]}


def _require_out(stores: Stores, node: str) -> None:
    if node in stores.config.servers:
        raise ConfigError(f"node {node} is in servers: take it out of the config of every machine, then retire it")


def _require_directory(place: Path, node: str) -> None:
    if not NodeDirectory(place).state.exists():
        raise PathNotFoundError(
            f"{place}: holds no queue of node {node}; run this on its machine, name a copy of its directory with --dir,"
            " or, if its disk is lost, use --lost"
        )


def _require_others_settled(stores: Stores, node: str) -> None:
    """Nothing more may be sent to this node: the others have nothing open."""
    newest = stores.crawl.newest_iteration()
    if newest is None:
        return
    problems = at_work(stores, replace(newest, nodes=tuple(name for name in newest.nodes if name != node)))
    if problems:
        raise ConfigError(f"node {node} cannot be retired before the others have settled: {'; '.join(problems[:5])}")


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


def _hand_over(task: NodeTask, decision: dict[str, Any]) -> dict[str, Any]:
    queue = task.queue
    task.progress.enter("retire", queue=queue.length())
    return hand_over(
        task.stores.crawl,
        decision["name"],
        task.stores.until_stopped(_queue_lines(queue)),
        Division(decision["nodes"], decision["routing"]),
        scope=read_scope_added(queue),
        facts={"retired": task.node, "intake": pending_report(queue).to_mapping()},
    )


def _queue_lines(queue: Queue) -> Iterator[bytes]:
    """Everything that waits, as outlink lines: their keys are in, but for those that are undecided."""
    for url, meta in QueueReader(queue, queue.state()).lines():
        yield join_line(url, meta, b"h")
    yield from read_handed_on(queue)
    yield from read_undecided(queue)


def _lost_lines(sources: Sequence[Source], keys: KeyStore, counts: dict[str, int], stop: Event) -> Iterator[bytes]:
    """What was sent to a lost node and was not crawled, each URL once; 20 bytes of memory and more for each."""
    sent: set[bytes] = set()
    with ExitStack() as stack:
        for source in sources:
            lines = source.open()
            if hasattr(lines, "close"):
                stack.callback(lines.close)
            while some := list(islice(until_stopped(lines, stop), _CHUNK)):
                fresh = {sha1(line[: line.find(b"\t")]).digest(): line for line in some}
                states = keys.states([key for key in fresh if key not in sent])
                counts["seen"] += len(some)
                for key, state in states.items():
                    if state is None or state is KeyState.QUEUED:
                        counts["new" if state is None else "requeued"] += 1
                        yield _flagged(fresh[key], handed_on=state is not None)
                sent.update(states)


def _flagged(line: bytes, *, handed_on: bool) -> bytes:
    url, via, depth, redirects, _, metadata = line.split(b"\t", 5)
    return b"\t".join((url, via, depth, redirects, b"h" if handed_on else b"", metadata))


def _result(stores: Stores, node: str, manifest: dict[str, Any]) -> dict[str, Any]:
    return {
        "node": node,
        "retired": True,
        "handed_over": manifest["accepted"],
        "path": stores.crawl.seeds_path(manifest["digest"]),
    }
