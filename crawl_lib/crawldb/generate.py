"""`generate`: from the newest version of the CrawlDb a list for an iteration.

How data flows: `_opened` gives an engine the version's rows, the settings, what `urls.rules` refuse, and what other
lists hold (`lists`); `sql/crawldb/weighed.sql` says what speaks against a URL by itself, `budgets` what rules for traps
and budgets of hosts and domains refuse, and `by_host.sql` to `by_place.sql` which of the others the list takes: the
best of each host, domain and node, then of all. The list goes to the nodes as seeds do, by one rename. The table is not
written: the list is the lease.

A second call finds the list of the run and iteration by the manifest. Two simultaneous calls have one name to give: the
later call reads the lists again, and leaves out URLs of the other list.
"""

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from functools import cache
from itertools import chain, islice
from math import ceil
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from crawl_lib.config import ChainsConfig, GenerateConfig
from crawl_lib.crawldb.budgets import JOINT, budget_settings, refuse, spent
from crawl_lib.crawldb.lists import (
    KEYS_FILE,
    KEYS_SCHEMA,
    MadeList,
    aside_lists,
    delete_over,
    has_key,
    held_urls,
    keys_bytes,
    list_lines,
    may_be_over,
    read_lists,
    utc,
)
from crawl_lib.crawldb.table import CRAWLDB, newest_version
from crawl_lib.crawldir import FileName, Iteration
from crawl_lib.engine import Engine
from crawl_lib.errors import DamagedFileError, InputError
from crawl_lib.frontier import share_of_domain
from crawl_lib.records import RETRY_LISTS, Earlier
from crawl_lib.rounds import is_of_requisites, list_number, nothing_due, start_iteration
from crawl_lib.scoring import Scoring, note
from crawl_lib.seeds import Division, hand_over
from crawl_lib.segment import SegmentReader
from crawl_lib.stores import Stores
from crawl_lib.urls import Chain, Owners, Scope, UrlFilter, key_of
from crawl_lib.versions import Version, Versions, VersionWork, columns

LIST_ROWS = 1 << 14
OLDER_FOLDERS = 10
"""How many folders are looked at for a node's newest segment: one that was down for longer has an empty queue here."""
_WORTHS = columns("key bytes, sort_value score")
Row = dict[str, Any]


class Reason(StrEnum):
    """Why a list has a URL or not: the words of manifests, results and `explain`. A URL has the first that holds."""

    LISTED = "listed"
    """The list has the URL."""
    PAGE = "page"
    """A page, but the list is of a round of requisites."""
    NOT_NEEDED = "not_needed"
    """A requisite, and no page asks for another visit: see `sql/crawldb/needed.sql`."""
    NOT_DUE = "not_due"
    """The next visit is later."""
    FILTER = "filter"
    """`urls.rules`, `urls.max_depth`, or the filters and normalisers for the CrawlDb refuse it now."""
    LEASED = "leased"
    """Another list has it, whose lease is not over, and the table knows of no visit since."""
    SCORE = "score"
    """The score is below `generate.min_score`."""
    STATUS = "status"
    """`generate.statuses` does not name the URL's state."""
    TRAP = "trap"
    """A rule of `traps` refuses it: the URL was never listed, and all groups of the URL are full."""
    HOST_PAGES = "host_pages"
    """Never listed, and `urls.max_pages_per_host` other URLs of the host come first."""
    DOMAIN_PAGES = "domain_pages"
    """Never listed, and `urls.max_pages_per_domain` other URLs of the domain come first."""
    DOMAIN_HOSTS = "domain_hosts"
    """Never listed, and `urls.max_hosts_per_domain` other hosts of the domain come first."""
    HOST_LIMIT = "host_limit"
    """The list has `generate.max_per_host` better URLs of the host, or `generate.max_per_failing_host`."""
    DOMAIN_LIMIT = "domain_limit"
    """The same of `generate.max_per_domain`."""
    ROOM = "room"
    """The batch of the host's node is full: `batch.size` less what waits there."""
    TOP_N = "top_n"
    """`generate.top_n` better ones are there."""
    REQUISITES_TOP_N = "requisites_top_n"
    """A requisite, and `generate.requisites_top_n` others are there."""
    OUTRANKED = "outranked"
    """The row itself may be listed, but the list has not taken it: the reason is one from `TRAP` to
    `REQUISITES_TOP_N`. Only `look_up` says so, since a ranking needs the whole table; `explain` knows the reason."""
    UNKNOWN = "unknown"
    """The CrawlDb does not have the URL."""


@dataclass(frozen=True)
class Generated:
    """The list of an iteration. `list`: its name, None once the list is over; `counts`: by `Reason`.

    `ended`: nothing is due and nothing waits. Then there is no folder, and the run's rounds end.
    """

    list: str | None
    folder: str | None
    listed: int
    counts: dict[str, int]
    ended: str = ""


def generate(
    stores: Stores, run_id: str, iteration: int, *, now: datetime, batch_size: int | None = None
) -> Generated:
    """Make the list of an iteration, and its folder, or find them.

    Used-up lists are deleted.

    `now`: when, for what is due and for the lease. `batch_size`: URLs a node may take, None: as the config says.
    Raises InputError before the first version; ConfigError of a plug-in, and as `start_iteration` does;
    DamagedFileError naming a list that cannot be read, or a part of the version; StorageError, StoppedError.
    """
    Scoring.of(stores.config)
    while True:
        lists = read_lists(stores)
        if (made := next((one for one in lists if one.is_of(run_id, iteration)), None)) is not None:
            return _result(made)
        version = newest_version(stores)
        if version is None:
            raise InputError(
                f"{stores.crawl.path}: has no CrawlDb yet; run `krake inject` or `krake crawldb update`"
            )
        current = stores.crawl.find(run_id, iteration)
        if (
            current is not None and stores.crawl.folder(current.folder).index() is not None
        ):  # the list is over
            return Generated(None, current.folder, 0, {})
        due = ceil(now.timestamp())  # what was found within this second is due
        made = _Making(stores, lists, current, run_id, iteration, due, batch_size).make(version)
        if made is not None and made.is_of(run_id, iteration):
            return _result(made)


def _result(made: MadeList) -> Generated:
    said, ended = made.manifest.said, nothing_due(made.manifest)
    return Generated(made.name, said["folder"], made.manifest.accepted, said["counts"], ended)


class _Basis(NamedTuple):
    """The basis of a list.

    `settings`: of the config; `held`: see `held_urls`; `rooms`: of the nodes' batches; `only_requisites`: for a
    round of requisites.
    """

    version: Version
    settings: GenerateConfig
    held: pa.Table
    rooms: Mapping[str, int]
    now: int
    only_requisites: bool


@dataclass
class _Making:
    """One attempt to make a list. `lists`: all there are; `current`: the iteration's folder, if it has one."""

    stores: Stores
    lists: Sequence[MadeList]
    current: Iteration | None
    run_id: str
    iteration: int
    now: int
    batch_size: int | None
    listed: list[pa.RecordBatch] = field(default_factory=list)

    def make(self, version: Version) -> MadeList | None:
        """Make the list, or return the list of an earlier attempt.

        None: another process has made a list of the same version under another name.
        """
        stores, settings = self.stores, self.stores.config.generate
        waiting, name = _waiting(stores, self.lists), self._name(version)
        size = self.batch_size or stores.config.batch.size
        rooms = {node: max(0, size - count) for node, count in waiting.items()}
        held = held_urls(stores, [*self.lists, *aside_lists(stores)], self.now)
        # The name is that of the later list, so that `krake sweep` knows when a killed attempt is over.
        work = VersionWork.at(
            stores, stores.crawl.inbox.path(f".{name}-{uuid.uuid4().hex}", FileName.LISTS)
        )
        only_requisites = is_of_requisites(stores.config, self.iteration)
        with _opened(
            work, _Basis(version, settings, held, rooms, self.now, only_requisites)
        ) as engine:
            places = may_be_over(stores, self.lists)
            delete_over(
                stores,
                self.lists,
                places,
                engine.column("crawldb/unseen") if places else [],
                self.now,
            )
            engine.keep("verdicts", "crawldb/verdicts", "generate")
            refused = spent(engine)
            verdicts, rows = _read(engine)
            waits = any(waiting.values()) and not only_requisites
            ends = not (self.current or waits or Reason.LISTED in verdicts)
            dues = [verdicts[reason]["first_due"] for reason in _LATER if reason in verdicts]
            facts = {
                "run_id": self.run_id,
                "iteration": self.iteration,
                "folder": "" if ends else self._folder(),
                "now": self.now,
                "version": version.number,
                "lease_s": int(settings.lease_s),
                "settings": asdict(settings),
                "rooms": rooms,
                "counts": {reason: row["rows_of"] for reason, row in verdicts.items()},
                "over_budget": refused,
                "ends_rounds": ends,
                "next_due": min((ceil(due.timestamp()) for due in dues), default=None),
            }
            lines, more = self._lines(name, rows), {KEYS_FILE: lambda: keys_bytes(self.listed)}
            division = Division.of(stores.config)
            if {*map(list_number, stores.crawl.inbox.lists())} - {
                (-1, 0),
                *(one.number for one in self.lists),
            }:
                return None  # of a version that came meanwhile
            manifest = hand_over(
                stores.crawl, name, lines, division, facts=facts, scope=None, more=more
            )
        return MadeList(name, manifest)

    def _folder(self) -> str:
        """Return the iteration's folder, made if necessary."""
        if self.current is None:
            names: Row = {
                "run_id": self.run_id,
                "iteration": self.iteration,
                "batch_size": self.batch_size,
            }
            self.current = start_iteration(self.stores, **names, clock=lambda: self.now)
        return self.current.folder

    def _name(self, version: Version) -> str:
        """Return the next list's name of a version.

        Damaged lists count too: nodes may have taken in a list of that name.
        """
        storage, path, begin = (
            self.stores.storage,
            self.stores.crawl.at(FileName.LISTS),
            f"{version.number}-",
        )
        entries = storage.list(path) if storage.exists(path) else []
        names = [entry.name.removeprefix(FileName.DAMAGED_PREFIX) for entry in entries]
        numbers = [int(name.split("-")[1]) for name in names if name.startswith(begin)]
        return f"{begin}{max(numbers, default=0) + 1}"

    def _lines(self, name: str, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
        """Make the list's lines, and fill `listed`."""
        since = utc(self.now - self.stores.config.schedule.always_s)
        taken_out = cache(lambda segment: _taken_out(self.stores, segment))
        plugins = Scoring.of(self.stores.config).wanting("before_parsing")
        for rows in self.stores.until_stopped(batches):
            self.listed.append(rows.select(KEYS_SCHEMA.names))
            times: Any = rows["capture_time"]
            oldest = pa.scalar(since, times.type)  # of the type that the engine gives
            is_recent = pc.greater(times.fill_null(oldest), oldest)
            captures = rows.filter(is_recent).to_pylist()
            texts = [_earlier(row, taken_out(row["capture_segment"])) for row in captures]
            none: Any = pa.nulls(len(rows), pa.string())
            earlier: Any = pc.replace_with_mask(none, is_recent, pa.array(texts, pa.string()))
            if plugins:
                noted = [
                    note(plugins, "before_parsing", row["metadata"], row)
                    for row in rows.to_pylist()
                ]
                place = rows.schema.get_field_index("metadata")
                rows = rows.set_column(place, "metadata", pa.array(noted, pa.string()))  # noqa: PLW2901
            yield from list_lines(name, rows.append_column("earlier", earlier))


_LATER = (Reason.NOT_DUE, Reason.LEASED)
"""Temporary reasons."""


def _read(engine: Engine) -> tuple[dict[str, Row], Iterator[pa.RecordBatch]]:
    """Read `crawldb/list`: counts of reasons, and the list itself."""
    batches = engine.stream("crawldb/list", LIST_ROWS, "generate")
    head = next(batches, None)
    if head is None:
        return {}, batches
    verdicts = {
        row["reason"]: row for row in head.slice(0, len(Reason)).to_pylist() if not row["is_url"]
    }
    return verdicts, chain([head.slice(len(verdicts))], batches)


def _waiting(stores: Stores, lists: Sequence[MadeList]) -> dict[str, int]:
    """Count waiting URLs of each node.

    Such URLs are in the node's queue, by the newest segment, and in later lists, also of `krake retry`.
    """
    names = (name for name in stores.crawl.inbox.lists() if name.startswith(RETRY_LISTS))
    manifests = (
        (name, stores.crawl.inbox.manifest_if_there(name, FileName.LISTS)) for name in names
    )
    retries = [MadeList(name, manifest) for name, manifest in manifests if manifest is not None]
    found = dict.fromkeys(stores.config.servers, 0)
    for node in found:
        folders = islice(reversed(stores.crawl.folders()), OLDER_FOLDERS)
        segment = next(
            (one for name in folders if (one := stores.crawl.segment(name, node)).exists()), None
        )
        if segment is not None:
            found[node] = int(segment.manifest().get("queue_after") or 0)
        newest = int(segment.folder) if segment is not None else -1
        later = [one for one in lists if int(one.manifest.said["folder"] or -1) > newest]
        later += [one for one in retries if int(one.manifest.said["newest"]) >= newest]
        found[node] += sum(one.count_of(node) for one in later)
    return found


@contextmanager
def _opened(opening: AbstractContextManager[VersionWork], basis: _Basis) -> Iterator[Engine]:
    """Open an engine with the view `judged`: see `sql/crawldb`."""
    with opening as work:
        stores, engine = work.stores, work.engine
        Versions(stores, CRAWLDB).give(basis.version, engine, "crawldb")
        _give_conditions(work, basis)
        _sort_values(work, basis)
        refuse(work)
        rooms, nodes = basis.rooms, list(basis.rooms)
        if (
            len(nodes) == 1 or stores.config.frontier.routing == "local"
        ):  # which divides a list evenly
            rooms, nodes = {"": len(nodes) * min(rooms.values())}, []
        engine.values("owners", _owners(engine, nodes))
        engine.values("rooms", _rooms(rooms, basis.settings))
        if basis.settings.max_per_failing_host:
            engine.view("failing", "crawldb/failing")
        else:
            engine.values("failing", pa.table({"host": pa.array([], pa.string())}))
        looks_at_hosts = any(
            (
                basis.settings.max_per_host,
                basis.settings.max_per_failing_host,
                basis.settings.spread,
            )
        )
        engine.view("of_hosts", "crawldb/by_host" if looks_at_hosts else "crawldb/any_host")
        engine.view(
            "of_domains",
            "crawldb/by_domain" if basis.settings.max_per_domain else "crawldb/any_domain",
        )
        engine.view("of_nodes", "crawldb/by_node")
        has_limit = basis.settings.top_n or basis.settings.requisites_top_n
        engine.view("judged", "crawldb/by_place" if has_limit else "crawldb/any_place")
        yield engine


def _give_conditions(work: VersionWork, basis: _Basis) -> None:
    """Make the tables of conditions on single rows.

    The table `crawldb` must exist.
    """
    stores, engine = work.stores, work.engine
    engine.values("settings", _settings(stores, basis))
    statuses = pa.array(basis.settings.statuses or (), pa.string())
    engine.values("statuses", pa.table({"status": statuses}))
    engine.values("listed", basis.held)
    engine.values("refused", pa.table({"key": pa.array(_refused(stores, engine), pa.binary())}))


def _rooms(rooms: Mapping[str, int], settings: GenerateConfig) -> pa.Table:
    """Make the table of nodes.

    A row has the node's room, and the share of one domain while other domains are due.
    """
    ends = [
        room if settings.top_n is None else min(room, settings.top_n) for room in rooms.values()
    ]
    shares = [
        max(1, room) if settings.max_per_domain else share_of_domain(room, settings.max_per_host)
        for room in ends
    ]
    return pa.table({"node": list(rooms), "room": list(rooms.values()), "share": shares})


def _sort_values(work: VersionWork, basis: _Basis) -> None:
    """Make the table `worths` of URLs' sort values by plug-ins.

    Unless scores decide the order, the table is empty.
    """
    scoring = Scoring.of(work.stores.config, now=basis.now, version=basis.version.number)
    if basis.settings.order == "score" and scoring.wanting("sort_value"):
        scoring.apply(work, "sort_value", "crawldb", "worths", _WORTHS)
    else:
        work.engine.values("worths", _WORTHS.empty_table())


def _settings(stores: Stores, basis: _Basis) -> pa.Table:
    """Return the table `settings`, which has one row."""
    config = basis.settings
    least = (
        None
        if config.min_score is None
        else Decimal(str(config.min_score)).quantize(Decimal("1e-9"))
    )
    of_host = (config.max_per_host, config.max_per_failing_host)
    values: dict[str, tuple[Any, Any]] = {
        "now": (utc(basis.now), pa.timestamp("us", "UTC")),
        "rank_by": (config.order, pa.string()),
        "max_depth": (stores.config.urls.max_depth, pa.int32()),
        "min_score": (least, pa.decimal128(18, 9)),
        "has_statuses": (config.statuses is not None, pa.bool_()),
        **budget_settings(stores.config.urls),
        "max_per_host": (config.max_per_host, pa.int64()),
        "max_per_failing": (min(filter(None, of_host), default=None), pa.int64()),
        "max_per_domain": (config.max_per_domain, pa.int64()),
        "spread": (config.spread, pa.bool_()),
        "top_n": (config.top_n, pa.int64()),
        "requisites_top_n": (config.requisites_top_n, pa.int64()),
        "only_requisites": (basis.only_requisites, pa.bool_()),
    }
    return pa.table({name: pa.array([value], kind) for name, (value, kind) in values.items()})


def _refused(stores: Stores, engine: Engine) -> list[bytes]:
    """Return the keys of due URLs refused by rules or chains.

    The rules are those of `urls.rules`, and the chains are those for the CrawlDb.
    """
    urls, chain = stores.config.urls, Chain(stores.config.urls, Scope.CRAWLDB)
    if not urls.rules and chain.is_empty:
        return []
    judge = UrlFilter(
        replace(urls, scope="any", normalizers=ChainsConfig(), filters=ChainsConfig()), ()
    )
    rows = engine.rows("crawldb/due")
    return [
        row["key"]
        for row in rows
        if not judge.verdict(row["url"], row["host"], 0)[0] or chain.objection(row["url"])
    ]


def _owners(engine: Engine, nodes: Sequence[str]) -> pa.Table:
    """Return the owner of each host, where there are several nodes."""
    hosts = [row["host"] for row in engine.rows("crawldb/hosts")] if nodes else []
    owner = Owners(nodes).owner if nodes else str
    return pa.table(
        {"host": pa.array(hosts, pa.string()), "node": pa.array(map(owner, hosts), pa.string())}
    )


def _taken_out(stores: Stores, segment: str) -> Collection[bytes] | None:
    """Return the keys of pages taken out of a segment.

    None: the segment is gone.
    """
    folder, _, node = segment.partition("/")
    ref = stores.crawl.segment(folder, node)
    if not ref.exists():
        return None
    reader = SegmentReader(stores.storage, ref.path)
    return reader.dropped | reader.taken_out


def _earlier(row: Row, gone: Collection[bytes] | None) -> str | None:
    """Return the field `earlier` of a line.

    None: the capture is lost. `gone`: see `_taken_out`.
    """
    if gone is None or row["key"] in gone:
        return None
    return Earlier(
        row["capture_segment"],
        row["capture_file"],
        row["capture_offset"],
        row["capture_time"].timestamp(),
        (row["capture_digest"] or b"").hex(),
        row["etag"],
        row["last_modified"],
    ).to_text()


@dataclass(frozen=True)
class WhyListed:
    """The reason why a list has a URL, or not. `now`: of the list; `held_by`: the list that holds a leased URL.

    `judged_by`: the number of the version, if it is not the list's own one, which is deleted.
    """

    list: str
    now: int
    reason: Reason
    held_by: str | None = None
    judged_by: int | None = None


def explain(stores: Stores, url: str) -> WhyListed:
    """Say why the newest list has a canonical URL, or not.

    The same queries judge the whole version again, as they did when the list was made. Raises InputError before the
    first list, and as `generate` does.
    """
    asked = _ListQuestion.of(stores, url)
    with _opened(VersionWork.to_read(stores), asked.basis) as engine:
        engine.values("wanted", pa.table({"key": pa.array([asked.key], pa.binary())}))
        found = engine.column("crawldb/explain")
    return asked.answer(stores, Reason(found[0]) if found else Reason.UNKNOWN)


def look_up(stores: Stores, url: str) -> WhyListed:
    """Answer `explain` for a canonical URL, without reading the whole version.

    Arrow reads the URL's row, and DuckDB judges this one row. An allowed row is `listed` if the newest list has the
    key, else `outranked`. Returns and raises the same as `explain`; it compares the checksums of the pages that it
    reads, and no digests of the version's parts.
    """
    asked = _ListQuestion.of(stores, url, only_its_leases=True)
    rows = [*Versions(stores, CRAWLDB).rows_of(asked.basis.version, asked.key)]
    if not rows:
        return asked.answer(stores, Reason.UNKNOWN)
    config = replace(stores.config, batch=replace(stores.config.batch, engine="duckdb"))
    with VersionWork.to_read(replace(stores, config=config)) as work:
        engine = work.engine
        engine.values("crawldb", pa.Table.from_batches(rows))
        engine.values("worths", _WORTHS.empty_table())
        engine.values("joint", JOINT.empty_table())
        engine.values("wanted", pa.table({"key": pa.array([asked.key], pa.binary())}))
        _give_conditions(work, asked.basis)
        engine.view("judged", "crawldb/weighed")
        [reason] = engine.column("crawldb/explain")
    if reason is None:
        reason = Reason.LISTED if has_key(stores, asked.newest, asked.key) else Reason.OUTRANKED
    return asked.answer(stores, Reason(reason))


@dataclass(frozen=True)
class _ListQuestion:
    """A question about the newest list. `older`: the other lists; `key`: of the URL; `basis`: what the list is of."""

    newest: MadeList
    older: Sequence[MadeList]
    key: bytes
    basis: _Basis

    @classmethod
    def of(cls, stores: Stores, url: str, *, only_its_leases: bool = False) -> "_ListQuestion":
        """Find the newest list, and the version of the list.

        Raises InputError before the first list, or without a version.

        `only_its_leases`: leave out what other lists hold of other URLs.
        """
        lists = read_lists(stores)
        if not lists:
            raise InputError(f"{stores.crawl.path}: no list was made yet")
        newest, older = lists[0], [*lists[1:], *aside_lists(stores)]
        facts = newest.manifest.said
        try:
            version: Version | None = Versions(stores, CRAWLDB).read(newest.number[0])
        except DamagedFileError:
            version = newest_version(stores)
        if version is None:
            raise InputError(
                f"{stores.crawl.path}: has no CrawlDb any more; run `krake crawldb rebuild`"
            )
        statuses = facts["settings"]["statuses"]
        settings = GenerateConfig(**{**facts["settings"], "statuses": statuses and tuple(statuses)})
        key = key_of(url)
        held = held_urls(stores, older, facts["now"], key if only_its_leases else None)
        only_requisites = is_of_requisites(stores.config, facts["iteration"])
        return cls(
            newest,
            older,
            key,
            _Basis(version, settings, held, facts["rooms"], facts["now"], only_requisites),
        )

    def answer(self, stores: Stores, reason: Reason) -> WhyListed:
        """Return the answer of `explain`.

        A later version knows visits from after the list, so the keys of the list count first.
        """
        is_later = self.basis.version.number != self.newest.number[0]
        if is_later and has_key(stores, self.newest, self.key):
            reason = Reason.LISTED
        held = self.basis.held
        holders = held.filter(
            pc.equal(held.column("key"), pa.scalar(self.key, pa.binary(20)))
        ).column("list")
        is_held = reason is Reason.LEASED and len(holders)
        return WhyListed(
            self.newest.name,
            self.newest.manifest.said["now"],
            reason,
            held_by=self.older[holders[0].as_py()].name if is_held else None,
            judged_by=self.basis.version.number if is_later else None,
        )
