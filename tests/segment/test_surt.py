"""Urlkeys: those of the library `surt`, by which replay programs look a URL up."""

from __future__ import annotations

import time
from itertools import islice

import pytest

from crawl_lib.segment.cdxj import surt
from tests.segment.surt_random import PYWB_PYTHON, differences, library_keys, random_urls

SID = "0123456789abcdefghijklemopqrstuv"
ASP = "0123456789abcdefghijklmn"


@pytest.mark.parametrize(
    ("url", "urlkey"),
    [
        ("http://example.com/", "com,example)/"),
        ("http://www.example.com/A/b/", "com,example)/a/b"),
        ("http://www2.a.co.uk:8080/?b=2&a=1", "uk,co,a:8080)/?a=1&b=2"),
        ("http://www.www.a.example/", "example,a,www)/"),
        ("http://wwwa.example/", "example,wwwa)/"),
        ("https://example.com:443/x", "com,example)/x"),
        ("http://example.com:443/x", "com,example:443)/x"),
        ("http://example.com:0/x", "com,example)/x"),
        ("http://127.0.0.1:80/x", "1,0,0,127)/x"),
        ("http://127.0.0.1:8080/x", "1,0,0,127:8080)/x"),
        ("http://[2001:db8::1]/x", "2001:db8::1)/x"),
        ("https://[2001:db8::1]:80/x", "2001:db8::1:80)/x"),
        ("http://localhost/", "localhost)/"),
        ("http://a..example/", "example,a)/"),
        ("http://a.example//x//", "example,a)/x"),
        ("http://a.example/x?b=/&a#c", "example,a)/x?a&b=/"),
        ("http://a.example/x?a!=1&a=1", "example,a)/x?a=1&a!=1"),
        ("http://a.example/a b", "example,a)/a%20b"),
        ("http://a.example/%C3%A9%5B%5D%7C", "example,a)/%c3%a9[]|"),
        ("http://a.example/100%/%2525/%%32%35", "example,a)/100%25/%25/%25"),
        ("http://a.example/b%2F..%2Fc%3Fd%23", "example,a)/c?d%23"),
        ("http://a.example/?a=1%262&b=%23", "example,a)/?2&a=1&b=%23"),
        ("http://a.example/?", "example,a)/"),
        ("http://a.example??", "example,a)/??"),
        (f"http://a.example/?PHPSESSID={SID}", "example,a)/"),
        (f"http://a.example/?a=1&sid={SID}", "example,a)/?&a=1"),
        ("http://a.example/?b&CFID=1&CFTOKEN=2&a", "example,a)/?a&b"),
        (f"http://a.example/({ASP})/b.aspx", "example,a)/b.aspx"),
        (f"http://a.example/c/(a({ASP})s({ASP}))/b.aspx?x", "example,a)/c/b.aspx?x"),
        (f"http://a.example/({ASP})/b%3Fc.aspx", f"example,a)/({ASP})/b?c.aspx"),
        ("example.com/x", "com,example)/x"),
        ("", "-"),
    ],
)
def test_the_rules(url, urlkey):
    assert surt(url) == urlkey


def test_the_cases_of_the_library(testdata):
    """Its own tests have one more, which it fails: an escaped `&` parts two fields."""
    cases = dict(
        line.split("\t") for line in (testdata / "surt" / "surt.tsv").read_text().splitlines()
    )
    assert len(cases) == 17
    cases["http://example.com/script?type=a+b+%26+c&grape=wine"] = (
        "com,example)/script?+c&grape=wine&type=a+b+"
    )
    assert {url: surt(url) for url in cases} == cases


@pytest.fixture
def library() -> None:
    """What the key has to be."""
    if not PYWB_PYTHON.exists():
        pytest.skip("the library surt is not there: run `make setup-pywb`")


def test_the_library_fails_that_case_too(library):
    [urlkey] = library_keys(["http://example.com/script?type=a+b+%26+c&grape=wine"])
    assert urlkey == "com,example)/script?+c&grape=wine&type=a+b+"


def test_random_urls_have_the_keys_that_the_library_gives_them(library):
    """By hand a million: `python -m tests.segment.surt_random 1000000`."""
    assert not list(differences(20_000, seed=2026))


def test_a_key_has_no_space_and_is_ascii():
    """Else a line of the index could not be read."""
    for url in islice(random_urls(3), 2000):
        assert surt(url).isascii()
        assert surt(url).isprintable()
        assert " " not in surt(url)


HOSTILE = {
    "escapes of escapes": "/%" + "25" * 30_000,
    "many of them": "/" + "%2525" * 12_000,
    "path sessions, no page after": "/x.aspx" + f"/({ASP})" * 2200,
    "path sessions, no page in the stretch": f"/({ASP})/%3F" * 2000 + ".aspx",
    "a long path session": "/(" + f"a({ASP})" * 2200,
    "query sessions": "/?" + "cfid=" * 12_000,
    "query sessions with fields": "/?" + "cfid=1&" * 8_500,
    "query sessions without end": "/?" + f"sid={SID}!&" * 1600,
    "dots": "/a/.." * 10_000,
    "slashes": "/" * 60_000,
    "fields": "/?" + "&" * 60_000,
}


@pytest.mark.parametrize("rest", HOSTILE.values(), ids=HOSTILE.keys())
def test_the_time_is_linear(rest):
    """Of 60,000 characters each took at most 40 ms where it was tried; squares of that take seconds."""
    before_s = time.process_time()
    surt(f"http://a.example{rest}")
    assert time.process_time() - before_s < 1.0
