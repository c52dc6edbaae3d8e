"""The stage `commit`: an iteration is complete when the segments of all its nodes stand.

It adds nothing that the segments do not say; the index it writes lets the next intake open one file instead of one a
node, and lets the next start sum up without reading manifests. Run again, it finds the index and returns its counts.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

from crawl_lib.crawl.places import (
    INDEX_FILE,
    MANIFEST_FILE,
    SCOPE_FOLDER,
    Iteration,
    find_iteration,
    read_json,
    segments_of,
    write_json_bytes,
)
from crawl_lib.crawl.start import hidden_prefix
from crawl_lib.durable import reached
from crawl_lib.errors import PathNotFoundError, TargetExistsError
from crawl_lib.segment import FORMAT_VERSION
from crawl_lib.stores import Stores


def require_iteration(stores: Stores, run_id: str, iteration: int) -> Iteration:
    """The folder of a run's iteration. Raises PathNotFoundError: `start` has to run first."""
    found = find_iteration(stores.storage, stores.crawl_dir, run_id, iteration)
    if found is None:
        raise PathNotFoundError(
            f"{stores.crawl_dir}: iteration {iteration} of run {run_id!r} has no folder; run its start first"
        )
    return found


def commit_iteration(stores: Stores, *, run_id: str, iteration: int) -> dict[str, Any]:
    """Check that all segments of an iteration stand, and write the folder's index.

    Returns its counts, the folder's name among them. Raises PathNotFoundError naming the nodes that are missing: run
    their crawl task again, then this.
    """
    found = require_iteration(stores, run_id, iteration)
    path = f"{stores.crawl_dir}/{found.folder}"
    if not stores.storage.exists(f"{path}/{INDEX_FILE}"):
        _write_index(stores, found, path)
        reached("commit.written")
    _sweep(stores, run_id, iteration)
    index = read_json(stores.storage, f"{path}/{INDEX_FILE}")
    return {"folder": found.folder, "iteration": iteration, **index["counts"]}


def _sweep(stores: Stores, run_id: str, iteration: int) -> None:
    """Delete what attempts to start this iteration left behind."""
    prefix = hidden_prefix(run_id, iteration)
    for entry in stores.storage.list(stores.crawl_dir):
        if entry.name.startswith(prefix):
            stores.storage.delete(f"{stores.crawl_dir}/{entry.name}")


def _write_index(stores: Stores, iteration: Iteration, path: str) -> None:
    standing = set(segments_of(stores.storage, stores.crawl_dir, iteration.folder))
    missing = [node for node in iteration.nodes if node not in standing]
    if missing:
        raise PathNotFoundError(
            f"{path}: no segment of {', '.join(missing)}; run the crawl task of each again, then commit"
        )
    manifests = {node: read_json(stores.storage, f"{path}/{node}/{MANIFEST_FILE}") for node in iteration.nodes}
    scope_added = sorted({host for manifest in manifests.values() for host in manifest["scope_added"]})
    index = {
        "format_version": FORMAT_VERSION,
        "run_id": iteration.run_id,
        "iteration": iteration.iteration,
        "counts": sum_counts([manifest["counts"] for manifest in manifests.values()]),
        "scope_added": scope_added,
        "outlinks": {node: manifest["outlinks"] for node, manifest in manifests.items()},
    }
    if scope_added:
        # Before the index, which says that commit is done; the folder may be deleted by hand after that.
        hosts = "".join(f"{host}\n" for host in scope_added).encode()
        _write_once(stores, f"{stores.crawl_dir}/{SCOPE_FOLDER}/{iteration.folder}", hosts)
        reached("commit.scope")
    _write_once(stores, f"{path}/{INDEX_FILE}", write_json_bytes(index))


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
