"""Codings undone: every one, stacked, cut, damaged, lying, and bombs."""

from __future__ import annotations

import gzip
import random
import time
import zlib

import brotli
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl_lib.parse import Content, decode_content, parse_head

MAX = 1 << 20
TEXT = random.Random(1).randbytes(3000) + b"all work and no play " * 5000


def decoded(head: bytes, body: bytes, *, max_bytes: int) -> Content:
    return decode_content(parse_head(head), body, max_bytes=max_bytes)


def head(**fields: str) -> bytes:
    lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items()]
    return b"HTTP/1.1 200 OK\r\n" + "".join(lines).encode() + b"\r\n"


def raw_deflate(data: bytes) -> bytes:
    deflater = zlib.compressobj(wbits=-15)
    return deflater.compress(data) + deflater.flush()


def chunked(data: bytes, size: int = 1000) -> bytes:
    chunks = [data[start : start + size] for start in range(0, len(data), size)]
    return (
        b"".join(b"%x;ext=1\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
        + b"0\r\nTrailer: x\r\n\r\n"
    )


CODERS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "DEFLATE": raw_deflate,
    "br": brotli.compress,
    "identity": bytes,
}


@pytest.mark.parametrize("coding", CODERS)
@pytest.mark.parametrize("data", [b"", b"x", TEXT], ids=len)
def test_each_coding(coding: str, data: bytes) -> None:
    assert decoded(head(Content_Encoding=coding), CODERS[coding](data), max_bytes=MAX) == Content(
        data, False, ""
    )


@given(st.binary(max_size=5000), st.integers(1, 999))
def test_chunks_of_any_size(data: bytes, size: int) -> None:
    assert decoded(
        head(Transfer_Encoding="chunked"), chunked(data, size), max_bytes=MAX
    ) == Content(data, False, "")


def test_stacked_codings_are_undone_last_first() -> None:
    body = chunked(gzip.compress(brotli.compress(zlib.compress(TEXT))))
    fields = head(Content_Encoding="deflate, br", Transfer_Encoding="gzip, chunked")
    assert decoded(fields, body, max_bytes=MAX) == Content(TEXT, False, "")


@pytest.mark.parametrize("coding", ["gzip", "deflate", "DEFLATE", "br", "identity"])
def test_a_bomb_is_cut_at_the_limit(coding: str) -> None:
    content = decoded(head(Content_Encoding=coding), CODERS[coding](bytes(5 << 20)), max_bytes=1000)
    assert content == Content(bytes(1000), True, "")


def test_content_of_just_the_limit_is_whole() -> None:
    for coding, code in CODERS.items():
        assert decoded(head(Content_Encoding=coding), code(TEXT), max_bytes=len(TEXT)) == Content(
            TEXT, False, ""
        )


@pytest.mark.parametrize("coding", ["gzip", "deflate", "DEFLATE", "br"])
def test_what_comes_before_a_cut_is_kept(coding: str) -> None:
    content = decoded(head(Content_Encoding=coding), CODERS[coding](TEXT)[:-20], max_bytes=MAX)
    assert TEXT.startswith(content.data)
    assert len(content.data) >= 2000
    assert not content.truncated
    assert "ends before its end" in content.error


@pytest.mark.parametrize("coding", ["gzip", "deflate", "DEFLATE", "br"])
def test_what_comes_before_damage_is_kept(coding: str) -> None:
    body = bytearray(CODERS[coding](random.Random(2).randbytes(200_000).hex().encode()))
    body[150_000:150_100] = b"\xff" * 100
    content = decoded(head(Content_Encoding=coding), bytes(body), max_bytes=MAX)
    assert len(content.data) > 200_000, "all but the damaged end"
    if coding in ("gzip", "deflate"):
        assert "damaged after" in content.error, "the others carry no checksum"


def test_a_wrong_checksum_costs_no_data() -> None:
    body = gzip.compress(TEXT)[:-8] + bytes(8)
    content = decoded(head(Content_Encoding="gzip"), body, max_bytes=MAX)
    assert content.data == TEXT
    assert "damaged" in content.error


def test_gzip_members_follow_each_other_and_rubbish_after_them_is_left_alone() -> None:
    body = gzip.compress(b"one ") + gzip.compress(b"two") + b"\0\0rubbish"
    assert decoded(head(Content_Encoding="gzip"), body, max_bytes=MAX) == Content(
        b"one two", False, ""
    )


def test_a_flood_of_empty_members_ends() -> None:
    content = decoded(head(Content_Encoding="gzip"), gzip.compress(b"") * 100_000, max_bytes=MAX)
    assert "members" in content.error


def test_a_body_without_the_coding_that_is_named_stays_as_it_is() -> None:
    assert decoded(head(Content_Encoding="gzip"), b"<html>", max_bytes=MAX).data == b"<html>"
    assert decoded(head(Content_Encoding="zstd"), b"<html>", max_bytes=MAX) == Content(
        b"<html>", False, "zstd: unknown coding"
    )
    assert decoded(head(Transfer_Encoding="chunked"), b"<html>", max_bytes=MAX).data == b"<html>"


PAGES = {
    "html": b"<title>Target</title><a href=/x>x</a>",
    "json": b'{"a": [1, 2, 3]}',
    "long": b"; {all work} and no play\r\n" * 2000,
    "utf-16": "\ufeffall work and no play".encode("utf-16-le"),
    "shift_jis": "日本語のページ\n".encode("shift_jis") * 40,
    "mark": "\ufeff日本語".encode(),
    "png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\0",
}


@pytest.mark.parametrize(
    "named",
    ["gzip", "x-gzip", "deflate", "br", "gzip, br", "br, gzip", "deflate, br", "br, deflate"],
)
@pytest.mark.parametrize("page", PAGES)
def test_a_coding_that_was_not_applied_leaves_the_bytes_as_they_are(named: str, page: str) -> None:
    content = decoded(head(Content_Encoding=named), PAGES[page], max_bytes=MAX)
    assert (content.data, content.truncated, content.broken) == (PAGES[page], False, False)
    assert "the body is not compressed" in content.error


@pytest.mark.parametrize(
    ("named", "applied"),
    [
        *[
            ("deflate", "gzip"),
            ("br", "gzip"),
            ("gzip", "deflate"),
            ("br", "deflate"),
            ("deflate", "DEFLATE"),
        ],
        *[("gzip", "DEFLATE"), ("br", "DEFLATE"), ("gzip", "br"), ("deflate", "br")],
    ],
)
@pytest.mark.parametrize("page", PAGES)
def test_another_coding_than_the_one_named_is_undone(named: str, applied: str, page: str) -> None:
    body = CODERS[applied](PAGES[page])
    assert decoded(head(Content_Encoding=named), body, max_bytes=MAX) == Content(
        PAGES[page], False, ""
    )


@pytest.mark.parametrize("applied", ["gzip", "deflate", "DEFLATE", "br"])
@pytest.mark.parametrize("other", ["gzip", "deflate", "br", "gzip, gzip"])
@pytest.mark.parametrize("page", PAGES)
def test_of_several_codings_those_are_undone_that_were_applied(
    applied: str, other: str, page: str
) -> None:
    named = applied.lower()
    body = CODERS[applied](PAGES[page])
    for codings in (f"{named}, {other}", f"{other}, {named}"):
        content = decoded(head(Content_Encoding=codings), body, max_bytes=MAX)
        assert (content.data, content.broken) == (PAGES[page], False), codings
    again = decoded(
        head(Content_Encoding=f"{named}\r\nContent-Encoding: {other}"), body, max_bytes=MAX
    )
    assert again.data == PAGES[page]


@pytest.mark.parametrize("first", ["gzip", "deflate", "DEFLATE", "br"])
@pytest.mark.parametrize("second", ["gzip", "deflate", "DEFLATE", "br"])
def test_codings_in_the_wrong_order_are_undone(first: str, second: str) -> None:
    body = CODERS[second](CODERS[first](PAGES["long"]))
    content = decoded(head(Content_Encoding=f"{second}, {first}".lower()), body, max_bytes=MAX)
    assert content == Content(PAGES["long"], False, "")


@pytest.mark.parametrize("coding", ["gzip", "deflate", "DEFLATE", "br"])
def test_a_damaged_coding_leaves_its_mark(coding: str) -> None:
    body = CODERS[coding](random.Random(3).randbytes(5000).hex().encode())
    content = decoded(head(Content_Encoding=coding), body[:2000], max_bytes=MAX)
    assert content.broken
    assert len(content.data) > 1000
    assert not decoded(head(Content_Encoding=coding), body, max_bytes=MAX).broken


@pytest.mark.parametrize("applied", ["gzip", "deflate", "DEFLATE", "br"])
@pytest.mark.parametrize("named", ["deflate", "br, deflate", "deflate, br, gzip"])
def test_a_bomb_with_another_name_is_cut_at_the_limit(applied: str, named: str) -> None:
    content = decoded(head(Content_Encoding=named), CODERS[applied](bytes(5 << 20)), max_bytes=1000)
    assert len(content.data) <= 1000


@pytest.mark.parametrize(
    "named", ["deflate", "br", "br, deflate", "deflate, br, deflate, br, deflate"]
)
def test_what_was_not_compressed_costs_linear_time(named: str) -> None:
    def cost_s(count: int) -> float:
        body = random.Random(4).randbytes(count)
        began = time.process_time()
        decoded(head(Content_Encoding=named), body, max_bytes=MAX)
        return time.process_time() - began

    small, large = (sorted(cost_s(count) for _ in range(5))[2] for count in (200_000, 800_000))
    assert large < 8 * small + 0.02


@pytest.mark.parametrize(
    ("body", "data", "error"),
    [
        (b"5\r\nhello\r\n", b"hello", "no last chunk"),
        (b"5\r\nhel", b"hel", "cut off"),
        (b"5\r\nhello\r\nxyz\r\n", b"hello", "no chunk size"),
        (b"5\nhello\n0\n\n", b"hello", ""),
        (b"5\r\nhello0\r\n\r\n", b"hello", ""),
        (b"0\r\n\r\n", b"", ""),
        (b"ffffffffffffff\r\nhello", b"hello", "cut off"),
        (b"-5\r\nhello", b"-5\r\nhello", "no chunks"),
    ],
)
def test_damaged_chunks(body: bytes, data: bytes, error: str) -> None:
    content = decoded(head(Transfer_Encoding="chunked"), body, max_bytes=MAX)
    assert content.data == data
    assert error in content.error
    assert bool(error) == bool(content.error)


def test_too_many_codings_are_said() -> None:
    assert "9 codings" in decoded(head(Content_Encoding="gzip," * 9), b"x", max_bytes=MAX).error


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=300),
    st.binary(max_size=300),
    st.sampled_from([*CODERS, "chunked", "gzip, chunked"]),
)
def test_never_raises(junk: bytes, body: bytes, coding: str) -> None:
    for prefix in (
        b"",
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03",
        b"\x78\x9c",
        b"\x1b",
        b"3\r\n",
    ):
        content = decoded(head(Content_Encoding=coding) + junk, prefix + body, max_bytes=500)
        assert len(content.data) <= 500
        assert decoded(junk, body, max_bytes=10**6).data is not None
