"""What a limit or a break cut off an answer is not taken for whole, whichever it was."""

from __future__ import annotations

import gzip
from dataclasses import replace

import pytest

from crawl_lib.config import Config
from crawl_lib.parse import parse_head
from crawl_lib.records import Fetched
from crawl_lib.states import Outcome
from crawl_lib.worker.reading import LEGACY_IN_PLACE_BYTES, Reader
from tests.parse.links import columns

LIST = b"http://a.test/one\nhttp://a.test/two/arti"


def links(config: Config, head: bytes, body: bytes, truncated: str | None = None) -> list[str]:
    reader = Reader(replace(config, parse=replace(config.parse, sitemaps=True)))
    fetched = Fetched(
        "http://a.test/x", 0.0, Outcome.OK, 200, head=head, body=body, truncated=truncated
    )
    headers = parse_head(head)
    content = reader.content(headers, fetched)
    mime = reader.facts(headers, fetched, content).mime
    assert reader.is_page(headers, fetched.outcome, mime, content.data)
    return columns(reader.page(headers, fetched.url, content, mime).links).hrefs


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
ONE = ["http://a.test/one"]


@pytest.mark.parametrize("truncated", ["length", "time", "disconnect"])
def test_an_answer_that_was_cut(config: Config, truncated: str) -> None:
    assert links(config, HEAD + b"\r\n", LIST, truncated) == ONE
    assert links(config, HEAD + b"\r\n", LIST) == [*ONE, "http://a.test/two/arti"]


def test_content_that_a_limit_cut(config: Config) -> None:
    small = replace(config, fetch=replace(config.fetch, max_decompressed_bytes=len(LIST) - 2))
    assert links(small, HEAD + b"\r\n", LIST + b"\n") == ONE
    assert links(small, HEAD + b"\r\n", gzip.compress(LIST + b"\n")) == ONE


def test_a_coding_that_broke_off(config: Config) -> None:
    body = gzip.compress(LIST, compresslevel=0)[:-12]
    assert links(config, HEAD + b"Content-Encoding: gzip\r\n\r\n", body) == ONE
    assert (
        links(config, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"%x\r\n%b" % (len(LIST), LIST))
        == ONE
    )
    whole = [*ONE, "http://a.test/two/arti"]
    assert links(config, HEAD + b"Content-Encoding: gzip\r\n\r\n", LIST) == whole


@pytest.mark.parametrize("at_bytes", [500, LEGACY_IN_PLACE_BYTES])
def test_a_large_page_that_may_be_in_a_legacy_encoding_is_read_aside(
    config: Config, at_bytes: int
) -> None:
    body = b"<p>" + b" " * at_bytes + b"<meta charset=koi8-r>" + b" " * LEGACY_IN_PLACE_BYTES
    for header, expected in ((b"", True), (b"; charset=utf-8", False)):
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html" + header + b"\r\n\r\n"
        fetched = Fetched("http://a.test/x", 0.0, Outcome.OK, 200, head=head, body=body)
        content = Reader(config).small_content(parse_head(head), fetched)
        assert (content is None) is expected
