"""A node whose disk was lost, and that returns under its old name: refused until it is admitted.

What was sent to it went to others when it was retired as lost, and its note on the DFS says so, with the sources that
this concerns. With an empty disk the node would read them all again, and take for new what its new owners have yet to
take in. So its tasks are refused, and admitting it has two durable steps: one move of its queue, which notes those
sources as taken in (`admit.noted`); then the note says that the node takes part again. Killed between, it is run again.

A node that was retired with its queue, and returns with an empty directory, need not be admitted: its first task makes
that move. Without it the node would read all that it was ever sent, and what others had handed on to it would be
crawled again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from crawl_lib.crawldir import Settled, read_settled, write_settled
from crawl_lib.durable import reached
from crawl_lib.errors import ConfigError, KrakeError, StoppedError
from crawl_lib.frontier import (
    Change,
    Queue,
    State,
    carry_out_move,
    finish_open_move,
    held_without_trace,
    plan_move,
    read_move,
)
from crawl_lib.node.task import NodeTask, locked_node, require_known
from crawl_lib.rounds import needed_segments, require_layout
from crawl_lib.stores import Stores


def require_admitted(task: NodeTask) -> None:
    """Raise ConfigError if the task's node was retired as lost, and was not admitted again.

    Of one that was retired otherwise, and begins with nothing, what it was sent before counts as taken in.
    """
    settled = read_settled(task.stores.crawl, task.node)
    if settled is not None and settled.refusal:
        raise ConfigError(settled.refusal)
    if settled is not None and settled.retired and _is_bare(task.queue):
        _note_taken_in(task, settled)


def admit_node(stores: Stores, *, node: str) -> dict[str, Any]:
    """Let a node that was retired as lost take part again, with an empty queue. Run again, it says that it may.

    Raises ConfigError if it is not in the config, or if its directory holds a queue: that of before, whose URLs others
    have. LockedError and StorageError as a crawl task does.
    """
    with locked_node(stores, node, what="admit") as task:
        settled = read_settled(stores.crawl, node)
        if settled is None or not settled.lost:
            return {"node": node, "admitted": False}
        _note_taken_in(task, settled)
        reached("admit.noted")
        write_settled(stores.crawl, replace(settled, queue=0, undecided=0, retired=False, lost=False))
    return {"node": node, "admitted": True}


def plan_admission(stores: Stores, *, node: str) -> dict[str, Any]:
    """What `admit_node` would return, without doing anything; raises what that does, but does not wait."""
    require_known(stores, node)
    directory = stores.node_dir(node)
    with held_without_trace(directory, node):
        settled = read_settled(stores.crawl, node)
        if settled is None or not settled.lost:
            return {"node": node, "admitted": False}
        queue = Queue(directory, node)
        move = read_move(queue)
        if move is None or move.move_id != _move_id(settled):  # else it is half admitted
            _require_no_queue(queue, settled)
    return {"node": node, "admitted": True}


def _move_id(settled: Settled) -> str:
    return f"admit-{settled.newest}"


def _is_bare(queue: Queue) -> bool:
    """Whether nothing has ever been in a queue: at most it was made, by an attempt that was killed right after."""
    if not queue.directory.is_dir():
        return True
    if queue.files.record.exists() or any(queue.files.data(number).stat().st_size for number in queue.data_files()):
        return False
    state = queue.files.state
    return not state.exists() or state.read_bytes() == State().to_bytes()


def _require_no_queue(queue: Queue, settled: Settled) -> None:
    used = queue.files.state.exists() and not _is_bare(queue)
    if used and queue.record().last_move != _move_id(settled):
        raise ConfigError(
            f"{queue.directory}: holds the queue of before node {queue.node} was retired, and others have its URLs:"
            " move the directory away, then run this again"
        )


def _note_taken_in(task: NodeTask, settled: Settled) -> None:
    queue, move_id = task.queue, _move_id(settled)
    finish_open_move(queue)
    _require_no_queue(queue, settled)
    queue.create()
    record = replace(queue.record(), taken_in=settled.taken_in)
    change = Change(move_id=move_id, state=queue.state(), record=record, ours=True)
    carry_out_move(queue, plan_move(queue, change))


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
            _require_node(stores, node)
        except StoppedError:
            raise
        except KrakeError as error:
            refused.append(error)
        if len(nodes) - len(refused) < needed_segments(len(nodes), stores.config.crawl.min_nodes):
            raise refused[0]


def _require_node(stores: Stores, node: str) -> None:
    """The first steps of a node's task: its directory, its lock, its queue, its note, and the key tables."""
    with locked_node(stores, node, what="crawl") as task:
        require_admitted(task)
        with stores.keys(node):
            pass
