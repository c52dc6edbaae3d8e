"""A take from its choice to a published segment and a queue that has moved on; every step is repeatable.

Worker processes fetch the take and fill the spool, while one thread seals the spool's files and another watches the
free room. The spool is trusted: an attempt after a kill fetches only URLs without a record there.
"""

import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

# Modules that load Arrow are named by their package: each is loaded at its first use, and settle mostly has none.
from crawl_lib import segment as segments
from crawl_lib.crawldir import FolderState, Iteration, SettledNotes
from crawl_lib.dataclass import dataclass
from crawl_lib.durable import fsync_dir, reached
from crawl_lib.errors import DamagedFileError, PathNotFoundError, QueueError
from crawl_lib.fetch import HostStore, Turns, costs_a_retry, make_hosts_folder, user_agent_header
from crawl_lib.frontier import LARGE_PATTERN, NodeDirectory, Take, TakeHeader
from crawl_lib.keys import SharedTurns
from crawl_lib.node.shares import shares_of
from crawl_lib.node.sources import scope_hosts
from crawl_lib.node.task import NodeTask
from crawl_lib.node.watermarks import room_watch, wait_for_room
from crawl_lib.records import QueuedUrl
from crawl_lib.rounds import NodeLayout, is_of_requisites, keep_late_scope
from crawl_lib.segment import HiddenFolder, Manifest, Sealer, Spool, publish
from crawl_lib.states import KEY_STATE_OF_OUTCOME, KeyState, Outcome
from crawl_lib.stores import Stores, open_stores
from crawl_lib.urlfiles import HANDED_ON, decode_line
from crawl_lib.urls import Owners, host_of
from crawl_lib.version import VERSION
from crawl_lib.warc import utc_text
from crawl_lib.worker import WorkerTask, room_of, run_workers

URLS_OF_A_PROCESS = 1000


def finish_what_is_open(task: NodeTask) -> None:
    """Finish the move and the take of an earlier task.

    The earlier task may be of any run.
    """
    task.queue.finish_open_move()
    take = Take.open(task.directory)
    if take is not None:
        if task.spool.exists():
            fsync_dir(task.spool)  # a closed part is trusted
        complete(task, take)
    else:
        if NodeDirectory(
            task.directory
        ).leftover.exists():  # killed between the two deletions of `Takes.close`
            task.home.takes.close()
        # A spool without a take is of no use, and must be gone before the next take, whose positions mean other URLs.
        if task.spool.exists():
            shutil.rmtree(task.spool)


def fill_missed(task: NodeTask, before: str | None) -> None:
    """Leave an empty segment in each older folder without this node.

    These folders were committed, and the node took none of their URLs. A take of such a folder is finished before this
    call. The empty segment makes the folder complete, and no other node waits for this node's segment any more.
    `before`: only folders older than this folder; None: all.
    """
    crawl = task.stores.crawl
    task.queue.create()
    taken_in = task.queue.taken_in()
    for folder in crawl.folders():
        if folder in taken_in.complete or (before is not None and int(folder) >= int(before)):
            continue
        if (folder, task.node) not in taken_in and task.node in FolderState.read(
            crawl, folder
        ).missing:
            complete(task, decide(task, crawl.folder(folder).iteration(), 0))


def decide(
    task: NodeTask, current: Iteration, size: int, new: int | None = None, *, first: int = 0
) -> Take:
    """Write the take: at most `size` URLs for this iteration.

    The node is no longer settled.

    `new`: the most URLs without a list; None: no limit. `first`: the number of requisites at the head of the queue; a
    round of requisites takes no other URL.
    """
    SettledNotes(task.stores.crawl, task.node).delete()
    processes = task.stores.config.fetch.processes or os.cpu_count() or 1
    queued = min(size, task.queue.length())
    processes = max(1, min(processes, queued // URLS_OF_A_PROCESS))
    extra: dict[str, Any] = {"started_s": time.time()}
    with HostStore(make_hosts_folder(task.directory)) as hosts:
        extra |= _large_patterns(task, hosts) | ({"requisites": first} if first else {})
        header = TakeHeader(
            uuid.uuid4().hex, current.run_id, current.iteration, current.folder, processes, extra
        )
        shares = shares_of(task.stores.config, hosts, size, new)
        shares = replace(
            shares, only_requisites=is_of_requisites(task.stores.config, current.iteration)
        )
        _copy_identity(task, current)  # a repair has no other copy until the segment is there
        return task.home.takes.make(shares, header)


def _copy_identity(task: NodeTask, current: Iteration) -> list[Path]:
    """Copy the files of a take's iteration into the spool."""
    room = NodeDirectory(task.directory).spool_identity
    return task.stores.crawl.folder(current.folder).copy_identity(room)


def _large_patterns(task: NodeTask, hosts: HostStore) -> dict[str, dict[str, int | None]]:
    """Return the rooms of patterns with many URLs.

    The rooms are for the header of a take (`Rooms`).
    """
    most = task.stores.config.traps.max_similar
    names = task.home.counts.patterns(LARGE_PATTERN) if most else []
    return (
        {"patterns": {name: room_of(hosts, name, most) for name in names}} if most and names else {}
    )


def complete(task: NodeTask, take: Take) -> None:
    """Turn an open take into a published segment.

    The queue moves on. Every step is repeatable. Raises DamagedFileError naming the repair of the take's fetches.
    """
    storage, built = task.stores.storage, NodeDirectory(task.directory).spool_segment
    segment = task.stores.crawl.segment(take.header.folder, task.node)
    folder = task.stores.crawl.at(segment.folder)
    if not segment.exists():
        try:
            _make_segment(
                task, take, HiddenFolder.of_take(storage, folder, task.node, take.take_id)
            )
        except (
            DamagedFileError
        ) as error:  # the rooms that read a spool do not know the repair command
            if "`krake " in str(error):
                raise
            raise DamagedFileError(f"{error}; run `krake fsck --repair`") from error
        task.stores.go_on()
    published = publish(storage, folder, task.node, take.take_id, built)
    keep_late_scope(task.stores, take.header.folder)
    leftover = take.leftover()
    if leftover is None:  # an empty leftover would lose URLs
        raise task.queue.error(
            f"the segment of take {take.take_id} is there, and `leftover` is not there"
        )
    reader = segments.SegmentReader(storage, published)
    task.home.takes.advance(take, take.select(leftover), _again(task, take, reader))
    reached("node.advanced")
    mark_pages(task.stores, reader, task.node)
    reached("node.marked")
    task.home.takes.close()
    if task.spool.exists():
        shutil.rmtree(task.spool)


def _again(task: NodeTask, take: Take, reader: "segments.SegmentReader") -> Iterator[QueuedUrl]:
    """Yield the URLs of a take that are tried again.

    The row of such a URL has a passing failure. Each URL has the facts for its next try. A crawl with a CrawlDb has no
    such URLs: lists name them once they are due. URLs without a try come first: otherwise a page of an always busy host
    would come before them again.
    """
    due: tuple[dict[bytes, int], dict[bytes, int]] = (
        {},
        {},
    )  # URLs without a try, and URLs with a try
    if task.stores.config.order.makes_lists or not reader.manifest.counts["retried"]:
        return
    for batch in reader.pages(["key", "outcome", "attempts", "retry_at"], with_dropped=True):
        failed = batch.filter(batch.column(3).is_valid())
        # Times as integers: Arrow makes Python's times only with pandas, which takes a third of a second to load.
        values = [*failed.columns[:3], failed.column(3).cast("int64")]
        rows: list[list[Any]] = [column.to_pylist() for column in values]
        for key, outcome, attempts, at_us in zip(*rows, strict=True):
            due[costs_a_retry(Outcome(outcome), attempts)][key] = at_us // 1_000_000
    for was_tried, some in enumerate(due):
        for taken in take.urls(some) if some else ():
            yield replace(
                taken.queued, retries=taken.queued.retries + was_tried, due=some[taken.key]
            )


def _make_segment(task: NodeTask, take: Take, hidden: HiddenFolder) -> None:
    """Fetch the remaining URLs, and build the segment.

    WARC files go to the segment's `hidden` folder, all other files to the spool.
    """
    current = _iteration_of(task, take)
    if take.leftover() is None:
        task.stores.go_on()
        _fetch(task, take, current, hidden)
    wait_for_room(task, local=False)
    task.progress.enter("commit")
    task.stores.go_on()
    hidden.seal_all(task.spool, repair="krake fsck --repair")
    _build(task, take, current)


def _fetch(task: NodeTask, take: Take, current: Iteration, hidden: HiddenFolder) -> None:
    """Fetch URLs without a record, then decide the leftover.

    `hidden`: the segment's hidden folder on the DFS.
    """
    config, secrets, stop = task.stores.config, task.stores.secrets, task.stores.stop
    # The thread has its own file store, whose waiting ends with the task.
    with Sealer(lambda: open_stores(config, secrets, stop=stop).storage, hidden.path, task.spool):
        task.spool.mkdir(exist_ok=True)
        fsync_dir(task.directory)
        spool = Spool(task.spool)
        spool.finished_positions()  # damage is named here, with its remedy; workers could not name it
        task.progress.begin_fetch(spool.outcomes(), taken=take.count, queue=task.queue.length())
        if take.count:
            with HostStore(make_hosts_folder(task.directory)) as hosts:
                _visit_hosts(task, take, current, hosts)
                hosts.finish()
        done = spool.finished_positions()
        task.home.takes.leave_over(
            take, [position for position in range(take.count) if position not in done]
        )


def _visit_hosts(task: NodeTask, take: Take, current: Iteration, hosts: HostStore) -> None:
    """Run the workers until no URL or time is left.

    Below a watermark the workers end, and begin again later.
    """
    config = task.stores.config
    # If hosts have another node now, their earlier node may just have asked them.
    if hosts.begin(hold=NodeLayout(task.stores).changed(current)):
        # After an unclean stop: turns held by dead processes are free again, after one delay for everybody.
        with Turns.of(NodeDirectory(task.directory).hosts, config.fetch) as turns:
            turns.reset(max(config.fetch.host_delay_s, config.fetch.ip_delay_s))
    try:
        take.scope()  # a damaged scope is named here, with its remedy
    except FileNotFoundError:
        task.home.takes.write_scope(take, scope_hosts(task, current))
        reached("node.scope")
    with _shared_turns(task) as turns:
        _run_workers(task, take, current, turns)


@contextmanager
def _shared_turns(task: NodeTask) -> Iterator[SharedTurns | None]:
    """Yield the object that reserves shared turns for the processes.

    The processes have no password for the key servers. None: nodes share no turns.
    """
    config = task.stores.config
    if not config.shares_addresses and not config.shares_hosts:
        yield None
        return
    with task.stores.keys(
        task.node
    ):  # the same servers that other nodes ask, or an error names the remedy
        pass
    servers = task.stores.key_servers().servers
    with SharedTurns(servers, config.fetch) as turns:
        yield turns


def _run_workers(task: NodeTask, take: Take, current: Iteration, turns: SharedTurns | None) -> None:
    config = task.stores.config
    left_s, paused = config.batch.time_limit_s, True
    while paused and left_s > 0:
        wait_for_room(task)
        task.progress.enter("fetch")
        began_s = time.monotonic()
        with room_watch(task) as is_short:
            workers = [
                WorkerTask(
                    config=config.to_mapping(),
                    nodes=list(current.nodes),
                    node=task.node,
                    node_dir=str(task.directory),
                    spool=str(task.spool),
                    prefix=Spool.prefix_of(current.folder, task.node, number),
                    number=number,
                    processes=take.header.processes,
                    seconds_left=left_s,
                    info={**vars(_origin(task.stores)), "part_of": f"{current.folder}/{task.node}"},
                )
                for number in range(take.header.processes)
            ]
            results = run_workers(
                list(map(vars, workers)),
                log_dir=task.directory,
                lock_descriptor=task.home.lock.fileno(),
                stop=task.stores.stop.is_set,
                on_progress=task.progress.fetched,
                pause=is_short,
                turns=turns,
            )
        left_s -= time.monotonic() - began_s
        paused = any(result.paused for result in results)


@dataclass(frozen=True)
class _Origin:
    """The origin of a segment, for warcinfo and manifest."""

    krake_version: str
    config_digest: str
    user_agent: str
    robots_policy: str


def _origin(stores: Stores) -> _Origin:
    fetch = stores.config.fetch
    return _Origin(VERSION, stores.config_digest, user_agent_header(fetch), fetch.robots)


def _iteration_of(task: NodeTask, take: Take) -> Iteration:
    """Return the iteration of an open take.

    Raises QueueError if the folder was deleted: a person has to decide.
    """
    header = take.header
    with suppress(PathNotFoundError):
        current = task.stores.crawl.folder(header.folder).iteration()
        if (current.run_id, current.iteration) == (header.run_id, header.iteration):
            return current
    raise QueueError(
        f"{take.path}: is open, and the folder of its iteration {header.folder} (run {header.run_id}) is gone: put"
        " the folder back, or move the file and its spool away, and its URLs are fetched (again) with the next batch"
    )


def _build(task: NodeTask, take: Take, current: Iteration) -> None:
    """Put the segment's files together from the workers' parts."""
    queue = task.queue
    deferred = len(take.leftover() or [])
    facts = Manifest(
        take_id=take.take_id,
        run_id=take.header.run_id,
        iteration=take.header.iteration,
        folder=current.folder,
        node=task.node,
        **vars(_origin(task.stores)),
        started=utc_text(take.header.extra["started_s"]),
        counts={
            "taken": take.count,
            "deferred": deferred,
            "passed_over": take.passed_over,
            **_requisites_left(take),
        },
        intake=asdict(queue.record().report()),
        queue_after=take.header.position_after.length + take.passed_over + deferred,
        undecided=sum(1 for _ in queue.undecided()),
        next_due=take.header.next_due,
        scope_added=list(queue.scope_added()),
    )
    owners = Owners(current.nodes)
    handed_on = (decode_line(line, "handed_on")[0] for line in queue.handed_on())
    segments.build_segment(
        task.spool,
        NodeDirectory(task.directory).spool_segment,
        facts,
        current.nodes,
        handed_on=((owners.owner(host_of(queued.url)), queued, HANDED_ON) for queued in handed_on),
        more_files=_copy_identity(task, current),
        puts_back=not task.stores.config.order.makes_lists,
    )


def _requisites_left(take: Take) -> dict[str, int]:
    """Count the requisites that the next iteration may take.

    The result is empty if none may be taken.
    """
    first = take.header.extra.get("requisites", 0)
    taken = sum(min(stop, first) - min(start, first) for start, stop in take.header.runs)
    deferred = sum(position < taken for position in take.leftover() or [])
    left = first - taken + deferred if taken else 0
    return {"requisites": left} if left else {}


def mark_pages(stores: Stores, reader: "segments.SegmentReader", node: str | None = None) -> None:
    """Set the states of a segment's keys to crawled or gone.

    Repetition is harmless.

    `reader`: of the segment. `node`: the node whose own server is asked first. Raises KeyStoreError, and errors of the
    reader.
    """
    with stores.keys(node) as keys:
        for batch in reader.pages(["key", "outcome", "retry_at"], with_dropped=True):
            by_state: dict[KeyState, list[bytes]] = {}
            # The modules of a filter take 30 ms to load.
            passes = batch.column(2).null_count < batch.num_rows
            final = batch.filter(batch.column(2).is_null()) if passes else batch
            columns: list[list[Any]] = [column.to_pylist() for column in final.columns[:2]]
            for key, outcome in zip(*columns, strict=True):
                by_state.setdefault(KEY_STATE_OF_OUTCOME[Outcome(outcome)], []).append(key)
            for state, marked in by_state.items():
                keys.set_state(marked, state)
