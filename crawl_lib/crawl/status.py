"""What stands of a crawl: iterations, outcomes, queues, keys, outputs. Reads only, takes no lock."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from crawl_lib.crawl.commit import sum_counts
from crawl_lib.crawl.exports import list_exports
from crawl_lib.crawl.places import (
    INDEX_FILE,
    MANIFEST_FILE,
    list_folders,
    list_seeds,
    read_iteration,
    read_json,
    segments_of,
)
from crawl_lib.crawl.progress import PROGRESS_FILE
from crawl_lib.errors import KrakeError
from crawl_lib.frontier import Queue, open_take
from crawl_lib.stores import Stores

EXPORT_FILES = ("urlmapping", "offsets", "content", "webgraph")


def crawl_status(stores: Stores) -> dict[str, Any]:
    """The status as a mapping that can be written as JSON.

    `iterations`: of each folder its run, number, nodes, whether it is complete, counts; `totals`: their sum;
    `queues`: of each node on this machine length, open take, newest progress (also why it pauses or failed); `keys`: of each server; `exports`.
    What cannot be read carries an `error` instead. Raises StorageError if the crawl directory cannot be listed.
    """
    iterations = [_iteration(stores, folder) for folder in list_folders(stores.storage, stores.crawl_dir)]
    return {
        "crawl": f"{stores.config.dfs_primary}/{stores.crawl_dir}",
        "injected": len(list_seeds(stores.storage, stores.crawl_dir)),
        "iterations": iterations,
        "totals": sum_counts([entry["counts"] for entry in iterations if "counts" in entry]),
        "queues": {node: _queue(stores, node) for node in stores.config.servers},
        "keys": _keys(stores),
        "exports": [_export(stores, name) for name in list_exports(stores)],
    }


def _iteration(stores: Stores, folder: str) -> dict[str, Any]:
    path = f"{stores.crawl_dir}/{folder}"
    try:
        iteration = read_iteration(stores.storage, stores.crawl_dir, folder)
        standing = segments_of(stores.storage, stores.crawl_dir, folder)
        complete = stores.storage.exists(f"{path}/{INDEX_FILE}")
        if complete:
            counts = read_json(stores.storage, f"{path}/{INDEX_FILE}")["counts"]
        else:
            manifests = [read_json(stores.storage, f"{path}/{node}/{MANIFEST_FILE}") for node in standing]
            counts = sum_counts([manifest["counts"] for manifest in manifests])
    except KrakeError as error:
        return {"folder": folder, "error": str(error)}
    return {
        "folder": folder,
        "run_id": iteration.run_id,
        "iteration": iteration.iteration,
        "segments": standing,
        "missing": [node for node in iteration.nodes if node not in standing],
        "complete": complete,
        "counts": counts,
    }


def _queue(stores: Stores, node: str) -> dict[str, Any]:
    directory = stores.node_dir(node)
    if not directory.is_dir():
        return {"length": 0, "note": f"{directory}: not on this machine, or not used yet"}
    progress = _progress(stores, node)
    halted = {"progress": progress} if "reason" in progress else {}
    try:
        take = open_take(directory)
        status: dict[str, Any] = {"length": Queue(directory, node).length()}
    except KrakeError as error:
        return {"error": str(error), **halted}
    if take is not None:
        status["open_take"] = {
            "run_id": take.header.run_id,
            "iteration": take.header.iteration,
            "count": take.count,
        }
        status["progress"] = progress
    return {**status, **halted}


def _progress(stores: Stores, node: str) -> Mapping[str, Any]:
    try:
        value = json.loads((stores.node_dir(node) / PROGRESS_FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _keys(stores: Stores) -> list[dict[str, Any]]:
    try:
        with stores.keys() as keys:
            return [
                {"server": count.server, "total": count.total, **count.by_state}
                if count.up
                else {"server": count.server, "error": count.error}
                for count in keys.counts()
            ]
    except KrakeError as error:
        return [{"server": ", ".join(stores.config.key_storage.servers), "error": str(error)}]


def _export(stores: Stores, name: str) -> dict[str, Any]:
    path = f"{stores.config.export.directory.strip('/')}/{name}"
    sizes = {}
    for file in EXPORT_FILES:
        entry = stores.storage.stat(f"{path}/{file}")
        if entry is not None:
            sizes[file] = entry.size_bytes
    pages = (sizes["urlmapping"] - 4) // 20 if "urlmapping" in sizes else None
    return {"name": name, "pages": pages, "bytes": sizes, "complete": len(sizes) == len(EXPORT_FILES)}
