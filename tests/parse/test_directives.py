"""Robots directives of metas and of X-Robots-Tag: for all crawlers, and for ours."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from crawl_lib.parse import Directives

NOW = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
JUNE = datetime(2030, 6, 25, 15, tzinfo=UTC).timestamp()


def of(metas: str = "", *values: str) -> Directives:
    return Directives.of(metas, values, user_agent="Krake", now=NOW)


@pytest.mark.parametrize(
    ("text", "forbidden"),
    [
        ("noindex", Directives(noindex=True)),
        ("NOINDEX,NoFollow", Directives(noindex=True)),
        (" none ", Directives(noindex=True)),
        ("noarchive, nosnippet", Directives(noarchive=True, nosnippet=True)),
        ("nocache", Directives(noarchive=True)),
        ("max-snippet:0", Directives(nosnippet=True)),
        ("max-snippet: 20, max-image-preview:none", Directives()),
        ("index, follow, all", Directives()),
        ("noindexed", Directives()),
        ("unavailable_after: 2030-06-25T15:00:00Z", Directives(unavailable_after=JUNE)),
        (
            "unavailable_after: 25 Jun 2030 15:00:00 GMT, noindex",
            Directives(noindex=True, unavailable_after=JUNE),
        ),
        ("unavailable_after: 25 Jun 2030 07:00:00 PST", Directives(unavailable_after=JUNE)),
        (
            "unavailable_after: Tuesday, 25-Jun-30 15:00:00 UTC, nosnippet",
            Directives(False, False, True, JUNE),
        ),
        (
            "unavailable_after: 2031-01-01, unavailable_after: 2030-06-25 15:00",
            Directives(unavailable_after=JUNE),
        ),
        ("unavailable_after: soon", Directives()),
        ("unavailable_after: 9999-12-31T23:59:59-23:00", Directives()),
    ],
)
def test_directives_mean_the_same_in_metas_and_in_headers(text: str, forbidden: Directives) -> None:
    assert of(text) == forbidden
    assert of("", text) == forbidden


@pytest.mark.parametrize(
    ("values", "forbidden"),
    [
        (("krake: noindex",), Directives(noindex=True)),
        (("KRAKE: unavailable_after: 2030-06-25 15:00",), Directives(unavailable_after=JUNE)),
        (("otherbot: noindex, nosnippet",), Directives()),
        (("otherbot: noindex, krake: nosnippet",), Directives(nosnippet=True)),
        (("otherbot: noindex", "noarchive"), Directives(noarchive=True)),
        (("*: noindex",), Directives(noindex=True)),
        (("otherbot: unavailable_after: Tue, 25 Jun 2030 15:00:00 GMT, noindex",), Directives()),
    ],
)
def test_a_header_may_name_a_crawler(values: tuple[str, ...], forbidden: Directives) -> None:
    assert of("", *values) == forbidden


def test_metas_and_headers_count_together() -> None:
    assert of("nosnippet", "noarchive", "krake: noindex") == Directives(True, True, True)


@pytest.mark.parametrize(
    "piece", ["noindex,", "unavailable_after: 2030,", "day,", "a:", ",", ": ", "max-snippet:0 "]
)
def test_hostile_headers_take_linear_time(piece: str) -> None:
    def spent(count: int) -> float:
        text = piece * count
        before = time.process_time()
        of(text, text)
        return time.process_time() - before

    assert min(spent(40_000) for _ in range(3)) < 12 * max(
        0.001, min(spent(10_000) for _ in range(3))
    )
