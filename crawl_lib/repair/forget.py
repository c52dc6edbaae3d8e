"""`krake forget`: make URLs new again, one by one, by host, or by the age of their newest capture.

A decision is durable before its effects: (1) the file `<crawl>/forgotten/.open-<name>` lists the keys; (2) the counts
of `urls.max_pages_per_host` are lowered on the nodes of this machine, once by the decision's name; (3) the keys are
deleted on every key server; (4) the file takes its name. Killed after (1), the next `krake forget` goes on with it.
Pages stay in their segments. They are fetched again when their URLs are injected or found.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from crawl_lib.crawl.places import list_folders, segments_of
from crawl_lib.durable import reached
from crawl_lib.errors import InputError
from crawl_lib.frontier import HostCounts, NodeLock
from crawl_lib.keys import ShardedKeyStore
from crawl_lib.keys.ring import KEY_BYTES
from crawl_lib.repair.findings import OnProgress
from crawl_lib.repair.forgotten import OPEN_PREFIX, Forget, Forgotten, Keys, key_array, key_bytes
from crawl_lib.repair.held import held_keys, keys_of, urls_on_their_way
from crawl_lib.segment import SegmentReader
from crawl_lib.states import KeyState
from crawl_lib.stores import Stores
from crawl_lib.urls import Owners, host_of, key_of

ASKED = 50_000


@dataclass
class ForgetReport:
    """What was forgotten, or would be.

    `asked`: keys that were meant: of the URLs given, and of pages of the hosts and age given. `forgotten`: those that
    the key servers knew. `lowered`: by node, how many URLs its counts of `urls.max_pages_per_host` went down by;
    `not_lowered`: the same of nodes whose counts are not on this machine ("" where nobody knows the node).
    `waiting`: URLs that were meant and known, and not forgotten, since they wait to be fetched: without their keys they
    would be fetched twice. `finished`: decisions of killed commands that were carried out first.
    """

    dry_run: bool
    asked: int = 0
    forgotten: int = 0
    lowered: dict[str, int] = field(default_factory=dict)
    not_lowered: dict[str, int] = field(default_factory=dict)
    waiting: int = 0
    finished: int = 0

    def to_mapping(self) -> dict[str, Any]:
        """The report as plain values."""
        return asdict(self)


def forget(
    stores: Stores,
    store: ShardedKeyStore,
    *,
    urls: Sequence[str] = (),
    hosts: Collection[str] = (),
    older_than_s: float | None = None,
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
    clock: Callable[[], float] = time.time,
) -> ForgetReport:
    """Forget these canonical URLs, and the pages that are of one of these hosts and whose newest capture is older.

    `hosts`: none: of any host, if an age is given. `older_than_s`: seconds. Raises InputError for a host without pages,
    KeyServerDownError or KeyTablesError naming a server that is down or has no tables, before anything is decided;
    LockedError; DamagedFileError naming what cannot be read.
    """
    report = ForgetReport(dry_run)
    now_us = round(clock() * 1_000_000)
    if not dry_run:
        report.finished = finish_open(stores, store)
    keys = bytearray(b"".join(key_of(url) for url in urls))
    lower = _by_owner(stores, urls)
    if hosts or older_than_s is not None:
        cutoff_us = None if older_than_s is None else now_us - round(older_than_s * 1_000_000)
        chosen = _Choice(stores, hosts, cutoff_us, on_progress).run()
        now_us = max(now_us, chosen.newest_us)
        keys += chosen.keys.tobytes()
        lower |= chosen.lower
    _Decision(stores, store, report, frozenset(map(key_of, urls))).make(key_array(keys), lower, now_us)
    return report


def _by_owner(stores: Stores, urls: Sequence[str]) -> dict[bytes, tuple[str, str]]:
    """Key -> (node, host): who has counted a URL. With local routing nobody knows."""
    owners = Owners(stores.config.servers)
    local = stores.config.frontier.routing == "local"
    return {key_of(url): ("" if local else owners.owner(host_of(url)), host_of(url)) for url in urls}


@dataclass
class _Decision:
    """Which of the keys that were meant are forgotten: those of `named` URLs, and crawled ones; not what waits."""

    stores: Stores
    store: ShardedKeyStore
    report: ForgetReport
    named: frozenset[bytes]

    def make(self, keys: Keys, nodes: Mapping[bytes, tuple[str, str]], now_us: int) -> None:
        self.report.asked = len(keys)
        known = bytearray()
        lower: dict[str, Counter[str]] = {}
        waiting = self._waiting(keys) if len(keys) else set()
        for batch in _batches(keys):
            for key, state in self.store.states(batch).items():
                if state is None or (state is KeyState.QUEUED and key not in self.named):
                    continue
                if key in waiting:
                    self.report.waiting += 1
                    continue
                known += key
                node, host = nodes[key]
                lower.setdefault(node, Counter())[host] += 1
        self.report.forgotten = len(known) // 20
        self._say_counts(lower)
        if known and not self.report.dry_run:
            self._write(Forget(f"{now_us}-{uuid.uuid4().hex[:8]}", now_us, key_array(known), lower, is_open=True))

    def _waiting(self, keys: Keys) -> set[bytes]:
        """Those that wait on this machine, or are on their way here, in whatever state: without its key, a URL that
        waits would be queued again when it is found. One that was crawled waits too if it was imported meanwhile, or
        put into a queue by hand."""
        found: set[bytes] = set()
        for node in self.stores.config.servers:
            for some in held_keys(self.stores, node):
                found.update(_among(some, keys))
            for urls in urls_on_their_way(self.stores, node):
                found.update(_among(keys_of(urls), keys))
        return found

    def _say_counts(self, lower: Mapping[str, Counter[str]]) -> None:
        for node, hosts in lower.items():
            here = bool(node) and self.stores.node_dir(node).is_dir()
            (self.report.lowered if here else self.report.not_lowered)[node] = sum(hosts.values())

    def _write(self, decision: Forget) -> None:
        for server in self.store.servers:
            server.known([key_bytes(decision.keys[0])])  # raises: nothing is decided that cannot be done
        folder = Forgotten(self.stores.storage, self.stores.crawl_dir).folder
        self.stores.storage.write_bytes(f"{folder}/{OPEN_PREFIX}{decision.name}", decision.to_bytes())
        reached("repair.forget.decided")
        _carry_out(self.stores, self.store, folder, decision)


def _carry_out(stores: Stores, store: ShardedKeyStore, folder: str, decision: Forget) -> None:
    for node, hosts in decision.lower.items():
        directory = stores.node_dir(node)
        if node and directory.is_dir():
            with NodeLock(directory, node, stores.config.queue.lock_timeout_s, what="krake forget"):
                HostCounts(directory).lower(decision.name, {host.encode(): count for host, count in hosts.items()})
            reached("repair.forget.lowered")
    for batch in _batches(decision.keys):
        store.forget(batch)
    reached("repair.forget.deleted")
    stores.storage.rename(f"{folder}/{OPEN_PREFIX}{decision.name}", f"{folder}/{decision.name}")
    reached("repair.forget.done")


def finish_open(stores: Stores, store: ShardedKeyStore) -> int:
    """Carry out what killed commands decided; returns how many decisions."""
    forgotten = Forgotten(stores.storage, stores.crawl_dir)
    unfinished = [decision for decision in forgotten.decisions if decision.is_open]
    for decision in unfinished:
        _carry_out(stores, store, forgotten.folder, decision)
    return len(unfinished)


def _among(some: Sequence[bytes], keys: Keys) -> Iterator[bytes]:
    """Those keys that are among `keys`."""
    there: list[bool] = np.isin(np.array(some, f"S{KEY_BYTES}"), keys).tolist()
    return compress(some, there)


def _batches(keys: Keys) -> Iterator[list[bytes]]:
    for start in range(0, len(keys), ASKED):
        yield [key_bytes(key) for key in keys[start : start + ASKED]]


@dataclass
class _Chosen:
    keys: Keys
    lower: dict[bytes, tuple[str, str]]
    newest_us: int


class _Choice:
    """Which pages are of some hosts, and have no capture that is younger than `cutoff_us`."""

    def __init__(
        self, stores: Stores, hosts: Collection[str], cutoff_us: int | None, on_progress: OnProgress | None
    ) -> None:
        self.stores, self.hosts, self.cutoff_us, self._on_progress = stores, hosts, cutoff_us, on_progress
        self.nodes: dict[bytes, tuple[str, str]] = {}
        self.fresh = bytearray()
        self.newest_us = 0
        self.seen: set[str] = set()

    def run(self) -> _Chosen:
        stores, pages = self.stores, 0
        for folder in list_folders(stores.storage, stores.crawl_dir):
            for node in segments_of(stores.storage, stores.crawl_dir, folder):
                path = f"{stores.crawl_dir}/{folder}/{node}"
                for batch in SegmentReader(stores.storage, path).pages(["key", "time", "host"], with_dropped=True):
                    pages += batch.num_rows
                    self._batch(batch, node)
                    if self._on_progress:
                        self._on_progress({"checking": path, "done": pages, "unit": "pages"})
        unknown = sorted(set(self.hosts) - self.seen)
        if unknown:
            raise InputError(f"{unknown[0]}: not a URL, and no page of a host of that name was crawled")
        keys = key_array(b"".join(self.nodes))
        chosen = keys[~np.isin(keys, key_array(self.fresh))] if self.fresh else keys
        return _Chosen(chosen, self.nodes, self.newest_us)

    def _batch(self, batch: pa.RecordBatch, node: str) -> None:
        if self.hosts:
            batch = batch.filter(pc.is_in(batch.column("host"), value_set=pa.array(sorted(self.hosts), pa.string())))
        if not batch.num_rows:
            return
        times: npt.NDArray[np.int64] = batch.column("time").cast(pa.int64()).to_numpy(zero_copy_only=False)
        rows: list[list[Any]] = [batch.column("key").to_pylist(), batch.column("host").to_pylist()]
        for key, host, time_us in zip(*rows, times.tolist(), strict=True):
            self.seen.add(host)
            if self.cutoff_us is not None and time_us >= self.cutoff_us:
                self.fresh += key
            else:
                self.nodes[key] = (node, host)
                self.newest_us = max(self.newest_us, time_us)
