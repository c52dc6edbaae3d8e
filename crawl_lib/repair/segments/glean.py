"""Whole groups of records in the WARC files of a damaged segment, and the known facts of all other groups.

A body may hold whole gzip members with records of other pages, and damage may bare these members. After damage a record
counts if it has the random id of its file, which no server knows. Files of older versions have no ids: there a group
counts if a table names its main record by file, byte and URL. Without damage the WARC is the log.
"""

import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

from crawl_lib.errors import UrlError
from crawl_lib.fetch import outcome_of_status
from crawl_lib.parse import parse_head
from crawl_lib.records import Fetched, QueuedUrl
from crawl_lib.segment import Recovered, Spool
from crawl_lib.stopping import Work
from crawl_lib.urls import canonicalize, key_of
from crawl_lib.warc import (
    NOT_OWN,
    Damage,
    FileId,
    WarcRecord,
    microseconds_of,
    scan,
    split_head,
    warc_fields,
)

ROBOTS_PATH = "/robots.txt"
_RECORD_ID = re.compile("<urn:uuid:[0-9a-f-]{36}>")
LONGEST_URL = 1 << 16
"""The most characters of a URL: no crawl allows more, whatever the present config says."""


class RecordPiece(NamedTuple):
    """Bytes of a WARC file to keep. `key`: the URL's key of a whole response without a metadata record."""

    offset: int
    end: int
    key: bytes | None = None


@dataclass
class Gleaner:
    """Reads the WARC files of a segment, one after the other; then has the content.

    `pieces`: the parts to keep of each file, in file order. `keys`, `positions`: pages with whole groups. `lone`: URLs
    of responses without a metadata record, by key; `unfetched`: known URLs of broken groups. `damage`: counts of places
    left out, by reason. `info`: fields of the first warcinfo record. `file_ids`: the id in the records of a file, by
    file; at first from the manifest. `headless`: files without their warcinfo record. `is_named`: tells whether a table
    names a record, by file, byte and URL.
    """

    work: Work
    file_ids: dict[str, str] = field(default_factory=dict)
    is_named: Callable[[str, WarcRecord], bool] = lambda name, record: False
    headless: set[str] = field(default_factory=set)
    pieces: dict[str, list[RecordPiece]] = field(default_factory=dict)
    keys: set[bytes] = field(default_factory=set)
    positions: set[int] = field(default_factory=set)
    lone: dict[bytes, str] = field(default_factory=dict)
    unfetched: dict[bytes, QueuedUrl] = field(default_factory=dict)
    damage: Counter[str] = field(default_factory=Counter)
    info: dict[str, str] = field(default_factory=dict)
    _doubtful: set[int] = field(default_factory=set)

    def read(self, name: str, file: BinaryIO, size_bytes: int = 0) -> None:
        """Read one file. `size_bytes`: 0 if unknown."""
        if not Spool.prefix_in(name):
            self.damage["foreign_file"] += 1
            return
        pieces: list[RecordPiece] = []
        held: list[WarcRecord] = []
        first: list[WarcRecord] = []
        file_id = FileId(self.file_ids.get(name, ""))
        self._doubtful = set()
        for number, item in enumerate(scan(file, file_id=file_id)):
            if isinstance(item, Damage):
                self.damage[item.reason] += 1
                held = self._broken(pieces, held)
                continue
            record = item.record
            if number % 1000 == 0:
                self.work.report(reading=name, done=record.offset, total=size_bytes, unit="bytes")
            if not (item.is_own or self._proves(name, record, file_id)):
                self._doubtful.add(record.offset)
            if record.type == "warcinfo":
                first = first or self._warcinfo(record)
            else:
                held = self._add(pieces, held, record)
        self._broken(pieces, held)
        self.file_ids[name] = file_id.value if file_id.is_carried else ""
        if not first:
            self.headless.add(name)
        if pieces:
            self.pieces[name] = [
                *(RecordPiece(one.offset, one.offset + one.length) for one in first),
                *pieces,
            ]

    def _warcinfo(self, record: WarcRecord) -> list[WarcRecord]:
        """Check a warcinfo record.

        Returns the record, or an empty list if the record belongs to another file.
        """
        if record.offset in self._doubtful:
            self.damage[NOT_OWN] += 1
            return []
        self.info = self.info or warc_fields(record.block)
        return [record]

    def _add(
        self, pieces: list[RecordPiece], held: list[WarcRecord], record: WarcRecord
    ) -> list[WarcRecord]:
        """Add a record to the group `held`; return the new group."""
        if record.type == "metadata":
            self._group(pieces, held, record)
            return []
        if record.type != "request" and not record.is_answer:
            self.damage["foreign_record"] += 1
            return held
        if held and (record.type == "request" or held[-1].is_answer):
            self.damage["no_metadata"] += 1
            held = self._broken(pieces, held)
        return [*held, record]

    def _proves(self, name: str, record: WarcRecord, file_id: FileId) -> bool:
        """Return whether a table names a record.

        Such a record also gives the file's id.
        """
        if record.type == "request" or not self.is_named(name, record):
            return False
        file_id.value = file_id.value or record.headers.get("warc-warcinfo-id", "")
        return file_id.owns(record) or not file_id.is_carried

    def _group(
        self, pieces: list[RecordPiece], held: list[WarcRecord], metadata: WarcRecord
    ) -> None:
        """Take a metadata record and the records before it.

        These are a complete group, or parts of broken groups.
        """
        response_id = metadata.headers.get("warc-concurrent-to", "")
        ours = [record for record in held if _response_id(record) == response_id]
        self._broken(pieces, [record for record in held if _response_id(record) != response_id])
        # Only the response knows its random id: a record with this id is of the same group.
        main = next((record for record in ours if record.is_answer), metadata)
        if main.offset in self._doubtful:
            self.damage[NOT_OWN] += 1
            return
        try:
            if response_id and main is metadata:
                fields = warc_fields(metadata.block)
                if taken := Recovered.taken_of(fields, fields.get("krake-url") or metadata.url):
                    self.unfetched.setdefault(taken.key, taken.queued)
                return
            taken = Recovered.group_of([*ours, metadata], "", 0).taken
        except (KeyError, ValueError):
            self.damage["no_group"] += 1
            return
        if taken is not None:
            if taken.key in self.keys or taken.position in self.positions:
                self.damage["repeated"] += 1
                return
            self.keys.add(taken.key)
            self.positions.add(taken.position)
        _keep(pieces, *ours, metadata)

    def _broken(self, pieces: list[RecordPiece], records: list[WarcRecord]) -> list[WarcRecord]:
        """Note records without their metadata record; return an empty group."""
        doubtful = [record for record in records if record.offset in self._doubtful]
        self.damage[NOT_OWN] += len(doubtful)
        records = [record for record in records if record not in doubtful]
        responses = [record for record in records if record.is_answer]
        for record in responses or records:
            with suppress(UrlError):
                url = canonicalize(record.url, max_length_chars=LONGEST_URL)
                try:
                    fetched_of(record, url)
                    if record.type == "revisit":
                        raise ValueError("a metadata record named the page of this revisit")
                    if not _RECORD_ID.fullmatch(record.headers["warc-record-id"]):
                        raise ValueError("not a record of ours")
                    if key_of(url) not in self.lone:
                        self.lone[key_of(url)] = url
                        pieces.append(
                            RecordPiece(record.offset, record.offset + record.length, key_of(url))
                        )
                except (KeyError, ValueError):
                    if not is_robots(url):
                        self.unfetched.setdefault(key_of(url), QueuedUrl(url))
        return []


def _keep(pieces: list[RecordPiece], *records: WarcRecord) -> None:
    """Note records to keep; adjacent records are one piece."""
    for record in records:
        start, end = record.offset, record.offset + record.length
        if pieces and pieces[-1].end == start and pieces[-1].key is None:
            start = pieces.pop().offset
        pieces.append(RecordPiece(start, end))


def _response_id(record: WarcRecord) -> str | None:
    return record.headers.get("warc-record-id" if record.is_answer else "warc-concurrent-to")


def is_robots(url: str) -> bool:
    """Return whether a URL is the address of a robots.txt.

    Captures of robots.txt are no pages.
    """
    return url.endswith(ROBOTS_PATH) and url.count("/") == 3


def fetched_of(record: WarcRecord, url: str) -> Fetched:
    """Decode a response record without metadata as a fetch.

    Raises KeyError or ValueError if the record is not HTTP, or undated.
    """
    head, body = split_head(record.block)
    status = parse_head(head).status
    if not head.startswith(b"HTTP/") or not status:
        raise ValueError("not an HTTP response")
    return Fetched(
        url=url,
        time=microseconds_of(record.headers["warc-date"]) / 1_000_000,
        outcome=outcome_of_status(status, head),
        status=status,
        ip=record.headers.get("warc-ip-address"),
        head=head,
        body=body,
        truncated=record.headers.get("warc-truncated"),
        attempts=1,
    )
