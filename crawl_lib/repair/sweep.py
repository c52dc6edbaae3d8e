"""`krake sweep`: hidden files and folders that killed attempts left on the store, where nobody can go on with them.

A hidden name belongs to the attempt that made it. It is deleted only if it is certain that no attempt goes on there:

* `<folder>/.<node>-<take>`, where a take's segment is put together: another take is open on the node, or none. That is
  known of nodes of this machine that nobody works on, and of nodes whose mark says that they have settled, or are
  retired. An id is never used twice, so a task that begins meanwhile cannot mean it. The URLs of such a take are still
  in the queue (its file was deleted by hand), or were sent to other nodes (it was lost with its disk).
* `.start-<digest>-<id>`: the iteration has its folder, so another attempt's was chosen.
* `seeds/.<digest>-<id>`, `.<name>.<id>` beside a file: what was to be made stands under its name.
* `.deleted.<id>`: a folder that was being deleted on a local store. Two may delete it at once.

A repair that was killed before it decided leaves `<folder>/.new-<node>-<digest>`; the next one of that segment deletes
it, since another machine's may be at work there.
"""

import re
from collections.abc import Collection, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from crawl_lib.crawldir import HELD_FOLDER, IMPORT_NODE, SEEDS_FOLDER, Iteration, hidden_prefix, read_settled
from crawl_lib.durable import reached
from crawl_lib.errors import DamagedFileError, KrakeError, LockedError
from crawl_lib.export import ExportFolder, list_exports
from crawl_lib.findings import Severity
from crawl_lib.frontier import held_without_trace, open_take
from crawl_lib.repair.folders.identity import readable_iterations
from crawl_lib.repair.segments.swap import all_aside, set_aside
from crawl_lib.seeds import check_seeds
from crawl_lib.segment import check_segment
from crawl_lib.stopping import until_stopped
from crawl_lib.storage import DELETED
from crawl_lib.stores import Stores

_ID = "[0-9a-f]{32}"
_BESIDE = re.compile(rf"\.(.+)\.{_ID}")
_DAMAGED_SEEDS = re.compile(r"\.damaged-([0-9a-f]{40})-\d+")
_SEEDS = re.compile(rf"\.([0-9a-f]{{40}})-{_ID}")


@dataclass(frozen=True)
class Leftover:
    """Something that nobody owns. `path`: on the store; `problem`: what it is, in words."""

    path: str
    problem: str


@dataclass
class SweepReport:
    """What was deleted, or would be; `skipped`: nodes of this machine that somebody works on."""

    dry_run: bool
    deleted: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def to_mapping(self) -> dict[str, Any]:
        """The same as plain values."""
        return dict(vars(self))


def sweep(stores: Stores, *, dry_run: bool = False, damaged: bool = False) -> SweepReport:
    """Delete what is left over. `damaged`: damaged segments too, whose place was taken by one that is whole.

    Raises StorageError, StoppedError; run it again then.
    """
    report = SweepReport(dry_run)
    with ExitStack() as locks:
        nodes = []
        for node in stores.config.servers:
            if stores.node_dir(node).is_dir():
                try:
                    locks.enter_context(held_without_trace(stores.node_dir(node), node))
                    nodes.append(node)
                except LockedError as error:
                    report.skipped.append(str(error))
        found = list(leftovers(stores, nodes))
        if damaged:
            found += _damaged(stores, report)
        for number, leftover in enumerate(until_stopped(found, stores.stop), 1):
            if not dry_run:
                stores.storage.delete(leftover.path)
                reached("repair.sweep.deleted")
            report.deleted.append(leftover.path)
            stores.report(deleting=leftover.path, done=number, of=len(found))
    return report


def _damaged(stores: Stores, report: SweepReport) -> Iterator[Leftover]:
    """Damaged segments that were put aside, where what took their place passes a full check."""
    crawl = stores.crawl
    for entry in crawl.storage.list(crawl.at(SEEDS_FOLDER)) if crawl.storage.exists(crawl.at(SEEDS_FOLDER)) else ():
        if found := _DAMAGED_SEEDS.fullmatch(entry.name):
            if found[1] in crawl.seeds() and not check_seeds(crawl, found[1]):
                yield Leftover(crawl.seeds_path(entry.name), "is damaged, and others took its place")
            else:
                report.skipped.append(f"{crawl.seeds_path(entry.name)}: {crawl.seeds_path(found[1])} is not whole")
    for folder in stores.until_stopped(stores.crawl.folders()):
        for node in sorted({node for node, name in all_aside(stores.storage, stores.crawl.at(folder))}):
            segment = stores.crawl.segment(folder, node)
            names = set_aside(stores.storage, stores.crawl.at(folder), node)
            if not segment.exists() or any(
                one.severity is Severity.ERROR for one in check_segment(stores.storage, segment.path)
            ):
                report.skipped += [f"{stores.crawl.at(folder, name)}: {segment.path} is not whole" for name in names]
                continue
            for name in names:
                yield Leftover(stores.crawl.at(folder, name), f"is damaged, and {segment.path} is whole")


def leftovers(stores: Stores, nodes: Collection[str]) -> Iterator[Leftover]:
    """What nobody owns. `nodes`: those of this machine whose lock the caller holds."""
    yield from _of_takes(stores, nodes)
    yield from _of_starts(stores, readable_iterations(stores))
    yield from _of_seeds(stores)
    others = [stores.crawl.path, *(stores.crawl.at(name) for name in (SEEDS_FOLDER, HELD_FOLDER))]
    others.append(stores.config.export.directory.strip("/"))
    folders = [folder for folder in others if stores.storage.exists(folder)]
    folders += [stores.crawl.at(folder) for folder in stores.crawl.folders()]
    for name in until_stopped(list_exports(stores), stores.stop):
        with suppress(KrakeError):
            folders.append(ExportFolder(stores, name).path)
    for folder in until_stopped(folders, stores.stop):
        yield from _beside(stores, folder)


def _of_takes(stores: Stores, nodes: Collection[str]) -> Iterator[Leftover]:
    for folder in until_stopped(stores.crawl.folders(), stores.stop):
        path = stores.crawl.at(folder)
        for entry in stores.storage.list(path):
            found = re.fullmatch(rf"\.(.+)-({_ID})", entry.name)
            if found is None or not entry.is_dir:
                continue
            node, take_id = found.groups()
            if node == f"{IMPORT_NODE}-{IMPORT_NODE}":  # the run of an import is its take
                over = stores.storage.exists(f"{path}/{IMPORT_NODE}")
            else:
                over = _is_over(stores, node, take_id, here=node in nodes)
            if over:
                problem = f"is of an attempt of {node} that nobody can go on with"
                yield Leftover(f"{path}/{entry.name}", problem)


def _is_over(stores: Stores, node: str, take_id: str, *, here: bool) -> bool:
    """Whether a take is certainly open no more."""
    try:
        if here:
            take = open_take(stores.node_dir(node))
            return take is None or take.take_id != take_id
        return read_settled(stores.crawl, node) is not None
    except DamagedFileError:
        return False


def _of_starts(stores: Stores, iterations: list[Iteration]) -> Iterator[Leftover]:
    prefixes = tuple(hidden_prefix(one.run_id, one.iteration) for one in iterations)
    if not prefixes:
        return
    for entry in stores.storage.list(stores.crawl.path):
        if entry.name.startswith(prefixes):
            problem = "is of an attempt of a start whose iteration has its folder"
            yield Leftover(stores.crawl.at(entry.name), problem)


def _of_seeds(stores: Stores) -> Iterator[Leftover]:
    path = stores.crawl.at(SEEDS_FOLDER)
    for entry in stores.storage.list(path) if stores.storage.exists(path) else ():
        found = _SEEDS.fullmatch(entry.name)
        if found and stores.storage.exists(f"{path}/{found[1]}"):
            yield Leftover(f"{path}/{entry.name}", "is of an attempt to inject what stands")


def _beside(stores: Stores, folder: str) -> Iterator[Leftover]:
    for entry in stores.storage.list(folder):
        found = _BESIDE.fullmatch(entry.name)
        if found and found[1] == DELETED:
            yield Leftover(f"{folder}/{entry.name}", "was being deleted")
        elif found and stores.storage.exists(f"{folder}/{found[1]}"):
            yield Leftover(f"{folder}/{entry.name}", f"is of an attempt to write {found[1]}, which stands")
