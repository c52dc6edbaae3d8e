"""A decision to hand a queue over: made by a retirement, and brought to its end, or dropped, by the next task.

The file `retire` in a node's directory names the folder of the crawl directory, `seeds/<name>`, to which everything
that waits goes. Once that folder exists the URLs are others': the queue has to be emptied, whatever happens to the node
afterwards. Before that nothing has happened.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from crawl_lib.durable import delete_durable
from crawl_lib.errors import ConfigError, DamagedFileError
from crawl_lib.frontier import (
    Change,
    NodeDirectory,
    Queue,
    carry_out_move,
    finish_open_move,
    plan_move,
)
from crawl_lib.node.task import NodeTask
from crawl_lib.rounds import at_work
from crawl_lib.sealed import unsealed_or_old
from crawl_lib.stores import Stores


def read_decision(directory: Path) -> dict[str, Any] | None:
    """A decision that is not carried out to the end, None if there is none. Raises DamagedFileError naming it."""
    path = NodeDirectory(directory).retire
    try:
        return unsealed_or_old(path.read_bytes(), ("name", "nodes", "routing"))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFileError(f"{path}: cannot be read: {error}; delete it, and retire the node again") from error


def empty_queue(queue: Queue, name: str) -> None:
    """One move: nothing waits here any more. `name`: of the decision."""
    record, move_id = queue.record(), f"retire-{name}"
    if record.last_move == move_id:
        return
    change = Change(
        move_id=move_id,
        state=queue.state(),
        record=replace(record, pending={}, nodes=()),
        ours=True,
        replaces=True,
        deletes=[NodeDirectory.handed_on, NodeDirectory.scope_added, NodeDirectory.undecided],
    )
    carry_out_move(queue, plan_move(queue, change))


def drop_decision(task: NodeTask) -> None:
    """Called by a task of a node that takes part again: its retirement was begun, and is not to be finished.

    A later retirement would take the old decision for its own: what has joined the queue since would be emptied away.
    """
    decision = read_decision(task.directory)
    if decision is None:
        return
    finish_open_move(task.queue)
    handed = task.crawl.seeds_path(decision["name"])
    if task.stores.storage.exists(handed):
        task.stores.storage.secure(handed)
        empty_queue(task.queue, decision["name"])
    delete_durable(NodeDirectory(task.directory).retire)


def require_out(stores: Stores, node: str) -> None:
    """Raise ConfigError for a node of the config: it cannot be retired."""
    if node in stores.config.servers:
        raise ConfigError(f"node {node} is in servers: take it out of the config of every machine, then retire it")


def require_others_settled(stores: Stores, node: str) -> None:
    """Raise ConfigError while the others have something open: nothing more may be sent to this node."""
    newest = stores.crawl.newest_iteration()
    if newest is None:
        return
    problems = at_work(stores, replace(newest, nodes=tuple(name for name in newest.nodes if name != node)))
    if problems:
        raise ConfigError(f"node {node} cannot be retired before the others have settled: {'; '.join(problems[:5])}")


def result_of(stores: Stores, node: str, manifest: dict[str, Any]) -> dict[str, Any]:
    """What a retirement returns."""
    path = stores.crawl.seeds_path(manifest["digest"])
    return {"node": node, "retired": True, "handed_over": manifest["accepted"], "path": path}
