"""What was found for a node and waits to be taken in: injected seeds first, then segments by folder and node."""

from collections.abc import Iterator

from crawl_lib.crawldir import FolderState, Iteration
from crawl_lib.errors import DamagedFileError
from crawl_lib.frontier import (
    OUTLINKS_NAME,
    IntakeReport,
    IntakeRules,
    Source,
    TakenIn,
    adopt,
    intake,
    open_plan,
    pending_report,
    read_outlinks,
    read_scope_added,
    rehome,
)
from crawl_lib.node.task import NodeTask
from crawl_lib.rounds import SEEDS_NODE
from crawl_lib.sealed import MANIFEST_FILE
from crawl_lib.stores import Stores
from crawl_lib.urls import Owners


def waiting_sources(
    stores: Stores, node: str, taken_in: TakenIn, *, before: str | None, planned: list[tuple[str, str]]
) -> tuple[list[Source], list[str]]:
    """The sources that a node has not taken in, in their fixed order, and the folders that are complete with them.

    `before`: only iterations older than this folder; None: all. `planned`: (folder, node) of an unfinished intake,
    which are offered in any case. A folder is complete once its commit has run and no segment may come late: nothing
    will be added to it.
    """
    sources, complete = [], stores.crawl.seeds()
    for digest in list(complete):
        if (digest, SEEDS_NODE) not in taken_in:
            path = stores.crawl.seeds_path(digest)
            manifest = stores.crawl.seeds_manifest(digest)
            nodes = tuple(manifest.get("nodes", ()))
            sources.append(_source(stores, node, path, (digest, SEEDS_NODE), manifest.get("outlinks"), nodes=nodes))
    named = {folder for folder, _ in planned}
    for folder in stores.crawl.folders():
        if folder in taken_in.complete:
            continue
        is_due = before is None or int(folder) < int(before) or folder in named
        if is_due and _add_folder(stores, folder, node, taken_in, sources):
            complete.append(folder)
    return sources, complete


def _add_folder(stores: Stores, folder: str, node: str, taken_in: TakenIn, sources: list[Source]) -> bool:
    """Add a folder's sources; True if its commit has run and all segments that may come are among them."""
    state = FolderState.read(stores.crawl, folder)
    waiting = [found_by for found_by in state.present if (folder, found_by) not in taken_in]
    nodes = state.folder.iteration().nodes if waiting else ()
    for found_by in waiting:
        segment = stores.crawl.segment(folder, found_by)
        parts = state.index["outlinks"].get(found_by) if state.index is not None else None
        parts = segment.manifest()["outlinks"] if parts is None else parts
        sources.append(_source(stores, node, segment.path, (folder, found_by), parts, nodes=nodes))
    return state.is_complete


def _source(
    stores: Stores, node: str, path: str, name: tuple[str, str], parts: object, *, nodes: tuple[str, ...]
) -> Source:
    """A node's part of a file `outlinks`, which may be none. `parts`: where each node's part lies."""
    if not isinstance(parts, dict):
        raise DamagedFileError(f"{path}/{MANIFEST_FILE}: says nothing of outlinks; `krake fsck` says how to repair it")
    part = parts.get(node)
    if part is None:
        return Source(*name, lambda: iter(()), nodes)
    offset, length = part["offset"], part["length"]

    def lines() -> Iterator[bytes]:
        file = stores.storage.open_read(f"{path}/{OUTLINKS_NAME}", offset=offset, length=length)
        return read_outlinks(file, "outlinks of " + "/".join(name), part["count"])

    return Source(*name, lines, nodes)


def take_in(task: NodeTask, own: Iteration | None) -> IntakeReport:
    """Take in what waits for the task's node, older than its own iteration (None: everything).

    Before an iteration what other nodes own is handed on, if its nodes are not those by which the queue was filled.
    Returns what the node's next segment has to report. Raises what `frontier.adopt` and `intake` do.
    """
    stores, queue = task.stores, task.queue
    nodes = own.nodes if own else stores.config.servers
    if own is None and (newest := stores.crawl.newest_iteration()) and task.node in newest.nodes:
        nodes = newest.nodes  # a list that was changed since is in force once an iteration began with it
    owners = Owners(nodes)
    task.progress.enter("intake")
    config = stores.config
    owners_of_hosts = owners if config.frontier.routing == "host" else None
    sources, complete = waiting_sources(
        stores, task.node, queue.taken_in(), before=own.folder if own else None, planned=open_plan(queue)
    )
    with stores.keys(task.node) as keys:
        adopt(queue, keys, owners_of_hosts, max_length_chars=config.urls.max_length_chars)
        intake(
            queue,
            sources,
            keys,
            IntakeRules(config.frontier.routing, config.urls.max_pages_per_host),
            complete_folders=complete,
            stop=task.stores.stop.is_set,
            on_progress=lambda report: task.progress.enter("intake", queue=report.new),
        )
    if own is not None:
        rehome(queue, owners_of_hosts)
    return pending_report(queue)


def scope_hosts(task: NodeTask, own: Iteration) -> set[str]:
    """The hosts whose pages a take of iteration `own` may follow links to: those of its folder, and of what was queued.

    The queue may hold more than `start` could know of: seeds injected since, and, where an early iteration is done
    late, what later ones found. Links of their pages would be rejected for good, since a page is fetched once. Nothing
    is added but by what this node has taken in, so that an untroubled crawl does not depend on who was faster.
    """
    crawl = task.stores.crawl
    taken_in = task.queue.taken_in()
    hosts = {*crawl.scope(own), *read_scope_added(task.queue)}
    for digest in crawl.seeds():
        if digest not in own.seeds and (digest, SEEDS_NODE) in taken_in:
            hosts.update(crawl.seeds_scope(digest))
    for folder in crawl.folders():
        if folder not in own.summed:
            for node in crawl.folder(folder).segments():
                if (folder, node) in taken_in:
                    hosts.update(crawl.segment(folder, node).manifest()["scope_added"])
    return hosts
