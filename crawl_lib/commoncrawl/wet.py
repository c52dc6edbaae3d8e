"""WET files: the texts of pages as `conversion` records, a file for each WARC file, as in Common Crawl.

A record names the response of its page. Next to the files of a segment lies `places.parquet`, with the place of each
capture's text. The id of a record is derived from the id of the response, so equal input gives equal bytes.
"""

import re
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha1
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple

import deflate
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from crawl_lib.commoncrawl.captures import (
    PLACES,
    PLACES_ROWS,
    PLACES_SCHEMA,
    Lookup,
    places_of,
    wet_name,
)
from crawl_lib.commoncrawl.folders import Files
from crawl_lib.commoncrawl.languages import three_letters
from crawl_lib.commoncrawl.requisites import Keys, no_keys, pages_among
from crawl_lib.commoncrawl.sorting import DiskSort
from crawl_lib.crawldir import SegmentRef
from crawl_lib.engine import Ints, keys_of
from crawl_lib.errors import DamagedFileError
from crawl_lib.parquet import open_parquet
from crawl_lib.scratch import scratch_folder
from crawl_lib.segment import Member, SegmentReader, WantedRecord
from crawl_lib.stopping import Progress
from crawl_lib.stores import Stores
from crawl_lib.text import AGAIN, TEXT_SCHEMA, text_table
from crawl_lib.version import VERSION
from crawl_lib.warc import base32, safe_uri, utc_text

GZIP_LEVEL = 6
TEXT_ROWS = 64
"""Read at a time: a text may have a million characters."""
MOST_WET_BYTES = (1 << 31) - 1
"""The size of a WET file ends here: Common Crawl's index counts offsets with 32 bits."""
HEAD_BYTES = 1 << 16
"""Of a response record: within so many its WARC header ends."""
_USUAL_HEAD_BYTES = 1 << 10
"""In most records the WARC header ends here, and the rest of the page need not be unpacked."""
_RECORD_ID = re.compile(rb"^WARC-Record-ID:[ \t]*(<[^>\r\n]+>)", re.MULTILINE | re.IGNORECASE)
_PAGE_COLUMNS = ("key", "hop", "url", "warc_file", "warc_offset", "warc_length")


class _PageText(NamedTuple):
    """A row of the table of texts. `number`: of its page in the order of keys."""

    number: int
    time: datetime
    text: str
    language: str | None


class _Text(NamedTuple):
    """A text for a record. `time`: when the page was fetched."""

    url: str
    time: datetime
    file: str
    offset: int
    length: int
    text: str
    language: str | None


class _Place(NamedTuple):
    """A row of the table of places."""

    warc_file: str
    warc_offset: int
    wet_offset: int
    wet_length: int
    wet_part: int


@dataclass(frozen=True)
class SegmentTexts:
    """The texts of a segment; the table of texts is complete. `left_out`: keys of requisites."""

    stores: Stores
    segment: SegmentRef
    left_out: Keys = field(default_factory=no_keys)

    def write(self, files: Files) -> int:
        """Write a segment's WET files and table; return the texts' number.

        The table has the places of texts. Raises DamagedFileError, PathNotFoundError, NoRoomError, ScratchError,
        StorageError, StoppedError.
        """
        reader = SegmentReader(self.stores.storage, self.segment.path)
        progress = Progress(self.stores, f"wet {self.segment}", 0, "pages")
        records = 0
        with (
            scratch_folder(self.stores.config, f"work-{uuid.uuid4().hex}") as scratch,
            files.open(f"{self.segment}/{PLACES}") as table,
            pq.ParquetWriter(table, PLACES_SCHEMA, compression="zstd") as writer,
        ):
            texts = groupby(
                self._with_ids(self._texts(reader, scratch)), key=lambda pair: pair[0].file
            )
            waiting = next(texts, None)
            for warc_file in sorted(reader.warc_files):
                is_next = waiting is not None and waiting[0] == warc_file
                for places in self._write_files(
                    files, reader, warc_file, waiting[1] if is_next and waiting else ()
                ):
                    writer.write_table(_places_table(places))
                    records += len(places)
                    progress.add(len(places))
                waiting = next(texts, None) if is_next else waiting
        progress.end()
        return records

    def _write_files(
        self,
        files: Files,
        reader: SegmentReader,
        warc_file: str,
        texts: Iterable[tuple[_Text, str]],
    ) -> "Iterator[list[_Place]]":
        """Write a WARC file's WET files; yield the texts' places.

        At most `PLACES_ROWS` at a time.
        """
        records = ((text, self._conversion(text, record_id)) for text, record_id in texts)
        waiting, part = next(records, None), 0
        while waiting is not None or not part:
            name, places, is_empty = wet_name(warc_file, part), list[_Place](), True
            with files.open(f"{self.segment}/{name}") as file:
                at = file.write(self._warcinfo(reader, name))
                while waiting is not None and (at + len(waiting[1]) <= MOST_WET_BYTES or is_empty):
                    text, record = waiting
                    places.append(_Place(warc_file, text.offset, at, file.write(record), part))
                    at, is_empty = at + len(record), False
                    waiting = next(records, None)
                    if len(places) == PLACES_ROWS:
                        yield places
                        places = []
            part += 1
            yield places

    def _texts(self, reader: SegmentReader, scratch: Path) -> Iterator[_Text]:
        """Read the texts by file and offset, as their table orders."""
        files = pa.array(sorted(reader.warc_files), pa.string())
        keys, places = [np.empty(0, "S20")], [np.empty(0, np.int64)]

        def read() -> Iterator[pa.Table]:
            for rows in reader.pages(_PAGE_COLUMNS):
                batch = rows.filter(pages_among(rows, self.left_out))
                keys.append(keys_of(batch["key"]))
                places.append(places_of(batch["warc_file"], batch["warc_offset"], files))
                yield (
                    pa.Table.from_batches([batch])
                    .drop(["key", "hop"])
                    .append_column("place", pa.array(places[-1]))
                )

        batches = DiskSort(self.stores, scratch, ("place",)).sorted(read())
        first = next(batches, None)
        pages = enumerate(_rows(chain([first] if first else [], batches), _PAGE_COLUMNS[2:]))
        numbers = Lookup.of(np.concatenate(keys), pa.array(_ranks(np.concatenate(places))))
        keys.clear()
        places.clear()
        for number, time, text, language in self._read_texts(numbers):
            page = next((page for at, page in pages if at == number), None)
            if page is None:
                raise DamagedFileError(
                    f"{text_table(self.stores, self.segment)}: is not in order of records{AGAIN}"
                )
            url, file, offset, length = page
            if file not in reader.warc_files:
                raise DamagedFileError(
                    f"{self.segment.path}: `pages` names {file}, which the segment lacks"
                )
            yield _Text(url, time, file, offset, length, text, language)

    def _read_texts(self, numbers: Lookup) -> Iterator[_PageText]:
        """Read the texts of pages.

        `numbers`: of the pages, by key; texts of other pages are left out.
        """
        column = "shown" if self.stores.config.commoncrawl.wet_text == "all" else "text"
        path = text_table(self.stores, self.segment)
        with open_parquet(self.stores.storage, path, TEXT_SCHEMA, AGAIN) as table:
            for batch in self.stores.until_stopped(
                table.batches(TEXT_ROWS, ["key", "time", column, "language"])
            ):
                found = numbers.find(keys_of(batch["key"])).to_pylist()
                rows = _rows([batch], ("time", column, "language"))
                for number, (time, text, language) in zip(found, rows, strict=True):
                    if number is not None and text:
                        yield _PageText(number, time, text, language)

    def _with_ids(self, texts: Iterable[_Text]) -> Iterator[tuple[_Text, str]]:
        """Read the record ids of the texts' responses."""
        kept: list[_Text] = []

        def wanted() -> Iterator[WantedRecord]:
            for number, text in enumerate(texts):
                kept.append(text)
                yield WantedRecord(
                    number, f"{self.segment.path}/{text.file}", text.offset, text.length
                )

        for member in Member.read_all(self.stores.storage, wanted()):
            yield kept.pop(), _record_id(member.wanted, member.data)

    def _warcinfo(self, reader: SegmentReader, name: str) -> bytes:
        """Make the first record of a WET file."""
        fields = {
            "software": f"krake/{VERSION}",
            "format": "WARC File Format 1.1",
            "conformsTo": "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
            "isPartOf": f"{self.stores.config.crawl.name} {self.segment}",
            "description": "Texts of the pages of the WARC file of the same name",
        }
        block = "".join(f"{key}: {value}\r\n" for key, value in fields.items()).encode()
        lines = f"WARC-Date: {reader.manifest.started}\r\nWARC-Filename: {name}\r\n"
        record_id = _id_of(f"warcinfo {self.stores.config.crawl.name} {self.segment} {name}")
        return _record("warcinfo", record_id, lines, "application/warc-fields", block)

    def _conversion(self, text: _Text, record_id: str) -> bytes:
        """Make the record of a text. `record_id`: of the response."""
        language = three_letters(text.language)
        is_cut = len(text.text) >= self.stores.config.text.max_chars
        lines = "".join(
            (
                f"WARC-Target-URI: {safe_uri(text.url)}\r\n",
                f"WARC-Date: {utc_text(text.time.timestamp())}\r\n",
                f"WARC-Refers-To: {record_id}\r\n",
                f"WARC-Identified-Content-Language: {language}\r\n" if language else "",
                "WARC-Truncated: length\r\n" if is_cut else "",
            )
        )
        return _record(
            "conversion", _id_of(f"conversion {record_id}"), lines, "text/plain", text.text.encode()
        )


def _record_id(wanted: WantedRecord, data: bytes) -> str:
    """Read the record id of a response.

    Raises DamagedFileError naming file and offset.
    """
    try:
        unpacking = zlib.decompressobj(16 + zlib.MAX_WBITS)
        start = unpacking.decompress(data, _USUAL_HEAD_BYTES)
        if b"\r\n\r\n" not in start:
            start += unpacking.decompress(unpacking.unconsumed_tail, HEAD_BYTES)
        head = start.partition(b"\r\n\r\n")[0]
    except zlib.error as error:
        raise wanted.damaged(f"byte {wanted.offset}: no gzip member: {error}") from error
    found = _RECORD_ID.search(head)
    if found is None:
        raise wanted.damaged(f"byte {wanted.offset}: no record with a WARC-Record-ID")
    return found[1].decode("latin-1")


def _id_of(text: str) -> str:
    return f"<urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, text)}>"


def _record(kind: str, record_id: str, lines: str, content_type: str, block: bytes) -> bytes:
    """Make a WARC record, one gzip member."""
    digest = base32(sha1(block, usedforsecurity=False).digest())
    head = (
        f"WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Record-ID: {record_id}\r\n{lines}WARC-Block-Digest: sha1:{digest}\r\n"
        f"Content-Type: {content_type}\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    return bytes(deflate.gzip_compress(b"".join((head.encode(), block, b"\r\n\r\n")), GZIP_LEVEL))


def _ranks(values: Ints) -> Ints:
    """Return the place of each value among the sorted values."""
    ranks = np.empty(len(values), np.int32)
    ranks[np.argsort(values, kind="stable")] = np.arange(len(values))
    return ranks


def _rows(batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Read rows of batches, of each some columns."""
    for batch in batches:
        yield from zip(*(batch[name].to_pylist() for name in names), strict=True)


def _places_table(places: Sequence[_Place]) -> pa.Table:
    columns = list(zip(*places, strict=True)) or [()] * len(PLACES_SCHEMA.names)
    arrays = [
        pa.array(column, field.type) for column, field in zip(columns, PLACES_SCHEMA, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=PLACES_SCHEMA)
