"""The state of a crawl: iterations, outcomes, nodes, queues, keys, outputs. Reads only: no lock, nothing is made."""

import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias, cast

from crawl_lib.config import Config
from crawl_lib.crawldir import FolderState, SettledNotes
from crawl_lib.errors import KrakeError, StorageError, os_errors
from crawl_lib.export import CONTENT, OFFSETS, URL_MAPPING, WEB_GRAPH, ExportFolder, list_exports
from crawl_lib.fetch import hosts_in_back_off
from crawl_lib.frontier import Move, NodeDirectory, Queue, State, Take, host_of_line
from crawl_lib.keys import open_key_store
from crawl_lib.rounds.iterations import Iterations
from crawl_lib.rounds.shown import (
    CrawlStatus,
    ExportStatus,
    IterationStatus,
    NodeStatus,
    QueuedHost,
    QueueStatus,
    ToldProgress,
)
from crawl_lib.rounds.waiting import what_waits
from crawl_lib.storage import shown_address
from crawl_lib.stores import Secrets, Stores, node_dir, open_stores

EXPORT_FILES = (URL_MAPPING, OFFSETS, CONTENT, WEB_GRAPH)
STATUS_WAIT_S = 10.0
"""How long a DFS that does not answer is asked again at most: people wait for the status."""
SHOWN_HOSTS = 5
WITH_BYTES = 10
"""Number of iterations whose segments are listed for sizes; a crawl may have thousands."""
HOST_LINES = 100_000
"""Number of a queue's URLs to read for the hosts with most URLs."""
AskElsewhere = Callable[[Config, Sequence[str]], Mapping[str, QueueStatus]]
"""Finds entries of `queues` for nodes that are not on this machine; none for a node of which nothing is known."""
AskKeys = Callable[[Config, Secrets], list[dict[str, Any]]]
"""Returns an entry for each key server, as `keys_status` does."""
_AT_REST = ("done", "failed", "paused")


class CrawlReader:
    """Reader of a crawl's status for one process: `krake status`, or a page.

    Iterations that are complete are read once and kept, see `Iterations`. Threads take turns.
    """

    Status: TypeAlias = CrawlStatus
    Iteration: TypeAlias = IterationStatus
    Node: TypeAlias = NodeStatus
    NodeQueue: TypeAlias = QueueStatus

    def __init__(
        self,
        config: Config,
        secrets: Secrets | None = None,
        *,
        wait_s: float = STATUS_WAIT_S,
        elsewhere: AskElsewhere | None = None,
        ask_keys: AskKeys | None = None,
    ) -> None:
        """Prepare a look at the status.

        `wait_s`: how long a DFS that does not answer is asked again; `elsewhere`, `ask_keys`: see `crawl_status`.
        """
        self._config, self._secrets = config, secrets or Secrets.from_environment()
        self._wait_s, self._elsewhere = wait_s, elsewhere or _ask_environment
        self._ask_keys = ask_keys or keys_status
        self._iterations, self._turn = Iterations(), Lock()

    def status(self, *, last: int | None = None, read_s: float = math.inf) -> CrawlStatus:
        """Return `crawl_status`, or less without the file store.

        Facts outside the store are known in any case.

        `read_s`: for how many seconds iterations are read. The look then has `unread`, the number of others, and a
        later look reads them. Without the store, only `crawl`, `error`, `queues` and `keys` are known. So the reason
        why a node pauses or failed is there also while the node waits for the store.
        """
        with self._turn:
            try:
                stores = open_to_look(self._config, self._secrets, self._wait_s)
                return crawl_status(
                    stores,
                    last=last,
                    read_s=read_s,
                    iterations=self._iterations,
                    elsewhere=self._elsewhere,
                    ask_keys=self._ask_keys,
                )
            except StorageError as error:
                return {
                    **_local(self._config, self._secrets, self._elsewhere, self._ask_keys),
                    "error": str(error),
                }

    def pages(self, entries: Sequence[IterationStatus]) -> dict[str, int | dict[str, int]]:
        """Return `count_pages` of iterations of the status. Raises StorageError or DamagedFileError."""
        from crawl_lib.rounds.pagecounts import count_pages  # noqa: PLC0415 - no task needs its pyarrow.compute

        return count_pages(open_to_look(self._config, self._secrets, self._wait_s), entries)


def status_of(
    config: Config, secrets: Secrets | None = None, *, last: int | None = None
) -> CrawlStatus:
    """Look once: see `CrawlReader.status`."""
    return CrawlReader(config, secrets).status(last=last)


def open_to_look(config: Config, secrets: Secrets, wait_s: float = STATUS_WAIT_S) -> Stores:
    """Open stores to look only, with a short wait.

    Nothing is made, and a DFS that does not answer is not asked for long.
    """
    quick = replace(config, dfs=replace(config.dfs, wait_s=min(config.dfs.wait_s, wait_s)))
    return open_stores(quick, secrets, make=False)


def crawl_status(
    stores: Stores,
    *,
    only_nodes: bool = False,
    last: int | None = None,
    iterations: Iterations | None = None,
    elsewhere: AskElsewhere | None = None,
    ask_keys: AskKeys | None = None,
    read_s: float = math.inf,
) -> CrawlStatus:
    """Return the status of a crawl as a mapping for JSON.

    `last`: list so many iterations, the newest ones; None: all. `only_nodes`: return `nodes` alone. `iterations`: a
    reader that keeps what is complete from look to look. `elsewhere`: finds the entries of nodes that are not on this
    machine; None: asks the Airflow that the environment names. `ask_keys`: returns `keys`; None: asks the servers now.
    `read_s`: see `CrawlReader.status`. An unreadable part has an `error` in its place. Raises StorageError if the crawl
    directory cannot be listed.
    """
    iterations = iterations or Iterations()
    entries = iterations.entries(stores, read_s=read_s)
    nodes = nodes_status(stores, entries)
    if only_nodes:
        return {"nodes": nodes}
    shown = entries[-last:] if last else entries
    newest = (iterations.with_bytes(stores, entry) for entry in shown[-WITH_BYTES:])
    status: CrawlStatus = {
        **_local(
            stores.config, stores.secrets, elsewhere or _ask_environment, ask_keys or keys_status
        ),
        "injected": len(stores.crawl.inbox.seeds()),
        "iterations": [*shown[:-WITH_BYTES], *newest],
        "older": len(entries) - len(shown),
        "totals": FolderState.sum_counts(
            [entry["counts"] for entry in entries if "counts" in entry]
        ),
        "nodes": nodes,
        "exports": [_export(stores, name) for name in list_exports(stores)],
    }
    if iterations.unread:
        status["unread"] = iterations.unread
    return status


def _local(
    config: Config, secrets: Secrets, elsewhere: AskElsewhere, ask_keys: AskKeys
) -> CrawlStatus:
    """Return what is known without the file store."""
    local: CrawlStatus = {
        "crawl": f"{shown_address(config)}/{config.crawl.directory.strip('/')}",
        "queues": _queues(config, elsewhere),
        "keys": ask_keys(config, secrets),
    }
    if waits := str(what_waits(config)):
        local["waiting"] = waits
    return local


def _ask_environment(config: Config, nodes: Sequence[str]) -> Mapping[str, QueueStatus]:
    if not os.environ.get("KRAKE_AIRFLOW_URL"):
        return {}
    from crawl_lib.rounds.elsewhere import queues_elsewhere  # noqa: PLC0415  # loads requests

    return queues_elsewhere(config, nodes)


def _queues(config: Config, elsewhere: AskElsewhere) -> dict[str, QueueStatus]:
    """Describe the queues of all nodes.

    From this machine's disk, else as Airflow knows them.
    """
    found = {node: _queue(config, node) for node in config.servers}
    if away := [node for node, entry in found.items() if "note" in entry]:
        found |= elsewhere(config, away)
    for entry in found.values():
        if "open_take" in entry:
            progress = entry["progress"]
            etas = _etas(progress, entry["open_take"]["count"], entry["length"])
            entry["progress"] = {**progress, **etas}
    return found


def nodes_status(stores: Stores, iterations: Sequence[IterationStatus]) -> dict[str, NodeStatus]:
    """Return the DFS's facts on each node.

    Nodes of the config, and those that were retired.
    """
    newest = max((entry["folder"] for entry in iterations), key=int, default="")
    with_late = [entry for entry in iterations if entry.get("late")]
    found: dict[str, NodeStatus] = {}
    for node in sorted({*stores.config.servers, *SettledNotes.nodes(stores.crawl)}):
        entry: NodeStatus = {"late": [one["folder"] for one in with_late if node in one["late"]]}
        try:
            last = SettledNotes(stores.crawl, node).read()
        except KrakeError as error:
            entry["error"] = str(error)
        else:
            if last is not None:
                entry["settled"] = last.newest
                entry["behind"] = last.newest != newest and not last.retired
                entry["queue"], entry["undecided"] = last.queue, last.undecided
                if last.retired:
                    entry["retired"] = True
                if last.lost:
                    entry["lost"] = True
        found[node] = entry
    return found


def _queue(config: Config, node: str) -> QueueStatus:
    directory = node_dir(config, node)
    if not directory.is_dir():
        return {"length": 0, "note": f"{directory}: not on this machine, or not used yet"}
    progress = _progress(directory)
    halted: QueueStatus = {"progress": progress} if "reason" in progress else {}
    try:
        queue = Queue(directory, node)
        take, move = Take.open(directory), Move.read(queue.directory)
        # Files are between two states while a move is open; it will leave the one that it names.
        length = queue.length() if move is None else State.parse(move.state.encode()).length
        status: QueueStatus = {"length": length}
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
        status["open_take"] = {
            "run_id": header.run_id,
            "iteration": header.iteration,
            "count": take.count,
        }
        status["progress"] = progress
    return {**status, **halted}


def _progress(directory: Path) -> ToldProgress:
    """Return a node's last progress, or nothing."""
    try:
        progress = json.loads(NodeDirectory(directory).progress.read_bytes())
    except (OSError, ValueError):
        return {}
    return cast(ToldProgress, progress) if isinstance(progress, dict) else {}


def _etas(progress: ToldProgress, taken: int, length: int) -> ToldProgress:
    """Return the seconds until a take and a queue are fetched.

    At the present rate; none where nothing is fetched.
    """
    rate, fetched = progress.get("pages_per_s") or 0.0, progress.get("fetched") or 0
    if rate <= 0 or progress.get("phase") in _AT_REST:
        return {}
    return {
        "eta_s": round(max(0, taken - fetched) / rate),
        "queue_eta_s": round(max(0, length - fetched) / rate),
    }


def _first_hosts(queue: Queue, back_offs: Mapping[str, float]) -> dict[str, QueuedHost]:
    """Return the hosts of most next URLs in a queue.

    How many, and until when they are left alone.
    """
    with os_errors(queue.directory, "changes at the moment"):
        lines = (url for url, _ in queue.lines(queue.state(), HOST_LINES))
        counts = Counter(
            host_of_line(url) for url in lines if url.count(b"/") > 1
        )  # people may have written anything
    hosts: dict[str, QueuedHost] = {}
    for name, count in counts.most_common(SHOWN_HOSTS):
        host = name.decode("utf-8", "replace")
        hosts[host] = {"urls": count}
        if host in back_offs:
            hosts[host]["back_off"] = _utc(back_offs[host])
    return hosts


def _utc(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


def keys_status(config: Config, secrets: Secrets) -> list[dict[str, Any]]:
    """Count the keys of each server.

    A scan of the server. A server without an answer has an `error`.
    """
    try:
        with open_key_store(config.key_storage, secrets.key_storage_password) as keys:
            return [
                {"name": name, "server": count.server}
                | ({"total": count.total, **count.by_state} if count.up else {"error": count.error})
                for name, count in zip(config.key_storage.by_short_name, keys.counts(), strict=True)
            ]
    except KrakeError as error:
        return [{"server": ", ".join(config.key_storage.servers), "error": str(error)}]


def _export(stores: Stores, name: str) -> ExportStatus:
    sizes = ExportFolder(stores, name).sizes()
    sizes = {file: sizes[file] for file in EXPORT_FILES if file in sizes}
    pages = (sizes[URL_MAPPING] - 4) // 20 if URL_MAPPING in sizes else None
    return {
        "name": name,
        "pages": pages,
        "bytes": sizes,
        "complete": len(sizes) == len(EXPORT_FILES),
    }
