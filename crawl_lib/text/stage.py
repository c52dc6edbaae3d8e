"""The table of a segment's texts: made once and found by its name; leftovers of killed attempts and older versions."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from crawl_lib.config import Config
from crawl_lib.crawldir import SegmentRef
from crawl_lib.durable import reached
from crawl_lib.errors import DamagedFileError, PathNotFoundError, StorageError, os_errors
from crawl_lib.parquet import open_parquet
from crawl_lib.parse import Directives
from crawl_lib.rounds import CrawlName
from crawl_lib.scratch import scratch_folder
from crawl_lib.segment import Member, SegmentReader, WantedRecord
from crawl_lib.states import Outcome
from crawl_lib.stopping import Progress
from crawl_lib.storage import hidden_next_to
from crawl_lib.stores import Stores
from crawl_lib.text.children import Child, ChildLimits, answers
from crawl_lib.text.page import KINDS, PageText

GROUP_ROWS = 2_000
REVISION = 4
"""Revision of the work on resiliparse's results: raise the number when equal pages may get other rows."""
AGAIN = "; move it away, and run this again: it is made of the segment's WARC files"
KILLED = "no text: the process that read it died, or passed its limits"
_ROBOTS: "list[pa.Field[Any]]" = [
    pa.field("noindex", pa.bool_()),
    pa.field("noarchive", pa.bool_()),
    pa.field("nosnippet", pa.bool_()),
    pa.field("unavailable_after", pa.timestamp("us", "UTC")),
]
_FIELDS: "list[pa.Field[Any]]" = [
    pa.field("key", pa.binary(20), nullable=False),
    pa.field("time", pa.timestamp("us", "UTC"), nullable=False),
    pa.field("text", pa.string()),
    pa.field("language", pa.string()),
    pa.field("terms", pa.map_(pa.string(), pa.int32())),
    pa.field("signature", pa.binary()),
    pa.field("error", pa.string()),
    pa.field("headings", pa.string()),
    pa.field("robots", pa.struct(_ROBOTS)),
    pa.field("published", pa.timestamp("us", "UTC")),
    pa.field("shown", pa.string()),
    pa.field("long_words", pa.int32()),
]
TEXT_SCHEMA = pa.schema(_FIELDS)
"""`key`, `time`: of the row of `pages`. `text`: the main text. `language`: declared or detected. `terms`: the words of
at most 64 bytes with their counts, in the order of the words; `long_words`: number of different longer words. Pages
without a text have null in `text`, `language` and `terms`. `signature`: the text profile, else the digest of the
content. `error`: why the page has no text. `headings`: of h1, h2 and h3, a line each; of a PDF, its title. `robots`:
the prohibitions of metas and X-Robots-Tag. `published`: the page's own date. `shown`: all visible text, with
`commoncrawl.wet_text: all` only."""


@dataclass(frozen=True)
class PageTextRow:
    """A row of a text table: a field for each column of `TEXT_SCHEMA`."""

    key: bytes
    time: datetime
    text: str | None
    language: str | None
    terms: list[tuple[str, int]] | None
    signature: bytes
    error: str | None
    headings: str | None
    robots: dict[str, Any] | None
    published: datetime | None
    shown: str | None
    long_words: int


_COLUMNS = (
    "key",
    "time",
    "outcome",
    "mime_detected",
    "digest",
    "refers_to",
    "warc_file",
    "warc_offset",
    "warc_length",
)


@dataclass
class TextReport:
    """Report of the stage. `segments`: segments read; `kept`: segments with tables from before; `pages`: rows written.

    `killed`: pages without a text, since their process died twice; `unreadable`: pages without a text, since their PDF
    is damaged or needs a password; `long_words`: words left out for their length.
    """

    segments: int = 0
    kept: int = 0
    pages: int = 0
    killed: int = 0
    unreadable: int = 0
    long_words: int = 0


def text_table(stores: Stores, segment: SegmentRef) -> str:
    """Return the path of a segment's text table, existing or not.

    Raises PathNotFoundError, StorageError.
    """
    digest = SegmentReader(stores.storage, segment.path).digest
    config = stores.config
    by = [f"{library} {version(library)}" for library in ("resiliparse", "pypdfium2")]
    asked = config.text.max_chars, config.commoncrawl.wet_text, config.fetch.user_agent.lower()
    made_by = " ".join(map(str, (digest, *by, REVISION, *asked)))
    return (
        f"{text_folder(stores, segment)}/text-{sha256(made_by.encode()).hexdigest()[:32]}.parquet"
    )


def extract_text(stores: Stores, segments: Iterable[SegmentRef]) -> TextReport:
    """Make the missing tables of segments.

    The stage may be run again at any time, also twice at once. Raises StorageError, DamagedFileError or
    PathNotFoundError naming the unreadable file of a segment, StoppedError.
    """
    report, config, limits = TextReport(), stores.config, _limits(stores.config)
    with ExitStack() as stack:
        children: list[Child] = []
        for segment in stores.until_stopped(segments):
            table = text_table(stores, segment)
            if stores.storage.exists(table):
                stores.storage.secure(table)
                with open_parquet(stores.storage, table, TEXT_SCHEMA, AGAIN):
                    report.kept += 1
            else:
                while len(children) < (config.text.processes or os.cpu_count() or 1):
                    children.append(stack.enter_context(Child(limits, stores)))
                _make(stores, segment, table, children, report)
            _delete_others(stores, table)
    return report


def read_text(stores: Stores, row: Mapping[str, Any]) -> PageText:
    """Read one page in a child process, as `extract_text` does.

    `row`: the page's row of `pages` with its `segment_path`; not the row of a revisit. Raises StorageError or
    DamagedFileError naming the record, StoppedError.
    """
    kind = KINDS.get(row["mime_detected"])
    if kind is None or row["outcome"] != Outcome.OK:
        return PageText(error="no text of this type is read")
    wanted = WantedRecord(
        0, f"{row['segment_path']}/{row['warc_file']}", row["warc_offset"], row["warc_length"]
    )
    [member] = Member.read_all(stores.storage, [wanted])
    with Child(_limits(stores.config), stores) as child:
        child.ask(kind.encode() + member.data)
        found = child.answer()
    return PageText(error=KILLED) if found is None else PageText._make(found)


def _limits(config: Config) -> ChildLimits:
    """Return the limits of a child process that reads pages."""
    return ChildLimits(
        config.text.memory_bytes,
        config.text.cpu_s,
        config.fetch.max_decompressed_bytes,
        config.text.max_chars,
        config.commoncrawl.wet_text,
        config.fetch.user_agent,
    )


def _make(
    stores: Stores, segment: SegmentRef, table: str, children: list[Child], report: TextReport
) -> None:
    """Write the table locally, upload it hidden, then rename it."""
    pages = _pages(stores, segment)
    name = f"text-{segment.folder}-{segment.node}"
    progress = Progress(stores, f"text {segment}", pages.num_rows, "pages")
    with scratch_folder(stores.config, name) as room:
        local = room / "text.parquet"
        _write(local, _rows(stores, segment, pages, children, report), progress)
        hidden = hidden_next_to(table)
        stores.storage.upload(local, hidden)
    reached("text.written")
    try:
        stores.storage.rename(hidden, table)
    except StorageError:
        if not stores.storage.exists(table):
            raise
        stores.storage.delete(hidden)  # another attempt was faster
    reached("text.renamed")
    report.segments += 1
    report.pages += pages.num_rows


def _pages(stores: Stores, segment: SegmentRef) -> pa.Table:
    """Return the rows of `pages` with readable text, by record.

    Revisits are left out: older records have their bodies.
    """
    is_read = (pc.field("outcome") == str(Outcome.OK)) & pc.field("mime_detected").isin(
        sorted(KINDS)
    )
    batches = SegmentReader(stores.storage, segment.path).pages(_COLUMNS)
    wanted = [
        batch.filter(is_read & pc.field("refers_to").is_null())
        for batch in stores.until_stopped(batches)
    ]
    if not wanted:
        return pa.table({name: [] for name in _COLUMNS})
    return pa.Table.from_batches(wanted).sort_by(
        [("warc_file", "ascending"), ("warc_offset", "ascending")]
    )


def _rows(
    stores: Stores, segment: SegmentRef, pages: pa.Table, children: list[Child], report: TextReport
) -> Iterator[PageTextRow]:
    def each() -> Iterator[dict[str, Any]]:
        for batch in pages.to_batches(GROUP_ROWS):
            yield from batch.to_pylist()

    wanted = (
        WantedRecord(
            number, f"{segment.path}/{row['warc_file']}", row["warc_offset"], row["warc_length"]
        )
        for number, row in enumerate(each())
    )
    kinds = (KINDS[row["mime_detected"]].encode() for row in each())
    questions = (
        kind + member.data
        for kind, member in zip(kinds, Member.read_all(stores.storage, wanted), strict=True)
    )
    for row, found in zip(each(), answers(children, questions), strict=True):
        page = PageText(robots=None, error=KILLED) if found is None else PageText._make(found)
        report.killed += found is None
        report.unreadable += found is not None and page.text is None
        report.long_words += page.long_words
        yield _row(page, row)


def _row(page: PageText, capture: Mapping[str, Any]) -> PageTextRow:
    """Return the row of a page that was read."""
    robots = None if page.robots is None else Directives._make(page.robots)._asdict()
    if robots is not None:
        robots["unavailable_after"] = _time(robots["unavailable_after"])
    return PageTextRow(
        key=capture["key"],
        time=capture["time"],
        text=page.text,
        language=page.language,
        terms=None if page.words is None else sorted(page.words.items()),
        signature=bytes.fromhex(page.signature) if page.signature else capture["digest"],
        error=page.error,
        headings=page.headings,
        robots=robots,
        published=_time(page.published),
        shown=page.shown,
        long_words=page.long_words,
    )


def _time(posix_s: float | None) -> datetime | None:
    return None if posix_s is None else datetime.fromtimestamp(posix_s, UTC)


def _write(path: Path, rows: Iterable[PageTextRow], progress: Progress) -> None:
    held: list[dict[str, Any]] = []
    with (
        os_errors(path, "cannot be written"),
        pq.ParquetWriter(path, TEXT_SCHEMA, compression="zstd", write_page_checksum=True) as writer,
    ):
        for row in rows:
            held.append(vars(row))
            progress.add(1)
            if len(held) == GROUP_ROWS:
                writer.write_table(pa.Table.from_pylist(held, TEXT_SCHEMA))
                held.clear()
        writer.write_table(pa.Table.from_pylist(held, TEXT_SCHEMA))
    progress.end()


def text_folder(stores: Stores, segment: SegmentRef) -> str:
    """Return the folder of a segment's tables, existing or not."""
    return f"{stores.config.text.directory.strip('/')}/{segment.folder}/{segment.node}"


def _delete_others(stores: Stores, table: str) -> None:
    """Delete older tables and leftovers next to the current table."""
    folder, _, name = table.rpartition("/")
    for entry in stores.storage.list(folder):
        if entry.name != name:
            stores.storage.delete(f"{folder}/{entry.name}")
            reached("text.older_deleted")


def check_text_leftovers(stores: Stores) -> Iterator[tuple[str, str]]:
    """Find unused paths of the stage, each with its cause.

    Texts of another crawl do not count. Raises StorageError, StoppedError.
    """
    for segment, table, names in _looked_at(stores):
        if table is None:
            yield text_folder(stores, segment), "belongs to a deleted segment"
        elif table in names:
            yield from (
                (name, "is not the newest table of its segment") for name in names if name != table
            )


def text_tables(stores: Stores) -> Iterator[str]:
    """Yield the newest table of each segment.

    Raises as above.
    """
    return (table for _, table, names in _looked_at(stores) if table in names)


def text_folders(stores: Stores) -> list[str]:
    """Return the folders of iterations with texts.

    Texts of another crawl do not count. Raises StorageError.
    """
    base = stores.config.text.directory.strip("/")
    return (
        [f"{base}/{name}" for name in _names(stores, base)]
        if CrawlName(stores).has_own_texts()
        else []
    )


def _looked_at(stores: Stores) -> Iterator[tuple[SegmentRef, str | None, list[str]]]:
    """Yield each segment with its newest table and its files.

    The table may be missing at its path. None in place of the table: the segment is gone. Damaged segments are left
    out; a check of their own reports them.
    """
    for path in text_folders(stores):
        for node in stores.until_stopped(_names(stores, path)):
            segment, table = stores.crawl.segment(path.rpartition("/")[2], node), None
            place = text_folder(stores, segment)
            with suppress(PathNotFoundError):
                try:
                    table = text_table(stores, segment)
                except DamagedFileError:
                    continue
            yield segment, table, [f"{place}/{entry.name}" for entry in stores.storage.list(place)]


def _names(stores: Stores, path: str) -> list[str]:
    if not stores.storage.exists(path):
        return []
    return [entry.name for entry in stores.storage.list(path) if entry.is_dir]
