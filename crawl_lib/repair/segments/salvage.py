"""`krake fsck --repair`: a damaged segment is made again from its WARC files, which are the log.

How data flows: `glean` finds the whole groups in each WARC file. The groups are copied, byte for byte, into the scratch
directory, as a spool with open parts, in the state after a kill; the crawl's own recovery then makes tables, index and
outlinks. Found URLs stay found, whatever became of their pages: the readable lines of the old `outlinks` come first, in
order, so that a half-done intake of the file finds its place. The content of a readable manifest is kept; otherwise the
manifest is put together from `iteration.json`, the folder's index and the records.

A response without its metadata record is kept too, with a new metadata record (the rest comes from the row in the old
`pages`). The URLs of lost pages, as far as the old tables or broken groups name the URLs, are written to `lost.tsv` in
the new segment. Submissions in real time are copied if their table is readable to its end. `swap` puts the new segment
in place; the damaged segment stays next to it as `.damaged-<node>-<time>`.
"""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from crawl_lib.crawldir import SegmentRef
from crawl_lib.durable import reached
from crawl_lib.errors import DamagedFileError, PathNotFoundError
from crawl_lib.parquet import open_parquet
from crawl_lib.records import QueuedUrl, TakenUrl
from crawl_lib.repair.segments.glean import Gleaner, RecordPiece, fetched_of, is_robots
from crawl_lib.repair.segments.known import LOST_NAME, Known, read_lost
from crawl_lib.repair.segments.swap import replace_segment
from crawl_lib.scratch import scratch_folder
from crawl_lib.segment import (
    SUBMISSIONS_SCHEMA,
    DroppedLists,
    Manifest,
    Part,
    PartWriter,
    RecordEncoder,
    SegmentReader,
    Spool,
    build_segment,
)
from crawl_lib.states import Outcome
from crawl_lib.stores import Stores
from crawl_lib.urlfiles import HANDED_ON, encode_line
from crawl_lib.urls import key_of
from crawl_lib.version import VERSION
from crawl_lib.warc import utc_text
from crawl_lib.worker import PageHandler

_ROWS = 10_000


@dataclass
class SalvageReport:
    """The findings and the work of a salvage.

    `pages`: the number of kept pages; `without_metadata`: kept pages without their metadata record. `damage`: places of
    the WARC files left out, by reason. `lost`: the number of lost pages; `lost_urls`: their known URLs. `aside`: the
    place of the damaged segment, "" in a dry run.
    """

    pages: int = 0
    without_metadata: int = 0
    damage: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    lost_urls: list[str] = field(default_factory=list)
    aside: str = ""


def salvage_segment(
    stores: Stores,
    name: SegmentRef,
    *,
    dry_run: bool = False,
    planned: Callable[[SalvageReport], None] = lambda report: None,
    clock: Callable[[], float] = time.time,
) -> SalvageReport:
    """Make a segment again in which `check_segment` found an error.

    `planned`: gets the report before anything is written; `dry_run`: stops there. The caller holds the node's lock if
    the node is here, and has carried out open swaps. Raises PathNotFoundError (no such segment), DamagedFileError (the
    folder's `iteration.json` or scope), StorageError.
    """
    report = SalvageReport()
    salvage = _Salvage(stores, name, report, clock)
    planned(report)
    if not dry_run:
        with scratch_folder(stores.config, f"repair-{name.folder}-{name.node}") as room:
            salvage.carry_out(room)
    return report


class _Salvage:
    """The kept and the lost parts of a segment; `carry_out` then makes the segment."""

    def __init__(
        self, stores: Stores, name: SegmentRef, report: SalvageReport, clock: Callable[[], float]
    ) -> None:
        self.stores, self.storage, self.name, self.path = stores, stores.storage, name, name.path
        self.report, self.clock = report, clock
        self.known = Known(stores, name)
        manifest = self.known.manifest
        self.found = Gleaner(
            stores, dict(manifest.warcinfo_ids) if manifest else {}, self.known.names
        )
        for entry in self.storage.list(self.path):
            if entry.name.endswith(Part.WARC_SUFFIX):
                with self.storage.open_read(f"{self.path}/{entry.name}") as file:
                    self.found.read(entry.name, file, entry.size_bytes)
        self.rows: dict[bytes, dict[str, Any]] = {}
        self.waiting = 0
        self.lost = self._lost()
        report.pages, report.without_metadata = len(self.found.keys), len(self.lone)
        report.damage, report.lost_urls = (
            dict(self.found.damage),
            [queued.url for queued in self.lost],
        )
        counts = self.known.counts
        report.lost = len(self.lost)
        if counts:
            pages = report.pages + self.waiting
            report.lost = max(0, counts["taken"] - counts["deferred"] - counts["dropped"] - pages)

    def _lost(self) -> list[QueuedUrl]:
        """Return the URLs of lost pages, in order.

        Old rows decide which responses without metadata are kept. A passing failure is not lost with its record: the
        URL is in the queue again, and counts as deferred.
        """
        found, lost = self.found, dict(self.found.unfetched)
        for queued, row in self.known.rows():
            if (
                row["key"] not in found.keys
                and row.get("retry_at") is not None
                and self.known.take is None
            ):
                self.waiting += 1
                lost.pop(row["key"], None)
            elif row["key"] not in found.keys and (
                "outcome" in row or row["key"] not in lost
            ):  # the index says less
                lost[row["key"]] = queued
            if row["key"] in found.lone:
                self.rows.setdefault(row["key"], row)
        lost |= {key_of(queued.url): queued for queued in read_lost(self.stores, self.name)}
        lone = {
            key: url for key, url in found.lone.items() if key in self.rows or not is_robots(url)
        }
        free = (position for position in count() if position not in found.positions)
        self.lone = {
            key: TakenUrl(next(free), key, lost.get(key, QueuedUrl(url)))
            for key, url in lone.items()
            if key not in found.keys
        }
        found.keys |= self.lone.keys()
        for key in found.keys | self.known.dropped():
            lost.pop(key, None)
        return sorted(lost.values(), key=lambda queued: queued.url)

    def carry_out(self, room: Path) -> None:
        """Copy the kept parts, make the tables again, swap.

        `room`: an empty folder.
        """
        spool, built = room / "spool", room / "segment"
        spool.mkdir()
        for name, pieces in self.found.pieces.items():
            self._part(spool, name, pieces)
        more = self.stores.crawl.folder(self.name.folder).copy_identity(spool)
        if self.lost:
            more.append(spool / LOST_NAME)
            more[-1].write_bytes(
                b"".join(encode_line(queued, HANDED_ON) + b"\n" for queued in self.lost)
            )
        for name in sorted(
            {*DroppedLists(self.storage, self.path).names()} - {*self.known.pending()}
        ):
            more.append(spool / name)
            self.storage.download(f"{self.path}/{name}", more[-1])
        more += self._submissions(spool)
        old = self.known.outlinks()
        build_segment(spool, built, self._facts(), self.known.nodes, handed_on=old, more_files=more)
        reached("repair.salvage.built")
        carried = self.known.pending()
        aside = replace_segment(
            self.stores, self.name, built, carried=carried, keep_old=True, clock=self.clock
        )
        self.report.aside = self.stores.crawl.at(self.name.folder, aside)

    def _submissions(self, spool: Path) -> list[Path]:
        """Copy the table of submissions, if readable to its end."""
        where, target = (
            f"{self.path}/{Manifest.SUBMISSIONS_NAME}",
            spool / Manifest.SUBMISSIONS_NAME,
        )
        try:
            with open_parquet(self.storage, where, SUBMISSIONS_SCHEMA) as table:
                for _ in table.batches(_ROWS, SUBMISSIONS_SCHEMA.names):
                    self.stores.go_on()
        except (DamagedFileError, PathNotFoundError):
            return []
        self.storage.download(where, target)
        return [target]

    def _part(self, spool: Path, name: str, pieces: list[RecordPiece]) -> None:
        """Copy the kept pieces of a file, and make their rows."""
        info, file_id = self.known.info(self.found.info), self.found.file_ids[name]
        with (spool / name).open("wb") as out:
            if file_id and name in self.found.headless:
                out.write(RecordEncoder().warcinfo(name, info, self.clock(), file_id))
            for piece in pieces:
                if piece.key is not None and piece.key not in self.lone:
                    continue
                with self.storage.open_read(
                    f"{self.path}/{name}", piece.offset, piece.end - piece.offset
                ) as file:
                    shutil.copyfileobj(file, out)
                if piece.key is not None:
                    out.write(self._metadata(name, piece, self.lone[piece.key]))
        config, nodes = self.stores.config, self.known.nodes
        prefix = Spool.prefix_in(name)
        own = nodes.index(self.name.node) if self.name.node in nodes else 0
        with PartWriter(spool, prefix, info, config.segment, clock=self.clock) as writer:
            given = (config, nodes, own, self.known.url_filter, writer)
            of_seeds = PageHandler(*given, seeds_widen_scope=self.name.node in config.servers)
            of_others = PageHandler(*given, seeds_widen_scope=False)
            for number, (taken, fetched, position) in enumerate(writer.recovered()):
                if number % 100 == 0:
                    self.stores.report(making=name, done=number, unit="records")
                if taken is None:
                    of_seeds.robots(fetched)
                else:
                    handler = of_others if taken.key in self.lone else of_seeds
                    handler.handle_all([(taken, fetched, position)])

    def _metadata(self, name: str, piece: RecordPiece, taken: TakenUrl) -> bytes:
        """Make a metadata record for a response without its own."""
        record = SegmentReader(self.storage, self.path).read_record(
            name, piece.offset, piece.end - piece.offset
        )
        fetched, row = fetched_of(record, taken.queued.url), self.rows.get(taken.key, {})
        if "outcome" in row:
            fetched.outcome = Outcome(row["outcome"])
            fetched.attempts, fetched.duration_ms = row["attempts"], row["duration_ms"]
            fetched.retry_at = None if row["retry_at"] is None else int(row["retry_at"].timestamp())
        encoder = RecordEncoder(file_id=self.found.file_ids[name])
        return encoder.metadata(fetched, taken, record.headers["warc-record-id"])

    def _facts(self) -> Manifest:
        """Return the new manifest's facts."""
        found, lost, dropped = self.found, self.report.lost, self.known.counts.get("dropped", 0)
        pages = self.report.pages
        taken = max(
            self.known.counts.get("taken", 0),
            max(found.positions, default=-1) + 1,
            pages + lost + dropped,
        )
        done = {"what": "salvage", "time": utc_text(self.clock()), "krake_version": VERSION}
        facts = self.known.facts(self.known.info(found.info))
        return replace(
            facts,
            counts={
                "taken": taken,
                "deferred": taken - pages - lost - dropped,
                "passed_over": self.known.counts.get("passed_over", 0),
                "lost": lost,
                "dropped": dropped,
            },
            files=[],
            warcinfo_ids={},
            outlinks={},
            history=[*facts.history, {**done, "damage": dict(found.damage), "lost": lost}],
        )
