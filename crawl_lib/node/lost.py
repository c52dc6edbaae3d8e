"""A node that is lost: its directory is gone. It is retired without its queue; it may return, once it is admitted.

Every URL that was ever sent to it still exists in the folders it was sent in, unless somebody deleted them. Its key
tells what became of it: unknown: it was never taken in, and goes to its new owner as it is; queued: it was in the lost
queue (or fetched in a take that is lost), and goes past the key check; crawled or gone: nothing is to be done. What
only the disk held is gone: URLs that people put into the queue by hand.

The node's note on the DFS then says that it is lost, with the sources that this concerns. With an empty disk it would
read them all again, and take for new what its new owners have yet to take in: so its tasks are refused. Admitting it
has two durable steps: one move of its queue, which notes those sources as taken in (`admit.noted`); then the note says
that the node takes part again. Killed between, it is run again.

A node that was retired with its queue, and returns with an empty directory, need not be admitted: its first task makes
that move.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from hashlib import sha1
from itertools import islice
from typing import Any

from crawl_lib.crawldir import Settled, read_settled, take_note_away, write_settled
from crawl_lib.durable import reached
from crawl_lib.errors import ConfigError
from crawl_lib.frontier import (
    Change,
    NodeDirectory,
    Queue,
    Source,
    State,
    TakenIn,
    carry_out_move,
    finish_open_move,
    held_without_trace,
    plan_move,
    read_move,
)
from crawl_lib.keys import KeyStore
from crawl_lib.node.handover import require_others_settled, require_out, result_of
from crawl_lib.node.sources import waiting_sources
from crawl_lib.node.task import NodeTask, locked_node, require_known
from crawl_lib.rounds import is_retired
from crawl_lib.seeds import Division, hand_over
from crawl_lib.states import KeyState
from crawl_lib.stores import Stores

_CHUNK = 50_000


def retire_lost(stores: Stores, *, node: str, dry_run: bool = False) -> dict[str, Any]:
    """Retire a node whose directory is gone: what was sent to it is sent to others, as far as it was not crawled.

    Returns `handed_over` and, of these, `requeued`: URLs that were in the lost queue. Folders that were committed
    without it count as complete from now on. With local routing, a URL that another node claimed may be fetched twice.
    Raises ConfigError if its directory is on this machine, StoppedError once `stores.stop` is set, and as `retire_node`
    does.
    """
    require_out(stores, node)
    place = stores.node_dir(node)
    if NodeDirectory(place).state.exists():
        raise ConfigError(f"{place}: is on this machine; retire {node} without --lost, or move the directory away")
    if is_retired(stores, node):
        return {"node": node, "retired": True, "handed_over": 0}
    require_others_settled(stores, node)
    newest = stores.crawl.newest()
    counts = {"seen": 0, "requeued": 0, "new": 0}
    before = read_settled(stores.crawl, node)
    handed, again = TakenIn(), ""
    if before is not None and before.retired:  # seeds came since; what came before them others have already
        handed, again = before.taken_in, f" {before.taken_in.to_mapping()}"
    sources, _ = waiting_sources(stores, node, handed, before=None, planned=[])
    name = sha1(f"lost {node} {newest}{again}".encode()).hexdigest()
    with stores.keys(make=not dry_run) as keys:
        lines = _lost_lines(stores, sources, keys, counts)
        if dry_run:
            return {"node": node, "handed_over": sum(1 for _ in lines), **counts, "to": list(stores.config.servers)}
        facts = {"retired": node, "lost": counts}
        manifest = hand_over(stores.crawl, name, lines, Division.of(stores.config), facts=facts)
    reached("retire.handed_over")
    take_note_away(stores.crawl, node)
    taken_in = before.taken_in if before else TakenIn()
    taken_in = taken_in.with_sources((source.folder, source.node) for source in sources)
    write_settled(stores.crawl, Settled(node, newest, 0, 0, taken_in, retired=True, lost=True))
    return {**result_of(stores, node, manifest), **manifest["lost"]}


def _lost_lines(stores: Stores, sources: Sequence[Source], keys: KeyStore, counts: dict[str, int]) -> Iterator[bytes]:
    """What was sent to a lost node and was not crawled, each URL once; 20 bytes of memory and more for each."""
    sent: set[bytes] = set()
    with ExitStack() as stack:
        for source in sources:
            lines = source.open()
            if hasattr(lines, "close"):
                stack.callback(lines.close)
            while some := list(islice(stores.until_stopped(lines), _CHUNK)):
                fresh = {sha1(line[: line.find(b"\t")]).digest(): line for line in some}
                states = keys.states([key for key in fresh if key not in sent])
                counts["seen"] += len(some)
                for key, state in states.items():
                    if state is None or state is KeyState.QUEUED:
                        counts["new" if state is None else "requeued"] += 1
                        url, via, depth, redirects, _, metadata = fresh[key].split(b"\t", 5)
                        handed_on = b"" if state is None else b"h"
                        yield b"\t".join((url, via, depth, redirects, handed_on, metadata))
                sent.update(states)


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
