"""WET files: the texts of pages as `conversion` records, a file for each WARC file, as in Common Crawl.

A record names the response of its page. Next to the files of a segment lies `places.parquet`, with the place of each
capture's text. The id of a record is derived from the id of the response, so equal input gives equal bytes.
"""

import re
import uuid
import zlib
from base64 import b32encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha1
from itertools import groupby
from typing import Any, NamedTuple

import deflate
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from crawl_lib.commoncrawl.captures import PLACES, PLACES_SCHEMA, WARC_ENDING, WET_ENDING
from crawl_lib.commoncrawl.folders import Files
from crawl_lib.commoncrawl.languages import three_letters
from crawl_lib.crawldir import SegmentRef
from crawl_lib.errors import DamagedFileError
from crawl_lib.export import Wanted, read_members
from crawl_lib.segment import SegmentReader, open_parquet, safe_uri, utc_text
from crawl_lib.stopping import Progress
from crawl_lib.stores import Stores
from crawl_lib.text import AGAIN, TEXT_SCHEMA, text_table
from crawl_lib.version import VERSION

GZIP_LEVEL = 6
TEXT_ROWS = 256
"""Read at a time: a text may have a million characters."""
HEAD_BYTES = 1 << 16
"""Of a response record: within so many its WARC header ends."""
_RECORD_ID = re.compile(rb"^WARC-Record-ID:[ \t]*(<[^>\r\n]+>)", re.MULTILINE | re.IGNORECASE)
_PAGE_COLUMNS = ("key", "url", "warc_file", "warc_offset", "warc_length")


class _Text(NamedTuple):
    """A text for a record. `time`: when the page was fetched."""

    url: str
    time: datetime
    file: str
    offset: int
    length: int
    text: str
    language: str | None


@dataclass(frozen=True)
class SegmentTexts:
    """The texts of a segment; the table of texts is complete."""

    stores: Stores
    segment: SegmentRef

    def write(self, files: Files) -> int:
        """Write the WET files of the segment and the table of places; return the number of texts.

        Raises DamagedFileError, PathNotFoundError, StorageError, StoppedError.
        """
        reader = SegmentReader(self.stores.storage, self.segment.path)
        progress = Progress(self.stores, f"wet {self.segment}", 0, "pages")
        waiting = groupby(self._texts(reader), key=lambda text: text.file)
        none: tuple[str, Iterator[_Text]] = ("", iter(()))
        following, records = next(waiting, none), 0
        with (
            files.open(f"{self.segment}/{PLACES}") as table,
            pq.ParquetWriter(table, PLACES_SCHEMA, compression="zstd") as writer,
        ):
            for warc_file in sorted(reader.warc_files):
                is_next = following[0] == warc_file
                places = self._write_file(files, reader, warc_file, following[1] if is_next else (), progress)
                following = next(waiting, none) if is_next else following
                writer.write_table(_places_table(places))
                records += len(places)
        if following[0]:
            raise DamagedFileError(f"{self.segment.path}: `pages` names {following[0]}, which the segment lacks")
        progress.end()
        return records

    def _write_file(
        self, files: Files, reader: SegmentReader, warc_file: str, texts: Iterable[_Text], progress: Progress
    ) -> "list[tuple[str, int, int, int]]":
        """Write the WET file of a WARC file; return the places of the texts, as in `PLACES_SCHEMA`."""
        name, places = re.sub(WARC_ENDING, WET_ENDING, warc_file), []
        with files.open(f"{self.segment}/{name}") as file:
            at = file.write(self._warcinfo(reader, name))
            for text, record_id in self._with_ids(texts):
                length = file.write(self._conversion(text, record_id))
                places.append((warc_file, text.offset, at, length))
                at += length
                progress.add(1)
        return places

    def _texts(self, reader: SegmentReader) -> Iterator[_Text]:
        """Read the texts in order of file and offset, the order of the table of texts."""
        pages = pa.Table.from_batches([*reader.pages(_PAGE_COLUMNS)] or [pa.record_batch(_no_pages())])
        column = "shown" if self.stores.config.commoncrawl.wet_text == "all" else "text"
        names = ["key", "time", column, "language"]
        path = text_table(self.stores, self.segment)
        keys = pages["key"].combine_chunks()
        with open_parquet(self.stores.storage, path, TEXT_SCHEMA, AGAIN) as table:
            for batch in self.stores.until_stopped(table.batches(TEXT_ROWS, names)):
                numbers = pc.index_in(batch["key"], value_set=keys)
                has_text: Any = pc.fill_null(pc.not_equal(batch[column], pa.scalar("")), pa.scalar(False))
                is_there = pc.and_(pc.is_valid(numbers), has_text)
                found, rows = pages.take(numbers.filter(is_there)), batch.filter(is_there)
                of_page = (found[name].to_pylist() for name in _PAGE_COLUMNS[1:])
                of_text = (rows[name].to_pylist() for name in ("time", column, "language"))
                for url, file, offset, length, time, text, language in zip(*of_page, *of_text, strict=True):
                    yield _Text(str(url), time, str(file), offset, length, str(text), language)

    def _with_ids(self, texts: Iterable[_Text]) -> Iterator[tuple[_Text, str]]:
        """Read the record ids of the texts' responses."""
        kept: list[_Text] = []

        def wanted() -> Iterator[Wanted]:
            for number, text in enumerate(texts):
                kept.append(text)
                yield Wanted(number, f"{self.segment.path}/{text.file}", text.offset, text.length)

        for member in read_members(self.stores.storage, wanted()):
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
        return _record("conversion", _id_of(f"conversion {record_id}"), lines, "text/plain", text.text.encode())


def _record_id(wanted: Wanted, data: bytes) -> str:
    """Read the record id of a response. Raises DamagedFileError naming file and offset."""
    try:
        head = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(data, HEAD_BYTES).partition(b"\r\n\r\n")[0]
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
    digest = b32encode(sha1(block, usedforsecurity=False).digest()).decode()
    head = (
        f"WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Record-ID: {record_id}\r\n{lines}WARC-Block-Digest: sha1:{digest}\r\n"
        f"Content-Type: {content_type}\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    return bytes(deflate.gzip_compress(b"".join((head.encode(), block, b"\r\n\r\n")), GZIP_LEVEL))


def _no_pages() -> dict[str, Any]:
    kinds = (pa.binary(20), pa.string(), pa.string(), pa.int64(), pa.int64())
    return {name: pa.array([], kind) for name, kind in zip(_PAGE_COLUMNS, kinds, strict=True)}


def _places_table(places: list[tuple[str, int, int, int]]) -> pa.Table:
    columns = list(zip(*places, strict=True)) or [()] * len(PLACES_SCHEMA.names)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, PLACES_SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=PLACES_SCHEMA)
