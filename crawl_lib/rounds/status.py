"""The state of a crawl: iterations, outcomes, nodes, queues, keys, outputs. Reads only: no lock, nothing is made."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from crawl_lib.config import Config
from crawl_lib.crawldir import DROPPED_MARK, FolderState, read_settled, settled_nodes, sum_counts
from crawl_lib.errors import KrakeError, StorageError
from crawl_lib.export import ExportFolder, list_exports
from crawl_lib.frontier import NodeDirectory, Queue, open_take, parse_state, read_move
from crawl_lib.keys import open_key_store
from crawl_lib.segment import SegmentReader
from crawl_lib.stores import Secrets, Stores, node_dir, open_stores

EXPORT_FILES = ("urlmapping", "offsets", "content", "webgraph")
STATUS_WAIT_S = 10.0
"""How long a DFS that does not answer is asked again at most: people wait for the status."""


def status_of(config: Config, secrets: Secrets | None = None) -> dict[str, Any]:
    """`crawl_status`; where the file store does not answer, what is known without it.

    That is `crawl`, `error`, `queues` and `keys`. So the reason why a node pauses or failed is there also while the
    store is what it waits for.
    """
    secrets = secrets or Secrets.from_environment()
    quick = replace(config, dfs=replace(config.dfs, wait_s=min(config.dfs.wait_s, STATUS_WAIT_S)))
    try:
        return crawl_status(open_stores(quick, secrets, make=False))
    except StorageError as error:
        return {**_local(config, secrets), "error": str(error)}


def crawl_status(stores: Stores, *, only_nodes: bool = False) -> dict[str, Any]:
    """The status as a mapping that can be written as JSON.

    `iterations`: of each folder its run, number, segments, missing nodes, counts, whether it was committed, and whether
    it is complete: committed, and no segment may come late; `dropped`: pages of it that were taken out by hand and are
    not compacted yet, if any; `totals`: their sum. `nodes`: what the DFS tells of each:
    folders that were committed without it (`late`), and what it had settled last. `queues`: of each node on this
    machine length, open take or move, newest progress (also why it pauses or failed); `keys`: of each server;
    `exports`. What cannot be read carries an `error` instead. `only_nodes`: just `nodes`. Raises StorageError if the
    crawl directory cannot be listed.
    """
    iterations = [_iteration(stores, folder) for folder in stores.crawl.folders()]
    nodes = nodes_status(stores, iterations)
    if only_nodes:
        return {"nodes": nodes}
    return {
        **_local(stores.config, stores.secrets),
        "injected": len(stores.crawl.seeds()),
        "iterations": iterations,
        "totals": sum_counts([entry["counts"] for entry in iterations if "counts" in entry]),
        "nodes": nodes,
        "exports": [_export(stores, name) for name in list_exports(stores)],
    }


def _local(config: Config, secrets: Secrets) -> dict[str, Any]:
    """What is known without the file store."""
    return {
        "crawl": f"{config.dfs_primary}/{config.crawl.directory.strip('/')}",
        "queues": {node: _queue(config, node) for node in config.servers},
        "keys": _keys(config, secrets),
    }


def _iteration(stores: Stores, folder: str) -> dict[str, Any]:
    try:
        state = FolderState.read(stores.crawl, folder)
        iteration, dropped = state.folder.iteration(), 0
        if stores.storage.exists(state.folder.at(DROPPED_MARK)):  # these pages are still in the files, and in `counts`
            dropped = sum(len(SegmentReader(stores.storage, state.folder.at(node)).dropped) for node in state.present)
        return {
            "folder": folder,
            "run_id": iteration.run_id,
            "iteration": iteration.iteration,
            "segments": state.present,
            "missing": [node for node in iteration.nodes if node not in state.present],
            "committed": state.index is not None,
            "late": state.awaited,
            "complete": state.is_complete,
            "counts": state.counts,
            **({"dropped": dropped} if dropped else {}),
        }
    except KrakeError as error:
        return {"folder": folder, "error": str(error)}


def nodes_status(stores: Stores, iterations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the DFS tells of each node of the config, and of those that were retired.

    `late`: folders that were committed without it. `settled`: the youngest folder at its last settle, "" if there was
    none; no such entry if it works, or has not settled yet. `behind`: whether it settled before the newest iteration.
    `queue`: URLs that waited then. `retired`, `lost`: see `crawldir.Settled`.
    """
    newest = max((entry["folder"] for entry in iterations), key=int, default="")
    found: dict[str, Any] = {}
    for node in sorted({*stores.config.servers, *settled_nodes(stores.crawl)}):
        entry: dict[str, Any] = {"late": [one["folder"] for one in iterations if node in one.get("late", ())]}
        try:
            last = read_settled(stores.crawl, node)
        except KrakeError as error:
            entry["error"] = str(error)
        else:
            if last is not None:
                behind = last.newest != newest and not last.retired
                entry |= {"settled": last.newest, "behind": behind, "queue": last.queue, "undecided": last.undecided}
                entry |= {name: True for name in ("retired", "lost") if getattr(last, name)}
        found[node] = entry
    return found


def _queue(config: Config, node: str) -> dict[str, Any]:
    directory = node_dir(config, node)
    if not directory.is_dir():
        return {"length": 0, "note": f"{directory}: not on this machine, or not used yet"}
    try:
        progress = json.loads(NodeDirectory(directory).progress.read_bytes())
    except (OSError, ValueError):
        progress = {}
    halted = {"progress": progress} if isinstance(progress, dict) and "reason" in progress else {}
    try:
        queue = Queue(directory, node)
        take, move = open_take(directory), read_move(queue)
        # Files are between two states while a move is open; it will leave the one that it names.
        length = queue.length() if move is None else parse_state(move.state.encode()).length
        status: dict[str, Any] = {"length": length}
    except KrakeError as error:
        return {"error": str(error), **halted}
    if move is not None:
        status["open_move"] = move.move_id
    if take is not None:
        header = take.header
        status["open_take"] = {"run_id": header.run_id, "iteration": header.iteration, "count": take.count}
        status["progress"] = progress
    return {**status, **halted}


def _keys(config: Config, secrets: Secrets) -> list[dict[str, Any]]:
    try:
        with open_key_store(config.key_storage, secrets.key_storage_password) as keys:
            return [
                {"server": count.server, "total": count.total, **count.by_state}
                if count.up
                else {"server": count.server, "error": count.error}
                for count in keys.counts()
            ]
    except KrakeError as error:
        return [{"server": ", ".join(config.key_storage.servers), "error": str(error)}]


def _export(stores: Stores, name: str) -> dict[str, Any]:
    sizes = ExportFolder(stores, name).sizes()
    sizes = {file: sizes[file] for file in EXPORT_FILES if file in sizes}
    pages = (sizes["urlmapping"] - 4) // 20 if "urlmapping" in sizes else None
    return {"name": name, "pages": pages, "bytes": sizes, "complete": len(sizes) == len(EXPORT_FILES)}
