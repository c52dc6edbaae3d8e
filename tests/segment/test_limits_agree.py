"""What the config lets be fetched can be read again, by every reader of WARC records."""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from isal import igzip

from crawl_lib.config import Config, from_mapping
from crawl_lib.errors import ConfigError
from crawl_lib.records import MAX_BODY_BYTES, MAX_RECORD_BYTES, Fetched
from crawl_lib.segment.encoder import RecordEncoder
from crawl_lib.warc import Damage, Whole, read_archive, scan
from tests.segment.helpers import answered, ids, taken

READERS: list[Callable[..., Any]] = [scan, read_archive]


def accepted(fetch: dict[str, Any], urls: dict[str, Any]) -> Config | None:
    try:
        return from_mapping(
            {"servers": ["n"], "dfs_primary": "d", "fetch": fetch, "urls": urls}, Path("/base")
        )
    except ConfigError:
        return None


def largest(config: Config) -> tuple[bytes, Fetched]:
    """The group with the largest heads that this config lets be fetched, without a body."""
    url = "http://a.example/" + "x" * (config.urls.max_length_chars - 17)
    head = (
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"y" * (config.fetch.max_header_bytes - 29) + b"\r\n\r\n"
    )
    fetched = replace(
        answered(url, b"", head),
        request=b"GET " + url.encode() + b" HTTP/1.1\r\n\r\n",
        error="\\" * 4096,
    )
    metadata = '{"a": "' + "\\u00e4" * (1 << 15) + '"}'
    return RecordEncoder(0, ids()).group(
        fetched, taken(0, url, via=b"v" * 20, metadata=metadata)
    ).data, fetched


SIZES = st.one_of(st.integers(1, 1 << 40), st.integers(MAX_BODY_BYTES - 2, MAX_RECORD_BYTES + 2))


@settings(max_examples=60)
@given(body=SIZES, robots=SIZES, header=st.integers(1024, 400_000), chars=st.integers(16, 70_000))
@example(body=MAX_BODY_BYTES, robots=MAX_BODY_BYTES, header=300_000, chars=65_535)
@example(body=MAX_BODY_BYTES + 1, robots=MAX_BODY_BYTES, header=1024, chars=100)
@example(body=1 << 30, robots=1 << 30, header=65_536, chars=2000)
def test_any_config_that_is_accepted_can_be_read_again(
    body: int, robots: int, header: int, chars: int
) -> None:
    fetch = {
        "max_body_bytes": body,
        "max_robots_bytes": max(robots, 512_000),
        "max_header_bytes": header,
    }
    config = accepted(fetch, {"max_length_chars": max(chars, 64)})
    if config is None:
        assert (
            body > MAX_BODY_BYTES or robots > MAX_BODY_BYTES or header > 300_000 or chars > 65_535
        )
        return
    data, _ = largest(config)
    heads = max(sizes(data))
    most = heads + max(config.fetch.max_body_bytes, config.fetch.max_robots_bytes)
    for reader in READERS:
        assert most <= inspect.signature(reader).parameters["max_record_bytes"].default, (
            reader.__name__
        )


def read(reader: Callable[..., Iterator[Any]], file: BinaryIO, limit: int) -> int:
    """How many records a reader finds."""
    return sum(not isinstance(one, Damage) for one in reader(file, limit))


def sizes(data: bytes) -> list[int]:
    """Of all records, heads included."""
    return [
        len(igzip.decompress(one.raw)) for one in scan(io.BytesIO(data)) if isinstance(one, Whole)
    ]


@pytest.mark.parametrize("reader", READERS)
def test_the_largest_heads_are_read_by_all_and_the_limit_is_what_it_says(
    reader: Callable[..., Any],
) -> None:
    config = accepted({"max_header_bytes": 300_000}, {"max_length_chars": 65_535})
    assert config
    data, fetched = largest(config)
    assert read(reader, io.BytesIO(data), MAX_RECORD_BYTES) == 3
    more = (
        RecordEncoder(0, ids())
        .group(replace(fetched, body=b"z" * 1_000_000), taken(0, fetched.url))
        .data
    )
    assert read(reader, io.BytesIO(more), max(sizes(more))) == 3
    assert read(reader, io.BytesIO(more), 1_000_000) < 3
