"""The tables of a segment: one row per page that left the queue, one per link occurrence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa

from crawl_lib.parquet import LATER_FIELDS
from crawl_lib.states import Outcome

CAPTURE_PLACE = pa.struct([("segment", pa.string()), ("file", pa.string()), ("offset", pa.int64())])
"""The place of a capture: `segment` is `<folder>/<node>`, `file` a WARC file in it, `offset` of the response record."""

_PAGE_FIELDS: list[pa.Field[Any]] = [
    pa.field("key", pa.binary(20), nullable=False),
    pa.field("url", pa.string(), nullable=False),
    pa.field("host", pa.string(), nullable=False),
    pa.field("time", pa.timestamp("us", "UTC"), nullable=False),
    pa.field("ip", pa.string()),
    pa.field("outcome", pa.string(), nullable=False),
    pa.field("status", pa.int16()),
    pa.field("mime_declared", pa.string()),
    pa.field("mime_detected", pa.string()),
    pa.field("charset", pa.string()),
    pa.field("length", pa.int64()),
    pa.field("digest", pa.binary(20)),
    pa.field("title", pa.string()),
    pa.field("description", pa.string()),
    pa.field("meta_robots", pa.string()),
    pa.field("canonical_url", pa.string()),
    pa.field("redirect_url", pa.string()),
    pa.field("via_key", pa.binary(20)),
    pa.field("depth", pa.int32(), nullable=False),
    pa.field("attempts", pa.int32(), nullable=False),
    pa.field("duration_ms", pa.int32(), nullable=False),
    pa.field("truncated", pa.string()),
    pa.field("etag", pa.string()),
    pa.field("last_modified", pa.string()),
    pa.field("warc_file", pa.string(), nullable=False),
    pa.field("warc_offset", pa.int64(), nullable=False),
    pa.field("warc_length", pa.int64(), nullable=False),
    pa.field("metadata", pa.string()),
    pa.field("error", pa.string()),
    pa.field("parse_error", pa.string()),
    pa.field("retry_at", pa.timestamp("us", "UTC")),
    pa.field("refers_to", CAPTURE_PLACE),
    pa.field("payload_digest", pa.binary(20)),
    pa.field("image_url", pa.string()),
    pa.field("author", pa.string()),
    pa.field("published", pa.string()),
    pa.field("modified", pa.string()),
    pa.field("language", pa.string()),
    pa.field("hop", pa.string()),
]
PAGES_SCHEMA = pa.schema(_PAGE_FIELDS)
"""`pages`: null where unknown. `length`, `digest`: of the content with codings undone, bytes and SHA-1. `warc_*`: the
response record, or the metadata record of a URL without response. `metadata`: JSON object of the seed's fields.
`error`: what failed in the fetch; `parse_error`: what of the content could not be read. `retry_at`: a failure that
passes, after which the URL is tried again; null: the row is final. `refers_to`: of a visit that found the page as it
was, the full capture that has its body; null: this is one. `payload_digest`: SHA-1 of the payload (`payload_of`), where
that is not `digest`. `image_url` and the next four: the page's metadata, where `parse.facts` asks for that. `hop`: how
the URL was found (`QueuedUrl.hop`). New columns go to the end."""
_LINK_FIELDS: list[pa.Field[Any]] = [
    pa.field("source", pa.binary(20), nullable=False),
    pa.field("target", pa.binary(20)),
    pa.field("target_url", pa.string()),
    pa.field("anchor", pa.string()),
    pa.field("rel", pa.string()),
    pa.field("element", pa.string()),
    pa.field("followed", pa.bool_(), nullable=False),
    pa.field("rule", pa.string()),
]
_SUBMISSION_FIELDS: list[pa.Field[Any]] = [
    pa.field("time", pa.timestamp("us", "UTC"), nullable=False),
    pa.field("key", pa.binary(20)),
    pa.field("domain", pa.string()),
    pa.field("token", pa.string(), nullable=False),
    pa.field("decision", pa.string(), nullable=False),
    pa.field("answer_ms", pa.int64(), nullable=False),
]
SUBMISSIONS_SCHEMA = pa.schema(_SUBMISSION_FIELDS)
"""`submissions`, of what was fetched in real time: a row a submitted URL. `key`, `domain`: null for a malformed URL.
`token`: the name of the submitter's token. `answer_ms`: milliseconds from the request to its answer."""
LINKS_SCHEMA = pa.schema(_LINK_FIELDS)
"""`links`: `target` is null where the link is no URL that Krake can crawl. `rule`: what accepted or rejected it."""


class PageRow(NamedTuple):
    """A row of `pages`: first what every URL has, then what a response gives, at last what an HTML page says.

    `time_us`, `retry_at`: POSIX microseconds. Keys and digests: 20 bytes.
    """

    key: bytes
    url: str
    host: str
    time_us: int
    outcome: Outcome
    depth: int
    attempts: int
    duration_ms: int
    warc_file: str
    warc_offset: int
    warc_length: int
    ip: str | None = None
    via_key: bytes | None = None
    truncated: str | None = None
    metadata: str | None = None
    error: str | None = None
    retry_at: int | None = None
    refers_to: dict[str, str | int] | None = None
    hop: str | None = None
    status: int | None = None
    mime_declared: str | None = None
    mime_detected: str | None = None
    length: int | None = None
    digest: bytes | None = None
    redirect_url: str | None = None
    etag: str | None = None
    last_modified: str | None = None
    parse_error: str | None = None
    payload_digest: bytes | None = None
    charset: str | None = None
    title: str | None = None
    description: str | None = None
    meta_robots: str | None = None
    canonical_url: str | None = None
    image_url: str | None = None
    author: str | None = None
    published: str | None = None
    modified: str | None = None
    language: str | None = None


def with_later_fields(batch: pa.RecordBatch, names: Iterable[str]) -> pa.RecordBatch:
    """Add missing `LATER_FIELDS` to an older segment's rows, as nulls.

    `names`: the wanted columns. Other rows stay as they are.
    """
    missing = [name for name in names if name in LATER_FIELDS and name not in batch.schema.names]
    if not missing:
        return batch
    schema = pa.schema([*batch.schema, *(PAGES_SCHEMA.field(name) for name in missing)])
    nulls = [pa.nulls(batch.num_rows, schema.field(name).type) for name in missing]
    return pa.RecordBatch.from_arrays([*batch.columns, *nulls], schema=schema)
