"""The check of a segment: whether it is what its manifest says. The full one reads digests of files, every WARC record,
and each row against the record that it points at.

Memory: 25 bytes a record, 20 bytes a page.
"""

import json
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import sha1
from typing import Any

import numpy as np
import numpy.typing as npt

from crawl_lib.dfsfiles import stored_digest
from crawl_lib.errors import DamagedFileError, PathNotFoundError
from crawl_lib.findings import Finding, Findings, Severity
from crawl_lib.parquet import open_parquet
from crawl_lib.sealed import MANIFEST_FILE
from crawl_lib.segment.manifest import DROPPED_REMEDY, DroppedLists, Manifest
from crawl_lib.segment.parts import FileEntry, Part
from crawl_lib.segment.reader import BATCH_ROWS, SCHEMAS
from crawl_lib.states import Outcome
from crawl_lib.stopping import Work
from crawl_lib.storage import Storage
from crawl_lib.urlfiles import OUTLINKS_NAME, part_mapping, read_outlinks, split_line
from crawl_lib.warc import WarcRecord, safe_uri, walk, warc_fields

OUTCOMES = frozenset(map(str, Outcome))
ACCOUNTED = ("deferred", "dropped", "lost")
"""Counts of taken URLs that have no row in `pages`."""
_OF_ROBOTS = "robots"
"""The element of links whose source is a robots.txt, which is no page (`parse/native/rows.c`)."""
_RESPONSE, _NEEDS_ROW, _POINTED_AT = 1, 2, 4


def check_segment(
    storage: Storage, path: str, *, full: bool = True, work: Work | None = None
) -> list[Finding]:
    """Check one segment, and change nothing.

    `path`: its folder, `<crawl>/<folder>/<node>`. Raises StorageError only where the store itself fails.
    """
    findings = Findings("segment", "run `krake fsck --repair`")
    where = f"{path}/{MANIFEST_FILE}"
    try:
        manifest = Manifest.from_bytes(storage.read_bytes(where), where)
    except PathNotFoundError:
        findings.add("manifest_missing", where, "is not there")
    except DamagedFileError as error:
        findings.add("manifest_damaged", where, str(error))
    else:
        _Check(storage, path, manifest, findings, work or Work(), full=full).run()
    return findings.list()


class _Records:
    """The records of a WARC file that may be pointed at, in file order."""

    def __init__(self) -> None:
        self.offsets, self.lengths, self.urls = array("Q"), array("Q"), array("Q")
        self.flags = bytearray()

    def add(self, record: WarcRecord) -> None:
        self.offsets.append(record.offset)
        self.lengths.append(record.length)
        self.urls.append(_short(record.url))
        self.flags.append(_RESPONSE if record.is_answer else 0)


def _short(url: str) -> int:
    """Enough of a URL's digest to tell it from another one."""
    return int.from_bytes(sha1(url.encode("utf-8", "surrogateescape")).digest()[:8], "big")


class _Check:
    """A segment under check. `useless`: names of files that cannot be read."""

    def __init__(
        self,
        storage: Storage,
        path: str,
        manifest: Manifest,
        findings: Findings,
        work: Work,
        *,
        full: bool,
    ) -> None:
        self.storage, self.path, self.manifest, self.findings = storage, path, manifest, findings
        self.work, self.full = work, full
        self.useless: set[str] = set()
        self.records: dict[str, _Records] = {}
        self.keys: npt.NDArray[np.bytes_] = np.empty(0, "S20")

    def run(self) -> None:
        self._files()
        self._counts()
        if self.full:
            self._contents()
        self._pages()
        self._links()
        if self.full:
            self._index()
        self._outlinks()

    def _add(self, name: str, file: str, problem: str, **more: Any) -> None:
        self.findings.add(name, f"{self.path}/{file}", problem, **more)

    def _files(self) -> None:
        folder, node = self.path.split("/")[-2:]
        if (self.manifest.folder, self.manifest.node) != (folder, node):
            problem = f"is of {self.manifest.folder}/{self.manifest.node}"
            repair = "move the folder to where it belongs, or run `krake fsck --repair`"
            self._add("manifest_foreign", MANIFEST_FILE, problem, repair=repair)
        there = {entry.name: entry.size_bytes for entry in self.storage.list(self.path)}
        for entry in self.manifest.files:
            name, size = entry.name, entry.size_bytes
            found = there.pop(name, None)
            if found is None:
                self.useless.add(name)
                self._add(
                    "file_missing", name, "the manifest lists this file, but the file is missing"
                )
            elif found != size:
                self._add("file_size", name, f"has {found:,} bytes, the manifest says {size:,}")
        for name in there.keys() - {MANIFEST_FILE}:
            if DroppedLists.has_name(name):
                self._dropped(name)
            elif name.endswith((Part.WARC_SUFFIX, ".parquet")) or name in {
                OUTLINKS_NAME,
                Manifest.INDEX_NAME,
            }:
                self._add("file_unknown", name, "the manifest lacks this file")
            elif not name.startswith(
                "."
            ):  # else an attempt to write a file left it, and a sweep deletes it
                more: dict[str, Any] = {
                    "repair": "no stage reads it: delete it",
                    "severity": Severity.WARNING,
                }
                self._add("file_unknown", name, "the manifest does not list it", **more)

    def _dropped(self, name: str) -> None:
        """Check that a list of dropped pages has its digest as name."""
        with suppress(DamagedFileError):
            if DroppedLists.encode(DroppedLists(self.storage, self.path).read([name]))[0] == name:
                return
        self._add(
            "dropped_damaged",
            name,
            "differs from the written list of pages",
            repair=DROPPED_REMEDY,
        )

    def _counts(self) -> None:
        counts = self.manifest.counts
        fetched = sum(counts["outcomes"].values())
        accounted = fetched + sum(counts.get(name, 0) for name in ACCOUNTED)
        unknown = sorted(counts["outcomes"].keys() - OUTCOMES)
        for is_wrong, problem in (
            (
                counts["taken"] != accounted,
                f"{counts['taken']} URLs were taken, {accounted} are accounted for",
            ),
            (counts["pages"] != fetched, f"{counts['pages']} pages, and outcomes of {fetched}"),
            (bool(unknown), f"unknown outcomes: {', '.join(unknown)}"),
        ):
            if is_wrong:
                self._add("counts_differ", MANIFEST_FILE, problem)

    def _contents(self) -> None:
        """Check the digests of all files, and the records of WARC files."""
        for entry in self.manifest.files:
            name, where = entry.name, f"{self.path}/{entry.name}"
            if name in self.useless:
                continue
            if stored_digest(self.storage, where, self.work, entry.size_bytes) != entry.sha256:
                self._add("file_digest", name, "differs from the written file (SHA-256)")
            if name.endswith(Part.WARC_SUFFIX):
                damage: Counter[str] = Counter()
                records = self.records[name] = _Records()
                with self.storage.open_read(where) as file:
                    self._note_groups(entry, walk(file, damage), records)
                for reason, count in damage.items():
                    last = records.offsets[-1] + records.lengths[-1] if records.offsets else 0
                    self._add("record_damaged", name, f"{reason} after byte {last:,}", count=count)

    def _note_groups(
        self, entry: FileEntry, found: Iterator[WarcRecord], records: _Records
    ) -> None:
        """Note all records; each page's main record needs a row."""
        main = -1
        for number, record in enumerate(found):
            if record.type == "warcinfo":
                continue
            records.add(record)
            if record.is_answer:
                main = len(records.offsets) - 1
            elif (
                record.type == "metadata" and warc_fields(record.block).get("krake-kind") == "page"
            ):
                records.flags[main] |= _NEEDS_ROW  # -1: a URL without a response
            if not record.is_answer:
                main = -1
            if number % 1000 == 0:
                self._tell(entry.name, record.offset, entry.size_bytes, "bytes")

    def _tell(self, name: str, done: int, total: int, unit: str) -> None:
        self.work.go_on()
        self.work.report(checking=f"{self.path}/{name}", done=done, total=total, unit=unit)

    def _rows(self, name: str, count: int, columns: Sequence[str]) -> Iterator[list[list[Any]]]:
        """Yield the columns of a table as lists, by batch.

        Damage becomes a finding, and ends the batches. Without `full` no column is read.
        """
        done = 0
        if name in self.useless or self.manifest.lacks(name):
            return
        try:
            with open_parquet(self.storage, f"{self.path}/{name}", SCHEMAS[name]) as table:
                if table.rows != count:
                    self._add(
                        "table_rows", name, f"has {table.rows:,} rows, the manifest says {count}"
                    )
                for batch in table.batches(BATCH_ROWS, columns) if self.full else ():
                    done += batch.num_rows
                    yield [column.to_pylist() for column in batch.columns]
                    self._tell(name, done, count, "rows")
        except PathNotFoundError:
            self.useless.add(name)
            self._add("file_missing", name, "is not there")
        except DamagedFileError as error:
            self.useless.add(name)
            self._add("table_damaged", name, str(error))

    def _pages(self) -> None:
        keys = bytearray()
        columns = ("key", "url", "outcome", "warc_file", "warc_offset", "warc_length")
        for batch in self._rows(Manifest.PAGES_NAME, self.manifest.counts["pages"], columns):
            for key, url, outcome, name, offset, length in zip(*batch, strict=True):
                keys += key
                if sha1(url.encode()).digest() != key:
                    self._add(
                        "row_key",
                        Manifest.PAGES_NAME,
                        f"{url}: its key is {key.hex()}, not its SHA-1",
                    )
                if outcome not in OUTCOMES:
                    self._add(
                        "row_outcome",
                        Manifest.PAGES_NAME,
                        f"{url}: {outcome!r} is no outcome of Krake",
                    )
                self._row_record(url, name, offset, length)
        self.keys = np.sort(np.frombuffer(bytes(keys), "S20"))
        repeated = self.keys[1:][self.keys[1:] == self.keys[:-1]]
        if len(repeated):
            self._add(
                "row_repeated",
                Manifest.PAGES_NAME,
                f"key {_hex(repeated[0])} has several rows",
                count=len(repeated),
            )
        for name, records in (
            self.records.items() if Manifest.PAGES_NAME not in self.useless else ()
        ):
            lone = [
                at
                for at, flags in enumerate(records.flags)
                if flags & (_NEEDS_ROW | _POINTED_AT) == _NEEDS_ROW
            ]
            if lone:
                first = records.offsets[lone[0]]
                self._add(
                    "record_without_row",
                    name,
                    f"the record at byte {first:,} has no row",
                    count=len(lone),
                )

    def _find(self, name: str, offset: int) -> tuple[_Records, int] | None:
        """Find the record that begins at a byte of a file.

        Returns the records of the file and a place among them; None: no record begins there.
        """
        records = self.records.get(name) or _Records()
        at = bisect_left(records.offsets, offset)
        return (
            (records, at) if at < len(records.offsets) and records.offsets[at] == offset else None
        )

    def _row_record(self, url: str, name: str, offset: int, length: int) -> None:
        found = self._find(name, offset)
        if found is None:
            self._add(
                "row_record",
                Manifest.PAGES_NAME,
                f"{url}: there is no record at byte {offset} of {name}",
            )
            return
        records, at = found
        records.flags[at] |= _POINTED_AT
        if (records.lengths[at], records.urls[at]) != (length, _short(safe_uri(url))):
            self._add(
                "row_record",
                Manifest.PAGES_NAME,
                f"{url}: the record at byte {offset} of {name} is another one",
            )

    def _links(self) -> None:
        columns = ("source", "target", "target_url", "element")
        for sources, targets, urls, elements in self._rows(
            Manifest.LINKS_NAME, self.manifest.counts["links"], columns
        ):
            if Manifest.PAGES_NAME not in self.useless:
                pages = [
                    key
                    for key, element in zip(sources, elements, strict=True)
                    if element != _OF_ROBOTS
                ]
                found = np.array(pages, "S20")
                strangers = found[~np.isin(found, self.keys)]
                if len(strangers):
                    self._add(
                        "link_source",
                        Manifest.LINKS_NAME,
                        f"source {_hex(strangers[0])} has no row",
                        count=len(strangers),
                    )
            for target, url in zip(targets, urls, strict=True):
                if target is not None and url is not None and sha1(url.encode()).digest() != target:
                    self._add(
                        "link_target",
                        Manifest.LINKS_NAME,
                        f"{url}: its key is {target.hex()}, not its SHA-1",
                    )

    def _index(self) -> None:
        if Manifest.INDEX_NAME in self.useless:
            return
        before, entries = b"", 0
        with (
            suppress(PathNotFoundError),
            self.storage.open_read(f"{self.path}/{Manifest.INDEX_NAME}") as file,
        ):
            for number, line in enumerate(file, 1):
                if line < before:
                    self._add(
                        "index_order",
                        Manifest.INDEX_NAME,
                        f"line {number} should be before the one above it",
                    )
                before = line
                entries += self._index_line(number, line)
        responses = sum(
            flags & _RESPONSE for records in self.records.values() for flags in records.flags
        )
        if entries != responses:
            self._add(
                "index_count",
                Manifest.INDEX_NAME,
                f"has {entries} entries for {responses} responses",
            )

    def _index_line(self, number: int, line: bytes) -> bool:
        """Return whether a line of the index points at a response."""
        try:
            value = json.loads(line.split(b" ", 2)[2])
            name, offset, length = value["filename"], int(value["offset"]), int(value["length"])
            found = self._find(name, offset)
        except (ValueError, IndexError, KeyError, TypeError) as error:
            self._add(
                "index_damaged", Manifest.INDEX_NAME, f"line {number} cannot be read: {error!r}"
            )
            return False
        if (
            found is None
            or found[0].lengths[found[1]] != length
            or not found[0].flags[found[1]] & _RESPONSE
        ):
            self._add(
                "index_record",
                Manifest.INDEX_NAME,
                f"line {number}: there is no response at byte {offset} of {name}",
            )
            return False
        return True

    def _outlinks(self) -> None:
        where = f"{self.path}/{OUTLINKS_NAME}"
        file = self.storage.stat(where)
        end = total = 0
        for owner, value in sorted(
            self.manifest.outlinks.items(), key=lambda item: item[1]["offset"]
        ):
            part = part_mapping(value, where)
            end += part.length if part.offset == end else 0
            total += part.count
            with suppress(PathNotFoundError):
                try:
                    lines = (
                        self.storage.open_read(where, part.offset, part.length)
                        if self.full
                        else None
                    )
                    for line in read_outlinks(lines, where, part.count) if lines else ():
                        split_line(line, where)
                except DamagedFileError as error:
                    self._add("outlinks_damaged", OUTLINKS_NAME, f"the part of {owner}: {error}")
        if file is not None and end != file.size_bytes:
            self._add(
                "outlinks_parts",
                OUTLINKS_NAME,
                f"has {file.size_bytes:,} bytes, its parts end at {end:,}",
            )
        if total != (said := self.manifest.counts.get("outlinks")):
            self._add(
                "outlinks_parts",
                MANIFEST_FILE,
                f"its parts of outlinks hold {total} URLs, its counts say {said}",
            )


def _hex(key: np.bytes_) -> str:
    return bytes(key).ljust(20, b"\0").hex()
