"""The columns of Common Crawl's index: its flat schema (May 2026), and where in a WET file a page's text lies.

Source: https://github.com/commoncrawl/cc-index-table
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crawl_lib.urls import is_address, suffixes_of

_TEXT, _INT, _SHORT = pa.string(), pa.int32(), pa.int16()
_HOST_PARTS = ("tld", "2nd_last_part", "3rd_last_part", "4th_last_part", "5th_last_part")
_HOST_COLUMNS = tuple(
    f"url_host_{name}"
    for name in (
        *_HOST_PARTS,
        *(
            "registry_suffix",
            "registered_domain",
            "private_suffix",
            "private_domain",
            "name_reversed",
        ),
    )
)
_NEVER_NULL = {
    *(
        "url_surtkey",
        "url",
        "url_host_name",
        "url_protocol",
        "url_path",
        "fetch_time",
        "fetch_status",
    ),
    *("warc_filename", "warc_record_offset", "warc_record_length", "warc_segment"),
}
_COLUMNS: "tuple[tuple[str, pa.DataType], ...]" = (
    ("url_surtkey", _TEXT),
    ("url", _TEXT),
    ("url_host_name", _TEXT),
    *((name, _TEXT) for name in _HOST_COLUMNS),
    ("url_protocol", _TEXT),
    ("url_port", _INT),
    ("url_path", _TEXT),
    ("url_query", _TEXT),
    ("fetch_time", pa.timestamp("ms", "UTC")),
    ("fetch_status", _SHORT),
    ("fetch_redirect", _TEXT),
    ("content_digest", _TEXT),
    ("content_mime_type", _TEXT),
    ("content_mime_detected", _TEXT),
    ("content_charset", _TEXT),
    ("content_languages", _TEXT),
    ("content_truncated", _TEXT),
    ("warc_filename", _TEXT),
    ("warc_record_offset", _INT),
    ("warc_record_length", _INT),
    ("warc_segment", _TEXT),
    ("wet_filename", _TEXT),
    ("wet_record_offset", _INT),
    ("wet_record_length", _INT),
)
INDEX_SCHEMA = pa.schema(
    [pa.field(name, kind, nullable=name not in _NEVER_NULL) for name, kind in _COLUMNS]
)
"""The 30 columns of the flat schema in its order, then three of our own."""
_NOT_OF_URL = [field for field in INDEX_SCHEMA if field.name[:4] != "url_"]
CAPTURE_SCHEMA = pa.schema(
    [
        pa.field("subset", _TEXT),
        pa.field("host", _TEXT),
        *_NOT_OF_URL,
        pa.field("url_surtkey", _TEXT),
    ]
)
"""What is sorted: of the columns that follow from the URL, only its key and its host."""
_URL = r"^(?P<protocol>[a-z]+)://(?:\[[^\]]*\]|[^/:?]*)(?::(?P<port>[0-9]+))?(?P<path>[^?]*)(?P<query>\?.*)?$"


@lru_cache(1 << 16)
def _host_columns(host: str) -> tuple[str | None, ...]:
    """Return the values of `_HOST_COLUMNS`; an address has none."""
    if is_address(host):
        return (None,) * len(_HOST_COLUMNS)
    labels = host.split(".")[::-1]
    parts = [*labels, *[None] * len(_HOST_PARTS)][: len(_HOST_PARTS)]
    return (*parts, *suffixes_of(host), ".".join(labels))


def index_rows(captures: pa.RecordBatch) -> pa.RecordBatch:
    """Make index rows of captures.

    Columns that follow from URL and host are added, once a host.
    """
    hosts = captures.column("host").dictionary_encode()
    of_hosts = list(
        zip(*(_host_columns(str(host)) for host in hosts.dictionary.to_pylist()), strict=True)
    )
    found: dict[str, Any] = {name: captures.column(name) for name in captures.schema.names}
    found["url_host_name"] = captures.column("host")
    for name, values in zip(_HOST_COLUMNS, of_hosts, strict=True):
        found[name] = pa.array(values, _TEXT).take(hosts.indices)
    found |= _url_columns(captures.column("url"))
    arrays = [_cast(found[field.name], field.type) for field in INDEX_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=INDEX_SCHEMA)


def _url_columns(urls: "pa.Array[Any]") -> "dict[str, pa.Array[Any]]":
    """Divide canonical URLs; a missing port or query is null."""
    parts = pc.extract_regex(urls, _URL)
    protocol, port, path, query = (
        pc.struct_field(parts, name) for name in ("protocol", "port", "path", "query")
    )
    return {
        "url_protocol": protocol,
        "url_port": pc.if_else(pc.equal(port, pa.scalar("")), None, port),
        "url_path": path,
        "url_query": pc.if_else(
            pc.equal(query, pa.scalar("")), None, pc.utf8_slice_codeunits(query, 1)
        ),
    }


def _cast(values: "pa.Array[Any]", kind: "pa.DataType") -> "pa.Array[Any]":
    return (
        values if values.type == kind else values.cast(kind, safe=not pa.types.is_timestamp(kind))
    )


def mapped_texts(
    values: "pa.Array[Any]", change: Callable[[str | None], str | None]
) -> "pa.Array[Any]":
    """Change texts, each different one once."""
    encoded = values.dictionary_encode(null_encoding="encode")
    changed = [change(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(changed, _TEXT).take(encoded.indices)


def texts(values: Iterable[str | None]) -> "pa.Array[Any]":
    """Make a column of texts."""
    return pa.array(values, _TEXT)
