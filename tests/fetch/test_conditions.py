"""Headers that ask for a page only if it has changed: what is sent, and what an answer of 304 then means."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawl_lib.fetch.classify import outcome_of_status
from crawl_lib.fetch.exchange import MAX_VALIDATOR_CHARS, conditions_of
from crawl_lib.fetch.hosts import Job, Site
from crawl_lib.records import Earlier, QueuedUrl, TakenUrl
from crawl_lib.states import Outcome
from crawl_lib.urls import authority_of
from tests.fetch.driver import run
from tests.web.hostile import HostileWeb

PLACE = ("7/node-a", "x.warc.gz", 9, 1.5, "")
DATE = "Sun, 22 Nov 2026 08:00:00 GMT"


def asking(url: str, etag: str | None = None, date: str | None = None) -> QueuedUrl:
    return QueuedUrl(url, list_name="7-1", earlier=Earlier(*PLACE, etag, date).to_text())


def job(queued: QueuedUrl) -> Job:
    return Job(queued.url, Site(authority_of(queued.url)), TakenUrl(0, b"k" * 20, queued))


@pytest.mark.parametrize(
    ("etag", "date", "sent"),
    [
        ('W/"x"', DATE, ['If-None-Match: W/"x"', f"If-Modified-Since: {DATE}"]),
        ('"x"', None, ['If-None-Match: "x"']),
        (None, "yesterday", ["If-Modified-Since: yesterday"]),
        (None, None, []),
        ("x\r\nHost: other", None, []),
        ("\u00e4", None, []),
        ("x" * (MAX_VALIDATOR_CHARS + 1), DATE, [f"If-Modified-Since: {DATE}"]),
    ],
)
def test_validators_are_said_again_as_they_came(
    etag: str | None, date: str | None, sent: list[str]
) -> None:
    assert conditions_of(job(asking("http://a.example/", etag, date))) == sent


def test_nothing_is_asked_conditionally_for_robots_or_without_a_capture() -> None:
    url = "http://a.example/robots.txt"
    site = Site(authority_of(url))
    assert conditions_of(Job(url, site, None, robots_for=site)) == []
    for earlier in ("", "null", '{"etag": "x"}'):
        assert conditions_of(job(QueuedUrl(url, list_name="7", earlier=earlier))) == []


def test_a_304_is_an_answer_only_where_it_was_asked_for() -> None:
    head = b"HTTP/1.1 304 Not Modified\r\n\r\n"
    assert outcome_of_status(304, head, is_conditional=True) is Outcome.NOT_MODIFIED
    assert outcome_of_status(304, head) is Outcome.UNEXPECTED_STATUS
    assert outcome_of_status(200, head, is_conditional=True) is Outcome.OK


def test_a_handle_that_asked_so_once_does_not_ask_so_again(tmp_path: Path) -> None:
    """Handles are used again: each request says what its own URL's capture had, and the record says what was sent."""

    paths = ("/a", "/b", "/c")
    with HostileWeb() as web:
        for path in paths:
            web.on(path, lambda talk: talk.send(b"HTTP/1.1 304 Not Modified\r\n\r\n") or True)
        found = run(
            tmp_path,
            [asking(web.url("/a"), '"a"'), web.url("/b"), asking(web.url("/c"), '"c"', DATE)],
        )
        heads = [seen.head for seen in web.requests]
    fetched = [found[web.url(path)] for path in paths]
    assert heads == [one.request for one in fetched]
    assert [one.request.count(b"\r\nIf-") for one in fetched] == [1, 0, 2]
    assert [one.outcome for one in fetched] == [
        Outcome.NOT_MODIFIED,
        Outcome.UNEXPECTED_STATUS,
        Outcome.NOT_MODIFIED,
    ]
    assert found.robots == []
