"""`krake fsck` of the small files of the crawl directory: iterations, injected seeds, and what outlives them."""

from crawl_lib.crawldir import (
    DROPPED_MARK,
    INDEX_FILE,
    ITERATION_FILE,
    SCOPE_FOLDER,
    STARTED_FOLDER,
    Iteration,
    read_json,
)
from crawl_lib.errors import DamagedFileError, PathNotFoundError
from crawl_lib.findings import Finding, Findings, Severity
from crawl_lib.repair.folders.identity import Identity, broken_choices
from crawl_lib.repair.folders.index import dropped_and_not_marked, index_problem
from crawl_lib.repair.folders.scope import kept_files, lacks_of_kept_scope
from crawl_lib.repair.segments.swap import DAMAGED_PREFIX, open_swaps
from crawl_lib.stores import Stores
from crawl_lib.urls import is_list_of_hosts

ROOM = "folder"
AGAIN = "run `krake fsck --repair`"


def check_kept_scope(stores: Stores) -> list[Finding]:
    """Whether the hosts that folders added to the scope are kept where they outlive the folders."""
    path = stores.crawl.at(SCOPE_FOLDER)
    findings = Findings(ROOM, AGAIN)
    for name, data in kept_files(stores):
        if not is_list_of_hosts(data):
            findings.add("kept_scope_damaged", f"{path}/{name}", "is no list of hosts")
    for folder in stores.crawl.folders():
        if lacks := lacks_of_kept_scope(stores, folder):
            findings.add("kept_scope_damaged", f"{path}/{folder}", f"lacks {min(lacks)}", count=len(lacks))
    return findings.list()


def check_started(stores: Stores) -> list[Finding]:
    """The files that say which attempt's folder follows another; `start` could not go on with one that cannot be read.

    Where the chosen folder has its name, any name of no attempt says that the choice is made.
    """
    findings = Findings(ROOM, AGAIN)
    for name in broken_choices(stores):
        findings.add("started_damaged", stores.crawl.at(STARTED_FOLDER, name), "names no attempt of a start")
    return findings.list()


def check_iteration(stores: Stores, folder: str) -> list[Finding]:
    """What is wrong with the small files of an iteration's folder, and whether its index says what its segments say."""
    path = stores.crawl.at(folder)
    findings = Findings(ROOM, AGAIN)
    _check_identity(stores, folder, findings)
    for entry in stores.storage.list(path):
        if entry.name.startswith("agreed-"):
            try:
                read_json(stores.storage, f"{path}/{entry.name}")
            except DamagedFileError as error:
                findings.add("agreed_damaged", f"{path}/{entry.name}", str(error))
    unmarked = dropped_and_not_marked(stores, folder)
    if unmarked:
        problem = f"is not there, and pages of {', '.join(unmarked)} were dropped: `krake status` counts them"
        findings.add("dropped_unmarked", f"{path}/{DROPPED_MARK}", problem, severity=Severity.WARNING)
    if not _check_repairs(stores, path, folder, findings):  # else index and segment may be anything meanwhile
        _check_index(stores, path, folder, findings)
    return findings.list()


def _check_identity(stores: Stores, folder: str, findings: Findings) -> None:
    where = stores.crawl.at(folder, ITERATION_FILE)
    try:
        iteration = stores.crawl.folder(folder).iteration()
    except (DamagedFileError, PathNotFoundError) as error:
        findings.add("iteration_damaged", where, str(error))
        return
    other = Identity(stores, folder).contradicts(iteration)
    if other:
        findings.add("iteration_damaged", where, other)
    _check_scope(stores, iteration, findings)


def _check_scope(stores: Stores, iteration: Iteration, findings: Findings) -> None:
    try:
        stores.crawl.scope(iteration)
    except DamagedFileError as error:
        findings.add("scope_damaged", str(error).split(":")[0], str(error))


def _check_repairs(stores: Stores, path: str, folder: str, findings: Findings) -> bool:
    """Whether a repair of a segment was stopped while it put the new one in place; damaged ones that are still kept."""
    aside = [entry.name for entry in stores.storage.list(path) if entry.name.startswith(DAMAGED_PREFIX)]
    try:
        swaps = open_swaps(stores.storage, path)
    except DamagedFileError as error:
        findings.add("repair_damaged", path, str(error))
        return True
    for swap in swaps:
        again = "run `krake fsck --repair`, which goes on"
        findings.add("repair_open", f"{path}/{swap.node}", "a repair of it was stopped half-way", repair=again)
    for name in aside if not swaps else ():
        node = name.removeprefix(DAMAGED_PREFIX).rpartition("-")[0]
        if not stores.storage.exists(f"{path}/{node}"):
            problem = "is a damaged segment, and no new one stands"
            again = "run `krake fsck --repair`"
            findings.add("segment_missing", f"{path}/{name}", problem, repair=again)
    return bool(swaps)


def _check_index(stores: Stores, path: str, folder: str, findings: Findings) -> None:
    found = index_problem(stores, folder)
    if found is None:
        return
    if not found.missing:
        findings.add(found.name, f"{path}/{INDEX_FILE}", found.problem)
        return
    # Deleting a settled folder by hand is allowed; half of one too, but it may have been an accident.
    findings.add(
        found.name,
        path,
        found.problem,
        repair="bring them back from a copy; if they were deleted on purpose, delete the whole folder",
        severity=Severity.WARNING,
    )
