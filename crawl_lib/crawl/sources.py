"""What was found for a node and waits to be taken in: injected seeds first, then segments by folder and node."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from crawl_lib.crawl.places import (
    INDEX_FILE,
    MANIFEST_FILE,
    SCOPE_FILE,
    SEEDS_FOLDER,
    Iteration,
    list_folders,
    list_seeds,
    read_json,
    read_lines,
    segments_of,
)
from crawl_lib.crawl.task import NodeTask
from crawl_lib.errors import DamagedFileError
from crawl_lib.frontier import IntakeReport, Source, TakenIn, intake, open_plan, part_source, read_scope_added
from crawl_lib.stores import Stores
from crawl_lib.urls import Owners

OUTLINKS_FILE = "outlinks"
SEEDS_NODE = "seeds"


def waiting_sources(
    stores: Stores, node: str, taken_in: TakenIn, *, before: str | None, planned: list[tuple[str, str]]
) -> tuple[list[Source], list[str]]:
    """The sources that a node has not taken in, in their fixed order, and the folders that are complete with them.

    `before`: only iterations older than this folder; None: all. `planned`: (folder, node) of an unfinished intake,
    which are offered in any case. A folder is complete once its commit has run: nothing will be added to it.
    """
    sources, complete = [], []
    for digest in list_seeds(stores.storage, stores.crawl_dir):
        if (digest, SEEDS_NODE) not in taken_in:
            path = f"{stores.crawl_dir}/{SEEDS_FOLDER}/{digest}"
            parts = read_json(stores.storage, f"{path}/{MANIFEST_FILE}").get("outlinks")
            sources.append(_source(stores, path, (digest, SEEDS_NODE), parts, node))
        complete.append(digest)
    named = {folder for folder, _ in planned}
    for folder in list_folders(stores.storage, stores.crawl_dir):
        if folder in taken_in.complete:
            continue
        if before is None or int(folder) < int(before) or folder in named:
            is_complete = _add_folder(stores, folder, node, taken_in, sources)
            complete += [folder] if is_complete else []
    return sources, complete


def _add_folder(stores: Stores, folder: str, node: str, taken_in: TakenIn, sources: list[Source]) -> bool:
    """Add a folder's sources; True if its commit has run."""
    path = f"{stores.crawl_dir}/{folder}"
    index: dict[str, Any] = {}
    is_complete = stores.storage.exists(f"{path}/{INDEX_FILE}")
    if is_complete:
        index = read_json(stores.storage, f"{path}/{INDEX_FILE}")["outlinks"]
    for found_by in segments_of(stores.storage, stores.crawl_dir, folder):
        if (folder, found_by) in taken_in:
            continue
        parts = index.get(found_by)
        if parts is None:
            parts = read_json(stores.storage, f"{path}/{found_by}/{MANIFEST_FILE}").get("outlinks")
        sources.append(_source(stores, f"{path}/{found_by}", (folder, found_by), parts, node))
    return is_complete


def _source(stores: Stores, path: str, name: tuple[str, str], parts: object, node: str) -> Source:
    if not isinstance(parts, dict):
        raise DamagedFileError(f"{path}/{MANIFEST_FILE}: says nothing of outlinks")
    part = parts.get(node)
    if part is None:
        return Source(*name, _nothing)
    open_part = partial(
        stores.storage.open_read, f"{path}/{OUTLINKS_FILE}", offset=part["offset"], length=part["length"]
    )
    return part_source(*name, open_part, part["count"])


def _nothing() -> Iterator[bytes]:
    return iter(())


def take_in(task: NodeTask, own: Iteration | None) -> IntakeReport:
    """Take in what waits for the task's node, older than its own iteration (None: everything).

    Returns what the node's next segment has to report. Raises what `frontier.intake` does.
    """
    stores, queue = task.stores, task.queue
    task.progress.enter("intake")
    queue.create()
    sources, complete = waiting_sources(
        stores, task.node, queue.taken_in(), before=own.folder if own else None, planned=open_plan(queue)
    )
    config = stores.config
    with stores.keys(task.node) as keys:
        intake(
            queue,
            sources,
            keys,
            routing=config.frontier.routing,
            owners=Owners(own.nodes if own else config.servers),
            max_pages_per_host=config.urls.max_pages_per_host,
            max_length_chars=config.urls.max_length_chars,
            complete_folders=complete,
            stop=task.stop.is_set,
            on_progress=lambda report: task.progress.enter("intake", queue=report.new),
        )


def scope_hosts(task: NodeTask, own: Iteration) -> set[str]:
    """The hosts whose pages a take of iteration `own` may follow links to: those of its folder, and of what was queued.

    The queue may hold more than `start` could know of: seeds injected since, and, where an early iteration is done
    late, what later ones found. Links of their pages would be rejected for good, since a page is fetched once. Nothing
    is added but by what this node has taken in, so that an untroubled crawl does not depend on who was faster.
    """
    storage, crawl_dir = task.stores.storage, task.stores.crawl_dir
    taken_in = task.queue.taken_in()
    hosts = {*read_lines(storage, f"{crawl_dir}/{own.folder}/{SCOPE_FILE}"), *read_scope_added(task.queue)}
    for digest in list_seeds(storage, crawl_dir):
        if digest not in own.seeds and (digest, SEEDS_NODE) in taken_in:
            hosts.update(read_lines(storage, f"{crawl_dir}/{SEEDS_FOLDER}/{digest}/{SCOPE_FILE}"))
    for folder in list_folders(storage, crawl_dir):
        if folder not in own.summed:
            for node in segments_of(storage, crawl_dir, folder):
                if (folder, node) in taken_in:
                    hosts.update(read_json(storage, f"{crawl_dir}/{folder}/{node}/{MANIFEST_FILE}")["scope_added"])
    return hosts
