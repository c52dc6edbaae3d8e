"""Heads read leniently; types declared and shown."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_lib.errors import UrlError
from crawl_lib.parse import detect_mime, parse_head
from crawl_lib.parse.directives import x_robots_nofollow
from crawl_lib.parse.headers import parse_content_type
from crawl_lib.urls import resolve


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


LOCATIONS = [
    (b"/caf\xc3\xa9", "/caf%C3%A9"),
    (b"/caf\xe9", "/caf%E9"),
    (b"/voil\xc3\xa0", "/voil%C3%A0"),
    (b"\t/\xa0x\x85 ", "/%A0x%85"),
    (b"/s?q=\xd8\xa7&r=\xff#\xe9", "/s?q=%D8%A7&r=%FF"),
    (b"/%e9\xe9\xed\xa0\x80", "/%E9%E9%ED%A0%80"),
    (b"//b\xc3\xbccher.invalid/\xfc", "http://xn--bcher-kva.invalid/%FC"),
    (b"HTTP://\xe4\xbe\x8b.invalid:8080", "http://xn--fsq.invalid:8080/"),
    (b"https:\\\\b\xc3\xbccher\xe3\x80\x82invalid", "https://xn--bcher-kva.invalid/"),
    (b"http://u\xe9:p\xe9@a.invalid/", "http://a.invalid/"),
]


@pytest.mark.parametrize(("octets", "expected"), LOCATIONS)
def test_octets_of_a_location_are_octets(octets: bytes, expected: str) -> None:
    location = parse_head(b"HTTP/1.1 302 Found\r\nLocation: " + octets + b"\r\n\r\n").location
    assert location is not None
    assert location.isascii()
    assert resolve("http://a.example/x/", location) == (
        f"http://a.example{expected}" if expected[0] == "/" else expected
    )


@pytest.mark.parametrize(
    "octets", [b"http://b\xfccher.invalid/", b"http://a\xc3.invalid/", b"http://[\xc3\xa9]/"]
)
def test_a_host_that_is_not_utf8_is_invalid(octets: bytes) -> None:
    location = parse_head(b"HTTP/1.1 302 Found\r\nLocation: " + octets + b"\r\n\r\n").location
    assert location is not None
    with pytest.raises(UrlError, match="invalid"):
        resolve("http://a.example/", location)


@pytest.mark.parametrize(
    ("line", "status"),
    [(b"HTTP/2 200", 200), (b"http/1.0  301 x", 301), (b"HTTP/1.1 2000", 0), (b"", 0)],
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
        ("; charset=utf-8", None, None),
        ("text/html; charset=a; charset=b", "text/html", "a"),
        ("text/html; charset=; charset=b", "text/html", "b"),
        ('text/html; charset=""; charset=b', "text/html", None),
        ('text/html; x="; charset=a"; charset=b', "text/html", "b"),
        (r'text/html; x="\"; charset=a"; charset=b', "text/html", "b"),
        (r'text/html; charset="\u\t\f-8"', "text/html", "utf-8"),
        ('text/html; charset= "utf-8"', "text/html", "utf-8"),
        ("text/html, text/html; charset=a", "text/html", "a"),
        ("text/html; charset=a, text/html", "text/html", "a"),
        ("text/html; charset=a, text/html; charset=b", "text/html", "b"),
        ("text/html; charset=a, text/plain", "text/plain", None),
        ("text/html; charset=a, text/plain, text/html", "text/html", None),
        ("text/html; charset=a, */*", "text/html", "a"),
        ("text/html; charset=a, nonsense, ,", "text/html", "a"),
        (", text/html", "text/html", None),
        ('text/html; charset="a, text/plain', "text/html", "a, text/plain"),
        ('text/html; x="a, text/plain"; charset=b', "text/html", "b"),
        ('text/html" , text/plain', None, None),
        ("html", None, None),
        ("", None, None),
    ],
)
def test_content_type(value: str, mime: str | None, charset: str | None) -> None:
    assert parse_content_type(value) == (mime, charset)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (["a/b", "c/d", "?"], ("c/d", None)),
        (["a/b; charset=x", "a/b"], ("a/b", "x")),
        (["a/b", "A/B; charset=x"], ("a/b", "x")),
        (["a/b; charset=x", "c/d", "*/*"], ("c/d", None)),
        (['a/b; x="', "c/d"], ("a/b", None)),
        (["", "a/b"], ("a/b", None)),
        ([], (None, None)),
        (["a/b; x=" + "y" * 500, "a/b; charset=z"], ("a/b", "z")),
    ],
)
def test_content_types_of_several_fields_are_one_list(
    values: list[str], found: tuple[str | None, str | None]
) -> None:
    """Fetch Standard, "extract a MIME type"."""
    head = "".join(f"Content-Type: {value}\r\n" for value in values)
    assert parse_head(b"HTTP/1.1 200\r\n" + head.encode()).content_type == found


@pytest.mark.parametrize(
    "piece", ["a/b,", ";", '"', '"\\', "a/b;charset=", ";=", "; charset=a,", " "]
)
def test_a_content_type_is_read_in_linear_time(piece: str) -> None:
    def cost_s(count: int) -> float:
        began = time.process_time()
        parse_content_type("a/b" + piece * count)
        return time.process_time() - began

    small, large = (sorted(cost_s(count) for _ in range(5))[2] for count in (20_000, 80_000))
    assert large < 8 * small + 0.01


def test_the_first_value_counts_where_a_field_has_one() -> None:
    head = parse_head(b"HTTP/1.1 302\nLocation:\nLocation: /a\nLOCATION: /b\nETag:\n\n")
    assert (head.get("location"), head.get("etag"), head.get("age")) == ("/a", "", None)


@given(st.binary())
def test_no_head_raises(data: bytes) -> None:
    head = parse_head(data)
    assert head.content_type is not None


WORDS = (
    b"ID3 tags are old",
    b"ID3",
    b"GIF89a is a format",
    b"wOFF wOF2",
    b"RIFF and WEBPVP",
    b"RIFFxxxxWEBPVP",
)
XHTML = b"<?xml version='1.0'?><html lang='en' xmlns='http://www.w3.org/1999/xhtml'><head/></html>"
DOCTYPE = b'<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" "http://www.w3.org/TR/xhtml1-strict.dtd">'


@pytest.mark.parametrize(
    ("declared", "data", "detected"),
    [
        ("text/html", b"<p>", "text/html"),
        ("text/html", b"%PDF-1.4", "application/pdf"),
        ("text/plain", b"%PDF-1.7 \r%\xe2\xe3", "application/pdf"),
        ("text/plain", b"%PDF-1.7 begins a file of PDF", "text/plain"),
        ("text/html", b"%PDF- begins a <b>file</b>", "text/html"),
        ("text/plain", b"%!PS-Adobe-3.0 EPSF-3.0\n", "application/postscript"),
        ("text/plain", b"%!PS-Adobe-3.0 begins PostScript", "text/plain"),
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
        *((mime, text, mime) for mime in ("text/plain", "text/html", "text/css") for text in WORDS),
        (None, b"ID3 tags are old", "text/plain"),
        ("text/plain", b"ID3\x04\x00\x00", "audio/mpeg"),
        ("text/html", b"GIF89a\x01\x00\x01\x00", "image/gif"),
        ("text/plain", b"wOFF\x00\x01\x00\x00", "font/woff"),
        ("text/html", b"RIFF\x1a\x00\x00\x00WEBPVP8 ", "image/webp"),
        *(
            (mime, XHTML, "application/xhtml+xml")
            for mime in ("application/xml", "text/xml", "application/xhtml+xml")
        ),
        ("text/xml", b"<!-- " + b"x" * 5000 + b" -->" + XHTML[21:], "application/xhtml+xml"),
        (
            "text/xml",
            "\ufeff".encode("utf-16-le") + XHTML.decode().encode("utf-16-le"),
            "application/xhtml+xml",
        ),
        ("text/xml", XHTML.decode().encode("utf-16-be"), "application/xhtml+xml"),
        ("text/xml", DOCTYPE + XHTML[21:], "application/xhtml+xml"),
        ("text/xml", b"<html><a href=x></html>", "text/xml"),
        (
            "application/xml",
            b"<r><html xmlns='http://www.w3.org/1999/xhtml'/></r>",
            "application/xml",
        ),
        ("text/html", b"<?xml version='1.0'?><rss version='2.0'>", "application/rss+xml"),
        ("text/html", b"\xef\xbb\xbf\n<!-- x -->\n<rss>", "application/rss+xml"),
        ("text/html", b"<rdf:RDF xmlns='x'>", "application/rss+xml"),
        ("text/html", b"<feed xmlns='http://www.w3.org/2005/Atom'>", "application/atom+xml"),
        ("text/html", b"<urlset xmlns='x'>", "application/xml"),
        ("text/html", "<?xml version='1.0'?><sitemapindex>".encode("utf-16"), "application/xml"),
        ("text/html", b"http://a.test/1\nhttp://a.test/2", "text/plain"),
        *[
            (
                "text/html",
                b"http://a.test/" + b"x" * (1430 - cut) + b"\nhttps://a.test",
                "text/plain",
            )
            for cut in range(9)
        ],
        (
            "application/xhtml+xml",
            b"<?xml version='1.0'?><rss version='2.0'>",
            "application/rss+xml",
        ),
        ("application/xhtml+xml", XHTML, "application/xhtml+xml"),
        ("text/html", b"http://a.test/1 is <a href=x>", "text/html"),
        ("text/html", b"<!-- x --><html><rss>", "text/html"),
        ("text/html", DOCTYPE + XHTML[21:], "text/html"),
        ("text/html", b"", "text/html"),
        ("application/xml", b"", "application/xml"),
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
