"""The start of an iteration: its first crawl task names the folder, and decides what all its nodes must agree on.

The start writes the scope under its digest, then a hidden folder with `iteration.json`. It makes that folder visible
under its time (`naming` says what overlapping attempts do). Run again, `start` finds the folder whose `iteration.json`
is its own. `commit` deletes hidden folders that are left. Starts of other runs that overlap come one after the other:
each knows all folders before its own, so together they keep `crawl.max_pages`.

A folder is summed up, once for all, when its commit has run and no segment may come late. Until then it is read again
by each start, and a node whose segment is missing counts as if it fetched its whole share of `crawl.max_pages`, as long
as it may (`shares`).
"""

import logging
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from crawl_lib.crawldir import IMPORT_NODE, FileName, FolderState, Iteration, Kind, Scopes, Starts
from crawl_lib.dataclass import dataclass
from crawl_lib.dfsfiles import read_lines, write_json_bytes
from crawl_lib.durable import reached
from crawl_lib.errors import ConfigError, TargetExistsError
from crawl_lib.rounds.agreement import to_agree
from crawl_lib.rounds.crawlname import CrawlName
from crawl_lib.rounds.ending import requisite_rounds
from crawl_lib.rounds.layout import NodeLayout
from crawl_lib.rounds.shares import put_by, share_out
from crawl_lib.sealed import SEALED_VERSION
from crawl_lib.stores import Stores
from crawl_lib.urlfiles import ScopeFile
from crawl_lib.version import VERSION

log = logging.getLogger(__name__)


class PageSource(NamedTuple):
    """Sources of an iteration's pages. `name`: of the one segment, if they are not of nodes."""

    kind: Kind
    name: str = ""


NODES = PageSource(Kind.CRAWL)


@dataclass
class _Sums:
    """Summary of all older folders."""

    taken: int
    hosts: set[str]
    summed: list[str]
    open_taken: int = 0


def start_iteration(
    stores: Stores,
    *,
    run_id: str,
    iteration: int,
    batch_size: int | None = None,
    clock: Callable[[], float] = time.time,
) -> Iteration:
    """Make the folder of a run's iteration, or find it.

    `iteration`: counts from 1 within the run. `batch_size`: URLs a node may take, None: as the config says.
    Raises ConfigError for an impossible number, places of another crawl, or nodes that changed before all was settled,
    StorageError, and StoppedError, which leaves a hidden folder at most.
    """
    most = stores.config.crawl.max_iterations
    if not (1 <= iteration <= most or iteration in requisite_rounds(stores.config)):
        raise ConfigError(f"iteration {iteration} is not within 1 to crawl.max_iterations ({most})")
    if batch_size is not None and batch_size < 1:
        raise ConfigError(f"batch size {batch_size} is less than 1")
    if iteration == 1 and stores.config.fetch.contact is None:
        log.warning("fetch.contact is not set: the people whose sites you crawl cannot reach you")
    found = _find_or_make(stores, run_id, iteration, batch_size or stores.config.batch.size, clock)
    stores.storage.secure(stores.crawl.at(found.folder))
    return found


def start_import(
    stores: Stores, *, run_id: str, clock: Callable[[], float] = time.time
) -> Iteration:
    """Make or find the folder of an import.

    An iteration 0, without nodes, in which nothing is fetched.
    """
    return _find_or_make(stores, run_id, 0, 0, clock, source=PageSource(Kind.IMPORT, IMPORT_NODE))


def start_live(
    stores: Stores, *, run_id: str, name: str, clock: Callable[[], float] = time.time
) -> Iteration:
    """Make or find the folder of a real-time fetcher's pages.

    `name`: of the fetcher.
    """
    return _find_or_make(stores, run_id, 0, 0, clock, source=PageSource(Kind.LIVE, name))


def _find_or_make(
    stores: Stores,
    run_id: str,
    iteration: int,
    batch_size: int,
    clock: Callable[[], float],
    *,
    source: PageSource = NODES,
) -> Iteration:
    """Find or make the iteration's folder.

    Whenever another start was faster, all that it may have changed is read again.
    """
    crawl = stores.crawl
    while True:
        folders = crawl.folders()
        found = crawl.find(run_id, iteration, among=folders)
        if found is not None:
            return found
        Starts(stores.crawl).require_clock(folders, clock())
        hidden = _prepare(stores, run_id, iteration, batch_size, folders, source=source)
        Starts(stores.crawl).give_name((folders or [Starts.NONE])[-1], hidden, clock)


def _prepare(
    stores: Stores,
    run_id: str,
    iteration: int,
    batch_size: int,
    folders: list[str],
    *,
    source: PageSource,
) -> str:
    """Write a hidden folder that follows these; returns its name."""
    storage, crawl = stores.storage, stores.crawl
    CrawlName(stores).note()
    NodeLayout(stores).require()
    nodes = stores.config.servers if source.kind is Kind.CRAWL else (source.name,)
    seeds = crawl.inbox.seeds()
    sums = _sum_up(stores, folders, seeds)
    limit = stores.config.crawl.max_pages
    remaining = None if limit is None else max(0, limit - sums.taken - sums.open_taken)
    identity = {
        "format_version": SEALED_VERSION,
        "run_id": run_id,
        "iteration": iteration,
        "kind": source.kind,
        "nodes": list(nodes),
        "routing": stores.config.frontier.routing,
        "config_digest": stores.config_digest,
        "krake_version": VERSION,
        "limited": limit is not None,
        "batch_sizes": share_out(batch_size, nodes, remaining, len(folders)),
        "taken_before": sums.taken,
        "summed": sums.summed,
        Starts.FOLLOWS: (folders or [Starts.NONE])[-1],
        "seeds": seeds,
        Scopes.DIGEST: _keep_scope(stores, ScopeFile.data_of(sums.hosts)),
        "agreed": vars(to_agree(stores)),
    }
    name = f"{Starts.hidden_prefix(run_id, iteration)}{uuid.uuid4().hex}"
    hidden = crawl.at(name)
    storage.make_dirs(hidden)
    storage.write_bytes(f"{hidden}/{FileName.ITERATION}", write_json_bytes(identity))
    reached("start.written")
    return name


def _keep_scope(stores: Stores, scope: bytes) -> str:
    """Keep a scope in the crawl directory; return its digest.

    Durably. Most iterations have that of the one before.
    """
    digest = Scopes.digest(scope)
    path = stores.crawl.at(FileName.SCOPE, digest)
    if not stores.storage.exists(path):
        with suppress(TargetExistsError):  # a start of another run has the same scope
            stores.storage.write_bytes(path, scope)
            reached("start.scope")
    stores.storage.secure(path)
    return digest


def scope_at_start(stores: Stores, iteration: Iteration) -> bytes:
    """Compute the scope of an iteration again, as its start did.

    Deleted seeds add no hosts. Raises DamagedFileError for an older damaged file.
    """
    folders = [name for name in stores.crawl.folders() if int(name) < int(iteration.folder)]
    seeds = [digest for digest in stores.crawl.inbox.seeds() if digest in iteration.seeds]
    return ScopeFile.data_of(_sum_up(stores, folders, seeds).hosts)


def _sum_up(stores: Stores, folders: list[str], seeds: list[str]) -> _Sums:
    """Return sums over all older folders.

    The newest folder has the sums of most older ones. The rest are read one by one.
    """
    crawl = stores.crawl
    sums, known_seeds = _Sums(0, set(), []), set[str]()
    if folders:
        newest = crawl.iteration(folders[-1])
        sums = _Sums(newest.taken_before, crawl.scopes.read(newest), list(newest.summed))
        known_seeds.update(newest.seeds)
    for digest in stores.until_stopped(seeds):
        if digest not in known_seeds:
            sums.hosts.update(crawl.inbox.scope(digest))
    for folder in stores.until_stopped(folders):
        if folder not in sums.summed:
            _add_folder(stores, FolderState.read(crawl, folder), sums)
    for path in crawl.scopes.kept():
        sums.hosts.update(read_lines(stores.storage, path))
    return sums


def _add_folder(stores: Stores, state: FolderState, sums: _Sums) -> None:
    sums.hosts.update(state.scope_added)
    if state.is_complete:
        sums.taken += state.urls if stores.crawl.iteration(state.folder.name).is_round else 0
        sums.summed.append(state.folder.name)
        return
    current = state.folder.iteration()
    open_nodes = (
        state.awaited
        if state.index is not None
        else [n for n in current.batch_sizes if n not in state.present]
    )
    sums.open_taken += state.urls + put_by(stores, current, open_nodes)
