"""Dates in header fields: RFC 9110, 5.6.7."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from crawl_lib.parse import http_date

NOW = datetime(2023, 11, 14, 12, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("Sun, 06 Nov 1994 08:49:37 GMT", "1994-11-06T08:49:37"),
        ("Sunday, 06-Nov-94 08:49:37 GMT", "1994-11-06T08:49:37"),
        ("Sun Nov  6 08:49:37 1994", "1994-11-06T08:49:37"),
        ("sun, 6 nov 1994 8:49:37 utc", "1994-11-06T08:49:37"),
        ("06 Nov 1994 08:49:37", "1994-11-06T08:49:37"),
        (" Sun, 06-Nov-1994 08:49:37 GMT ", "1994-11-06T08:49:37"),
        ("Sun, 06 Nov 1994 08:49:37 +0130", "1994-11-06T07:19:37"),
        ("Sun, 06 Nov 1994 08:49:37 -0130", "1994-11-06T10:19:37"),
        ("Sat, 31 Dec 2016 23:59:60 GMT", "2016-12-31T23:59:59"),
        ("Tuesday, 14-Nov-73 11:00:00 GMT", "2073-11-14T11:00:00"),
        ("Tuesday, 14-Nov-73 13:00:00 GMT", "1973-11-14T13:00:00"),
        ("Tuesday, 01-Jan-74 00:00:00 GMT", "1974-01-01T00:00:00"),
        ("Tuesday, 01-Jan-23 00:00:00 GMT", "2023-01-01T00:00:00"),
        ("Tuesday, 31-Dec-68 00:00:00 GMT", "2068-12-31T00:00:00"),
        ("Sunday, 29-Feb-72 00:00:00 GMT", "2072-02-29T00:00:00"),
    ],
)
def test_each_form_of_a_date(text: str, meant: str) -> None:
    assert http_date(text, NOW) == datetime.fromisoformat(meant + "+00:00").timestamp()


@pytest.mark.parametrize("text", [
    "", "0", "-1", "soon", "Sun, 31 Feb 2021 00:00:00 GMT", "Sun, 06 Foo 1994 08:49:37 GMT",
    "Sun, 06 Nov 1994 24:00:00 GMT",
    "Sun, 06 Nov 1994 08:49:61 GMT", "Sun, 06 Nov 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 1994", "Sun Nov 6 08:49:37",
    "Sun, 06 Nov 0000 08:49:37 GMT", "Fri, 31 Dec 9999 23:59:59 -2300", "Sun, 06 Nov 1994 08:49:37 GMT, 60",
    "Sun, \u0660\u0666 Nov 1994 08:49:37 GMT",
])  # fmt: skip
def test_what_is_no_date(text: str) -> None:
    assert http_date(text, NOW) is None


@pytest.mark.parametrize("piece", ["Sun, ", "0", " ", "a", "Sun Nov ", ", "])
def test_a_date_is_read_in_linear_time(piece: str) -> None:
    began = time.process_time()
    http_date(piece * 100_000, NOW)
    assert time.process_time() - began < 0.5
