"""The full check of a segment: digests of files, every WARC record, each row against the record that it points at.

Memory: 25 bytes a record, 20 bytes a page.
"""

import json
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha1, sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from crawl_lib.errors import DamagedFileError, KrakeError, PathNotFoundError
from crawl_lib.findings import Findings
from crawl_lib.frontier import part_mapping, read_outlinks, split_line
from crawl_lib.segment.encoder import safe_uri
from crawl_lib.segment.manifest import INDEX_NAME, LINKS_NAME, OUTLINKS_NAME, PAGES_NAME, Manifest
from crawl_lib.segment.reader import SCHEMAS
from crawl_lib.segment.recover import warc_fields
from crawl_lib.segment.tables import open_parquet
from crawl_lib.segment.warc import WarcRecord, walk
from crawl_lib.states import Outcome
from crawl_lib.stopping import Work
from crawl_lib.storage import Storage

BLOCK_BYTES = 1 << 20
BATCH_ROWS = 10_000
OUTCOMES = frozenset(map(str, Outcome))


@dataclass
class SegmentPlace:
    """A segment under check: where it is, what was found, and which of its files are of no use (`rubbish`)."""

    storage: Storage
    path: str
    findings: Findings
    work: Work
    rubbish: set[str] = field(default_factory=set)

    def file(self, name: str) -> str:
        """The path of a file of it."""
        return f"{self.path}/{name}"

    def tell(self, what: str, done: int, unit: str) -> None:
        """Say how far the check is."""
        self.work.report(checking=self.file(what), done=done, unit=unit)


def file_entries(manifest: Manifest) -> Iterator[dict[str, Any]]:
    """The entries of `files` that can be used."""
    for entry in manifest.files:
        if isinstance(entry, dict) and {"name", "size_bytes", "sha256"} <= entry.keys():
            yield entry


@dataclass
class _Records:
    """The records of a WARC file that may be pointed at, in file order."""

    offsets: "array[int]" = field(default_factory=lambda: array("Q"))
    lengths: "array[int]" = field(default_factory=lambda: array("Q"))
    urls: "array[int]" = field(default_factory=lambda: array("Q"))
    needs_row: bytearray = field(default_factory=bytearray)
    is_response: bytearray = field(default_factory=bytearray)

    def add(self, record: WarcRecord, *, needs_row: bool = False) -> None:
        self.offsets.append(record.offset)
        self.lengths.append(record.length)
        self.urls.append(_short(record.url))
        self.needs_row.append(needs_row)
        self.is_response.append(record.type == "response")

    def place(self, offset: int) -> int:
        """The number of the record at a byte, -1 if none begins there."""
        at = int(np.searchsorted(np.frombuffer(self.offsets, np.uint64), np.uint64(offset))) if self.offsets else 0
        return at if at < len(self.offsets) and self.offsets[at] == offset else -1


def _short(url: str) -> int:
    """Enough of a URL's digest to tell it from another one."""
    return int.from_bytes(sha1(url.encode("utf-8", "surrogateescape")).digest()[:8], "big")


class RecordsCheck:
    """The full check of one segment."""

    def __init__(self, place: SegmentPlace) -> None:
        self.place, self.findings = place, place.findings
        self.records: dict[str, _Records] = {}
        self.keys: npt.NDArray[np.bytes_] = np.empty(0, "S20")

    def run(self, manifest: Manifest) -> None:
        """Add what is found to the place's findings."""
        self._digests(manifest)
        self._warcs(manifest)
        self._pages()
        self._links()
        self._index()
        self._outlinks(manifest)

    def _digests(self, manifest: Manifest) -> None:
        for entry in file_entries(manifest):
            if entry["name"] in self.place.rubbish:
                continue
            digest, done = sha256(), 0
            with suppress(PathNotFoundError), self.place.storage.open_read(self.place.file(entry["name"])) as file:
                while block := file.read(BLOCK_BYTES):
                    digest.update(block)
                    done += len(block)
                    self.place.tell(entry["name"], done, "bytes")
                if digest.hexdigest() != entry["sha256"]:
                    self.findings.add(
                        "file_digest", self.place.file(entry["name"]), "is not what was written (SHA-256)"
                    )

    def _warcs(self, manifest: Manifest) -> None:
        for entry in file_entries(manifest):
            name = entry["name"]
            if not name.endswith(".warc.gz") or name in self.place.rubbish:
                continue
            damage: Counter[str] = Counter()
            records = self.records[name] = _Records()
            with self.place.storage.open_read(self.place.file(name)) as file:
                self._note_groups(name, walk(file, damage), records)
            for reason, count in damage.items():
                last = records.offsets[-1] + records.lengths[-1] if records.offsets else 0
                self.findings.add("record_damaged", self.place.file(name), f"{reason} after byte {last:,}", count=count)

    def _note_groups(self, name: str, found: Iterator[WarcRecord], records: _Records) -> None:
        """Note all records; the main one of each page's group needs a row."""
        main = -1
        for number, record in enumerate(found):
            if record.type == "warcinfo":
                continue
            records.add(record)
            if record.type == "request":
                main = -1
            elif record.type == "response":
                main = len(records.offsets) - 1
            elif record.type == "metadata":
                if warc_fields(record.block).get("krake-kind") == "page":
                    records.needs_row[main] = 1  # -1: a URL without a response
                main = -1
            if number % 1000 == 0:
                self.place.tell(name, number, "records")

    def _rows(self, name: str, columns: Sequence[str]) -> Iterator[list[list[Any]]]:
        """Columns of a table as lists, by batch; stops at damage, which is a finding."""
        if name in self.place.rubbish:
            return
        where, done = self.place.file(name), 0
        try:
            with open_parquet(self.place.storage, where, SCHEMAS[name]) as table:
                for batch in table.batches(BATCH_ROWS, columns):
                    done += batch.num_rows
                    yield [column.to_pylist() for column in batch.columns]
                    self.place.tell(name, done, "rows")
        except DamagedFileError as error:
            self.findings.add("table_damaged", where, f"after row {done}: {str(error).removeprefix(f'{where}: ')}")

    def _pages(self) -> None:
        keys = bytearray()
        columns = ("key", "url", "outcome", "warc_file", "warc_offset", "warc_length")
        pointed = {name: bytearray(len(records.offsets)) for name, records in self.records.items()}
        where = self.place.file(PAGES_NAME)
        for batch in self._rows(PAGES_NAME, columns):
            for key, url, outcome, name, offset, length in zip(*batch, strict=True):
                keys += key
                if sha1(url.encode()).digest() != key:
                    self.findings.add("row_key", where, f"{url}: its key is {key.hex()}, not its SHA-1")
                if outcome not in OUTCOMES:
                    self.findings.add("row_outcome", where, f"{url}: the outcome {outcome!r} is none that Krake knows")
                self._row_record(url, name, offset, length, pointed)
        self.keys = np.sort(np.frombuffer(bytes(keys), "S20"))
        repeated = self.keys[1:][self.keys[1:] == self.keys[:-1]]
        if len(repeated):
            self.findings.add("row_repeated", where, f"key {_hex(repeated[0])} has several rows", count=len(repeated))
        if PAGES_NAME not in self.place.rubbish:
            self._unpointed(pointed)

    def _row_record(self, url: str, name: str, offset: int, length: int, pointed: dict[str, bytearray]) -> None:
        records = self.records.get(name)
        at = records.place(offset) if records else -1
        if records is None or at < 0:
            self.findings.add(
                "row_record", self.place.file(PAGES_NAME), f"{url}: there is no record at byte {offset} of {name}"
            )
            return
        pointed[name][at] = 1
        if (records.lengths[at], records.urls[at]) != (length, _short(safe_uri(url))):
            self.findings.add(
                "row_record",
                self.place.file(PAGES_NAME),
                f"{url}: the record at byte {offset} of {name} is another one",
            )

    def _unpointed(self, pointed: dict[str, bytearray]) -> None:
        for name, records in self.records.items():
            needed = np.frombuffer(bytes(records.needs_row), np.uint8) > np.frombuffer(bytes(pointed[name]), np.uint8)
            places = np.flatnonzero(needed)
            if len(places):
                self.findings.add(
                    "record_without_row",
                    self.place.file(name),
                    f"the record at byte {records.offsets[int(places[0])]:,} has no row in {PAGES_NAME}",
                    count=len(places),
                )

    def _links(self) -> None:
        where = self.place.file(LINKS_NAME)
        for sources, targets, urls in self._rows(LINKS_NAME, ("source", "target", "target_url")):
            if PAGES_NAME not in self.place.rubbish:
                found = np.array(sources, "S20")
                strangers = found[~np.isin(found, self.keys)]
                if len(strangers):
                    self.findings.add(
                        "link_source", where, f"source {_hex(strangers[0])} has no row in pages", count=len(strangers)
                    )
            for target, url in zip(targets, urls, strict=True):
                if target is not None and url is not None and sha1(url.encode()).digest() != target:
                    self.findings.add("link_target", where, f"{url}: its key is {target.hex()}, not its SHA-1")

    def _index(self) -> None:
        if INDEX_NAME in self.place.rubbish:
            return
        where, before, entries = self.place.file(INDEX_NAME), b"", 0
        with suppress(PathNotFoundError), self.place.storage.open_read(where) as file:
            for number, line in enumerate(file, 1):
                if line < before:
                    self.findings.add("index_order", where, f"line {number} should be before the one above it")
                before = line
                entries += self._index_line(where, number, line)
        responses = sum(sum(records.is_response) for records in self.records.values())
        if entries != responses:
            self.findings.add("index_count", where, f"has {entries} entries for {responses} responses")

    def _index_line(self, where: str, number: int, line: bytes) -> bool:
        """Whether a line of the index points at a response."""
        try:
            value = json.loads(line.split(b" ", 2)[2])
            name, offset, length = value["filename"], int(value["offset"]), int(value["length"])
        except (ValueError, IndexError, KeyError, TypeError) as error:
            self.findings.add("index_damaged", where, f"line {number} cannot be read: {error!r}")
            return False
        records = self.records.get(name)
        at = records.place(offset) if records else -1
        if records is None or at < 0 or records.lengths[at] != length or not records.is_response[at]:
            self.findings.add("index_record", where, f"line {number}: there is no response at byte {offset} of {name}")
            return False
        return True

    def _outlinks(self, manifest: Manifest) -> None:
        where = self.place.file(OUTLINKS_NAME)
        for owner, value in manifest.outlinks.items():
            try:
                part = part_mapping(value, where)
                for line in read_outlinks(
                    self.place.storage.open_read(where, part.offset, part.length), where, part.count
                ):
                    split_line(line, where)
            except PathNotFoundError:
                return
            except KrakeError as error:
                self.findings.add("outlinks_damaged", where, f"the part of {owner}: {error}")


def _hex(key: np.bytes_) -> str:
    return bytes(key).ljust(20, b"\0").hex()
