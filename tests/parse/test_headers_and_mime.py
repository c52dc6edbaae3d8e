"""Heads read leniently; types declared and shown."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_lib.parse import detect_mime, parse_content_type, parse_head, x_robots_nofollow


def test_a_head() -> None:
    head = parse_head(
        b"HTTP/1.1 404 Not Found\r\nServer: a\r\nX: 1\r\nx:2\r\n folded\r\nnocolon\r\nLatin: \xe9\r\n\r\n"
    )
    assert head.status == 404
    assert head.get("SERVER") == "a"
    assert head.get("x") == "1"
    assert head.all("X") == ["1", "2 folded"]
    assert head.get("latin") == "é"
    assert head.get("missing") is None
    assert head.get("nocolon") is None


def test_a_line_folded_often_costs_its_bytes() -> None:
    """Joined line by line, 1.2 MB would be copied 400,000 times."""
    start = time.process_time()
    head = parse_head(b"HTTP/1.1 200 OK\r\nX: a\r\n \r\n" + b" x\n" * 400_000)
    assert time.process_time() - start < 1.5
    assert head.get("x") == "a" + " x" * 400_000


@pytest.mark.parametrize(
    ("line", "status"), [(b"HTTP/2 200", 200), (b"http/1.0  301 x", 301), (b"HTTP/1.1 2000", 0), (b"", 0)]
)
def test_status_line(line: bytes, status: int) -> None:
    assert parse_head(line + b"\nA: b\n\n").status == status


@pytest.mark.parametrize(
    ("value", "mime", "charset"),
    [
        ("Text/HTML; Charset=UTF-8", "text/html", "UTF-8"),
        ('text/html;x=y;charset="utf-8"', "text/html", "utf-8"),
        ("text/html;charset='utf-8'", "text/html", "utf-8"),
        ("text/html; charset=", "text/html", None),
        ("text/html; notcharset=a", "text/html", None),
        ("; charset=utf-8", None, "utf-8"),
        ("html", None, None),
        ("", None, None),
    ],
)
def test_content_type(value: str, mime: str | None, charset: str | None) -> None:
    assert parse_content_type(value) == (mime, charset)


def test_the_last_content_type_counts() -> None:
    assert parse_head(b"HTTP/1.1 200\nContent-Type: a/b\nContent-Type: c/d\nContent-Type: ?\n").content_type == (
        "c/d",
        None,
    )


@given(st.binary())
def test_no_head_raises(data: bytes) -> None:
    head = parse_head(data)
    assert head.content_type is not None


@pytest.mark.parametrize(
    ("declared", "data", "detected"),
    [
        ("text/html", b"<p>", "text/html"),
        ("text/html", b"%PDF-1.4", "application/pdf"),
        ("text/plain", b"<html>", "text/plain"),
        ("text/plain", b"a\x00b", "application/octet-stream"),
        ("text/plain", b"\xff\xfea\x00", "text/plain"),
        ("image/png", b"\xff\xd8\xff\xe0", "image/jpeg"),
        ("application/epub+zip", b"PK\x03\x04", "application/epub+zip"),
        (None, b"  <!DOCTYPE HTML>", "text/html"),
        (None, b"\xef\xbb\xbf<html>", "text/html"),
        (None, b"<htmlx>", "text/plain"),
        (None, b"<!-- x", "text/html"),
        (None, b"<?xml version='1.0'?><!-- x --><rss>", "application/rss+xml"),
        (None, b"<?xml version='1.0'?>\n<a:feed>", "application/atom+xml"),
        (None, b"<?xml version='1.0'?><x/>", "text/xml"),
        (None, b"GIF89a", "image/gif"),
        (None, b"RIFFxxxxWEBPVP8 ", "image/webp"),
        (None, b"\x89PNG\r\n\x1a\n", "image/png"),
        (None, b"hello", "text/plain"),
        (None, b"\x01", "application/octet-stream"),
        (None, b"", "application/octet-stream"),
        ("application/octet-stream", b"<html>", "text/html"),
        ("application/json", b"<html>", "application/json"),
    ],
)
def test_detect_mime(declared: str | None, data: bytes, detected: str) -> None:
    assert detect_mime(declared, data) == detected


@pytest.mark.parametrize(
    ("values", "nofollow"),
    [
        (["noindex, NoFollow"], True),
        (["none"], True),
        (["noindex", "nofollow"], True),
        (["noindex"], False),
        ([], False),
        (["krake: nofollow"], True),
        (["otherbot: nofollow"], False),
        (["otherbot: noindex, nofollow"], False),
        (["otherbot: noindex", "nofollow"], True),
        (["unavailable_after: 25 Jun 2030 15:00:00, nofollow"], True),
        (["max-snippet:1, nofollow"], True),
        (["Krake : noindex , NOFOLLOW "], True),
        (["krake:nofollow"], True),
        (["*: nofollow"], True),
        (["otherbot: noindex, krake: nofollow"], True),
        (["krake: noindex, otherbot: nofollow"], False),
        (["nofollow, otherbot: index"], True),
        (["krakebot: nofollow", "my-krake: none", "kra: nofollow"], False),
        (["otherbot:nofollow", "360spider: nofollow", "bot_2.0: none"], False),
        (["otherbot:", "otherbot:, nofollow"], False),
        (["otherbot: unavailable_after: Saturday, 25-Jun-10 15:00:00 PST, nofollow"], False),
        (["unavailable_after: Saturday, 25-Jun-10 15:00:00 PST, nofollow"], True),
        (["unavailable_after: Sat, 25 Jun 2030 15:00:00 GMT, none"], True),
        (["unavailable_after: 25 Jun 2030, 15:00:00, nofollow"], True),
        (["unavailable_after: 2030-06-25T15:00:00+00:00, nofollow"], True),
        (["unavailable_after: nofollow"], False),
        (["max-image-preview:large, max-video-preview:-1, nofollow"], True),
        (["x-new: 5, nofollow"], True),
        ([":", "::", ",,", "", "nofollowing", "no follow"], False),
    ],
)
def test_x_robots_tag(values: list[str], nofollow: bool) -> None:
    assert x_robots_nofollow(values, "Krake") is nofollow


@pytest.mark.parametrize("piece", ["a", "a*", "*:", "a ", ",", "a:,", " ", "a:", "krake:a,"])
def test_x_robots_tag_is_read_in_time_linear_in_its_length(piece: str) -> None:
    """A quadratic one takes minutes."""
    began = time.process_time()
    x_robots_nofollow([piece * (300_000 // len(piece))], "krake")
    assert time.process_time() - began < 2.0
