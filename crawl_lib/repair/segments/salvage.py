"""`krake fsck --repair`: a damaged segment made anew from its WARC files, which are the log.

How data flows: `glean` copies the whole groups of each WARC file, byte for byte, into the scratch directory, as a
spool with open parts, the state that a kill leaves; so the crawl's own recovery makes tables, index and outlinks from
them. URLs that were found stay found, whatever became of their pages: what can be read of the old `outlinks` comes
first, in its order, so that an intake that was half-way through it finds its place. What the manifest says of the
segment is kept where it can be read, else put together from `iteration.json`, the folder's index and the records.

A response whose metadata record is lost is kept too (its row in the old `pages` says the rest). The URLs of pages that
are lost, as far as the old tables or broken groups name them, are written to `lost.tsv` in the new segment.
`swap` puts the new segment in place; the damaged one stays beside it as `.damaged-<node>-<time>`.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from crawl_lib.crawldir import SegmentRef
from crawl_lib.durable import reached
from crawl_lib.errors import DamagedFileError, KrakeError, PathNotFoundError
from crawl_lib.findings import Severity
from crawl_lib.frontier import HANDED_ON, decode_line, encode_line
from crawl_lib.records import QueuedUrl, TakenUrl
from crawl_lib.repair.places import require_folder, scratch_room
from crawl_lib.repair.segments.glean import EXAMPLES, Found, Fragment, Gleaner, fetched_of, is_robots
from crawl_lib.repair.segments.known import Known
from crawl_lib.repair.segments.lost import LOST_NAME, old_rows, read_lost
from crawl_lib.repair.segments.old_outlinks import read_old_outlinks
from crawl_lib.repair.segments.report import SalvageReport
from crawl_lib.repair.segments.swap import finish_swaps, replace_segment
from crawl_lib.segment import (
    SEQUENCE,
    WARC_SUFFIX,
    OutlinkRuns,
    PartWriter,
    SegmentReader,
    build_segment,
    check_segment,
    dropped_files,
    list_parts,
    part_prefix,
)
from crawl_lib.states import Outcome
from crawl_lib.stores import Stores
from crawl_lib.urls import Owners, canonicalize, host_of, key_of
from crawl_lib.worker import PageHandler


def salvage_segment(
    stores: Stores,
    name: SegmentRef,
    *,
    dry_run: bool = False,
    clock: Callable[[], float] = time.time,
) -> SalvageReport:
    """Make a damaged segment whole.

    `dry_run`: change nothing, write nothing.
    The caller holds the node's lock where he can. Raises PathNotFoundError (no such segment), DamagedFileError (not
    even the iteration's number is known), StorageError.
    """
    require_folder(name)
    path = name.path
    if not dry_run:
        finish_swaps(stores, name.folder)
    if not stores.storage.exists(path):
        raise PathNotFoundError(f"{path}: there is no such segment; its crawl task, run again, makes it")
    report = SalvageReport(str(name))
    found = check_segment(stores.storage, path, full=True, work=stores)
    report.findings = [finding.to_text() for finding in found if finding.severity is Severity.ERROR]
    if report.findings:
        place = f"salvage-{name.folder}-{name.node}"
        never_made = Path(stores.config.scratch.directory) / place
        with nullcontext(never_made) if dry_run else scratch_room(stores, place) as room:
            salvage = _Salvage(stores, name, room, report=report, clock=clock)
            salvage.run(dry_run=dry_run)
    return report


class _Salvage:
    """One salvage under way."""

    def __init__(
        self,
        stores: Stores,
        name: SegmentRef,
        room: Path,
        *,
        report: SalvageReport,
        clock: Callable[[], float],
    ) -> None:
        self.stores, self.storage, self.name = stores, stores.storage, name
        self.path, self.folder = name.path, stores.crawl.at(name.folder)
        self.known = Known(stores, name)
        self.spool, self.built = room / "spool", room / "segment"
        self.report, self.clock = report, clock
        self.found = Found()
        self.rows: dict[bytes, dict[str, Any]] = {}

    def run(self, *, dry_run: bool) -> None:
        """Glean, make the tables anew, swap."""
        names = [entry.name for entry in self.storage.list(self.path) if entry.name.endswith(WARC_SUFFIX)]
        if not dry_run:
            self.spool.mkdir()
        gleaner = Gleaner(self.found, self.stores)
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
            self.name,
            self.built,
            carried=self.known.pending(),
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
        with self._writer(prefix) as writer:
            handler = self._handler(writer)
            for taken, fetched, position in writer.recovered():
                if taken is not None:
                    handler.handle(taken, fetched, position)

    def _writer(self, prefix: str) -> PartWriter:
        info = self.known.info(self.found.info)
        return PartWriter(self.spool, prefix, info, self.stores.config.segment, clock=self.clock)

    def _handler(self, writer: PartWriter, *, seeds_widen_scope: bool = True) -> PageHandler:
        nodes = self.known.nodes
        own = nodes.index(self.name.node) if self.name.node in nodes else 0
        is_import = self.name.node not in self.stores.config.servers
        return PageHandler(
            self.stores.config,
            nodes,
            own,
            self.known.url_filter,
            writer,
            seeds_widen_scope=seeds_widen_scope and not is_import,
        )

    # Lost pages

    def _lost(self) -> dict[bytes, QueuedUrl]:
        """URLs of pages whose groups are not whole, by key. Reads the old rows of those that may still be kept."""
        found, lost = self.found, dict(self.found.unfetched)
        wanted = {key_of(fragment.url) for fragment in found.fragments}
        for queued, row in old_rows(self.storage, self.path, self.report.notes):
            key = row["key"]
            if key in wanted:
                self.rows[key] = row
            if key not in found.keys:
                lost[key] = queued
        with suppress(DamagedFileError):
            lost |= {key_of(queued.url): queued for queued in read_lost(self.stores, self.name)}
        for key in found.keys | self.known.dropped():
            lost.pop(key, None)
        return lost

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
        with self._writer(prefix) as writer:
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
        gone = sorted(queued.url for key, queued in lost.items() if key not in self._fragments())
        report.lost_named, report.lost_urls = len(gone), gone[:EXAMPLES]
        pages = found.pages + len(self._fragments())
        report.lost = self._lost_count(pages, len(gone))

    def _lost_count(self, pages: int, named: int) -> int:
        counts = self.known.counts
        return max(0, counts["taken"] - counts["deferred"] - counts["dropped"] - pages) if counts else named

    def _report_sums(self) -> None:
        self.report.pages = len(self.found.keys)

    def _old_outlinks(self) -> list[Path]:
        """Runs of what can be read of the old `outlinks`; if that is all of it, the parts' own are not needed."""
        known = self.known
        parts = known.manifest.outlinks if known.manifest else known.index.get("outlinks", {}).get(self.name.node)
        runs = OutlinkRuns(self.spool / "old-outlinks")
        owners = Owners(known.nodes)
        local = self.stores.config.frontier.routing == "local" and self.name.node in known.nodes
        index_of = (lambda host: known.nodes.index(self.name.node)) if local else owners.index
        old = read_old_outlinks(self.storage, self.path, parts)
        for number, (owner, line) in enumerate(old.lines()):
            queued, flags = decode_line(line)
            at = known.nodes.index(owner) if owner in known.nodes else index_of(host_of(queued.url))
            runs.add(at, 0, number, (queued.url, queued.via, queued.depth, queued.redirects, queued.metadata), flags)
            self.report.outlinks_kept += 1
        runs.flush()
        self.report.outlinks_whole = old.is_whole
        if old.is_whole:
            for part in list_parts(self.spool):
                part.drop_outlinks()
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
        for name in sorted({*dropped_files(self.storage, self.path)} - {*self.known.pending()}):
            more.append(self.spool / name)
            self.storage.download(f"{self.path}/{name}", more[-1])
        self.report.lost = self._lost_count(len(self.found.keys), len(named))
        facts = self.known.facts(self.found, self.report.lost, self.clock)
        build_segment(self.spool, self.built, facts, self.known.nodes, outlink_runs=runs, more_files=more)
