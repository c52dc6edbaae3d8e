"""The captures of a segment: rows of `pages` with an answer, and captures of robots.txt.

The lines of `index.cdxj` name the records of all captures, and their digests. A line without a row of `pages` is a
capture of robots.txt.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from crawl_lib.commoncrawl.columns import CAPTURE_SCHEMA, mapped_texts, texts
from crawl_lib.commoncrawl.languages import three_letters
from crawl_lib.commoncrawl.requisites import Keys, no_keys, pages_among
from crawl_lib.commoncrawl.sorting import joined
from crawl_lib.crawldir import SegmentRef
from crawl_lib.engine import Ints, keys_of
from crawl_lib.errors import DamagedFileError
from crawl_lib.parquet import open_parquet, parquet_batches, parquet_errors
from crawl_lib.segment import Manifest, SegmentReader, surt
from crawl_lib.states import Outcome
from crawl_lib.stores import Stores
from crawl_lib.text import AGAIN, TEXT_SCHEMA, text_table
from crawl_lib.urls import host_of
from crawl_lib.versions import columns

SUBSETS = ("warc", "crawldiagnostics", "robotstxt")
WARC_ENDING, WET_ENDING = r"\.warc\.gz$", ".warc.wet.gz"
"""The endings of the names of WARC files, as a pattern, and of WET files."""
PLACES = "places.parquet"
PLACES_SCHEMA = columns(
    "warc_file text!, warc_offset int64!, wet_offset int32!, wet_length int32!, wet_part int32"
)
"""The places of texts in WET files; in order of WARC file and offset. `wet_part`: see `wet_name`; null in older tables,
where a WARC file has one WET file."""
PLACES_ROWS = 1 << 16
BATCH_BYTES = 4 << 20
"""The rows of `pages` that become captures at a time; their captures have about twice as many bytes."""
_OLD_PLACES = pa.schema([field for field in PLACES_SCHEMA if field.name != "wet_part"])
_WET_PLACE = pa.schema(
    [PLACES_SCHEMA.field(name) for name in ("wet_offset", "wet_length", "wet_part")]
)
_COLUMNS = (
    *(
        "key",
        "url",
        "host",
        "time",
        "outcome",
        "status",
        "mime_declared",
        "mime_detected",
        "charset",
        "length",
    ),
    *("redirect_url", "truncated", "warc_file", "warc_offset", "warc_length", "refers_to", "hop"),
)
_LINE = r'"digest": "(?:sha1:)?(?P<digest>[^"]*)".*"offset": "(?P<offset>[0-9]+)", "filename": "(?P<file>[^"]*)"\}$'
_ONE_COLUMN = pyarrow.csv.ParseOptions(delimiter="\x01", quote_char=False, escape_char=False)
_READ = pyarrow.csv.ReadOptions(column_names=["line"], block_size=1 << 22)
_AS_TEXT = pyarrow.csv.ConvertOptions(column_types={"line": pa.string()}, strings_can_be_null=False)
_OFFSET_BITS = 44


@dataclass
class Lookup:
    """Values by key: places of records (`places_of`), or keys of pages (`keys_of`).

    `keys`: sorted; `order`: the numbers of their values. Values stay where they are, since a sorted copy of all texts
    of a large segment is most of what a look-up would hold.
    """

    keys: Ints
    order: Ints
    values: "pa.Array[Any]"

    @classmethod
    def of(cls, keys: Ints, values: "pa.Array[Any]") -> "Lookup":
        """Sort the keys of values."""
        order = np.argsort(keys, kind="stable").astype(np.int32)
        return cls(keys[order], order, values)

    def numbers(self, keys: Ints) -> Ints:
        """Find the numbers of sorted keys; -1 for a missing key."""
        if not len(self.keys):
            return np.full(len(keys), -1)
        found = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[found] == keys, found, -1)

    def find(self, keys: Ints) -> "pa.Array[Any]":
        """Find values by key; null for a key without a value."""
        numbers = self.numbers(keys)
        if not len(self.order):
            missing: pa.Array[Any] = pa.nulls(len(keys), self.values.type)
            return missing
        chosen: Any = pa.array(self.order[numbers], mask=numbers < 0)
        return self.values.take(chosen)


@dataclass(frozen=True)
class SegmentCaptures:
    """The captures of a segment.

    `wet`: the folder of WET files, "" for none, relative to the storage's root; `left_out`: keys of requisites.
    """

    stores: Stores
    segment: SegmentRef
    wet: str = ""
    left_out: Keys = field(default_factory=no_keys)

    def batches(self) -> Iterator[pa.Table]:
        """Read the captures. Raises DamagedFileError, PathNotFoundError, StorageError, StoppedError."""
        reader = SegmentReader(self.stores.storage, self.segment.path)
        files = pa.array(reader.warc_files, pa.string())
        lines = self._lines(reader, files)
        languages = self._languages()
        wet = self._wet(files)
        seen = np.zeros(len(lines.keys), bool)
        dropped = pa.array(sorted(reader.dropped), pa.binary(20))
        pages = reader.pages(_COLUMNS, with_dropped=True)
        for batch in self.stores.until_stopped(joined(pages, BATCH_BYTES)):
            numbers = lines.numbers(places_of(batch["warc_file"], batch["warc_offset"], files))
            seen[numbers[numbers >= 0]] = True
            is_dropped = pc.is_in(batch["key"], value_set=dropped).to_numpy(zero_copy_only=False)
            is_page = pages_among(batch, self.left_out).to_numpy(zero_copy_only=False)
            kept = batch.filter(pa.array((numbers >= 0) & ~is_dropped & is_page))
            places = places_of(kept["warc_file"], kept["warc_offset"], files)
            yield self._rows(
                kept, lines.find(places), languages.find(keys_of(kept["key"])), wet, places
            )
        if not seen.all():
            yield from self._robots(reader, lines.keys[~seen], files)

    def last_offset(self) -> int:
        """Find the largest offset of a capture in a WARC file.

        Raises as `batches` does.
        """
        reader = SegmentReader(self.stores.storage, self.segment.path)
        places = self._lines(reader, pa.array(reader.warc_files, pa.string())).keys
        return int((places & ((1 << _OFFSET_BITS) - 1)).max(initial=0))

    def _rows(
        self, kept: pa.RecordBatch, digests: Any, languages: Any, wet: "Lookup | None", places: Ints
    ) -> pa.Table:
        """Make the captures of some rows of `pages`."""
        is_revisit = pc.is_valid(kept["refers_to"])
        is_cut = pc.and_(
            is_revisit, pc.not_equal(kept["outcome"], pa.scalar(str(Outcome.NOT_MODIFIED)))
        )
        has_body = pc.and_(
            pc.equal(kept["outcome"], pa.scalar(str(Outcome.OK))),
            pc.greater(kept["length"], pa.scalar(0)),
        )
        is_ok: Any = pc.fill_null(pc.and_(has_body, pc.invert(is_revisit)), pa.scalar(False))
        is_read = pc.and_(is_ok, pc.is_valid(languages))
        found: dict[str, Any] = {
            "subset": pc.if_else(is_ok, pa.scalar(SUBSETS[0]), pa.scalar(SUBSETS[1])),
            "host": kept["host"],
            "url_surtkey": texts(surt(str(url)) for url in kept["url"].to_pylist()),
            "url": kept["url"],
            "fetch_time": kept["time"].cast(pa.timestamp("ms", "UTC"), safe=False),
            "fetch_status": kept["status"],
            "fetch_redirect": kept["redirect_url"],
            "content_digest": digests,
            "content_mime_type": kept["mime_declared"],
            "content_mime_detected": kept["mime_detected"],
            "content_charset": pc.utf8_upper(kept["charset"]),
            "content_languages": pc.if_else(is_read, languages, None),
            "content_truncated": pc.if_else(is_cut, pa.scalar("length"), kept["truncated"]),
            **self._records(kept["warc_file"], kept["warc_offset"], kept["warc_length"]),
            **(self._wet_columns(kept["warc_file"], wet, places) if wet else {}),
        }
        return _captures(found)

    def _records(self, files: Any, offsets: Any, lengths: Any) -> "dict[str, pa.Array[Any]]":
        return {
            "warc_filename": pc.binary_join_element_wise(f"{self.segment.path}/", files, ""),
            "warc_record_offset": offsets.cast(pa.int32()),
            "warc_record_length": lengths.cast(pa.int32()),
            "warc_segment": texts([str(self.segment)] * len(files)),
        }

    def _cdxj(self, reader: SegmentReader) -> Iterator[pa.RecordBatch]:
        """Read `index.cdxj`, a text a line."""
        if reader.lacks(Manifest.INDEX_NAME):
            return
        where = f"{self.segment.path}/{Manifest.INDEX_NAME}"
        entry = self.stores.storage.stat(where)
        if entry is not None and not entry.size_bytes:
            return
        with self.stores.storage.open_read(where) as file, parquet_errors(where):
            yield from self.stores.until_stopped(
                pyarrow.csv.open_csv(file, _READ, _ONE_COLUMN, _AS_TEXT)
            )

    def _lines(self, reader: SegmentReader, files: "pa.Array[Any]") -> Lookup:
        """Find the records of all captures, with their digests in Base32."""
        places, digests = [np.empty(0, np.int64)], [texts([])]
        for batch in self._cdxj(reader):
            parts = pc.extract_regex(batch["line"], _LINE)
            if parts.null_count:
                number = pc.index(pc.is_null(parts), True).as_py()
                raise DamagedFileError(
                    f"{self.segment.path}/{Manifest.INDEX_NAME}: the line {batch['line'][number]} cannot be read;"
                    " run `krake fsck --repair`"
                )
            offsets = pc.struct_field(parts, "offset").cast(pa.int64())
            places.append(places_of(pc.struct_field(parts, "file"), offsets, files))
            digest = pc.struct_field(parts, "digest")
            digests.append(pc.if_else(pc.equal(digest, pa.scalar("")), None, digest))
        return Lookup.of(np.concatenate(places), pa.concat_arrays(digests))

    def _languages(self) -> Lookup:
        """Read the languages of texts, by the keys of pages."""
        keys, found = [keys_of(pa.array([], pa.binary(20)))], [texts([])]
        path, storage = text_table(self.stores, self.segment), self.stores.storage
        for batch in self.stores.until_stopped(
            parquet_batches(storage, path, TEXT_SCHEMA, ["key", "language"], AGAIN)
        ):
            keys.append(keys_of(batch["key"]))
            found.append(mapped_texts(batch["language"], three_letters))
        return Lookup.of(np.concatenate(keys), pa.concat_arrays(found))

    def _wet(self, files: "pa.Array[Any]") -> Lookup | None:
        """Read where texts lie in WET files; None without these."""
        if not self.wet:
            return None
        path = f"{self.wet}/{self.segment}/{PLACES}"
        places, rows = [np.empty(0, np.int64)], [_WET_PLACE.empty_table()]
        with open_parquet(self.stores.storage, path, _OLD_PLACES) as table:
            names = [name for name in PLACES_SCHEMA.names if name in table.names]
            for batch in self.stores.until_stopped(table.batches(PLACES_ROWS, names)):
                places.append(places_of(batch["warc_file"], batch["warc_offset"], files))
                parts = (
                    batch["wet_part"] if "wet_part" in names else pa.nulls(len(batch), pa.int32())
                )
                rows.append(
                    pa.table([batch["wet_offset"], batch["wet_length"], parts], schema=_WET_PLACE)
                )
        values = pa.concat_tables(rows).to_struct_array().combine_chunks()
        return Lookup.of(np.concatenate(places), values)

    def _wet_columns(self, files: Any, wet: Lookup, places: Ints) -> "dict[str, pa.Array[Any]]":
        found = wet.find(places)
        parts = pc.struct_field(found, "wet_part").to_pylist()
        names = (
            wet_name(str(file), part or 0)
            for file, part in zip(files.to_pylist(), parts, strict=True)
        )
        paths = texts(f"{self.wet}/{self.segment}/{name}" for name in names)
        return {
            "wet_filename": pc.if_else(pc.is_valid(found), paths, None),
            "wet_record_offset": pc.struct_field(found, "wet_offset"),
            "wet_record_length": pc.struct_field(found, "wet_length"),
        }

    def _robots(
        self, reader: SegmentReader, missing: Ints, files: "pa.Array[Any]"
    ) -> Iterator[pa.Table]:
        """Make the captures of lines without a page.

        `missing`: the places of the lines' records.
        """
        wanted = pa.array(missing)
        for batch in self._cdxj(reader):
            parts = pc.extract_regex(batch["line"], _LINE)
            places = places_of(
                pc.struct_field(parts, "file"),
                pc.struct_field(parts, "offset").cast(pa.int64()),
                files,
            )
            chosen = batch["line"].filter(pc.is_in(pa.array(places), value_set=wanted))
            if len(chosen):
                yield self._of_lines([str(line) for line in chosen.to_pylist()])

    def _of_lines(self, lines: list[str]) -> pa.Table:
        """Make the captures of robots.txt of lines of `index.cdxj`."""
        parts = [line.split(" ", 2) for line in lines]
        said = [json.loads(text) for _, _, text in parts]
        urls = [str(one["url"]) for one in said]
        times = [
            datetime.strptime(stamp, "%Y%m%d%H%M%S").replace(tzinfo=UTC) for _, stamp, _ in parts
        ]
        statuses = [int(one["status"] or 0) for one in said]
        digests = [one["digest"].removeprefix("sha1:") for one in said]
        offsets, lengths = (
            pa.array([int(one[name]) for one in said], pa.int64()) for name in ("offset", "length")
        )
        found: dict[str, Any] = {
            "subset": texts([SUBSETS[2]] * len(said)),
            "host": texts(map(host_of, urls)),
            "url_surtkey": texts(map(surt, urls)),
            "url": texts(urls),
            "fetch_time": pa.array(times, pa.timestamp("ms", "UTC")),
            "fetch_status": pa.array(statuses, pa.int16()),
            "content_digest": texts(digest or None for digest in digests),
            "content_mime_type": texts(
                None if one["mime"] == "unk" else one["mime"] for one in said
            ),
            **self._records(texts(one["filename"] for one in said), offsets, lengths),
        }
        return _captures(found)


@lru_cache(1 << 10)
def wet_name(warc_file: str, part: int) -> str:
    """Name a WET file of a WARC file.

    `x.warc.wet.gz`, then `x.part-1.warc.wet.gz` where one file is too small.
    """
    return re.sub(WARC_ENDING, f".part-{part}{WET_ENDING}" if part else WET_ENDING, warc_file)


def places_of(files: Any, offsets: Any, known: "pa.Array[Any]") -> Ints:
    """Number the places of records, by file and offset.

    The file counts by its place among the segment's.
    """
    numbers = pc.fill_null(pc.index_in(files, value_set=known), -1).to_numpy(zero_copy_only=False)
    return np.asarray(
        (numbers.astype(np.int64) << _OFFSET_BITS) + offsets.to_numpy(zero_copy_only=False)
    )


def _captures(found: dict[str, Any]) -> pa.Table:
    """Make a table of captures; missing columns are null."""
    rows = len(found["url"])
    arrays = [
        found[field.name] if field.name in found else pa.nulls(rows, field.type)
        for field in CAPTURE_SCHEMA
    ]
    return pa.Table.from_arrays(arrays, CAPTURE_SCHEMA.names)
