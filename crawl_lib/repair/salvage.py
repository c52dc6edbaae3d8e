"""`krake segment salvage`: a damaged segment made anew from its WARC files, which are the log.

How data flows: `glean` copies the whole groups of each WARC file, byte for byte, into the scratch directory, as a
spool with open parts, the state that a kill leaves; so the crawl's own recovery makes tables, index and outlinks from
them. URLs that were found stay found, whatever became of their pages: what can be read of the old `outlinks` comes
first, in its order, so that an intake that was half-way through it finds its place. What the manifest says of the
segment is kept where it can be read, else put together from `iteration.json`, the folder's index and the records.

A response whose metadata record is lost is kept too (its row in the old `pages` says the rest). The URLs of pages that
are lost, as far as the old tables or broken groups name them, are written to `lost.tsv` in the new segment.
`swap` puts the new segment in place; the damaged one stays beside it as `.damaged-<node>-<time>`.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from crawl_lib.crawl.page import PageHandler
from crawl_lib.crawl.places import INDEX_FILE, SCOPE_FILE, Iteration, read_iteration, read_json, read_lines
from crawl_lib.durable import reached
from crawl_lib.errors import DamagedFileError, KrakeError, PathNotFoundError, UrlError
from crawl_lib.frontier import open_take
from crawl_lib.frontier.inject import hand_over
from crawl_lib.frontier.outlinks import HANDED_ON, decode_line, encode_line
from crawl_lib.records import QueuedUrl, TakenUrl
from crawl_lib.repair.findings import Severity
from crawl_lib.repair.fsck_segment import check_segment
from crawl_lib.repair.glean import EXAMPLES, Found, Fragment, Gleaner, OnProgress, fetched_of, is_robots
from crawl_lib.repair.old_outlinks import read_old_outlinks
from crawl_lib.repair.places import SegmentName, require_folder, scratch_room
from crawl_lib.repair.swap import finish_swaps, replace_segment, set_aside
from crawl_lib.segment import (
    Manifest,
    PartWriter,
    SegmentFacts,
    SegmentReader,
    WarcInfo,
    build_segment,
    list_parts,
    part_prefix,
)
from crawl_lib.segment.dropped import dropped_files, read_dropped
from crawl_lib.segment.manifest import INDEX_NAME, MANIFEST_NAME
from crawl_lib.segment.outlinks import OutlinkRuns
from crawl_lib.segment.parts import SEQUENCE, WARC_SUFFIX
from crawl_lib.segment.records import WarcDates, microseconds
from crawl_lib.segment.recover import microseconds_of
from crawl_lib.states import Outcome
from crawl_lib.stores import Stores
from crawl_lib.urls import Owners, UrlFilter, canonicalize, host_of, key_of
from crawl_lib.version import VERSION

LOST_NAME = "lost.tsv"
"""URLs of pages that were lost, as lines of `outlinks`, handed on past the key check."""
OLD_COLUMNS = ("key", "url", "via_key", "depth", "metadata", "outcome", "attempts", "duration_ms")


@dataclass
class SalvageReport:
    """What a salvage found and did.

    `state`: `whole` (nothing to do), `salvaged`, `damaged` (dry run). `findings`: what was wrong. `pages`, `robots`:
    whole groups that were kept; `without_metadata`: pages of them whose metadata record is lost. `requests_lost`:
    requests of kept pages. `repeated`: groups that were there twice. `damage`: damaged places of the WARC files by
    reason; `places`: the first of them. `lost`: pages that are lost, `lost_named`: those of them whose URLs are known,
    `lost_urls`: the first. `outlinks_kept`: URLs of the old `outlinks`, `outlinks_whole`: whether these are all.
    `aside`: where the damaged segment is kept. `requeued`: lost URLs that will be crawled again. `deleted`: damaged
    segments of earlier salvages that were deleted. `notes`: what else the operator should know.
    """

    segment: str
    state: str = "whole"
    findings: list[str] = field(default_factory=list)
    pages: int = 0
    robots: int = 0
    without_metadata: int = 0
    requests_lost: int = 0
    repeated: int = 0
    damage: dict[str, int] = field(default_factory=dict)
    damaged_bytes: int = 0
    places: list[str] = field(default_factory=list)
    lost: int = 0
    lost_named: int = 0
    lost_urls: list[str] = field(default_factory=list)
    outlinks_kept: int = 0
    outlinks_whole: bool = True
    aside: str = ""
    requeued: int = 0
    deleted: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_mapping(self) -> dict[str, Any]:
        """The same as plain values."""
        return dict(vars(self))


def salvage_segment(
    stores: Stores,
    name: SegmentName,
    *,
    dry_run: bool = False,
    requeue: bool = False,
    delete_damaged: bool = False,
    on_progress: OnProgress | None = None,
    clock: Callable[[], float] = time.time,
) -> SalvageReport:
    """Make a damaged segment whole; of a whole one, do what is left over of an earlier salvage.

    `requeue`: hand the lost URLs that are known to their owners, past the key check, so that they are fetched again.
    `delete_damaged`: delete the damaged segment once the new one stands. `dry_run`: change nothing, write nothing.
    The caller holds the node's lock where he can. Raises PathNotFoundError (no such segment), DamagedFileError (not
    even the iteration's number is known), StorageError.
    """
    require_folder(stores, name)
    path = name.path(stores)
    if not dry_run:
        finish_swaps(stores, name.folder)
    if not stores.storage.exists(path):
        raise PathNotFoundError(f"{path}: there is no such segment; its crawl task, run again, makes it")
    report = SalvageReport(str(name))
    found = check_segment(stores.storage, path, full=True, on_progress=on_progress)
    report.findings = [finding.to_text() for finding in found if finding.severity is Severity.ERROR]
    if report.findings:
        with scratch_room(stores, f"salvage-{name.folder}-{name.node}") as room:
            salvage = _Salvage(stores, name, room, report=report, on_progress=on_progress, clock=clock)
            salvage.run(dry_run=dry_run)
    if not dry_run:
        _finish(stores, name, report, requeue=requeue, delete_damaged=delete_damaged)
    return report


def _finish(stores: Stores, name: SegmentName, report: SalvageReport, *, requeue: bool, delete_damaged: bool) -> None:
    """What comes after the new segment stands; also of an earlier salvage."""
    folder = f"{stores.crawl_dir}/{name.folder}"
    lost = read_lost(stores, name)
    report.lost_named = len(lost)
    report.lost_urls = [queued.url for queued in lost[:EXAMPLES]]
    if requeue and lost:
        requeue_urls(stores, f"salvage {name}", lost)
        report.requeued = len(lost)
    if delete_damaged:
        for aside in set_aside(stores.storage, folder, name.node):
            stores.storage.delete(f"{folder}/{aside}")
            report.deleted.append(f"{folder}/{aside}")
        report.aside = ""


def read_lost(stores: Stores, name: SegmentName) -> list[QueuedUrl]:
    """The URLs that salvages of a segment could not bring back. Raises DamagedFileError."""
    where = f"{name.path(stores)}/{LOST_NAME}"
    if not stores.storage.exists(where):
        return []
    return [decode_line(line, where)[0] for line in stores.storage.read_bytes(where).splitlines()]


def requeue_urls(stores: Stores, label: str, urls: list[QueuedUrl]) -> str:
    """Leave URLs for their owners past the key check, without making their hosts seeds; returns the folder.

    `label`: the same label and URLs again change nothing.
    """
    config = stores.config
    lines = [encode_line(queued, HANDED_ON) for queued in urls]
    digest = hashlib.sha1(b"\n".join([label.encode(), *lines])).hexdigest()
    hand_over(
        stores.storage,
        stores.crawl_dir,
        digest,
        lines,
        scope=(),
        nodes=config.servers,
        routing=config.frontier.routing,
        facts={"run_id": label, "seeds": {}},
    )
    return digest


class _Salvage:
    """One salvage under way."""

    def __init__(
        self,
        stores: Stores,
        name: SegmentName,
        room: Path,
        *,
        report: SalvageReport,
        on_progress: OnProgress | None,
        clock: Callable[[], float],
    ) -> None:
        self.stores, self.storage, self.name = stores, stores.storage, name
        self.path, self.folder = name.path(stores), f"{stores.crawl_dir}/{name.folder}"
        self.spool, self.built = room / "spool", room / "segment"
        self.report, self.on_progress, self.clock = report, on_progress, clock
        self.found = Found()
        self.rows: dict[bytes, dict[str, Any]] = {}

    def run(self, *, dry_run: bool) -> None:
        """Glean, make the tables anew, swap."""
        names = [entry.name for entry in self.storage.list(self.path) if entry.name.endswith(WARC_SUFFIX)]
        self.spool.mkdir()
        gleaner = Gleaner(self.found, self.on_progress)
        for name in names:
            self._glean(gleaner, name, dry_run=dry_run)
        lost = self._lost()
        self._note(lost)
        if dry_run:
            self.report.state = "damaged"
            self.report.without_metadata = len(self._fragments())
            return
        self.report.without_metadata = self._keep_fragments()
        self._report_sums()
        runs = self._old_outlinks()
        self._build(lost, runs)
        reached("repair.salvage.built")
        aside = replace_segment(
            self.stores,
            self.name.folder,
            self.name.node,
            self.built,
            carried=self._pending(),
            keep_old=True,
            clock=self.clock,
        )
        self.report.state, self.report.aside = "salvaged", f"{self.folder}/{aside}"

    def _glean(self, gleaner: Gleaner, name: str, *, dry_run: bool) -> None:
        """Copy the good groups of one file into the spool, and make the rows of its part."""
        stem = name.removesuffix(WARC_SUFFIX)
        if not SEQUENCE.search(stem):
            self.report.notes.append(f"{name}: is not a file of Krake, and was left out")
            return
        with self.storage.open_read(f"{self.path}/{name}") as file:
            if dry_run:
                gleaner.glean(name, file, None)
                return
            copy = self.spool / name
            with copy.open("wb") as out:
                groups = gleaner.glean(name, file, out)
        if not groups:
            copy.unlink()
            return
        prefix = SEQUENCE.sub("", stem)
        with PartWriter(self.spool, prefix, self._info(), self.stores.config.segment, clock=self.clock) as writer:
            handler = self._handler(writer)
            for taken, fetched, position in writer.recovered():
                if taken is not None:
                    handler.handle(taken, fetched, position)

    def _handler(self, writer: PartWriter, *, seeds_widen_scope: bool = True) -> PageHandler:
        nodes = self.nodes
        own = nodes.index(self.name.node) if self.name.node in nodes else 0
        is_import = self.name.node not in self.stores.config.servers
        return PageHandler(
            self.stores.config, nodes, own, self._filter, writer, seeds_widen_scope=seeds_widen_scope and not is_import
        )

    @cached_property
    def _filter(self) -> UrlFilter:
        bare = UrlFilter(self.stores.config.urls, ())
        hosts = read_lines(self.storage, f"{self.folder}/{SCOPE_FILE}")
        return bare.with_scope(bare.scope_name(host) for host in hosts)

    def _info(self) -> WarcInfo:
        said = self.found.info
        return WarcInfo(
            krake_version=VERSION,
            config_digest=said.get("krake-config-digest") or self.stores.config_digest,
            user_agent=said.get("http-header-user-agent", ""),
            robots_policy=said.get("robots") or self.stores.config.fetch.robots,
            part_of=str(self.name),
        )

    # What is known of the segment beside its records

    @cached_property
    def manifest(self) -> Manifest | None:
        """The old manifest, if it can be used."""
        where = f"{self.path}/{MANIFEST_NAME}"
        try:
            manifest = Manifest.from_bytes(self.storage.read_bytes(where), where)
            usable = isinstance(manifest.counts["taken"], int) and isinstance(manifest.counts["deferred"], int)
        except (DamagedFileError, PathNotFoundError, KeyError, TypeError):
            return None
        return manifest if usable and (manifest.folder, manifest.node) == tuple(self.name) else None

    @cached_property
    def iteration(self) -> Iteration | None:
        """The folder's `iteration.json`, if it can be read."""
        with suppress(DamagedFileError, PathNotFoundError):
            return read_iteration(self.storage, self.stores.crawl_dir, self.name.folder)
        return None

    @cached_property
    def index(self) -> dict[str, Any]:
        """The folder's index, if it can be read."""
        with suppress(DamagedFileError, PathNotFoundError):
            return read_json(self.storage, f"{self.folder}/{INDEX_FILE}")
        return {}

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that own what was found."""
        if self.iteration is not None and self.name.node in self.stores.config.servers:
            return self.iteration.nodes
        return self.stores.config.servers

    @cached_property
    def counts(self) -> dict[str, int]:
        """`taken`, `deferred` and `dropped`, from the manifest, else from the index and the other nodes' manifests."""
        names = ("taken", "deferred", "dropped")
        if self.manifest is not None:
            return {name: self.manifest.counts.get(name, 0) for name in names}
        try:
            sums = Counter({name: self.index["counts"].get(name, 0) for name in names})
            for node in self.index["outlinks"]:
                if node != self.name.node:
                    counts = read_json(self.storage, f"{self.folder}/{node}/{MANIFEST_NAME}")["counts"]
                    sums.subtract({name: counts.get(name, 0) for name in names})
        except (KrakeError, KeyError, TypeError, AttributeError):
            return {}
        return dict(sums) if self.name.node in self.index["outlinks"] and min(sums.values()) >= 0 else {}

    # Lost pages

    def _lost(self) -> dict[bytes, QueuedUrl]:
        """URLs of pages whose groups are not whole, by key. Reads the old rows of those that may still be kept."""
        found, lost = self.found, dict(self.found.unfetched)
        wanted = {key_of(fragment.url) for fragment in found.fragments}
        for queued, row in self._old_rows():
            key = row["key"]
            if key in wanted:
                self.rows[key] = row
            if key not in found.keys:
                lost[key] = queued
        with suppress(DamagedFileError):
            lost |= {key_of(queued.url): queued for queued in read_lost(self.stores, self.name)}
        for key in found.keys | self._dropped():
            lost.pop(key, None)
        return lost

    def _old_rows(self) -> Iterator[tuple[QueuedUrl, dict[str, Any]]]:
        """Rows of the old `pages`, as far as it can be read; without it, URLs of the old index."""
        reader = SegmentReader(self.storage, self.path)
        rows = 0
        try:
            for batch in reader.pages(OLD_COLUMNS, with_dropped=True):
                for row in batch.to_pylist():
                    rows += 1
                    yield QueuedUrl(row["url"], row["via_key"], row["depth"], 0, row["metadata"] or ""), row
        except (KrakeError, OSError, ValueError, KeyError):
            self.report.notes.append(f"pages.parquet cannot be read after row {rows}")
        if not rows:
            yield from self._old_index()

    def _old_index(self) -> Iterator[tuple[QueuedUrl, dict[str, Any]]]:
        with suppress(KrakeError), self.storage.open_read(f"{self.path}/{INDEX_NAME}") as file:
            for line in file:
                with suppress(ValueError, KeyError, IndexError, TypeError, UrlError):
                    url = canonicalize(json.loads(line.split(b" ", 2)[2])["url"])
                    if not is_robots(url):
                        yield QueuedUrl(url), {"key": key_of(url)}

    def _dropped(self) -> set[bytes]:
        with suppress(DamagedFileError):
            return read_dropped(self.storage, self.path)
        return set()

    def _pending(self) -> list[str]:
        """Files of dropped pages that still stand in the segment's files."""
        listed = {entry["name"] for entry in self.manifest.files} if self.manifest else set()
        return [name for name in dropped_files(self.storage, self.path) if name not in listed]

    def _fragments(self) -> dict[bytes, Fragment]:
        """Responses without a metadata record that are to be kept as pages, by key."""
        return {
            key: fragment
            for fragment in self.found.fragments
            if (key := key_of(fragment.url)) not in self.found.keys
            and (key in self.rows or not is_robots(fragment.url))
        }

    def _keep_fragments(self) -> int:
        """Write these responses, and what their old rows say, into a part of their own; returns how many."""
        fragments, kept = self._fragments(), 0
        if not fragments:
            return 0
        reader = SegmentReader(self.storage, self.path)
        prefix = f"{part_prefix(self.name.folder, self.name.node, 0)}-salvaged-{int(self.clock())}"
        with PartWriter(self.spool, prefix, self._info(), self.stores.config.segment, clock=self.clock) as writer:
            handler = self._handler(writer, seeds_widen_scope=False)
            places = self._free_positions()
            for key, fragment in fragments.items():
                try:
                    record = reader.read_record(fragment.warc_file, fragment.offset, fragment.length)
                    fetched = fetched_of(record, canonicalize(fragment.url))
                except (KrakeError, KeyError, ValueError):
                    continue
                row = self.rows.get(key, {})
                if "outcome" in row:
                    fetched.outcome = Outcome(row["outcome"])
                    fetched.attempts, fetched.duration_ms = row["attempts"], row["duration_ms"]
                queued = QueuedUrl(fetched.url, row.get("via_key"), row.get("depth", 0), 0, row.get("metadata") or "")
                taken = TakenUrl(next(places), key, queued)
                handler.handle(taken, fetched, writer.append(taken, fetched))
                self.found.keys.add(key)
                self.found.positions.add(taken.position)
                kept += 1
        return kept

    def _free_positions(self) -> Iterator[int]:
        """Batch positions that no kept group has, in ascending order."""
        position, used = 0, set(self.found.positions)
        while True:
            if position not in used:
                yield position
            position += 1

    # Putting it together

    def _note(self, lost: Mapping[bytes, QueuedUrl]) -> None:
        """What the report says of the reading."""
        found, report = self.found, self.report
        report.pages, report.robots = found.pages, found.robots
        report.requests_lost, report.repeated = found.requests_lost, found.repeated
        report.damage, report.damaged_bytes = dict(found.damage), found.damaged_bytes
        report.places = list(found.places)
        gone = [queued.url for key, queued in lost.items() if key not in self._fragments()]
        report.lost_named, report.lost_urls = len(gone), gone[:EXAMPLES]
        pages = found.pages + len(self._fragments())
        report.lost = self._lost_count(pages, len(gone))

    def _lost_count(self, pages: int, named: int) -> int:
        counts = self.counts
        return max(0, counts["taken"] - counts["deferred"] - counts["dropped"] - pages) if counts else named

    def _report_sums(self) -> None:
        self.report.pages = len(self.found.keys)

    def _facts(self, lost: int) -> SegmentFacts:
        """What the new manifest says. Raises DamagedFileError where not even the iteration is known."""
        old, iteration, info = self.manifest, self.iteration, self._info()
        if old is None and iteration is None:
            raise DamagedFileError(
                f"{self.folder}/iteration.json and {self.path}/{MANIFEST_NAME}: neither can be read; bring one back"
            )
        pages, dropped = len(self.found.keys), self.counts.get("dropped", 0)
        least = max(self.found.positions, default=-1) + 1
        taken = max(self.counts.get("taken", 0), least, pages + lost + dropped)
        return SegmentFacts(
            take_id=old.take_id if old else self._take_id(),
            run_id=old.run_id if old else iteration.run_id if iteration else "",
            iteration=old.iteration if old else iteration.iteration if iteration else 0,
            folder=self.name.folder,
            node=self.name.node,
            nodes=self.nodes,
            krake_version=old.krake_version if old else VERSION,
            config_digest=info.config_digest if old is None else old.config_digest,
            user_agent=info.user_agent if old is None else old.user_agent,
            robots_policy=info.robots_policy if old is None else old.robots_policy,
            started_s=self._time(old.started if old else None, self.found.first_us),
            taken=taken,
            deferred=taken - pages - lost - dropped,
            lost=lost,
            dropped=dropped,
            intake=old.intake if old else {},
            scope_added=tuple(old.scope_added) if old else (),
            history=(*(old.history if old else ()), self._history(lost)),
        )

    def _take_id(self) -> str:
        """The id of the take, if it is still open on this machine: its task has to find its own segment."""
        with suppress(KrakeError):
            take = open_take(self.stores.node_dir(self.name.node))
            if take is not None and take.header.folder == self.name.folder:
                return take.take_id
        return f"salvaged-{self.name.folder}-{self.name.node}"

    def _time(self, text: str | None, fallback_us: int | None) -> float:
        with suppress(ValueError, TypeError):
            if text:
                return microseconds_of(text) / 1_000_000
        return (fallback_us or 0) / 1_000_000

    def _history(self, lost: int) -> dict[str, Any]:
        return {
            "what": "salvage",
            "time": WarcDates().text(microseconds(self.clock())),
            "krake_version": VERSION,
            "damage": dict(self.found.damage),
            "lost": lost,
        }

    def _old_outlinks(self) -> list[Path]:
        """Runs of what can be read of the old `outlinks`; if that is all of it, the parts' own are not needed."""
        parts = self.manifest.outlinks if self.manifest else self.index.get("outlinks", {}).get(self.name.node)
        runs = OutlinkRuns(self.spool / "old-outlinks")
        owners = Owners(self.nodes)
        local = self.stores.config.frontier.routing == "local" and self.name.node in self.nodes
        index_of = (lambda host: self.nodes.index(self.name.node)) if local else owners.index
        old = read_old_outlinks(self.storage, self.path, parts)
        for number, (owner, line) in enumerate(old.lines()):
            queued, flags = decode_line(line)
            at = self.nodes.index(owner) if owner in self.nodes else index_of(host_of(queued.url))
            runs.add(at, 0, number, (queued.url, queued.via, queued.depth, queued.redirects, queued.metadata), flags)
            self.report.outlinks_kept += 1
        runs.flush()
        self.report.outlinks_whole = old.is_whole
        if old.is_whole:
            for part in list_parts(self.spool):
                for path in part.runs("outlinks"):
                    path.unlink()
        else:
            self.report.notes.append(
                "outlinks: what could not be read was made anew from the pages that are whole; URLs that were handed on"
                " from a queue made by hand, and those of lost pages, may be missing"
            )
        return runs.paths

    def _build(self, lost: Mapping[bytes, QueuedUrl], runs: list[Path]) -> None:
        more = []
        named = [queued for key, queued in lost.items() if key not in self.found.keys]
        if named:
            more.append(self.spool / LOST_NAME)
            data = b"".join(encode_line(queued, HANDED_ON) + b"\n" for queued in sorted(named, key=lambda q: q.url))
            more[-1].write_bytes(data)
        for name in sorted({*dropped_files(self.storage, self.path)} - {*self._pending()}):
            more.append(self.spool / name)
            self.storage.download(f"{self.path}/{name}", more[-1])
        self.report.lost = self._lost_count(len(self.found.keys), len(named))
        finished = self._time(self.manifest.finished if self.manifest else None, self.found.last_us)
        facts = self._facts(self.report.lost)
        build_segment(self.spool, self.built, facts, outlink_runs=runs, more_files=more, clock=lambda: finished)
