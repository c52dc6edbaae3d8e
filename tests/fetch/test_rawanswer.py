"""Heads that libcurl does not recognise are read raw; an answer without a status line is refused."""

from dataclasses import replace
from functools import partial
from io import BytesIO
from random import Random

import pytest
from warcio.archiveiterator import ArchiveIterator

from crawl_lib.fetch.rawanswer import NO_STATUS, RawAnswer
from crawl_lib.parse import decode_content, parse_head
from crawl_lib.segment.encoder import RecordEncoder
from crawl_lib.states import Outcome
from tests.fetch.driver import CONFIG, run, taken
from tests.parse.test_content import CODERS, TEXT, chunked
from tests.web.hostile import OK_BODY, HostileWeb

OBEY = replace(CONFIG, robots="obey")
BEFORE = {
    "empty line": b"\r\n",
    "newline": b"\n",
    "many lines": b"\r\n" * 500,
    "spaces": b" \t\r\n",
    "mark": b"\xef\xbb\xbf",
    "mark and line": b"\xef\xbb\xbf\r\n",
    "line and mark": b"\r\n\xef\xbb\xbf",
}
LENGTH = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 11\r\n\r\n" + OK_BODY
HEADS = {
    "length": LENGTH,
    "length and more": LENGTH + b"HTTP/1.1 200 OK\r\n\r\n",
    "newlines": LENGTH.replace(b"\r\n", b"\n"),
    "two equal lengths": LENGTH.replace(b"\r\n\r\n", b"\r\nContent-Length: 11, 11\r\n\r\n"),
    "http 1.0": b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n" + OK_BODY,
    "interim": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    + LENGTH,
    "lower case": LENGTH.replace(b"HTTP", b"http"),
    "no type": b"HTTP/1.1 200 OK\r\n\r\n" + OK_BODY,
}


@pytest.fixture
def web():
    with HostileWeb() as server:
        yield server


def fetched_of(tmp_path, web, data, config=CONFIG, *, hangs=False, pieces=None):
    """What an answer of these bytes ends in. `hangs`: the server keeps the connection; `pieces`: how it sends them."""

    def handler(talk):
        for piece in pieces or [data]:
            talk.send(piece)
        if hangs:
            talk.hang()
        return False

    web.on("/page", handler)
    found = run(tmp_path, [web.url("/page")], config)[web.url("/page")]
    assert len(web.requests) == 1, "a second request would be one more in the host's turn"
    return found


@pytest.mark.parametrize("head", HEADS)
def test_what_comes_before_the_status_line_is_skipped_and_kept(tmp_path, web, head):
    answers = {f"/{number}": before + HEADS[head] for number, before in enumerate(BEFORE.values())}
    for path, data in answers.items():
        web.on(path, partial(_answer, data))
    found = run(tmp_path, [web.url(path) for path in answers])
    assert len(web.requests) == len(answers), (
        "a second request would be one more in the host's turn"
    )
    for path, data in answers.items():
        fetched = found[web.url(path)]
        assert (fetched.outcome, fetched.status, fetched.body, fetched.truncated) == (
            Outcome.OK,
            200,
            OK_BODY,
            None,
        )
        assert parse_head(fetched.head).status == 200
        assert fetched.head in data
        assert data.startswith(fetched.head) or head == "interim", (
            "the record holds what the server sent"
        )


@pytest.mark.parametrize("size", [1, 2, 7, 40])
@pytest.mark.parametrize("before", ["mark and line", "many lines"])
def test_pieces_of_any_size_say_the_same(size, before):
    for head in HEADS.values():
        whole, pieces = RawAnswer(), RawAnswer()
        data = BEFORE[before] + head
        body = whole.take(data)
        found = [pieces.take(data[start : start + size]) for start in range(0, len(data), size)]
        assert (b"".join(found), pieces.head, pieces.is_whole) == (body, whole.head, whole.is_whole)
        assert body == OK_BODY


def test_a_status_line_in_pieces_is_read(tmp_path, web):
    pieces = [b"\xef", b"\xbb\xbf", b"\r", b"\nHT", b"TP/1.1 2", LENGTH[10:]]
    fetched = fetched_of(tmp_path, web, b"", pieces=pieces)
    assert (fetched.outcome, fetched.body) == (Outcome.OK, OK_BODY)


@pytest.mark.parametrize("data", [
    b"<p>no head at all</p>", b"\r\n<p>no head</p>", b"\xef\xbb\xbf<p>no head</p>", b"\xef\xbbHTTP/1.1 200 OK\r\n\r\n",
    b"\r\nSSH-2.0-nonsense\r\n\r\n", b"\r\nHTTP/1.1 nothing\r\n\r\nx", b"\r\nHTTP/1.1 20\r\n\r\nx",
    b"\r\nHTTPS/1 200 OK\r\n\r\nx",
    b"x" * 300_000, b"\r\n" + b"x" * 300_000, b"\0" * 9,
])  # fmt: skip
def test_an_answer_without_a_status_line_is_refused_at_once(tmp_path, web, data):
    fetched = fetched_of(tmp_path, web, data, hangs=True)
    assert (fetched.outcome, fetched.error, fetched.head, fetched.body) == (
        Outcome.PROTOCOL_ERROR,
        NO_STATUS,
        b"",
        b"",
    )
    assert fetched.duration_ms < 10_000


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n",
        b"\xef\xbb",
        b"\r\nHT",
        b"\r\nHTTP/1.1 200 OK\r\nContent-Type: text/html\r\n",
        b"\r\n" * 9,
    ],
)
def test_a_head_without_an_end_is_refused(tmp_path, web, data):
    fetched = fetched_of(tmp_path, web, data)
    assert (fetched.outcome, fetched.error) == (Outcome.PROTOCOL_ERROR, "the headers do not end")


@pytest.mark.parametrize("data", [
    b"\r\n" * 100_000, b"\r\nHTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000 + b"\r\nx",
    b"\r\nHTTP/1.1 200 OK\r\nX: " + b"y" * 99_999,
    b"\r\n" + b"HTTP/1.1 100 Continue\r\n\r\n" * 5000, b"\xef\xbb\xbf" * 40_000,
    b"\r\nHTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000 + b"Content-Length: 0\r\n\r\n",
])  # fmt: skip
def test_a_raw_head_over_the_limit_is_refused(tmp_path, web, data):
    fetched = fetched_of(tmp_path, web, data, hangs=True)
    assert (fetched.outcome, fetched.error) == (
        Outcome.PROTOCOL_ERROR,
        "the headers pass fetch.max_header_bytes",
    )


@pytest.mark.parametrize("lengths", [b"4, 5", b"-4", b"x", b"4\r\nContent-Length: 5", b"9" * 30])
def test_lengths_that_differ_are_an_error_as_libcurl_has_it(tmp_path, web, lengths):
    fetched = fetched_of(
        tmp_path, web, b"\r\nHTTP/1.1 200 OK\r\nContent-Length: %b\r\n\r\nfour" % lengths
    )
    assert fetched.outcome is Outcome.PROTOCOL_ERROR
    assert "Content-Length" in fetched.error


def framed(framing: str, body: bytes) -> bytes:
    fields = {"length": b"Content-Length: %d\r\n" % len(body), "close": b""}
    if framing in fields:
        return fields[framing] + b"\r\n" + body
    return b"Transfer-Encoding: %b\r\n\r\n%b" % (framing.encode(), chunked(body))


FRAMINGS = ["length", "chunked", "Chunked", "identity, chunked"]


@pytest.mark.parametrize(
    ("framing", "coding"),
    [
        ("length", "gzip"),
        ("chunked", "gzip"),
        ("identity, chunked", "deflate"),
        ("Chunked", "identity"),
        ("close", "gzip"),
    ],
)
def test_bodies_are_read_as_if_the_head_had_been_right(tmp_path, web, framing, coding):
    head = b"\r\nHTTP/1.1 200 OK\r\nContent-Encoding: %b\r\n" % coding.encode()
    data = head + framed(framing, CODERS[coding](TEXT))
    fetched = fetched_of(tmp_path, web, data, hangs=framing != "close")
    assert (fetched.outcome, fetched.truncated, fetched.error) == (Outcome.OK, None, "")
    assert decode_content(parse_head(fetched.head), fetched.body, max_bytes=1 << 20).data == TEXT
    assert fetched.duration_ms < 10_000, "a connection that is kept open does not hold up the end"


@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_body_that_breaks_off_is_marked(tmp_path, web, framing):
    data = b"\xef\xbb\xbfHTTP/1.1 200 OK\r\n" + framed(framing, TEXT)
    fetched = fetched_of(tmp_path, web, data[:-100])
    assert (fetched.outcome, fetched.truncated) == (Outcome.OK, "disconnect")
    assert data[:-100].endswith(fetched.body)
    assert len(fetched.body) > len(TEXT) // 2


@pytest.mark.parametrize("framing", [*FRAMINGS, "close"])
def test_a_raw_body_over_the_limit_is_cut(tmp_path, web, framing):
    config = replace(CONFIG, max_body_bytes=1000)
    fetched = fetched_of(
        tmp_path, web, b"\nHTTP/1.1 200 OK\r\n" + framed(framing, TEXT), config, hangs=True
    )
    assert (fetched.outcome, fetched.truncated, len(fetched.body)) == (Outcome.OK, "length", 1000)


def test_a_raw_body_that_hangs_is_cut_by_time(tmp_path, web):
    config = replace(CONFIG, time_limit_s=0.3)
    fetched = fetched_of(
        tmp_path, web, b"\nHTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfour", config, hangs=True
    )
    assert (fetched.outcome, fetched.truncated, fetched.body) == (Outcome.OK, "time", b"four")


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
def test_an_answer_without_a_body_ends_with_its_head(tmp_path, web, status):
    fetched = fetched_of(
        tmp_path, web, b"\r\nHTTP/1.1 %b\r\nContent-Length: 5\r\n\r\n" % status.encode(), hangs=True
    )
    assert (fetched.status, fetched.body, fetched.truncated) == (int(status[:3]), b"", None)
    assert fetched.duration_ms < 10_000


def test_refused_types_redirects_and_errors_are_as_usual(tmp_path, web):
    heads = {
        "/pdf": b"\r\nHTTP/1.1 200 OK\r\nContent-Type: application/pdf\r\n\r\nx",
        "/moved": b"\xef\xbb\xbfHTTP/1.1 302 Found\r\nLocation: /ok\r\nContent-Length: 0\r\n\r\n",
        "/gone": b"\n\nHTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\nx",
    }
    for path, data in heads.items():
        web.on(path, partial(_answer, data))
    found = run(
        tmp_path, [web.url(path) for path in heads], replace(CONFIG, mime_types=("text/*",))
    )
    outcomes = [found[web.url(path)].outcome for path in heads]
    assert outcomes == [Outcome.MIME_REFUSED, Outcome.REDIRECT, Outcome.GONE]


def _answer(data, talk):
    talk.send(data)
    return False


def test_robots_txt_is_read_and_followed_with_such_heads(tmp_path, web):
    rules = b"User-agent: *\nDisallow: /denied\n"
    web.on(
        "/robots.txt", partial(_answer, b"\r\nHTTP/1.1 301 Moved\r\nLocation: /rules.txt\r\n\r\n")
    )
    web.on("/rules.txt", partial(_answer, b"\xef\xbb\xbfHTTP/1.0 200 OK\r\n\r\n" + rules))
    found = run(tmp_path, [web.url("/denied"), web.url("/ok")], OBEY)
    assert found[web.url("/denied")].outcome is Outcome.ROBOTS_DENIED
    assert found[web.url("/ok")].outcome is Outcome.OK


def test_a_connection_ends_with_such_an_answer_and_such_an_answer_needs_a_new_one(tmp_path, web):
    """libcurl passes on raw only the first answer of a connection. Another one is asked for again, as a try."""

    def handler(talk):
        talk.send(b"\r\n" + LENGTH)
        return True

    web.on("/raw", handler)
    web.on("/raw?2", handler)
    found = run(tmp_path, [web.url("/raw"), web.url("/ok?1"), web.url("/raw?2"), web.url("/ok?2")])
    assert found.outcomes() == ["ok"] * 4
    assert len(web.requests) <= 6
    for seen in web.requests:
        paths = [one.path for one in web.requests if one.connection == seen.connection]
        assert not any(path.startswith("/raw") for path in paths[:-1])


def test_a_kept_connection_without_a_status_line_ends_as_a_new_one_does(tmp_path, web):
    web.on("/bad", partial(_answer, b"<p>no head"))
    found = run(tmp_path, [web.url("/bad"), web.url("/ok")])
    assert (found[web.url("/bad")].outcome, found[web.url("/bad")].error) == (
        Outcome.PROTOCOL_ERROR,
        NO_STATUS,
    )


@pytest.mark.parametrize("before", ["empty line", "many lines", "mark and line"])
def test_its_record_is_read_by_warcio(tmp_path, web, before):
    fetched = fetched_of(tmp_path, web, BEFORE[before] + LENGTH)
    group = RecordEncoder().group(fetched, taken([fetched.url])[0])
    records = {}
    for record in ArchiveIterator(BytesIO(group.data), no_record_parse=True):
        records[record.rec_type] = record.content_stream().read()
    assert records["response"] == BEFORE[before] + LENGTH
    assert f"krake-head-bytes: {len(fetched.head)}".encode() in records["metadata"]
    assert [record.rec_type for record in ArchiveIterator(BytesIO(group.data))] == [
        "request",
        "response",
        "metadata",
    ]


def test_chunks_in_pieces_end_where_decoding_ends():
    draw = Random(5)
    for _ in range(200):
        body = chunked(draw.randbytes(draw.randrange(50)), draw.randrange(1, 20))
        data = b"\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body
        raw, found, at = RawAnswer(), b"", 0
        while at < len(data):
            step = draw.randrange(1, 30)
            found += raw.take(data[at : at + step])
            at += step
        assert (raw.is_whole, found) == (True, body)


def test_endless_interim_answers_are_a_head_over_the_limit(tmp_path, web):
    """libcurl ends with an error of receiving at 300 KB of heads, which looked as if there was no connection."""

    def flood(talk):
        while not talk.web.closing.is_set():
            talk.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 4000)
        return False

    web.on("/page", flood)
    fetched = run(tmp_path, [web.url("/page")])[web.url("/page")]
    assert (fetched.outcome, fetched.error) == (
        Outcome.PROTOCOL_ERROR,
        "the headers pass fetch.max_header_bytes",
    )
