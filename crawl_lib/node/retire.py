"""A node leaves, with its queue or without, and may return.

**With its queue**: the URLs go to the remaining nodes. `docs/protocol.md` tells the state after each durable step. All
steps hold the node's lock, on its machine or at the place of a copied directory. Undecided URLs go through the key
check of the new owners, all other URLs past the check. The file `retire` in the node's directory names the target of
everything, the folder `seeds/<name>` of the crawl directory. Once this folder exists the URLs belong to others: the
queue has to be emptied, whatever happens to the node afterwards. Before that nothing has happened.

**Without**: the directory is gone. Every URL that was ever sent to the node still exists in the folders of the senders,
unless somebody deleted these folders. The key tells the fate of a URL. Unknown: the URL was never taken in, and goes to
its new owner as it is. Queued: the URL was in the lost queue (or fetched in a lost take), and goes past the key check,
as do URLs that a list asked for. Crawled or gone: nothing is to be done. URLs that people put into the queue by hand
are gone with the disk. A node that has never had a queue, since the list of nodes was changed back, leaves in the same
way, and no URL is gone.

**Back**: the note of a lost node on the DFS names the loss and the sources taken in before. With an empty disk the node
would read all these sources again, and count as new the URLs that its new owners have yet to take in: so its tasks are
refused. An admission has two durable steps: one move of the queue, which notes these sources as taken in
(`admit.noted`); then the note says that the node takes part again. After a kill in between, run the command again. A
node that was retired with its queue, and returns with an empty directory, needs no admission: its first task makes the
same move.
"""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from hashlib import sha1
from pathlib import Path

from crawl_lib.crawldir import Settled, SettledNotes, Starts
from crawl_lib.durable import delete_durable, reached, write_durable
from crawl_lib.errors import ConfigError, PathNotFoundError
from crawl_lib.frontier import Change, HeldQueue, Move, NodeDirectory, NodeLock, Queue, State, Take
from crawl_lib.keys import ShardedKeyStore
from crawl_lib.node.guards import require_newest
from crawl_lib.node.sources import take_in, waiting_sources
from crawl_lib.node.take import fill_missed, finish_what_is_open
from crawl_lib.node.task import NodeTask, locked_directory, locked_node, require_known
from crawl_lib.rounds import NodeLayout
from crawl_lib.sealed import own_file, sealed_json, unsealed
from crawl_lib.seeds import Division, hand_over
from crawl_lib.states import KeyState
from crawl_lib.stores import Stores
from crawl_lib.urlfiles import Source, TakenIn, is_listed, join_line, key_of_line, some_lines

_CHUNK = 50_000


@dataclass(frozen=True, kw_only=True)
class RetireReport:
    """The result of `krake nodes retire`; a field is None where it says nothing.

    `handed_over`: URLs, and `path`: their folder. Of a node without a queue `requeued`: those of them that were in the
    lost queue; `seen`, `new`: of the lines that were sent to the node. Of a `dry_run` all from `queue` on: what is
    queued and open, and what still has to be taken in.
    """

    node: str
    retired: bool | None = None
    handed_over: int | None = None
    path: str | None = None
    seen: int | None = None
    requeued: int | None = None
    new: int | None = None
    queue: int | None = None
    undecided: int | None = None
    handed_on: int | None = None
    open_take: int | None = None
    sources_to_take_in: int | None = None
    to: list[str] | None = None

    @property
    def facts(self) -> dict[str, int | str | list[str]]:
        """The fields that say something."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class HandOverDecision:
    """A decision to hand over a node's queue. `name`: of the folder that everything goes to."""

    name: str
    nodes: list[str]
    routing: str


def retire_node(
    stores: Stores, *, node: str, directory: Path | None = None, dry_run: bool = False
) -> RetireReport:
    """Hand a node's queue to the nodes of the config.

    The node itself is no longer in the config. A node that never had a queue hands over all URLs sent to the node, on
    any machine.

    `directory`: the place of the node's directory, None: its usual place on this machine. A `dry_run` does nothing. A
    second run goes on where the first stopped, or says that the node is retired. Raises ConfigError if the node is in
    the config, or the others have not settled, PathNotFoundError if the directory is missing, and the errors of a crawl
    task.
    """
    _require_out(stores, node)
    place = directory or stores.node_dir(node)
    if NodeLayout(stores).is_retired(node) and not NodeDirectory(place).retire.exists():
        return RetireReport(node=node, retired=True, handed_over=0)
    if not NodeDirectory(place).state.exists():
        if directory is None and NodeLayout(stores).has_never_worked(node):
            return _retire_by_sources(stores, node, lost=False, dry_run=dry_run)
        raise PathNotFoundError(
            f"{place}: holds no queue of node {node}; run this on its machine, name a copy of its directory with --dir,"
            " or, if its disk is lost, use --lost"
        )
    _require_others_settled(stores, node, dry_run=dry_run)
    if dry_run:
        return _plan(stores, Queue(place, node))
    with locked_directory(stores, node, place, what="retire") as task:
        queue = task.queue
        require_newest(stores, queue)
        queue.finish_open_move()
        decision = read_decision(place)
        if decision is None or not (_is_handed_over(stores, decision) or queue.is_ours()):
            decision = _decide(
                task
            )  # again, if a repair has written the queue since then: no intake has read that queue
        task.progress.enter("retire", queue=queue.length())
        facts = {"retired": node, "intake": asdict(queue.record().report())}
        lines = stores.until_stopped(_queue_lines(queue))
        to = Division(decision.nodes, decision.routing)
        manifest = hand_over(
            stores.crawl, decision.name, lines, to, scope=queue.scope_added(), facts=facts
        )
        reached("retire.handed_over")
        _empty_queue(queue, decision.name)
        reached("retire.emptied")
        elsewhere = place != stores.node_dir(
            node
        )  # the directory at the usual place still has the old queue
        newest = stores.crawl.newest()
        Settled(node, newest, 0, 0, queue.taken_in(), retired=True, lost=elsewhere).write(
            stores.crawl
        )
        delete_durable(queue.files.retire)
        reached("retire.done")
    path = stores.crawl.inbox.path(decision.name)
    return RetireReport(node=node, retired=True, handed_over=manifest.accepted, path=path)


def _plan(stores: Stores, queue: Queue) -> RetireReport:
    sources, _ = waiting_sources(stores, queue.node, queue.taken_in(), before=None, planned=[])
    take = Take.open(queue.directory)
    return RetireReport(
        node=queue.node,
        queue=queue.length(),
        undecided=sum(1 for _ in queue.undecided()),
        handed_on=sum(1 for _ in queue.handed_on()),
        open_take=take.count if take else 0,
        sources_to_take_in=len(sources),
        to=list(stores.config.servers),
    )


def _decide(task: NodeTask) -> HandOverDecision:
    """Decide durably which URLs are handed over and to which nodes.

    Open work is finished, and all sources are taken in, first.
    """
    finish_what_is_open(task)
    fill_missed(task, None)
    take_in(task, None)
    config = task.stores.config
    name = sha1(f"retire {task.node} {uuid.uuid4().hex}".encode()).hexdigest()
    decision = HandOverDecision(name, list(config.servers), config.frontier.routing)
    write_durable(NodeDirectory(task.directory).retire, sealed_json(vars(decision)))
    reached("retire.decided")
    return decision


def _is_handed_over(stores: Stores, decision: HandOverDecision) -> bool:
    return stores.storage.exists(stores.crawl.inbox.path(decision.name))


def read_decision(directory: Path) -> HandOverDecision | None:
    """Read an unfinished decision, None without one.

    Raises DamagedFileError naming the decision.
    """
    path = NodeDirectory(directory).retire
    with suppress(FileNotFoundError), own_file(path, "is no decision to retire the node"):
        return HandOverDecision(**unsealed(path.read_bytes()))
    return None


def _queue_lines(queue: Queue) -> Iterator[bytes]:
    """Yield all waiting URLs as outlink lines.

    Their keys are in the tables, except those of undecided lines.
    """
    for url, meta in queue.lines(queue.state()):
        yield join_line(url, meta, b"h")
    yield from queue.handed_on()
    yield from queue.undecided()


def _empty_queue(queue: HeldQueue, name: str) -> None:
    """Empty the queue by one move.

    `name`: the name of the decision.
    """
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
    queue.change(change)


def drop_decision(task: NodeTask) -> None:
    """Drop a begun retirement of a node that takes part again.

    A task of the node calls this. A later retirement would mistake the old decision for its own, and empty away the
    URLs that have joined the queue since then.
    """
    decision = read_decision(task.directory)
    if decision is None:
        return
    task.queue.finish_open_move()
    if _is_handed_over(task.stores, decision):
        task.stores.storage.secure(task.stores.crawl.inbox.path(decision.name))
        _empty_queue(task.queue, decision.name)
    delete_durable(NodeDirectory(task.directory).retire)


def _require_out(stores: Stores, node: str) -> None:
    """Raise ConfigError for a node that cannot be retired.

    The node is still in the config, or the crawl has never had the node.
    """
    if node in stores.config.servers:
        raise ConfigError(
            f"node {node} is in servers: take it out of the config of every machine, then retire it"
        )
    crawl = stores.crawl
    notes = (SettledNotes(crawl, node).read(), SettledNotes(crawl, node).urls_of_lost_queue())
    if (
        notes == (None, None)
        and not NodeLayout(stores).has_never_worked(node)
        and not stores.node_dir(node).is_dir()
    ):
        newest = crawl.newest_iteration()
        nodes = f": the newest iteration had {', '.join(newest.nodes)}" if newest else ""
        raise ConfigError(f"node {node}: this crawl has never had a node of that name{nodes}")


def _require_others_settled(stores: Stores, node: str, *, dry_run: bool) -> None:
    """Raise ConfigError while other nodes have open work.

    After this check nothing more may be sent to this node.
    """
    if not dry_run:
        Starts(
            stores.crawl
        ).finish_open()  # otherwise this node would be part of an iteration that appears later
    newest = stores.crawl.newest_iteration()
    others = [name for name in newest.nodes if name != node] if newest else []
    if newest and (problems := NodeLayout(stores).unsettled(others, newest.folder)):
        raise ConfigError(
            f"node {node} cannot be retired before the others have settled: {'; '.join(problems[:5])}"
        )


def retire_lost(stores: Stores, *, node: str, dry_run: bool = False) -> RetireReport:
    """Retire a node whose directory is gone.

    URLs that were sent to the node and not crawled are sent to other nodes, and so are URLs of the lost queue. With a
    CrawlDb there are none: the leases of their lists end. Folders that were committed without the node count as
    complete from now on. With local routing, a URL that another node claimed may be fetched twice. Raises ConfigError
    if the directory is on this machine, StoppedError once `stores.stop` is set, and
    as `retire_node` does.
    """
    _require_out(stores, node)
    place = stores.node_dir(node)
    if NodeDirectory(place).state.exists():
        raise ConfigError(
            f"{place}: is on this machine; retire {node} without --lost, or move the directory away"
        )
    if NodeLayout(stores).is_retired(node):
        return RetireReport(node=node, retired=True, handed_over=0)
    return _retire_by_sources(stores, node, lost=True, dry_run=dry_run)


def _retire_by_sources(stores: Stores, node: str, *, lost: bool, dry_run: bool) -> RetireReport:
    """Hand over the URLs sent to a node without a queue.

    See `retire_lost`. `lost`: whether the node had a queue.
    """
    _require_others_settled(stores, node, dry_run=dry_run)
    newest = stores.crawl.newest()
    counts = {"seen": 0, "requeued": 0, "new": 0}
    before = SettledNotes(stores.crawl, node).read()
    handed, again = TakenIn(), ""
    if (
        before is not None and before.retired
    ):  # seeds came after the retirement; others have all earlier URLs already
        handed, again = before.taken_in, f" {before.taken_in.to_mapping()}"
    sources, _ = waiting_sources(stores, node, handed, before=None, planned=[])
    name = sha1(f"lost {node} {newest}{again}".encode()).hexdigest()
    with stores.keys(make=not dry_run) as keys:
        lines = _lost_lines(stores, sources, keys, counts)
        if dry_run:
            return RetireReport(
                node=node,
                handed_over=sum(1 for _ in lines),
                seen=counts["seen"],
                requeued=counts["requeued"],
                new=counts["new"],
                to=list(stores.config.servers),
            )
        facts = {"retired": node, "lost": counts}
        manifest = hand_over(stores.crawl, name, lines, Division.of(stores.config), facts=facts)
    reached("retire.handed_over")
    taken_in = before.taken_in if before else TakenIn()
    taken_in = taken_in.with_sources((source.folder, source.node) for source in sources)
    Settled(node, newest, 0, 0, taken_in, retired=True, lost=lost).write(stores.crawl)
    handed_over, path = manifest.accepted, stores.crawl.inbox.path(name)
    return RetireReport(
        node=node, retired=True, handed_over=handed_over, path=path, **manifest.said["lost"]
    )


def _lost_lines(
    stores: Stores, sources: Sequence[Source], keys: ShardedKeyStore, counts: dict[str, int]
) -> Iterator[bytes]:
    """Yield the lines that a lost node did not crawl.

    Each URL comes once, at 20 bytes of memory and more.
    """
    sent: set[bytes] = set()
    with ExitStack() as stack:
        for source in sources if stores.config.order.keeps_keys else ():
            lines = source.open()
            if hasattr(lines, "close"):
                stack.callback(lines.close)
            for some in some_lines(stores.until_stopped(lines), _CHUNK):
                fresh = {key_of_line(line): line for line in some}
                states = keys.states(
                    [key for key, line in fresh.items() if key not in sent or is_listed(line)]
                )
                counts["seen"] += len(some)
                for key, state in states.items():
                    if state is None or state is KeyState.QUEUED or is_listed(fresh[key]):
                        counts["new" if state is None else "requeued"] += 1
                        url, via, depth, redirects, _, metadata = fresh[key].split(b"\t", 5)
                        handed_on = b"" if state is None else b"h"
                        yield b"\t".join((url, via, depth, redirects, handed_on, metadata))
                sent.update(states)


def require_admitted(task: NodeTask) -> None:
    """Raise ConfigError for a lost node that was not admitted again.

    The task's node was retired as lost. After any other retirement a node begins with an empty queue, and counts
    earlier sources as taken in.
    """
    settled = SettledNotes(task.stores.crawl, task.node).read()
    if settled is not None and settled.refusal:
        raise ConfigError(settled.refusal)
    if settled is not None and settled.retired and _is_bare(task.queue):
        _note_taken_in(task.queue, settled)


def admit_node(stores: Stores, *, node: str, dry_run: bool = False) -> bool:
    """Let a lost node take part again, with an empty queue.

    Returns whether the node was retired as lost. Repetition is harmless.

    `dry_run`: changes nothing, and waits for nothing. Raises ConfigError if the node is not in the config, or if its
    directory holds the old queue, whose URLs others have. LockedError and StorageError as a crawl task does.
    """
    require_known(stores, node)
    with ExitStack() as stack:
        if dry_run:
            queue = stack.enter_context(
                NodeLock(stores.node_dir(node), node, 0.0, leaves_trace=False)
            ).queue
        else:
            queue = stack.enter_context(locked_node(stores, node, what="admit")).queue
        settled = SettledNotes(stores.crawl, node).read()
        if settled is None or not settled.lost:
            return False
        if not dry_run:
            _note_taken_in(queue, settled)
            reached("admit.noted")
            replace(settled, queue=0, undecided=0, retired=False, lost=False).write(stores.crawl)
            return True
        move = Move.read(queue.directory)
        if move is None or move.move_id != _move_id(settled):  # otherwise the node is half admitted
            _require_no_queue(queue, settled)
    return True


def _move_id(settled: Settled) -> str:
    return f"admit-{settled.newest}"


def _is_bare(queue: Queue) -> bool:
    """Return whether a queue has never held a URL.

    A killed attempt may have made the queue.
    """
    files = queue.files
    if not queue.directory.is_dir() or files.record.exists():
        return not files.record.exists()
    data = any(files.data(number).stat().st_size for number in files.data_files())
    return not data and (not files.state.exists() or files.state.read_bytes() == State().to_bytes())


def _require_no_queue(queue: Queue, settled: Settled) -> None:
    if (
        queue.files.state.exists()
        and not _is_bare(queue)
        and queue.record().last_move != _move_id(settled)
    ):
        raise ConfigError(
            f"{queue.directory}: holds the queue of before node {queue.node} was retired, and others have its URLs:"
            " move the directory away, then run this again"
        )


def _note_taken_in(queue: HeldQueue, settled: Settled) -> None:
    queue.finish_open_move()
    _require_no_queue(queue, settled)
    queue.create()
    record = replace(queue.record(), taken_in=settled.taken_in)
    change = Change(move_id=_move_id(settled), state=queue.state(), record=record, ours=True)
    queue.change(change)
