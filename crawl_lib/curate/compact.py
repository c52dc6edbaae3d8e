"""`krake segment compact`: a segment's files without dropped pages.

WARC files are copied group by group, without groups of dropped pages. A file keeps its warcinfo record, so the
`WARC-Warcinfo-ID` of each record still names the warcinfo of its file. Rows, index lines and counts follow, with the
new places of the records. Finds of the pages stay: `outlinks` is unchanged, and the keys are in a `dropped-` file of
the new manifest, so that the pages stay known. `swap` puts the new segment in place and deletes the old segment.
"""

import json
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

from crawl_lib.crawldir import SegmentRef
from crawl_lib.durable import fsync_dir, fsync_file, reached, write_durable
from crawl_lib.errors import DamagedFileError, PathNotFoundError
from crawl_lib.records import RETRY_LISTS
from crawl_lib.repair import finish_swaps, replace_segment
from crawl_lib.scratch import scratch_folder
from crawl_lib.sealed import MANIFEST_FILE
from crawl_lib.segment import (
    LINKS_SCHEMA,
    PAGES_SCHEMA,
    DroppedLists,
    Manifest,
    RunWriter,
    SegmentReader,
    write_parquet,
)
from crawl_lib.stores import Stores
from crawl_lib.urls import key_of
from crawl_lib.version import VERSION
from crawl_lib.warc import NOT_OWN, Damage, FileId, WarcRecord, Whole, scan, utc_text, warc_fields

INDEX_RUN_LINES = 50_000


@dataclass
class CompactReport:
    """The work of a compaction. `state`: `nothing` (no page is dropped), `compacted`, `dropped` (dry run: there are
    `pages` to take out). `links`: rows taken out with the pages; `bytes_before`, `bytes_after`: of all files."""

    segment: str
    state: str = "nothing"
    pages: int = 0
    links: int = 0
    bytes_before: int = 0
    bytes_after: int = 0


Removed = list[tuple[int, int, int]]
"""Byte ranges left out of a WARC file, in file order: begin, end, and the number of bytes left out up to the end."""


def moved(removed: Removed, offset: int) -> int | None:
    """Return a record's new offset; None if left out."""
    at = bisect_right(removed, offset, key=itemgetter(0))
    _, end, gone = removed[at - 1] if at else (0, 0, 0)
    return None if offset < end else offset - gone


def compact_segment(
    stores: Stores,
    name: SegmentRef,
    *,
    dry_run: bool = False,
    clock: Callable[[], float] = time.time,
) -> CompactReport:
    """Write a segment again without its dropped pages.

    The caller holds the node's lock if the node is here. Raises PathNotFoundError (no such segment), DamagedFileError
    (salvage the segment first), StorageError.
    """
    if name.folder not in name.crawl.folders():
        raise PathNotFoundError(
            f"{name.crawl.at(name.folder)}: there is no such iteration; {name.crawl.listed()}"
        )
    if not dry_run:
        finish_swaps(stores, name.folder)
    report = CompactReport(str(name))
    try:
        reader = SegmentReader(stores.storage, name.path)
        entries = stores.storage.list(name.path)
        report.bytes_before = report.bytes_after = sum(entry.size_bytes for entry in entries)
        report.pages = len(reader.dropped)
        if not report.pages or dry_run:
            report.state = "dropped" if report.pages else "nothing"
            return report
        with scratch_folder(stores.config, f"repair-{name.folder}-{name.node}") as room:
            manifest = _Compaction(stores, reader, room / "segment").build(
                report, utc_text(clock())
            )
            reached("curate.compact.built")
            replace_segment(stores, name, room / "segment", keep_old=False, clock=clock)
    except DamagedFileError as error:
        raise DamagedFileError(f"{error}; run `krake fsck --repair` first") from error
    report.state = "compacted"
    report.bytes_after = sum(entry.size_bytes for entry in manifest.files) + len(
        manifest.to_bytes()
    )
    return report


class _Compaction:
    def __init__(self, stores: Stores, reader: SegmentReader, out: Path) -> None:
        self.stores, self.storage, self.reader, self.path, self.out = (
            stores,
            stores.storage,
            reader,
            reader.path,
            out,
        )
        self.removed: dict[str, Removed] = {}
        self.retried = Counter[str]()

    def build(self, report: CompactReport, now: str) -> Manifest:
        """Write all files, the manifest last."""
        self.out.mkdir()
        old = self.reader.manifest
        for name in self.reader.warc_files:
            self._warc(name)
        outcomes: Counter[str] = Counter()
        pages = write_parquet(self.out / Manifest.PAGES_NAME, PAGES_SCHEMA, self._pages(outcomes))
        links = write_parquet(self.out / Manifest.LINKS_NAME, LINKS_SCHEMA, self.reader.links())
        self._index()
        known = {
            Manifest.PAGES_NAME,
            Manifest.LINKS_NAME,
            Manifest.INDEX_NAME,
            *self.reader.warc_files,
        }
        for entry in old.files:
            if entry.name not in known and not DroppedLists.has_name(entry.name):
                self.storage.download(f"{self.path}/{entry.name}", self.out / entry.name)
                with (self.out / entry.name).open("rb") as file:
                    fsync_file(file)
        name, data = DroppedLists.encode(self.reader.taken_out - self._waiting())
        write_durable(self.out / name, data)
        fsync_dir(self.out)
        gone = (
            old.counts["pages"] - pages
        )  # fewer than the dropped pages, if a salvage had lost a record
        if gone > report.pages:
            raise DamagedFileError(
                f"{self.path}: {report.pages} pages are dropped, but {gone} rows would go"
            )
        report.pages = gone
        report.links = old.counts["links"] - links
        done = {"what": "compact", "time": now, "krake_version": VERSION, "pages": report.pages}
        manifest = replace(
            old,
            counts={
                **old.counts,
                "pages": pages,
                "links": links,
                "outcomes": dict(sorted(outcomes.items())),
                "retried": dict(sorted(self.retried.items())),
                "dropped": old.counts.get("dropped", 0) + report.pages,
            },
            files=[Manifest.entry_of(path) for path in sorted(self.out.iterdir())],
            history=[*old.history, done],
        )
        write_durable(self.out / MANIFEST_FILE, manifest.to_bytes())
        return manifest

    def _warc(self, name: str) -> None:
        """Copy a WARC file without the groups of dropped pages."""
        removed = self.removed[name] = []
        gone = 0
        group: list[Whole] = []
        with (
            self.storage.open_read(f"{self.path}/{name}") as file,
            (self.out / name).open("wb") as out,
        ):
            file_id = FileId(self.reader.manifest.warcinfo_ids.get(name, ""))
            for number, item in enumerate(scan(file, file_id=file_id)):
                if isinstance(item, Damage):
                    raise DamagedFileError(f"{self.path}/{name}: byte {item.offset}: {item.reason}")
                if not item.is_own:
                    raise DamagedFileError(
                        f"{self.path}/{name}: byte {item.record.offset}: {NOT_OWN}"
                    )
                group.append(item)
                if item.record.type not in {"warcinfo", "metadata"}:
                    continue
                fields = warc_fields(item.record.block) if item.record.type == "metadata" else {}
                if self._is_dropped(item.record, fields):
                    start, end = group[0].record.offset, item.record.offset + item.record.length
                    gone += end - start
                    removed.append((start, end, gone))
                else:
                    out.write(b"".join(one.raw for one in group))
                    if (
                        fields.get("krake-list", "").startswith(RETRY_LISTS)
                        and "krake-retry-at" not in fields
                    ):
                        self.retried[fields["krake-outcome"]] += 1
                group = []
                if number % 1000 == 0:
                    self.stores.report(compacting=name, bytes=item.record.offset)
            if group:
                raise DamagedFileError(f"{self.path}/{name}: ends within a group")
            fsync_file(out)

    def _is_dropped(self, record: WarcRecord, fields: dict[str, str]) -> bool:
        key = key_of(fields.get("krake-url") or record.url)
        return fields.get("krake-kind") == "page" and key in self.reader.dropped

    def _waiting(self) -> set[bytes]:
        """Return the pages whose rows here are not final.

        The queue with the waiting URLs knows these pages.
        """
        keys: set[bytes] = set()
        for batch in self.reader.pages(["key", "retry_at"], with_dropped=True):
            rows: list[Any] = batch.filter(batch.column(1).is_valid()).column(0).to_pylist()
            keys.update(rows)
        return keys

    def _pages(self, outcomes: Counter[str]) -> Iterator[pa.RecordBatch]:
        """Yield rows with new record places, counted by outcome."""
        for batch in self.reader.pages():
            names: list[Any] = batch.column("warc_file").to_pylist()
            offsets: list[Any] = batch.column("warc_offset").to_pylist()
            results: list[Any] = batch.column("outcome").to_pylist()
            places = [
                self._place(name, offset) for name, offset in zip(names, offsets, strict=True)
            ]
            outcomes.update(results)
            passing: list[Any] = (
                batch.filter(batch.column("retry_at").is_valid()).column("outcome").to_pylist()
            )
            self.retried.update(passing)
            at = batch.schema.get_field_index("warc_offset")
            yield batch.set_column(at, batch.schema.field(at), pa.array(places, pa.int64()))

    def _place(self, name: str, offset: int) -> int:
        place = moved(self.removed[name], offset) if name in self.removed else None
        if place is None:
            raise DamagedFileError(
                f"{self.path}/{Manifest.PAGES_NAME}: names byte {offset} of {name}, where no kept record is"
            )
        return place

    def _index(self) -> None:
        """Write the index with the new places, sorted again.

        Two captures of a URL in a second differ in the places.
        """
        where = f"{self.path}/{Manifest.INDEX_NAME}"
        lines = RunWriter(self.out.with_name("index"), INDEX_RUN_LINES)
        with self.storage.open_read(where) as file:
            for number, line in enumerate(file, 1):
                try:
                    urlkey, stamp, text = line.decode().split(" ", 2)
                    value = json.loads(text)
                    place = moved(self.removed[value["filename"]], int(value["offset"]))
                except (ValueError, KeyError, TypeError) as error:
                    raise DamagedFileError(f"{where}: line {number}: {error!r}") from error
                if place is not None:
                    lines.add(f"{urlkey} {stamp} {json.dumps({**value, 'offset': str(place)})}")
        lines.flush()
        with (self.out / Manifest.INDEX_NAME).open("wb") as out:
            out.writelines(lines.merged(self.out.parent))
            fsync_file(out)
