"""`krake sweep`: hidden files and folders of killed attempts on the store, after the end of all such attempts.

A hidden name belongs to the attempt that made it. The name is deleted only if certainly no attempt goes on there:

* `<folder>/.<node>-<take>`, where a take's segment is put together: the node has another open take, or none. This is
  known of idle nodes of this machine, and of nodes with a note of being settled or retired. An id is never used twice,
  so a task that begins meanwhile cannot mean this name. The URLs of such a take are still in the queue (the take's file
  was deleted by hand), or were sent to other nodes (the take was lost with its disk).
* `.start-<digest>-<id>`: the iteration has its folder, so another attempt was chosen; or a later folder exists than the
  folders that the attempt has summed up, so that the attempt is chosen no more.
* `seeds/.<digest>-<id>`, `lists/.<name>-<id>`, `.<name>.<id>` next to a file: the target exists under its name.
* leftovers that each output finds by itself (`crawl_lib.outputs`), such as `crawldb/.<number>-<id>` once version
  `<number>` exists, and tables of texts that are no segment's newest.
* `scope/<digest>`: the scope of deleted iterations; the scope lacks a host that each later scope will have.
* `retry_now/<time>-<id>`: a note of `krake retry --now` that is older than any wait.
* `.read-<time>-<id>`: tables of an answer of Spark, older than any answer takes.
* `.deleted.<id>`: a half-deleted folder on a local store. Two processes may delete such a folder at once.

A repair that was killed before its decision leaves `<folder>/.new-<node>-<digest>`; the next repair of this segment
deletes the folder, since another machine's repair may be at work there.
"""

import re
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from crawl_lib.crawldb import aside_lists
from crawl_lib.crawldir import FileName, Kind, RetryNowNotes, SettledNotes, Starts
from crawl_lib.derived import replaced
from crawl_lib.durable import reached
from crawl_lib.errors import DamagedFileError
from crawl_lib.findings import Finding, Severity
from crawl_lib.frontier import Take
from crawl_lib.outputs import OUTPUTS
from crawl_lib.repair.folders.identity import readable_iterations
from crawl_lib.repair.folders.scope import unused_scopes
from crawl_lib.repair.places import nodes_held
from crawl_lib.repair.segments.swap import all_aside
from crawl_lib.rounds import list_number
from crawl_lib.seeds import check_seeds
from crawl_lib.segment import check_segment
from crawl_lib.stores import Stores
from crawl_lib.versions import is_answer_over

_HIDDEN = re.compile(r"\.(.+)-([0-9a-f]{32})")


@dataclass
class SweepReport:
    """The deleted paths, or the paths to delete; `skipped`: nodes at work, and damaged folders without an intact
    replacement.
    """

    dry_run: bool
    deleted: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def sweep(
    stores: Stores,
    *,
    dry_run: bool = False,
    damaged: bool = False,
    clock: Callable[[], float] = time.time,
) -> SweepReport:
    """Delete leftovers.

    `damaged`: also deletes damaged segments, seeds, lists and versions that have intact replacements. Raises
    StorageError, StoppedError; run the sweep again then.
    """
    report = SweepReport(dry_run)
    with nodes_held(stores, "krake sweep", dry_run=True) as (nodes, at_work):
        report.skipped += at_work.values()
        paths = [one.where for one in check_leftovers(stores, nodes, clock())]
        if damaged:
            paths += _damaged(stores, report, clock())
        for number, path in enumerate(stores.until_stopped(paths), 1):
            if not dry_run:
                stores.storage.delete(path)
                reached("repair.sweep.deleted")
            report.deleted.append(path)
            stores.report(deleting=path, done=number, total=len(paths), unit="paths")
        report.deleted += stores.storage.sweep(dry_run=dry_run)
    return report


def _damaged(stores: Stores, report: SweepReport, now_s: float) -> Iterator[str]:
    """Yield unneeded damaged things that were set aside.

    Their replacements pass a full check. Lists of the CrawlDb without held URLs count too: their URLs were listed
    again, or the lease is over.
    """
    crawl, storage = stores.crawl, stores.storage
    held = {one.folder for one in aside_lists(stores) if one.until > now_s}
    for kind in (FileName.SEEDS, FileName.LISTS):
        for entry in storage.list(crawl.at(kind)) if storage.exists(crawl.at(kind)) else ():
            if not entry.name.startswith(FileName.DAMAGED_PREFIX) or entry.name in held:
                continue
            name, where = (
                entry.name.removeprefix(FileName.DAMAGED_PREFIX).rpartition("-")[0],
                crawl.inbox.path(entry.name, kind),
            )
            if list_number(name) > (0, 0) or (
                name in crawl.names(kind) and not check_seeds(crawl, name, kind)
            ):
                yield where
            else:
                report.skipped.append(f"{where}: {crawl.inbox.path(name, kind)} is not whole")
    for output in OUTPUTS:
        found = output.aside(stores)
        report.skipped += found.skipped
        yield from found.paths
    for folder in stores.until_stopped(crawl.folders()):
        aside = all_aside(crawl.folder(folder))
        for node in sorted({node for node, name in aside}):
            segment = crawl.segment(folder, node)
            names = sorted(
                name
                for other, name in aside
                if other == node and name.startswith(FileName.DAMAGED_PREFIX)
            )
            found_now = check_segment(storage, segment.path) if segment.exists() else None
            if found_now is None or any(one.severity is Severity.ERROR for one in found_now):
                report.skipped += [
                    f"{crawl.at(folder, name)}: {segment.path} is not whole" for name in names
                ]
            else:
                yield from (crawl.at(folder, name) for name in names)


def check_leftovers(
    stores: Stores, nodes: Collection[str], now_s: float | None = None
) -> list[Finding]:
    """Find leftovers of killed attempts on the store that no attempt owns.

    `nodes`: nodes of this machine with held locks; `now_s`: in POSIX seconds, None: now.
    """
    now_s = time.time() if now_s is None else now_s
    crawl, storage, findings = stores.crawl, stores.storage, []
    iterations = readable_iterations(stores)
    starts = tuple(Starts.hidden_prefix(one.run_id, one.iteration) for one in iterations)
    problem = "is a scope without an iteration"
    findings += [
        _leftover(crawl.at(FileName.SCOPE, digest), problem)
        for digest in unused_scopes(stores, iterations)
    ]
    for name in RetryNowNotes(crawl).names(stores.config.retry.max_wait_s, over=True):
        problem = "is a note of `krake retry --now` without waiting URLs (retry.max_wait_s)"
        findings.append(_leftover(crawl.at(FileName.RETRY_NOW, name), problem))
    folders = [crawl.path, *map(crawl.at, crawl.names())]
    dropped = [name for name in crawl.folders() if storage.exists(crawl.at(name, FileName.DROPPED))]
    folders += [crawl.at(name, node) for name in dropped for node in crawl.folder(name).segments()]
    folders += [crawl.at(FileName.SETTLED, node) for node in SettledNotes.nodes(crawl)]
    findings += [_leftover(*found) for output in OUTPUTS for found in output.leftovers(stores)]
    for folder in stores.until_stopped([folder for folder in folders if storage.exists(folder)]):
        for entry in storage.list(folder):
            if folder == crawl.path and entry.name.startswith(starts):
                problem = "is of an attempt of a start whose iteration has its folder"
            elif (
                folder == crawl.path
                and entry.name.startswith(FileName.START_PREFIX)
                and Starts(crawl).is_passed_over(entry.name)
            ):
                problem = "is of an attempt of a start, and another one's folder was chosen"
            elif folder == crawl.path and is_answer_over(entry.name, now_s):
                problem = "is of a killed answer"
            else:
                problem = (
                    _problem(stores, folder, entry.name, nodes)
                    if entry.name.startswith(".")
                    else ""
                )
            if problem:
                findings.append(_leftover(f"{folder}/{entry.name}", problem))
    return findings


def _leftover(path: str, problem: str) -> Finding:
    return Finding(
        "segment", "leftover", path, problem, "run `krake sweep`, which deletes it", Severity.NOTE
    )


def _problem(stores: Stores, folder: str, name: str, nodes: Collection[str]) -> str:
    """Say which work has left a hidden name behind.

    "": the name may be in use.
    """
    crawl, exists = stores.crawl, stores.storage.exists
    if problem := replaced(stores, folder, name):
        return problem
    found = _HIDDEN.fullmatch(name)
    if found is None or not folder.startswith(f"{crawl.path}/"):
        return ""
    if folder in {crawl.at(FileName.SEEDS), crawl.at(FileName.LISTS)}:
        return "is of an attempt to leave what is there" if exists(f"{folder}/{found[1]}") else ""
    if not folder.rpartition("/")[2].isdecimal():
        return ""
    node, take_id = found.groups()
    segment, _, kind = node.rpartition("-")
    if (
        kind in {Kind.IMPORT, Kind.LIVE} and node not in stores.config.servers
    ):  # the run is the take, named by its kind
        is_over = exists(f"{folder}/{segment}")
    else:
        is_over = _is_over(stores, node, take_id, here=node in nodes)
    return f"is of an attempt of {node} without a task to continue" if is_over else ""


def _is_over(stores: Stores, node: str, take_id: str, *, here: bool) -> bool:
    """Return whether a take is certainly closed."""
    try:
        if here:
            take = Take.open(stores.node_dir(node))
            return take is None or take.take_id != take_id
        return SettledNotes(stores.crawl, node).read() is not None
    except DamagedFileError:
        return False
