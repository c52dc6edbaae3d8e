"""The log of a service: a problem that lasts is told now and then."""

from __future__ import annotations

import logging

import pytest

from crawl_lib.cli import servicelog
from crawl_lib.cli.servicelog import MOST_TEXTS, REPEAT_S, RepeatFilter


def record(text: str, number: int = 0, level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord("service", level, "", 0, text, (number,), None)


def test_the_same_text_is_logged_again_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [5.0]
    monkeypatch.setattr(servicelog.time, "monotonic", lambda: clock[0])
    filtering = RepeatFilter()
    assert filtering.filter(record("away: %d", 1))
    assert not filtering.filter(record("away: %d", 1))
    assert filtering.filter(record("away: %d", 2)), "another text"
    clock[0] += REPEAT_S - 1
    assert not filtering.filter(record("away: %d", 1))
    clock[0] += 1
    assert filtering.filter(record("away: %d", 1))
    assert not filtering.filter(record("away: %d", 1))


def test_few_texts_are_remembered() -> None:
    """Texts name URLs, which strangers choose."""
    filtering = RepeatFilter()
    for number in range(2 * MOST_TEXTS):
        assert filtering.filter(record("%d", number))
    assert filtering.filter(record("%d", 0)), "forgotten"
    assert not filtering.filter(record("%d", 2 * MOST_TEXTS - 1))
    assert len(filtering._logged_s) == MOST_TEXTS


def test_news_and_malformed_records_pass() -> None:
    """Only problems repeat by themselves; logging reports a malformed record without an error for the caller."""
    filtering = RepeatFilter()
    assert filtering.filter(record("served: %d", 1, logging.INFO))
    assert filtering.filter(record("served: %d", 1, logging.INFO))
    assert filtering.filter(record("no place for the number", 1))
    assert not filtering.filter(record("no place for the number", 1))
