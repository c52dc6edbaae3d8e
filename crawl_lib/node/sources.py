"""URLs found for a node and not yet taken in: injected seeds, then lists, then segments by folder and node.

With a CrawlDb only URLs of lists join the queue: the table has all other URLs of seeds and segments, which are taken in
for their scope alone. URLs of a lost queue are not taken in again: they come back after the lease of their list.
"""

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

from crawl_lib.crawldir import FileName, FolderState, Iteration, SettledNotes
from crawl_lib.durable import reached
from crawl_lib.errors import DamagedFileError, PathNotFoundError
from crawl_lib.fetch import HostStore, make_hosts_folder, page_number
from crawl_lib.frontier import DROPPED, IntakeReport, IntakeRules, Journal, Record
from crawl_lib.node.task import NodeTask
from crawl_lib.sealed import MANIFEST_FILE
from crawl_lib.stores import Stores
from crawl_lib.urlfiles import (
    HANDED_ON_MARK,
    OUTLINKS_NAME,
    Source,
    TakenIn,
    is_listed,
    key_of_line,
    read_outlinks,
)
from crawl_lib.urls import Budgets, Owners, Traps
from crawl_lib.worker import prepare_workers


def waiting_sources(
    stores: Stores,
    node: str,
    taken_in: TakenIn,
    *,
    before: str | None,
    planned: list[tuple[str, str]],
) -> tuple[list[Source], list[str]]:
    """Return the sources that a node has not taken in.

    The sources are in a fixed order. The folders that these sources complete are returned too.

    `before`: only iterations older than this folder; None: all. `planned`: (folder, node) of an unfinished intake,
    offered in any case. A folder is complete after its commit, if no segment may come late: no source will be added.
    """
    sources, complete = list[Source](), list[str]()
    for name in stores.crawl.inbox.folders():
        complete.append(name[0])
        if name not in taken_in:
            path, manifest = (
                stores.crawl.inbox.path(*name),
                stores.crawl.inbox.manifest_if_there(*name),
            )
            if manifest is None:
                continue
            parts, nodes = manifest.outlinks, manifest.nodes
            sources.append(_source(stores, node, path, name, parts, nodes=nodes))
    named = {folder for folder, _ in planned}
    for folder in stores.crawl.folders():
        if folder in taken_in.complete:
            continue
        is_due = before is None or int(folder) < int(before) or folder in named
        if is_due and _add_folder(stores, folder, node, taken_in, sources):
            complete.append(folder)
    return sources, complete


def _add_folder(
    stores: Stores, folder: str, node: str, taken_in: TakenIn, sources: list[Source]
) -> bool:
    """Add a folder's sources; return whether the folder is complete.

    A complete folder was committed, and no segment may come late.
    """
    state = FolderState.read(stores.crawl, folder)
    waiting = [found_by for found_by in state.present if (folder, found_by) not in taken_in]
    nodes = stores.crawl.iteration(folder).nodes if waiting else ()
    for found_by in waiting:
        segment = stores.crawl.segment(folder, found_by)
        parts = state.index.outlinks.get(found_by) if state.index is not None else None
        parts = segment.manifest()["outlinks"] if parts is None else parts
        sources.append(_source(stores, node, segment.path, (folder, found_by), parts, nodes=nodes))
    return state.is_complete


def _source(
    stores: Stores,
    node: str,
    path: str,
    name: tuple[str, str],
    parts: object,
    *,
    nodes: tuple[str, ...],
) -> Source:
    """Return a node's part of a file `outlinks`, perhaps empty.

    `parts`: the place of each node's part.
    """
    has_others = stores.config.order.makes_lists and name[1] != FileName.LISTS
    if not isinstance(parts, dict):
        raise DamagedFileError(
            f"{path}/{MANIFEST_FILE}: says nothing of outlinks; `krake fsck` says how to repair it"
        )
    part = parts.get(node)
    if part is None or not part["count"]:
        return Source(*name, lambda: iter(()), nodes, is_empty=True)
    offset, length = part["offset"], part["length"]

    def lines() -> Iterator[bytes]:
        file = stores.storage.open_read(f"{path}/{OUTLINKS_NAME}", offset=offset, length=length)
        found = read_outlinks(file, "outlinks of " + "/".join(name), part["count"])
        return (line for line in found if is_listed(line)) if has_others else found

    return Source(*name, lines, nodes)


def taken_in_before(stores: Stores, node: str) -> TakenIn:
    """Return the sources that a node had taken in, by its newest segment.

    All sources from before that iteration count. A CrawlDb adds all existing lists: which lists the node had is
    unknown.
    """
    storage, crawl = stores.storage, stores.crawl
    folders = crawl.folders()
    newest = next(
        (folder for folder in reversed(folders) if storage.exists(f"{crawl.path}/{folder}/{node}")),
        None,
    )
    if newest is None:
        return TakenIn()
    older = [folder for folder in folders if int(folder) < int(newest)]
    pairs = [(folder, found_by) for folder in older for found_by in crawl.folder(folder).segments()]
    with suppress(DamagedFileError, PathNotFoundError):
        pairs += [(digest, FileName.SEEDS) for digest in crawl.folder(newest).iteration().seeds]
    if stores.config.order.makes_lists:
        pairs += [(name, FileName.LISTS) for name in crawl.inbox.lists()]
    return TakenIn().with_sources(pairs)


def take_in(task: NodeTask, current: Iteration | None) -> IntakeReport:
    """Take in the waiting sources of the task's node.

    Only sources older than `current` count; None: all sources. Before an iteration, URLs of other nodes are handed on,
    if the nodes have changed since the queue was filled. Returns the report for the node's next segment. Raises the
    errors of `Rewrites.adopt` and `Intake.run`.
    """
    stores, queue = task.stores, task.queue
    nodes = current.nodes if current else stores.config.servers
    if (
        current is None
        and (newest := stores.crawl.newest_iteration())
        and task.node in newest.nodes
    ):
        nodes = (
            newest.nodes
        )  # a changed list of nodes is in force once an iteration has begun with this list
    owners = Owners(nodes)
    task.progress.enter("intake")
    _note_read_before(task)
    config = stores.config
    owners_of_hosts = owners if config.frontier.routing == "host" else None
    sources, complete = waiting_sources(
        stores,
        task.node,
        queue.taken_in(),
        before=current.folder if current else None,
        planned=Journal.open_plan(queue.directory),
    )
    sources = _but_handed_on(stores, task.node, sources, queue.record().again)
    with stores.keys(task.node) as keys:
        task.home.rewrites.adopt(
            keys, owners_of_hosts, max_length_chars=config.urls.max_length_chars
        )
        SettledNotes(stores.crawl, task.node).begin()
        if current is not None and (
            queue.length() or not all(source.is_empty for source in sources)
        ):
            prepare_workers()
        task.home.intake.run(
            sources,
            keys,
            IntakeRules(
                config.frontier.routing,
                Budgets(config.urls),
                Traps(config.traps),
                full_pages=partial(_full_pages, task)
                if config.traps.max_equal and _has_full_texts(task)
                else None,
            ),
            complete_folders=complete,
            stop=task.stores.stop.is_set,
            on_progress=lambda report: task.progress.enter("intake", queue=report.new),
        )
    if current is not None:
        task.home.rewrites.rehome(owners_of_hosts)
    return queue.record().report()


def _has_full_texts(task: NodeTask) -> bool:
    """Return whether any text is full.

    No page becomes full during an intake, since the node fetches nothing then.
    """
    with HostStore(make_hosts_folder(task.directory)) as hosts:
        return bool(hosts.pages.full_texts())


def _full_pages(task: NodeTask, keys: Collection[bytes]) -> set[bytes]:
    """Return the keys of pages with words that too many other pages have.

    See `traps.max_equal`.
    """
    if not keys:
        return set()
    numbers = {key: page_number(key) for key in keys}
    with HostStore(make_hosts_folder(task.directory)) as hosts:
        full = hosts.pages.full_pages(numbers.values())
    return {key for key, number in numbers.items() if number in full}


def _but_handed_on(
    stores: Stores, node: str, sources: list[Source], again: TakenIn
) -> list[Source]:
    """Return the sources, repeated ones without lines handed on since.

    Segments of the node have the lines handed on. Otherwise the node would hand on these lines once more, after the new
    owner may have crawled the pages. Each line takes 100 bytes of memory.
    """
    if not any((source.folder, source.node) in again for source in sources):
        return sources
    handed_on, older = (
        dict[bytes, str](),
        dict[str, set[str]](),
    )  # key: the newest folder; folder: all sources before the folder
    folders = stores.crawl.folders()
    for folder in folders:
        segment = stores.crawl.segment(folder, node)
        if not segment.exists() or not (manifest := segment.manifest()).get("intake", {}).get(
            "handed_on"
        ):
            continue
        older[folder] = {
            *folders[: folders.index(folder)],
            *stores.crawl.folder(folder).iteration().seeds,
        }
        for owner in {*manifest["outlinks"]} - {node}:
            lines = _source(
                stores, owner, segment.path, (folder, node), manifest["outlinks"], nodes=()
            ).open()
            handed_on |= {key_of_line(line): folder for line in lines if HANDED_ON_MARK in line}

    def left(source: Source) -> Iterator[bytes]:
        if (source.folder, source.node) not in again:
            yield from source.open()
            return
        for line in source.open():
            folder = handed_on.get(key_of_line(line)) if HANDED_ON_MARK in line else None
            yield DROPPED if folder is not None and source.folder in older[folder] else line

    return [replace(source, open=partial(left, source)) for source in sources]


def _note_read_before(task: NodeTask) -> None:
    """Begin the record of a queue without a record.

    The record names the sources read before. People made such a queue, or the record was lost. Otherwise old handed-on
    URLs would pass the key check once more, and be crawled twice. A crawl with a CrawlDb reads no source again.
    """
    record = Record.read(task.directory) or Record(again=taken_in_before(task.stores, task.node))
    if task.stores.config.order.makes_lists and record.again:
        record = replace(record, taken_in=record.taken_in | record.again, again=TakenIn())
    elif task.queue.files.record.exists() or not record.again:
        return
    task.queue.write_record(record)
    reached("intake.record_begun")


def scope_hosts(task: NodeTask, current: Iteration) -> set[str]:
    """Return the hosts in the scope of a take.

    The hosts of the iteration's folder count, and hosts of queued URLs. The queue may hold more than `start` could know
    of: seeds injected since, and, if an early iteration is done late, finds of later iterations. Links to these hosts
    would be rejected for good, since a page is fetched once. Only sources that this node has taken in add hosts, so
    that an untroubled crawl does not depend on the speed of nodes.
    """
    crawl = task.stores.crawl
    taken_in = task.queue.taken_in()
    hosts = {*crawl.scopes.read(current), *task.queue.scope_added()}
    for digest in crawl.inbox.seeds():
        if digest not in current.seeds and (digest, FileName.SEEDS) in taken_in:
            hosts.update(crawl.inbox.scope(digest))
    for folder in crawl.folders():
        if folder not in current.summed:
            for node in crawl.folder(folder).segments():
                if (folder, node) in taken_in:
                    hosts.update(crawl.segment(folder, node).manifest()["scope_added"])
    return hosts
