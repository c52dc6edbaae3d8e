"""One page, by URL, key or NodeID: its row in an export, else its newest capture; and what it answered."""

from collections.abc import Collection
from typing import Any, NamedTuple

from crawl_lib.errors import InputError, PathNotFoundError
from crawl_lib.export import is_node_id, newest_export, page_key, plain_row, show_page
from crawl_lib.parse import Content, decode_content, parse_head
from crawl_lib.segment import SegmentReader, split_head
from crawl_lib.stores import Stores

_OF_EXPORTS = ("export", "node_id", "in_degree", "out_degree", "in_links", "out_links")


class Answer(NamedTuple):
    """What a server answered: status line and headers as they came, and the body, its codings undone."""

    head: bytes
    content: Content


def find_page(stores: Stores, page: str, *, export: str | None = None) -> dict[str, Any]:
    """What is known of a page that is named by its URL, its key in hex, or its NodeID, as `export.show_page` has it.

    What the newest export does not have, such as a page that answered 404, is its newest capture in the segments:
    `row` without the columns of exports, and None for what only an export knows. `export`: look nowhere else.

    Raises InputError where there is no such page; PathNotFoundError without the export that is needed.
    """
    key = None if is_node_id(page) else page_key(stores, page)
    try:
        return show_page(stores, name=export or newest_export(stores), page=page)
    except (InputError, PathNotFoundError) as error:
        if key is None or export is not None:
            raise
        row = newest_rows(stores, [key]).get(key)
        if row is None:
            raise InputError(f"{page}: was not crawled; `krake why` says what is known of a URL") from error
        found = {"key": key.hex(), "url": row["url"], "row": plain_row(row)}
        return {**dict.fromkeys(_OF_EXPORTS), **found}


def newest_rows(stores: Stores, keys: Collection[bytes]) -> dict[bytes, dict[str, Any]]:
    """The newest row of `pages` of each of these keys, final or not, with its `segment_path`; none of dropped pages.

    Iterations are read from the newest one on, until all are found.
    """
    found: dict[bytes, dict[str, Any]] = {}
    for folder in stores.until_stopped(reversed(stores.crawl.folders())):
        missing, newest = {*keys} - found.keys(), dict[bytes, dict[str, Any]]()
        for node in stores.crawl.folder(folder).segments() if missing else ():
            path = stores.crawl.segment(folder, node).path
            stores.report(reading=path)
            for row in SegmentReader(stores.storage, path).find(missing):
                before = newest.get(row["key"])
                if before is None or before["time"] <= row["time"]:
                    newest[row["key"]] = {**row, "segment_path": path}
        found |= newest
    return found


def full_row(stores: Stores, key: bytes, segment: str) -> dict[str, Any]:
    """The full capture of a page that a revisit refers to. Raises PathNotFoundError where it is gone."""
    path = stores.crawl.segment_named(segment).path
    if stores.storage.exists(path):
        for row in SegmentReader(stores.storage, path).find([key]):
            if row["refers_to"] is None:
                return {**row, "segment_path": path}
    raise PathNotFoundError(f"{path}: the capture that has the body of this visit is gone from there")


def read_answer(stores: Stores, view: dict[str, Any]) -> Answer:
    """What a page answered; where a visit found it as it was, at its full capture. `view`: as `find_page` gives it.

    Raises InputError where its fetch brought no answer, PathNotFoundError where the full capture is gone.
    """
    row = view["row"]
    if row.get("refers_to"):
        row = full_row(stores, bytes.fromhex(view["key"]), row["refers_to"]["segment"])
    reader = SegmentReader(stores.storage, row["segment_path"])
    record = reader.read_record(row["warc_file"], row["warc_offset"], row["warc_length"])
    if record.type != "response":
        raise InputError(f"{view['url']}: brought no answer: {row['outcome']} {row['error'] or ''}".rstrip())
    head, body = split_head(record.block)
    return Answer(head, decode_content(parse_head(head), body, max_bytes=stores.config.fetch.max_decompressed_bytes))
