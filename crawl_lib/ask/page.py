"""One page, by URL, key or NodeID: its row in an export, or else its newest capture; and the server's answer."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple

from crawl_lib.captures import KnownCaptures, StaleError
from crawl_lib.crawldir import SegmentRef
from crawl_lib.errors import InputError, KeyStoreError, PathNotFoundError
from crawl_lib.export import PageView, is_node_id, newest_export, page_key, show_page
from crawl_lib.parquet import plain_row
from crawl_lib.parse import (
    HTML_TYPES,
    Content,
    decode_content,
    detect_mime,
    html_to_utf8,
    parse_head,
    to_utf8,
)
from crawl_lib.realtime import row_facts
from crawl_lib.segment import SegmentReader
from crawl_lib.stores import Stores
from crawl_lib.warc import split_head


class ServerAnswer(NamedTuple):
    """A server's answer: status line and headers as received, and the body without codings."""

    head: bytes
    content: Content

    def source(self) -> str:
        """Return the body as text.

        The charset comes from the answer or the page.
        """
        mime, charset = parse_head(self.head).content_type
        is_html = detect_mime(mime, self.content.data) in HTML_TYPES
        data = (
            html_to_utf8(self.content.data, charset)
            if is_html
            else to_utf8(self.content.data, charset)[0]
        )
        return data.decode("utf-8", "replace")


def find_page(stores: Stores, page: str, *, export: str | None = None) -> PageView:
    """Return what is known of a page.

    The page is named by its URL, its key in hex, or its NodeID, as in `export.show_page`. A page outside of the newest
    export, such as a 404, is shown by its newest capture in the segments: `row` lacks the columns of exports, and facts
    of exports are None. `export`: look nowhere else. For a page fetched in real time after the newest segment, `row` is
    the document in krakepages.

    Raises InputError for an unknown page; PathNotFoundError without the needed export.
    """
    key = None if is_node_id(page) else page_key(stores, page)
    try:
        return show_page(stores, name=export or newest_export(stores), page=page)
    except (InputError, PathNotFoundError) as error:
        if key is None or export is not None:
            raise
        row = newest_rows(stores, [key]).get(key)
        found = _live_row(stores, key, row) or (None if row is None else plain_row(row))
        if found is None:
            raise InputError(f"{page}: was not crawled; `krake why` explains") from error
        return PageView(key=key.hex(), url=found["url"], row=found)


def _live_row(stores: Stores, key: bytes, row: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a URL's real-time document, if newer than its captures.

    Raises KeyStoreError if neither the table nor a segment can tell.
    """
    try:
        live = row_facts(stores, key)
    except KeyStoreError:
        if row is None:
            raise
        return None  # the segment is enough
    if not (live and live.get("document")) or not is_later(live, row):
        return None
    return {**live["document"], "fetched": live["fetched"], "shares": live["shares"]}


def is_later(live: dict[str, Any], row: dict[str, Any] | None) -> bool:
    """Say whether krakepages has a later fetch than the segments.

    `live`: a row of krakepages (`row_facts`).
    """
    if row is None or not live.get("fetched"):
        return row is None and live["state"] != "unknown"
    hops = (live["document"] or {}).get("hops")
    fetched_s = (
        hops[0]["time_ms"] / 1000 if hops else datetime.fromisoformat(live["fetched"]).timestamp()
    )
    captured_s = row["time"].timestamp()
    return bool(round(1000 * fetched_s) > round(1000 * captured_s))


def newest_rows(stores: Stores, keys: Collection[bytes]) -> dict[bytes, dict[str, Any]]:
    """Return the newest row of `pages` of each key.

    A row may be final or not, and has its `segment_path`; dropped pages have no row. The table of captures is asked
    first, if there is one, and then the segments that the table lacks. Without a table, or if the table is out of date,
    iterations are read from the newest on, until all keys are found.
    """
    table = KnownCaptures.of(stores)
    if table is None:
        return _search(stores, keys, _all_segments(stores))
    newer = groupby(reversed(table.newer), lambda segment: segment.folder)
    found = _search(stores, keys, ([*reversed([*segments])] for _, segments in newer))
    stale = set[bytes]()
    for key in keys:
        try:
            row = _placed_row(stores, table, key)
        except StaleError:
            stale.add(key)
            continue
        if row is not None and (key not in found or _age(row) > _age(found[key])):
            found[key] = row
    return {**found, **_search(stores, stale, _all_segments(stores))}


def _placed_row(stores: Stores, table: KnownCaptures, key: bytes) -> dict[str, Any] | None:
    """Return the key's row that the table of captures names.

    Raises StaleError.
    """
    place = table.place(key)
    if place is None:
        return None
    path = place.segment.path
    stores.report(reading=path)
    rows = [
        row
        for row in SegmentReader(stores.storage, path).find([key], place.row_group)
        if row["time"] == place.time
    ]
    if not rows:
        raise StaleError
    return {**rows[-1], "segment_path": path}


def _age(row: dict[str, Any]) -> tuple[int, Any]:
    """Return the order of a key's rows: iteration, then time.

    The rows are in different segments.
    """
    return int(row["segment_path"].split("/")[-2]), row["time"]


def _all_segments(stores: Stores) -> Iterator[list[SegmentRef]]:
    """Yield the segments of each iteration, the newest iteration first."""
    for folder in stores.until_stopped(reversed(stores.crawl.folders())):
        yield [
            stores.crawl.segment(folder, node) for node in stores.crawl.folder(folder).segments()
        ]


def _search(
    stores: Stores, keys: Collection[bytes], iterations: Iterable[Sequence[SegmentRef]]
) -> dict[bytes, dict[str, Any]]:
    """Read iterations' segments until all keys are found.

    The newest iteration comes first. Return the newest rows.
    """
    found: dict[bytes, dict[str, Any]] = {}
    missing = {*keys}
    for segments in iterations if missing else ():
        newest = dict[bytes, dict[str, Any]]()
        for segment in segments:
            stores.report(reading=segment.path)
            for row in SegmentReader(stores.storage, segment.path).find(missing):
                before = newest.get(row["key"])
                if before is None or before["time"] <= row["time"]:
                    newest[row["key"]] = {**row, "segment_path": segment.path}
        found |= newest
        missing -= newest.keys()
        if not missing:
            break
    return found


def _row_now(stores: Stores, view: PageView) -> dict[str, Any]:
    """Return a page's current row, after possible compactions.

    `krake segment compact` moves records. If the segment has no such row, the row of the export is returned. Raises
    DamagedFileError, StorageError.
    """
    row, path = view.row, view.row["segment_path"]
    if stores.storage.exists(path):
        for found in SegmentReader(stores.storage, path).find([bytes.fromhex(view.key)]):
            if plain_row({"time": found["time"]})["time"] == row["time"]:
                return {**found, "segment_path": path}
    return row


def full_row(stores: Stores, key: bytes, segment: str) -> dict[str, Any]:
    """Return the full capture that a revisit refers to.

    Raises PathNotFoundError if the capture is gone.
    """
    path = stores.crawl.segment_named(segment).path
    if stores.storage.exists(path):
        for row in SegmentReader(stores.storage, path).find([key]):
            if row["refers_to"] is None:
                return {**row, "segment_path": path}
    raise PathNotFoundError(
        f"{path}: the capture that has the body of this visit is gone from there"
    )


def read_answer(stores: Stores, view: PageView) -> ServerAnswer:
    """Return a page's answer, or an unchanged page's full capture.

    `view`: a result of `find_page`. Raises InputError if the fetch brought no answer, PathNotFoundError if the full
    capture is gone.
    """
    row = _row_now(stores, view) if view.export else view.row
    if "hops" in row:
        raise InputError(f"{view.url}: is in no segment yet: run `krake realtime collect` first")
    if row.get("refers_to"):
        row = full_row(stores, bytes.fromhex(view.key), row["refers_to"]["segment"])
    reader = SegmentReader(stores.storage, row["segment_path"])
    record = reader.read_record(row["warc_file"], row["warc_offset"], row["warc_length"])
    if record.type != "response":
        raise InputError(
            f"{view.url}: brought no answer: {row['outcome']} {row['error'] or ''}".rstrip()
        )
    head, body = split_head(record.block)
    content = decode_content(
        parse_head(head), body, max_bytes=stores.config.fetch.max_decompressed_bytes
    )
    return ServerAnswer(head, content)
