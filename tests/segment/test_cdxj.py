"""Urlkeys of the CDXJ index."""

from __future__ import annotations

import pytest

from crawl_lib.segment.cdxj import declared_mime, surt


@pytest.mark.parametrize(
    ("url", "urlkey"),
    [
        ("http://example.com/", "com,example)/"),
        ("http://www.example.com/A/b/", "com,example)/a/b"),
        ("http://www2.a.co.uk:8080/?b=2&a=1", "uk,co,a:8080)/?a=1&b=2"),
        ("https://example.com:443/x", "com,example)/x"),
        ("http://127.0.0.1:80/x", "127.0.0.1)/x"),
        ("http://[2001:db8::1]/x", "[2001:db8::1])/x"),
        ("http://localhost/", "localhost)/"),
        ("http://[bad", "http://[bad"),
        ("", "-"),
        ("http://a.example/a b", "example,a)/a%20b"),
        ("http://a.example?x", "http://a.example?x"),
        ("http://a.example/x?", "example,a)/x"),
        ("http://a.example/x?b=/&a#c", "example,a)/x?a&b=/"),
        ("http://a.example//x//", "example,a)//x"),
    ],
)
def test_surt(url, urlkey):
    assert surt(url) == urlkey


@pytest.mark.parametrize(
    ("head", "mime"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Type: Text/HTML; charset=x\r\n\r\n", "text/html"),
        (b"HTTP/1.1 200 OK\r\nCONTENT-TYPE:a/b\r\n\r\n", "a/b"),
        (b"HTTP/1.1 200 OK\r\nContent-Type:\r\n\r\n", "unk"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "unk"),
    ],
)
def test_declared_mime(head, mime):
    assert declared_mime(head) == mime
