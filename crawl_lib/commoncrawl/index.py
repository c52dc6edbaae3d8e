"""Common Crawl's columnar index of a crawl, and WET files of the texts:

    cc-index/crawl=<name>-<label>/subset=warc|crawldiagnostics|robotstxt/part-<n>.gz.parquet
    cc-wet/crawl=<name>-<label>/<folder>/<node>/<WARC file>.warc.wet.gz

Both are made of committed segments and of texts; missing texts are made first. An index made after the WET files of
the same label has the places of texts in WET files.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from crawl_lib.commoncrawl.captures import CAPTURE_SCHEMA, SUBSETS, SegmentCaptures
from crawl_lib.commoncrawl.columns import INDEX_SCHEMA, index_rows
from crawl_lib.commoncrawl.folders import Files, MadeOnce, Said
from crawl_lib.commoncrawl.requisites import Keys, no_keys, requisites_of
from crawl_lib.commoncrawl.sorting import DiskSort, joined
from crawl_lib.commoncrawl.wet import SegmentTexts
from crawl_lib.crawldir import SegmentRef
from crawl_lib.errors import InputError, PathNotFoundError
from crawl_lib.export import SegmentInput, choose
from crawl_lib.rounds import CrawlName
from crawl_lib.scratch import scratch_folder
from crawl_lib.segment import Part, SegmentReader
from crawl_lib.stopping import Progress
from crawl_lib.stores import Stores
from crawl_lib.text import extract_text, text_table

REVISION = 1
"""Raised with each change of the files' content for equal segments."""
INDEX_FOLDER, WET_FOLDER = "cc-index", "cc-wet"
AGAIN = (
    "delete the folder; `krake commoncrawl index` and `krake commoncrawl wet` make what is missing"
)
MOST_OFFSET = (1 << 31) - 1
"""Of a record in a WARC file: the index counts with 32 bits, since Athena refuses other types."""
GROUP_ROWS, GROUP_BYTES = 1 << 14, 12 << 20
"""Sorted rows that are widened, and written as a row group, at a time. The bytes are those of sorted rows."""
PART_ROWS = 1 << 20
ORDER = ("subset", "url_surtkey", "url", "fetch_time", "warc_filename", "warc_record_offset")


@dataclass(frozen=True)
class CommonCrawlReport:
    """The result of a command. `path`: the folder; `counts`: rows by subset, or `records` of WET files."""

    path: str
    counts: dict[str, int]
    complete_already: bool


def make_index(
    stores: Stores,
    *,
    label: str | None = None,
    folders: Sequence[str] | None = None,
    with_requisites: bool = False,
) -> CommonCrawlReport:
    """Make or find Common Crawl's index of iterations' segments.

    Arguments: as `krake export` has. Raises InputError before any work where a record lies beyond 2^31 - 1 bytes,
    OutputConflictError where the folder was made of something else, ConfigError for a wrong label or folder,
    DamagedFileError, StorageError, NoRoomError, StoppedError.
    """
    name, segments = choose(stores, label=label, folders=folders)
    for segment in stores.until_stopped(segments):
        _require_small_offsets(stores, segment)
    wet = _folder(stores, WET_FOLDER, name)
    wet_digest = _digest_of(wet)

    def fill(files: Files) -> Said:
        _make_texts(stores, segments)
        with scratch_folder(stores.config, f"work-{uuid.uuid4().hex}") as scratch:
            left_out = (
                no_keys() if with_requisites else requisites_of(stores, _refs(stores, segments))
            )
            captures = _captures(stores, segments, wet.path if wet_digest else "", left_out)
            return _write_subsets(stores, files, DiskSort(stores, scratch, ORDER).sorted(captures))

    options = _options(stores, segments, wet_digest) | (
        {"requisites": True} if with_requisites else {}
    )
    said, is_there = _folder(stores, INDEX_FOLDER, name).make(segments, options, fill)
    return CommonCrawlReport(f"{INDEX_FOLDER}/{_crawl(stores, name)}", said["counts"], is_there)


def make_wet(
    stores: Stores, *, label: str | None = None, folders: Sequence[str] | None = None
) -> CommonCrawlReport:
    """Make or find WET files of iterations' segments.

    Arguments and errors: as `make_index` has.
    """
    name, segments = choose(stores, label=label, folders=folders)

    def fill(files: Files) -> Said:
        _make_texts(stores, segments)
        refs = _refs(stores, segments)
        left_out = requisites_of(stores, refs)
        return {
            "records": sum(
                SegmentTexts(stores, one, left_out).write(files)
                for one in stores.until_stopped(refs)
            )
        }

    said, is_there = _folder(stores, WET_FOLDER, name).make(
        segments, _options(stores, segments), fill
    )
    return CommonCrawlReport(f"{WET_FOLDER}/{_crawl(stores, name)}", said["counts"], is_there)


MAKERS: dict[str, Callable[..., CommonCrawlReport]] = {"wet": make_wet, "index": make_index}
"""By the names of `commoncrawl.make`; the index waits for WET files, whose places it has."""


@dataclass(frozen=True)
class CommonCrawlReports:
    """The result of a task. `complete_already`: the names of complete folders; `rows`: all counts."""

    paths: dict[str, str]
    complete_already: list[str]
    rows: dict[str, int]


def make_commoncrawl(stores: Stores) -> CommonCrawlReports:
    """Make what `commoncrawl.make` names, of all iterations. Raises as above."""
    asked = stores.config.commoncrawl.make
    reports = {name: make(stores) for name, make in MAKERS.items() if name in asked}
    return CommonCrawlReports(
        {name: report.path for name, report in reports.items()},
        [name for name, report in reports.items() if report.complete_already],
        {name: count for report in reports.values() for name, count in report.counts.items()},
    )


def _refs(stores: Stores, segments: Sequence[SegmentInput]) -> list[SegmentRef]:
    return [stores.crawl.segment(one.folder, one.node) for one in segments]


def _crawl(stores: Stores, name: str) -> str:
    return f"crawl={stores.config.crawl.name}-{name}"


def _folder(stores: Stores, kind: str, name: str) -> MadeOnce:
    return MadeOnce(stores, f"{kind}/{_crawl(stores, name)}", AGAIN)


def _options(
    stores: Stores, segments: Sequence[SegmentInput], wet: str = ""
) -> dict[str, str | int]:
    """Return the options that decide the content.

    How texts are made, and the WET files of an index.
    """
    tables = [text_table(stores, stores.crawl.segment(one.folder, one.node)) for one in segments]
    return {
        "revision": REVISION,
        "texts": sha256("\n".join(tables).encode()).hexdigest(),
        "wet": wet,
    }


def _digest_of(folder: MadeOnce) -> str:
    """Return a digest of WET files; "" before WET files are made."""
    try:
        files = folder.read()["files"]
    except PathNotFoundError:
        return ""
    digests = "".join(file["sha256"] for file in files)
    return sha256(digests.encode()).hexdigest()


def _make_texts(stores: Stores, segments: Sequence[SegmentInput]) -> None:
    CrawlName(stores).note_texts()
    extract_text(stores, (stores.crawl.segment(one.folder, one.node) for one in segments))


def _require_small_offsets(stores: Stores, segment: SegmentInput) -> None:
    reader = SegmentReader(stores.storage, segment.path)
    large = {
        entry.name
        for entry in reader.manifest.files
        if entry.name.endswith(Part.WARC_SUFFIX) and entry.size_bytes > MOST_OFFSET
    }
    captures = SegmentCaptures(stores, stores.crawl.segment(segment.folder, segment.node))
    if large and captures.last_offset() > MOST_OFFSET:
        raise InputError(
            f"{segment.path}: has records beyond byte {MOST_OFFSET} of {', '.join(sorted(large))}, and Common"
            " Crawl's index counts no further; leave the iteration out (--folders), and set segment.max_warc_bytes"
            " for the next ones"
        )


def _captures(
    stores: Stores, segments: Sequence[SegmentInput], wet: str, left_out: Keys
) -> Iterator[pa.Table]:
    progress = Progress(stores, "commoncrawl.read", 0, "captures")
    for segment in stores.until_stopped(_refs(stores, segments)):
        for rows in SegmentCaptures(stores, segment, wet, left_out).batches():
            yield rows.cast(CAPTURE_SCHEMA)
            progress.add(len(rows))
    progress.end()


def _write_subsets(
    stores: Stores, files: Files, captures: Iterator[pa.RecordBatch]
) -> dict[str, int]:
    """Write the parts of all subsets; return numbers of rows.

    At least one part of each. `captures`: by subset.
    """
    progress = Progress(stores, "commoncrawl.write", 0, "captures")
    counts = dict.fromkeys(SUBSETS, 0)
    for subset, batches in groupby(_by_subset(captures), key=lambda pair: pair[0]):
        groups = joined((batch for _, batch in batches), GROUP_BYTES, GROUP_ROWS)
        counts[subset] = _write_parts(files, subset, groups, progress)
    for subset in (name for name, rows in counts.items() if not rows):
        _write_parts(files, subset, iter(()), progress)
    progress.end()
    return counts


def _by_subset(captures: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Divide sorted batches where another subset begins."""
    for batch in captures:
        for subset in sorted(SUBSETS):
            some = batch.filter(pc.equal(batch["subset"], pa.scalar(subset)))
            if len(some):
                yield subset, some


def _write_parts(
    files: Files, subset: str, groups: Iterator[pa.RecordBatch], progress: Progress
) -> int:
    """Write a subset's parts, at least one; return the rows' number."""
    first, rows, part = next(groups, None), 0, 0
    while first is not None or not part:
        with (
            files.open(f"subset={subset}/part-{part:05d}.gz.parquet") as file,
            pq.ParquetWriter(file, INDEX_SCHEMA, compression="gzip", compression_level=6) as writer,
        ):
            while first is not None and rows < (part + 1) * PART_ROWS:
                writer.write_batch(index_rows(first))
                rows += len(first)
                progress.add(len(first))
                first = next(groups, None)
        part += 1
    return rows
