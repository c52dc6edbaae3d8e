"""The state of a crawl: iterations, outcomes, nodes, queues, keys, outputs. Reads only: no lock, nothing is made."""

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from crawl_lib.config import Config, key_servers
from crawl_lib.crawldir import DROPPED_FILE, FolderState, read_settled, settled_nodes, sum_counts
from crawl_lib.errors import KrakeError, StorageError, os_errors
from crawl_lib.export import CONTENT, OFFSETS, URL_MAPPING, WEB_GRAPH, ExportFolder, list_exports
from crawl_lib.fetch import hosts_in_back_off
from crawl_lib.frontier import NodeDirectory, Queue, host_of_line, open_take, parse_state, read_move
from crawl_lib.keys import open_key_store
from crawl_lib.rounds.commit import budgets_reached, few_answers
from crawl_lib.rounds.waiting import what_waits
from crawl_lib.segment import SegmentReader
from crawl_lib.storage import shown_address
from crawl_lib.stores import Secrets, Stores, node_dir, open_stores

EXPORT_FILES = (URL_MAPPING, OFFSETS, CONTENT, WEB_GRAPH)
STATUS_WAIT_S = 10.0
"""How long a DFS that does not answer is asked again at most: people wait for the status."""
SHOWN_HOSTS = 5
WITH_BYTES = 10
"""Of so many iterations the segments are listed for their sizes; a crawl may have thousands."""
HOST_LINES = 100_000
"""So many URLs of a queue are looked at for the hosts that have most of them."""
_AT_REST = ("done", "failed", "paused")


def status_of(config: Config, secrets: Secrets | None = None, *, last: int | None = None) -> dict[str, Any]:
    """`crawl_status`; where the file store does not answer, what is known without it.

    That is `crawl`, `error`, `queues` and `keys`. So the reason why a node pauses or failed is there also while the
    store is what it waits for.
    """
    secrets = secrets or Secrets.from_environment()
    try:
        return crawl_status(open_to_look(config, secrets), last=last)
    except StorageError as error:
        return {**_local(config, secrets), "error": str(error)}


def open_to_look(config: Config, secrets: Secrets) -> Stores:
    """Stores for people who wait: nothing is made, and a DFS that does not answer is not asked for long."""
    quick = replace(config, dfs=replace(config.dfs, wait_s=min(config.dfs.wait_s, STATUS_WAIT_S)))
    return open_stores(quick, secrets, make=False)


def crawl_status(stores: Stores, *, only_nodes: bool = False, last: int | None = None) -> dict[str, Any]:
    """The status as a mapping that can be written as JSON.

    `iterations`: of each folder, or of the `last` ones, its run, number, segments, missing nodes, counts, whether it
    was committed, and whether it is complete: committed, and no segment may come late; `bytes`: of its segments, where
    it is one of the newest `WITH_BYTES`; `dropped`: pages of it that were taken out by hand and are not compacted yet,
    if any; `warning`: that few of its URLs were answered, if it is so; `budgets`: see `commit_iteration`. `older`: how
    many others there are. `totals`: the sum of the counts of all, in which `urls` are those that ended, each once, and
    `fetched` is all their tries.
    `nodes`: what the DFS tells of each: folders that were committed without it (`late`), and what it had settled last.
    `queues`: of each node on this machine length, open take or move, newest progress (also why it pauses or failed)
    with `eta_s`, the seconds until its take is fetched at that rate, and `queue_eta_s`, until all of its queue is; the
    `SHOWN_HOSTS` hosts that most of its first `HOST_LINES` URLs have, and hosts in back-off: how many, and until when
    the first of them; `waiting`, if anything does: a line on hosts in back-off and URLs that wait on this machine;
    `keys`: of each server; `exports`. What cannot be read carries an `error` instead. `only_nodes`:
    just `nodes`. Raises StorageError if the crawl directory cannot be listed.
    """
    iterations = [_iteration(stores, folder) for folder in stores.crawl.folders()]
    nodes = nodes_status(stores, iterations)
    if only_nodes:
        return {"nodes": nodes}
    shown = iterations[-last:] if last else iterations
    return {
        **_local(stores.config, stores.secrets),
        "injected": len(stores.crawl.seeds()),
        "iterations": [*shown[:-WITH_BYTES], *(_with_bytes(stores, entry) for entry in shown[-WITH_BYTES:])],
        "older": len(iterations) - len(shown),
        "totals": sum_counts([entry["counts"] for entry in iterations if "counts" in entry]),
        "nodes": nodes,
        "exports": [_export(stores, name) for name in list_exports(stores)],
    }


def _local(config: Config, secrets: Secrets) -> dict[str, Any]:
    """What is known without the file store."""
    waits = str(what_waits(config))
    return {
        **({"waiting": waits} if waits else {}),
        "crawl": f"{shown_address(config)}/{config.crawl.directory.strip('/')}",
        "queues": {node: _queue(config, node) for node in config.servers},
        "keys": _keys(config, secrets),
    }


def _iteration(stores: Stores, folder: str) -> dict[str, Any]:
    try:
        state = FolderState.read(stores.crawl, folder)
        iteration, dropped = state.folder.iteration(), 0
        if stores.storage.exists(state.folder.at(DROPPED_FILE)):  # these pages are still in the files, and in `counts`
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
            "counts": {**state.counts, "urls": state.urls},
            **({"dropped": dropped} if dropped else {}),
            **({"warning": warning} if (warning := few_answers(stores, state)) else {}),
            **({"budgets": budgets} if (budgets := budgets_reached(stores, state)) else {}),
        }
    except KrakeError as error:
        return {"folder": folder, "error": str(error)}


def _with_bytes(stores: Stores, entry: dict[str, Any]) -> dict[str, Any]:
    try:
        paths = [stores.crawl.segment(entry["folder"], node).path for node in entry.get("segments", ())]
        return {**entry, "bytes": sum(file.size_bytes for path in paths for file in stores.storage.list(path))}
    except KrakeError as error:
        return {**entry, "error": str(error)}


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
    progress = _progress(directory)
    halted = {"progress": progress} if "reason" in progress else {}
    try:
        queue = Queue(directory, node)
        take, move = open_take(directory), read_move(queue)
        # Files are between two states while a move is open; it will leave the one that it names.
        length = queue.length() if move is None else parse_state(move.state.encode()).length
        status: dict[str, Any] = {"length": length}
        hosts = hosts_in_back_off(directory, time.time(), config.retry.max_wait_s)
        if move is None and length:
            status["hosts"] = _first_hosts(queue, hosts)
        if hosts:
            until = {host: _utc(at) for host, at in islice(hosts.items(), SHOWN_HOSTS)}
            status["back_off"] = {"hosts": len(hosts), "until": until}
    except KrakeError as error:
        return {"error": str(error), **halted}
    if move is not None:
        status["open_move"] = move.move_id
    if take is not None:
        header = take.header
        status["open_take"] = {"run_id": header.run_id, "iteration": header.iteration, "count": take.count}
        status["progress"] = progress | _etas(progress, take.count, length)
    return {**status, **halted}


def _progress(directory: Path) -> dict[str, Any]:
    """What a node's task said last; nothing where it said nothing."""
    try:
        progress = json.loads(NodeDirectory(directory).progress.read_bytes())
    except (OSError, ValueError):
        return {}
    return progress if isinstance(progress, dict) else {}


def _etas(progress: Mapping[str, Any], taken: int, length: int) -> dict[str, int]:
    """Seconds until a take, and a queue, are fetched at the present rate; none where nothing is fetched."""
    rate, fetched = progress.get("pages_per_s") or 0.0, progress.get("fetched") or 0
    if rate <= 0 or progress.get("phase") in _AT_REST:
        return {}
    return {"eta_s": round(max(0, taken - fetched) / rate), "queue_eta_s": round(max(0, length - fetched) / rate)}


def _first_hosts(queue: Queue, back_offs: Mapping[str, float]) -> dict[str, dict[str, Any]]:
    """The hosts that most of a queue's first URLs have: how many, and until when they are left alone."""
    with os_errors(queue.directory, "changes at the moment"):
        lines = (url for url, _ in queue.lines(queue.state(), HOST_LINES))
        counts = Counter(host_of_line(url) for url in lines if url.count(b"/") > 1)  # people may have written anything
    hosts = [(host.decode("utf-8", "replace"), count) for host, count in counts.most_common(SHOWN_HOSTS)]
    return {
        host: {"urls": count, **({"back_off": _utc(back_offs[host])} if host in back_offs else {})}
        for host, count in hosts
    }


def _utc(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _keys(config: Config, secrets: Secrets) -> list[dict[str, Any]]:
    try:
        with open_key_store(config.key_storage, secrets.key_storage_password) as keys:
            return [
                {"name": name, "server": count.server}
                | ({"total": count.total, **count.by_state} if count.up else {"error": count.error})
                for name, count in zip(key_servers(config), keys.counts(), strict=True)
            ]
    except KrakeError as error:
        return [{"server": ", ".join(config.key_storage.servers), "error": str(error)}]


def _export(stores: Stores, name: str) -> dict[str, Any]:
    sizes = ExportFolder(stores, name).sizes()
    sizes = {file: sizes[file] for file in EXPORT_FILES if file in sizes}
    pages = (sizes[URL_MAPPING] - 4) // 20 if URL_MAPPING in sizes else None
    return {"name": name, "pages": pages, "bytes": sizes, "complete": len(sizes) == len(EXPORT_FILES)}
