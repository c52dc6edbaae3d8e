"""The stage `commit`: an iteration is done when the segments of its nodes stand, or of `crawl.min_nodes` of them.

It adds nothing that the segments do not say; the index it writes lets the next intake open one file instead of one a
node, and lets the next start sum up without reading manifests. Run again, it finds the index and returns its counts.

No stage changes the index; a repair that puts a segment in the place of another writes it again. A node that commit
went on without is named in it; the node's segment may appear in the folder later, and readers of an index look for
such segments next to it (`places.awaited`, `places.came_late`).
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from contextlib import suppress
from hashlib import sha1
from typing import Any

from crawl_lib.crawldir import (
    INDEX_FILE,
    SCOPE_FOLDER,
    Iteration,
    awaited,
    came_late,
    hidden_prefix,
    read_lines,
    write_json_bytes,
)
from crawl_lib.durable import reached
from crawl_lib.errors import PathNotFoundError, TargetExistsError
from crawl_lib.sealed import SEALED_VERSION
from crawl_lib.stopping import until_stopped
from crawl_lib.stores import Stores

log = logging.getLogger(__name__)


def require_iteration(stores: Stores, run_id: str, iteration: int) -> Iteration:
    """The folder of a run's iteration. Raises PathNotFoundError: `start` has to run first."""
    found = stores.crawl.find(run_id, iteration, stores.stop)
    if found is None:
        raise PathNotFoundError(
            f"{stores.crawl.path}: iteration {iteration} of run {run_id!r} has no folder; run its start first"
        )
    return found


def commit_iteration(stores: Stores, *, run_id: str, iteration: int) -> dict[str, Any]:
    """Check that the segments of an iteration stand, of all nodes or of `crawl.min_nodes` of them; write the index.

    Returns its counts, those of segments that came late included, the folder's name, and as `missing` the nodes whose
    segments do not exist, if there are some. Raises PathNotFoundError naming the nodes that are missing where they are
    too many: run their crawl task again, then this.
    """
    found = require_iteration(stores, run_id, iteration)
    path = stores.crawl.at(found.folder)
    if not stores.storage.exists(f"{path}/{INDEX_FILE}"):
        _write_index(stores, found, path)
        reached("commit.written")
    stores.storage.secure(f"{path}/{INDEX_FILE}")
    _sweep(stores, run_id, iteration)
    keep_late_scope(stores, found.folder)
    present = stores.crawl.folder(found.folder).segments()
    index = stores.crawl.folder(found.folder).index() or {}
    missing = awaited(index, present)
    counts = folder_counts(stores, found.folder, index, present)
    return {"folder": found.folder, "iteration": iteration, **({"missing": missing} if missing else {}), **counts}


def needed_segments(nodes: int, share: float) -> int:
    """How many segments a commit needs: `share` (`crawl.min_nodes`) of the nodes, rounded up."""
    return math.ceil(round(nodes * share, 6))


def folder_counts(stores: Stores, folder: str, index: dict[str, Any], present: list[str]) -> dict[str, Any]:
    """The counts of a committed folder: those of its `index`, and of segments that came late.

    `present`: nodes whose segments exist now. Raises DamagedFileError or StorageError naming a manifest.
    """
    nodes = until_stopped(came_late(index, present), stores.stop)
    late = [stores.crawl.segment(folder, node).manifest() for node in nodes]
    return sum_counts([index["counts"], *(manifest["counts"] for manifest in late)]) if late else index["counts"]


def keep_late_scope(stores: Stores, folder: str) -> None:
    """Keep the hosts that late segments of a folder add to the scope where they outlive the folder.

    Called after a late segment became visible, and after the index: whichever is later sees the other one.
    """
    index = stores.crawl.folder(folder).index()
    if index is None or not index.get("missing"):
        return
    for node in came_late(index, stores.crawl.folder(folder).segments()):
        hosts = stores.crawl.segment(folder, node).manifest()["scope_added"]
        path = f"{stores.crawl.path}/{SCOPE_FOLDER}/{folder}-{node}"
        if hosts and not stores.storage.exists(path):
            _write_once(stores, path, "".join(f"{host}\n" for host in sorted(hosts)).encode())
            reached("commit.late_scope")


def _sweep(stores: Stores, run_id: str, iteration: int) -> None:
    """Delete what attempts to start this iteration left behind."""
    prefix = hidden_prefix(run_id, iteration)
    for entry in stores.storage.list(stores.crawl.path):
        if entry.name.startswith(prefix):
            stores.storage.delete(stores.crawl.at(entry.name))


def _write_index(stores: Stores, iteration: Iteration, path: str) -> None:
    share = stores.config.crawl.min_nodes
    present = set(stores.crawl.folder(iteration.folder).segments())
    there = [node for node in iteration.nodes if node in present]
    missing = [node for node in iteration.nodes if node not in present]
    needed = needed_segments(len(iteration.nodes), share)
    if len(there) < needed:
        some = "" if share == 1 else f" (crawl.min_nodes is {share:g}: {needed} of {len(iteration.nodes)} must exist)"
        raise PathNotFoundError(
            f"{path}: no segment of {', '.join(missing)}; run the crawl task of each again, then commit{some}"
        )
    if missing:
        log.warning("%s: committed without %s; each finishes what it took when it works again", path, missing)
    manifests = {
        node: stores.crawl.segment(iteration.folder, node).manifest() for node in until_stopped(there, stores.stop)
    }
    scope_added = sorted({host for manifest in manifests.values() for host in manifest["scope_added"]})
    index = {
        "format_version": SEALED_VERSION,
        "run_id": iteration.run_id,
        "iteration": iteration.iteration,
        "counts": sum_counts([manifest["counts"] for manifest in manifests.values()]),
        "scope_added": scope_added,
        "outlinks": {node: manifest["outlinks"] for node, manifest in manifests.items()},
        "missing": missing,
    }
    if scope_added:
        # Before the index, which says that commit is done; the folder may be deleted by hand after that.
        _keep_scope(stores, iteration.folder, scope_added)
        reached("commit.scope")
    _write_once(stores, f"{path}/{INDEX_FILE}", write_json_bytes(index))


def _keep_scope(stores: Stores, folder: str, hosts: list[str]) -> None:
    """Keep hosts where they outlive the folder; next to what an attempt kept that saw fewer segments and died."""
    path = f"{stores.crawl.path}/{SCOPE_FOLDER}/{folder}"
    data = "".join(f"{host}\n" for host in hosts).encode()
    _write_once(stores, path, data)
    if not set(hosts) <= set(read_lines(stores.storage, path)):
        _write_once(stores, f"{path}-{sha1(data).hexdigest()}", data)


def _write_once(stores: Stores, path: str, data: bytes) -> None:
    with suppress(TargetExistsError):  # another attempt wrote the same
        stores.storage.write_bytes(path, data)


def sum_counts(counts: list[dict[str, Any]]) -> dict[str, Any]:
    """Add up the `counts` of manifests: numbers by name, mappings of numbers by name within. `fetched` is added."""
    total: Counter[str] = Counter()
    nested: dict[str, Counter[str]] = {"outcomes": Counter(), "rejections": Counter()}
    for count in counts:
        for name, value in count.items():
            if isinstance(value, dict):
                nested.setdefault(name, Counter()).update(value)
            else:
                total[name] += value
    total["fetched"] = total["pages"]
    return {**total, **{name: dict(sorted(inner.items())) for name, inner in nested.items()}}
