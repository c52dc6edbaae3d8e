"""The stage `commit`: an iteration is done when the segments of its nodes exist, or of `crawl.min_nodes` of them.

It adds nothing that the segments do not say; the index it writes lets the next intake open one file instead of one a
node, and lets the next start sum up without reading manifests. Run again, it finds the index and returns its counts.

No stage changes the index; a repair that puts a segment in the place of another writes it again. A node that commit
went on without is named in it; the node's segment may appear in the folder later (`crawldir.FolderState`).
"""

import logging
import math
from contextlib import suppress
from hashlib import sha1
from typing import Any

from crawl_lib.crawldir import (
    INDEX_FILE,
    SCOPE_FOLDER,
    FolderState,
    Iteration,
    hidden_prefix,
    read_lines,
    write_json_bytes,
)
from crawl_lib.durable import reached
from crawl_lib.errors import PathNotFoundError, TargetExistsError
from crawl_lib.sealed import SEALED_VERSION
from crawl_lib.stores import Stores
from crawl_lib.urls import scope_bytes

log = logging.getLogger(__name__)


def require_iteration(stores: Stores, run_id: str, iteration: int) -> Iteration:
    """The folder of a run's iteration. Raises PathNotFoundError: `start` has to run first."""
    found = stores.crawl.find(run_id, iteration)
    if found is None:
        raise PathNotFoundError(
            f"{stores.crawl.path}: iteration {iteration} of run {run_id!r} has no folder; run its start first"
        )
    return found


def commit_iteration(stores: Stores, *, run_id: str, iteration: int) -> dict[str, Any]:
    """Check that the segments of an iteration exist, of all nodes or of `crawl.min_nodes` of them; write the index.

    Returns its counts, those of segments that came late included, the folder's name, and as `missing` the nodes whose
    segments do not exist, if there are some. Raises PathNotFoundError naming the nodes that are missing where they are
    too many: run their crawl task again, then this.
    """
    found = require_iteration(stores, run_id, iteration)
    path = stores.crawl.at(found.folder, INDEX_FILE)
    if not stores.storage.exists(path):
        _write_index(stores, found)
        reached("commit.written")
    stores.storage.secure(path)
    prefix = hidden_prefix(run_id, iteration)
    for entry in stores.storage.list(stores.crawl.path):
        if entry.name.startswith(prefix):  # of another attempt to start this iteration
            stores.storage.delete(stores.crawl.at(entry.name))
    keep_late_scope(stores, found.folder)
    state = FolderState.read(stores.crawl, found.folder)
    missing = {"missing": state.missing} if state.missing else {}
    return {"folder": found.folder, "iteration": iteration, **missing, **state.counts}


def needed_segments(nodes: int, share: float) -> int:
    """How many segments a commit needs: `share` (`crawl.min_nodes`) of the nodes, rounded up."""
    return math.ceil(round(nodes * share, 6))


def keep_late_scope(stores: Stores, folder: str) -> None:
    """Keep the hosts that late segments of a folder add to the scope where they outlive the folder.

    Called after a late segment became visible, and after the index: the later call sees both.
    """
    state = FolderState.read(stores.crawl, folder)
    for node, manifest in state.unsummed.items() if state.index is not None else ():
        path = stores.crawl.at(SCOPE_FOLDER, f"{folder}-{node}")
        if manifest["scope_added"] and not stores.storage.exists(path):
            _write_once(stores, path, scope_bytes(manifest["scope_added"]))
            reached("commit.late_scope")


def _write_index(stores: Stores, iteration: Iteration) -> None:
    state, share = FolderState.read(stores.crawl, iteration.folder), stores.config.crawl.min_nodes
    folder, nodes = state.folder, len(iteration.nodes)
    missing = [node for node in iteration.nodes if node not in state.present]
    needed = needed_segments(nodes, share)
    if nodes - len(missing) < needed:
        some = "" if share == 1 else f" (crawl.min_nodes is {share:g}: {needed} of {nodes} must exist)"
        raise PathNotFoundError(
            f"{folder.path}: no segment of {', '.join(missing)}; run the crawl task of each again, then commit{some}"
        )
    if missing:
        log.warning("%s: committed without %s; each finishes what it took when it works again", folder.path, missing)
    index = {
        "format_version": SEALED_VERSION,
        "run_id": iteration.run_id,
        "iteration": iteration.iteration,
        "counts": state.counts,
        "scope_added": sorted(state.scope_added),
        "outlinks": {node: manifest["outlinks"] for node, manifest in state.unsummed.items()},
        "missing": missing,
    }
    if state.scope_added:
        # Before the index, which says that commit is done; the folder may be deleted by hand after that.
        path, data = stores.crawl.at(SCOPE_FOLDER, folder.name), scope_bytes(state.scope_added)
        _write_once(stores, path, data)
        if not state.scope_added <= set(read_lines(stores.storage, path)):  # of an attempt that saw fewer segments
            _write_once(stores, f"{path}-{sha1(data).hexdigest()}", data)
        reached("commit.scope")
    _write_once(stores, folder.at(INDEX_FILE), write_json_bytes(index))


def _write_once(stores: Stores, path: str, data: bytes) -> None:
    with suppress(TargetExistsError):  # another attempt wrote the same
        stores.storage.write_bytes(path, data)
