"""`krake forget`: make URLs new again, one by one, by host, or by the age of their newest capture.

A decision is durable before its effects: (1) the file `<crawl>/forgotten/.open-<name>` lists the keys; (2) the counts
of `urls.max_pages_per_host` are lowered on the nodes of this machine, once by the decision's name; (3) the keys are
deleted on every key server; (4) the file takes its name. Killed after (1), the next `krake forget` goes on with it.
Pages stay in their segments. They are fetched again when their URLs are injected or found.
"""

import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from crawl_lib.crawldir import IMPORT_NODE
from crawl_lib.durable import reached
from crawl_lib.errors import InputError
from crawl_lib.frontier import HostCounts, NodeLock
from crawl_lib.keys import KEY_BYTES, ShardedKeyStore
from crawl_lib.repair import (
    OPEN_PREFIX,
    Forget,
    Forgotten,
    Keys,
    held_keys,
    is_among,
    key_array,
    key_bytes,
    keys_of,
    urls_on_their_way,
)
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
    `not_lowered`: the same of nodes whose counts are not on this machine ("" where the node is unknown).
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


@dataclass(frozen=True)
class Pages:
    """Which pages: those of canonical URLs, and those of one of these hosts whose newest capture is older.

    `hosts`: none: of any host, if an age is given. `older_than_s`: seconds.
    """

    urls: Sequence[str] = ()
    hosts: Collection[str] = ()
    older_than_s: float | None = None


def forget(
    stores: Stores,
    store: ShardedKeyStore,
    pages: Pages,
    *,
    dry_run: bool = False,
    clock: Callable[[], float] = time.time,
) -> ForgetReport:
    """Make pages new again.

    Raises InputError for a host without pages,
    KeyServerDownError or KeyTablesError naming a server that is down or has no tables, before anything is decided;
    LockedError; DamagedFileError naming what cannot be read.
    """
    report = ForgetReport(dry_run)
    now_us = round(clock() * 1_000_000)
    if not dry_run:
        report.finished = finish_open(stores, store)
    named = key_array(b"".join(map(key_of, pages.urls)))
    meant = _Meant()
    _add_named(meant, stores, pages.urls)
    fresh = key_array(b"")
    if pages.hosts or pages.older_than_s is not None:
        cutoff_us = None if pages.older_than_s is None else now_us - round(pages.older_than_s * 1_000_000)
        choice = _Choice(stores, meant, pages.hosts, cutoff_us)
        choice.run()
        now_us, fresh = max(now_us, choice.newest_us), key_array(choice.fresh)
    meant.settle(without=fresh[~is_among(fresh, named)])
    _Decision(stores, store, report, named).make(meant, now_us)
    return report


class _Meant:
    """Keys that are meant, each with the node and host whose counts have it: 24 bytes a capture."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, str], int] = {}
        self._keys, self._counted = bytearray(), bytearray()
        self.keys, self.counted = key_array(b""), np.zeros(0, np.int32)

    @property
    def places(self) -> list[tuple[str, str]]:
        """Node and host; the number in `counted` is the place in this list."""
        return list(self._places)

    def add(self, keys: Keys, node: str, hosts: Sequence[str], number: npt.NDArray[np.int32]) -> None:
        """Add keys of a node. `number`: of each, which of `hosts` it is of. Later ones win."""
        places = [self._places.setdefault((node, host), len(self._places)) for host in hosts]
        self._keys += keys.tobytes()
        self._counted += np.array(places, np.int32)[number].tobytes()

    def settle(self, without: Keys) -> None:
        """Make `keys`, ascending and each once, and their `counted`, of what was added but for some."""
        keys = np.frombuffer(bytes(self._keys), f"S{KEY_BYTES}")[::-1]
        self.keys, last = np.unique(keys, return_index=True)
        kept = ~is_among(self.keys, without)
        self.counted = np.frombuffer(bytes(self._counted), np.int32)[::-1][last][kept]
        self.keys = self.keys[kept]


def _add_named(meant: _Meant, stores: Stores, urls: Sequence[str]) -> None:
    """With local routing it is unknown which node has counted a URL."""
    owners = Owners(stores.config.servers)
    local = stores.config.frontier.routing == "local"
    for url in urls:
        node = "" if local else owners.owner(host_of(url))
        meant.add(key_array(key_of(url)), node, [host_of(url)], np.zeros(1, np.int32))


@dataclass
class _Decision:
    """Which of the keys that were meant are forgotten: those of `named` URLs, and crawled ones; not what waits."""

    stores: Stores
    store: ShardedKeyStore
    report: ForgetReport
    named: Keys

    def make(self, meant: _Meant, now_us: int) -> None:
        keys, places = meant.keys, meant.places
        self.report.asked = len(keys)
        known = bytearray()
        lower: dict[str, Counter[str]] = {}
        named = set(map(key_bytes, self.named))
        waiting = self._waiting(keys) if len(keys) else set()
        counted = iter(meant.counted.tolist())
        for batch in _batches(keys):
            states = self.store.states(batch)
            for key, place in zip(batch, counted, strict=False):
                state = states[key]
                if state is None or (state is KeyState.QUEUED and key not in named):
                    continue
                if key in waiting:
                    self.report.waiting += 1
                    continue
                known += key
                node, host = places[place]
                if node != IMPORT_NODE:  # no node counts what is imported
                    lower.setdefault(node, Counter())[host] += 1
        self.report.forgotten = len(known) // KEY_BYTES
        for node, hosts in lower.items():
            here = bool(node) and self.stores.node_dir(node).is_dir()
            (self.report.lowered if here else self.report.not_lowered)[node] = sum(hosts.values())
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

    def _write(self, decision: Forget) -> None:
        for server in self.store.servers:
            server.known([key_bytes(decision.keys[0])])  # raises: nothing is decided that cannot be done
        folder = Forgotten(self.stores.storage, self.stores.crawl.path).folder
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
    forgotten = Forgotten(stores.storage, stores.crawl.path)
    unfinished = [decision for decision in forgotten.decisions if decision.is_open]
    for decision in unfinished:
        _carry_out(stores, store, forgotten.folder, decision)
    return len(unfinished)


def _among(some: Sequence[bytes], keys: Keys) -> Iterator[bytes]:
    """Those keys that are among `keys`."""
    return compress(some, is_among(np.array(some, f"S{KEY_BYTES}"), keys).tolist())


def _batches(keys: Keys) -> Iterator[list[bytes]]:
    for start in range(0, len(keys), ASKED):
        yield [key_bytes(key) for key in keys[start : start + ASKED]]


class _Choice:
    """Which pages are of some hosts, and have no capture that is younger than `cutoff_us`.

    Those are added to `meant`; `fresh`: keys that have a younger capture; `newest_us`: time of the newest older one.
    """

    def __init__(self, stores: Stores, meant: _Meant, hosts: Collection[str], cutoff_us: int | None) -> None:
        self.stores, self.meant, self.hosts, self.cutoff_us = stores, meant, hosts, cutoff_us
        self.fresh = bytearray()
        self.newest_us = 0
        self._seen: set[str] = set()

    def run(self) -> None:
        """Read all segments. Raises InputError for a host without pages."""
        stores, pages = self.stores, 0
        for segment in stores.crawl.segments():
            reader = SegmentReader(stores.storage, segment.path)
            for batch in reader.pages(["key", "time", "host"], with_dropped=True):
                pages += batch.num_rows
                self._batch(batch, segment.node)
                stores.report(checking=segment.path, done=pages, unit="pages")
        unknown = sorted(set(self.hosts) - self._seen)
        if unknown:
            raise InputError(f"{unknown[0]}: not a URL, and no page of a host of that name was crawled")

    def _batch(self, batch: pa.RecordBatch, node: str) -> None:
        if self.hosts:
            batch = batch.filter(pc.is_in(batch.column("host"), value_set=pa.array(sorted(self.hosts), pa.string())))
        if not batch.num_rows:
            return
        keys = np.array(batch.column("key").to_pylist(), f"S{KEY_BYTES}")
        times: npt.NDArray[np.int64] = batch.column("time").cast(pa.int64()).to_numpy(zero_copy_only=False)
        hosts: Any = pc.dictionary_encode(batch.column("host"))
        numbers = hosts.indices.to_numpy(zero_copy_only=False)
        self._seen.update(hosts.dictionary.to_pylist())
        is_old = np.ones(len(keys), np.bool_) if self.cutoff_us is None else times < self.cutoff_us
        self.fresh += keys[~is_old].tobytes()
        if is_old.any():
            self.meant.add(keys[is_old], node, hosts.dictionary.to_pylist(), numbers[is_old])
            self.newest_us = max(self.newest_us, int(times[is_old].max()))
