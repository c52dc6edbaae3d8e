"""`krake forget`: make URLs new again, one by one, by host, or by the age of their newest capture.

A decision is durable before its effects: (1) the file `<crawl>/forgotten/.open-<name>` lists the keys; (2) the counts
of `urls.max_pages_per_host` are lowered on the nodes of this machine, once by the decision's name, and the counts of
`traps` begin at 0 for these hosts; (3) the keys are deleted on every key server; (4) the file takes its name. After a
kill behind (1), the next `krake forget` goes on, except for keys that are known again since then.
Pages stay in their segments. They are fetched again when their URLs are injected or found.
"""

import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, compress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crawl_lib.crawldir import Forget, Forgotten
from crawl_lib.durable import reached
from crawl_lib.errors import ConfigError, InputError, StorageError
from crawl_lib.fetch import HostStore, host_store_file
from crawl_lib.frontier import NodeLock
from crawl_lib.keyarrays import Keys, is_among, key_array, key_bytes
from crawl_lib.keys import KEY_BYTES, ShardedKeyStore
from crawl_lib.repair import held_keys, keys_of, urls_on_their_way
from crawl_lib.segment import SegmentReader
from crawl_lib.states import KeyState
from crawl_lib.stores import Stores
from crawl_lib.urls import Owners, host_of, key_of

ASKED = 50_000
_LATEST = 2**63 - 1
_COLUMNS: dict[str, Any] = {
    "key": pa.binary(KEY_BYTES),
    "time": pa.int64(),
    "place": pa.int32(),
    "named": pa.bool_(),
}
NO_NODE = "."
"""The name in place of a node: no node counts imported pages, or pages fetched in real time."""
_ROWS = pa.schema(_COLUMNS)
Places = dict[tuple[str, str], int]
"""A number for each node and host whose counts have a URL."""


@dataclass
class ForgetReport:
    """The forgotten keys, or the keys to forget.

    `asked`: keys of the given URLs, and of pages with the given hosts and age. `forgotten`: the part that the key
    servers knew. `lowered`: by node, by how many URLs its counts of `urls.max_pages_per_host` went down; `not_lowered`:
    the same for nodes with counts on other machines ("" for an unknown node). `waiting`: known URLs that were not
    forgotten, since they wait for a fetch or another try: without their keys they would be fetched twice. `finished`:
    decisions of killed commands, carried out first. `rows`: deleted rows of the real-time service's table.
    """

    dry_run: bool
    asked: int = 0
    forgotten: int = 0
    lowered: dict[str, int] = field(default_factory=dict)
    not_lowered: dict[str, int] = field(default_factory=dict)
    waiting: int = 0
    finished: int = 0
    rows: int = 0


@dataclass(frozen=True)
class ForgottenPages:
    """Which pages: canonical URLs, and pages of these hosts whose newest capture is older.

    `hosts`: empty: any host, if an age is given. `older_than_s`: seconds.
    """

    urls: Sequence[str] = ()
    hosts: Collection[str] = ()
    older_than_s: float | None = None


def forget(
    stores: Stores,
    store: ShardedKeyStore,
    pages: ForgottenPages,
    *,
    dry_run: bool = False,
    clock: Callable[[], float] = time.time,
) -> ForgetReport:
    """Make pages new again.

    Raises ConfigError for a crawl with a CrawlDb, which has no keys to forget; InputError for a host without pages,
    KeyServerDownError or KeyTablesError naming a server that is down or has no tables, before any decision;
    LockedError; DamagedFileError naming an unreadable file.
    """
    if not stores.config.order.keeps_keys:
        raise ConfigError(
            "frontier.order: with crawldb no key says what was crawled, so there is nothing to forget: set"
            " crawldb.seeds: overwrite and inject the URLs, and each begins again as a seed"
        )
    report, now_us = ForgetReport(dry_run), round(clock() * 1_000_000)
    if not dry_run:
        report.finished = finish_open(stores, store)
    cutoff_us = (
        _LATEST if pages.older_than_s is None else now_us - round(pages.older_than_s * 1_000_000)
    )
    places: Places = {}
    captures = _captures(stores, pages.hosts, places) if pages.hosts or cutoff_us < _LATEST else []
    meant = which_are_meant([_named(stores, pages.urls, places), *captures], cutoff_us)
    report.asked = len(meant)
    known, lower = _which_are_known(stores, store, report, meant, list(places))
    report.forgotten = len(known) // KEY_BYTES
    for node, hosts in lower.items():
        here = bool(node) and stores.node_dir(node).is_dir()
        (report.lowered if here else report.not_lowered)[node] = sum(hosts.values())
    if known and not dry_run:
        # A clock that was ahead may have made captures later than now.
        time_us = max(now_us, pc.max(meant["time_max"]).as_py())
        decision = Forget(
            f"{time_us}-{uuid.uuid4().hex[:8]}", time_us, key_array(known), lower, is_open=True
        )
        for server in store.servers:
            server.known(
                [key_bytes(decision.keys[0])]
            )  # raises an error before an impossible decision
        folder = Forgotten(stores.crawl).folder
        stores.storage.write_bytes(f"{folder}/{decision.open_name}", decision.to_bytes())
        reached("curate.forget.decided")
        _carry_out(stores, store, folder, decision)
    return report


def _named(stores: Stores, urls: Sequence[str], places: Places) -> pa.Table:
    """Return rows of URLs.

    With local routing the node that has counted a URL is unknown.
    """
    owners = Owners(stores.config.servers) if stores.config.frontier.routing != "local" else None
    counted = [(owners.owner(host_of(url)) if owners else "", host_of(url)) for url in urls]
    numbers = [places.setdefault(place, len(places)) for place in counted]
    zeros, named = [0] * len(urls), [True] * len(urls)
    return pa.table(
        {"key": list(map(key_of, urls)), "time": zeros, "place": numbers, "named": named},
        schema=_ROWS,
    )


def _captures(stores: Stores, hosts: Collection[str], places: Places) -> list[pa.Table]:
    """Return rows of all pages of some hosts.

    Without hosts, of any host. `places`: empty, and filled by this function. Raises InputError for a host without
    pages.
    """
    tables, pages = [], 0
    for segment in stores.crawl.segments():
        node = segment.node if stores.crawl.iteration(segment.folder).is_round else NO_NODE
        for batch in SegmentReader(stores.storage, segment.path).pages(
            ["key", "time", "host"], with_dropped=True
        ):
            tables.append(rows_of(batch, node, hosts, places))
            pages += batch.num_rows
            stores.report(checking=segment.path, done=pages, unit="pages")
    if unknown := sorted(set(hosts) - {host for _, host in places}):
        raise InputError(f"{unknown[0]}: not a URL, and no page of a host of that name was crawled")
    return tables


def rows_of(batch: pa.RecordBatch, node: str, hosts: Collection[str], places: Places) -> pa.Table:
    """Return captures of these hosts, 33 bytes each.

    `places`: gets the number of each node and host.
    """
    if hosts:
        batch = batch.filter(
            pc.is_in(batch.column("host"), value_set=pa.array(sorted(hosts), pa.string()))
        )
    coded: Any = pc.dictionary_encode(batch.column("host"))
    numbers = [
        places.setdefault((node, host), len(places)) for host in coded.dictionary.to_pylist()
    ]
    place = pa.array(numbers, pa.int32()).take(coded.indices)
    columns = [
        batch.column("key"),
        batch.column("time").cast(pa.int64()),
        place,
        pa.array([False] * len(batch)),
    ]
    return pa.table(columns, schema=_ROWS)


def which_are_meant(rows: Sequence[pa.Table], cutoff_us: int) -> pa.Table:
    """Return the named keys, or those without a young capture.

    Ascending, each once, with the last place.
    """
    merged = pa.concat_tables(rows).group_by("key", use_threads=False)
    found = merged.aggregate([("time", "max"), ("place", "last"), ("named", "any")])
    return found.filter((pc.field("time_max") < cutoff_us) | pc.field("named_any")).sort_by("key")


def _which_are_known(
    stores: Stores,
    store: ShardedKeyStore,
    report: ForgetReport,
    meant: pa.Table,
    places: Sequence[tuple[str, str]],
) -> tuple[bytearray, dict[str, Counter[str]]]:
    """Return keys that can be forgotten, with counts.

    The keys are named, or crawled, and do not wait. A count is for a node and a host.
    """
    known, lower = bytearray(), dict[str, Counter[str]]()
    batches: list[Any] = meant.to_batches(max_chunksize=ASKED)
    keys = [key for batch in batches for key in batch["key"].to_pylist()]
    waiting = _waiting(stores, key_array(b"".join(keys)))
    for batch in batches:
        columns = [batch[name].to_pylist() for name in ("key", "place_last", "named_any")]
        states = store.states(columns[0])
        for key, number, is_named in zip(*columns, strict=True):
            if states[key] is None:
                continue
            if key in waiting or (states[key] is KeyState.QUEUED and not is_named):
                report.waiting += 1
                continue
            known += key
            node, host = places[number]
            if node != NO_NODE:
                lower.setdefault(node, Counter())[host] += 1
    return known, lower


def _waiting(stores: Stores, keys: Keys) -> set[bytes]:
    """Return the keys that wait on this machine, in any state.

    URLs on their way to this machine count too: without its key, a waiting URL would be queued again at the next find.
    A crawled URL also waits if its page was imported meanwhile, or if people put the URL into a queue.
    """
    found: set[bytes] = set()
    for node in stores.config.servers if len(keys) else ():
        for some in chain(held_keys(stores, node), map(keys_of, urls_on_their_way(stores, node))):
            found.update(compress(some, is_among(np.array(some, keys.dtype), keys).tolist()))
    return found


def _carry_out(stores: Stores, store: ShardedKeyStore, folder: str, decision: Forget) -> None:
    for node, hosts in decision.lower.items():
        directory = stores.node_dir(node)
        if node and directory.is_dir():
            with NodeLock(
                directory, node, stores.config.queue.lock_timeout_s, what="krake forget"
            ) as home:
                home.counts.lower(
                    decision.name, {host.encode(): count for host, count in hosts.items()}
                )
                _forget_texts(directory, hosts)
            reached("curate.forget.lowered")
    for batch in _batches(decision.keys):
        store.forget(batch)
    reached("curate.forget.deleted")
    stores.storage.rename(f"{folder}/{decision.open_name}", f"{folder}/{decision.name}")
    reached("curate.forget.done")


def _forget_texts(directory: Path, hosts: Iterable[str]) -> None:
    """Reset the counts of pages with equal words.

    For the domains of these hosts. A damaged file is left alone: its repair lets all counts begin at 0.
    """
    path = host_store_file(directory)
    if path.exists():
        with suppress(StorageError), HostStore(path.parent) as known:
            known.pages.forget_texts(hosts)


def finish_open(stores: Stores, store: ShardedKeyStore) -> int:
    """Carry out the decisions of killed commands; return their number."""
    forgotten = Forgotten(stores.crawl)
    unfinished = [decision for decision in forgotten.decisions if decision.is_open]
    for decision in unfinished:
        left = decision.keys[~is_among(decision.keys, _known_again(stores, decision))]
        _carry_out(stores, store, forgotten.folder, replace(decision, keys=left))
    return len(unfinished)


def _known_again(stores: Stores, decision: Forget) -> Keys:
    """Return a decision's keys that are known again by right.

    A killed command may have deleted these keys before; since then their URLs were found, and wait, or were captured.
    """
    known = bytearray().join(_waiting(stores, decision.keys))
    for segment in stores.until_stopped(stores.crawl.segments()):
        for batch in SegmentReader(stores.storage, segment.path).pages(
            ["key", "time"], with_dropped=True
        ):
            times_us = batch.column("time").cast(pa.int64()).to_numpy()
            stores.report(checking=segment.path, done=len(known) // KEY_BYTES, unit="pages")
            keys = batch.column("key").to_pylist()
            known += b"".join(compress(keys, times_us > decision.time_us))  # type: ignore[arg-type]
    return key_array(known)


def _batches(keys: Keys) -> Iterator[list[bytes]]:
    for start in range(0, len(keys), ASKED):
        yield [key_bytes(key) for key in keys[start : start + ASKED]]
