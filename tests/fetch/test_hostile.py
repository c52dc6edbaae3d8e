"""Whatever a server does, a URL ends in one outcome, in bounded time and memory, with what came kept."""

import socket
from dataclasses import replace

import pytest

from crawl_lib.states import WITH_RESPONSE, Outcome
from tests.fetch.driver import CONFIG, run
from tests.web.hostile import OK_BODY, SPACED_HEAD, HostileWeb

QUICK = replace(CONFIG, time_limit_s=0.3)


@pytest.fixture
def web():
    with HostileWeb() as server:
        yield server


@pytest.mark.parametrize(
    ("path", "outcome", "truncated", "body"),
    [
        ("/ok", Outcome.OK, None, OK_BODY),
        ("/http10", Outcome.OK, None, OK_BODY),
        ("/interim", Outcome.OK, None, OK_BODY),
        ("/spacing", Outcome.OK, None, OK_BODY),
        ("/folded", Outcome.OK, None, OK_BODY),
        ("/bare-lf", Outcome.OK, None, OK_BODY),
        ("/long", Outcome.OK, None, b"four"),
        ("/short", Outcome.OK, "disconnect", b"only this"),
        ("/endless-chunk", Outcome.OK, "disconnect", b"4\r\ngood\r\n"),
        ("/chunked", Outcome.OK, None, b"4;x=y\r\ngood\r\n0\r\nX-Trailer: 1\r\n\r\n"),
        ("/status/204", Outcome.OK, None, None),
        ("/status/404", Outcome.GONE, None, OK_BODY),
        ("/status/410", Outcome.GONE, None, OK_BODY),
        ("/status/403", Outcome.CLIENT_ERROR, None, OK_BODY),
        ("/status/500", Outcome.SERVER_ERROR, None, OK_BODY),
        ("/status/600", Outcome.UNEXPECTED_STATUS, None, OK_BODY),
        ("/status/302", Outcome.UNEXPECTED_STATUS, None, OK_BODY),
        ("/redirect-loop", Outcome.REDIRECT, None, b""),
        ("/http09", Outcome.PROTOCOL_ERROR, None, b""),
        ("/garbage", Outcome.PROTOCOL_ERROR, None, b""),
        ("/header-flood/100000", Outcome.PROTOCOL_ERROR, None, b""),
        ("/header-flood/2000000", Outcome.PROTOCOL_ERROR, None, b""),
        ("/endless-interim", Outcome.PROTOCOL_ERROR, None, b""),
        ("/close", Outcome.CONNECT_FAILED, None, b""),
        ("/reset", Outcome.CONNECT_FAILED, None, b""),
    ],
)
def test_each_habit_ends_in_its_outcome(tmp_path, web, path, outcome, truncated, body):
    fetched = run(tmp_path, [web.url(path)])[web.url(path)]
    assert (fetched.outcome, fetched.truncated) == (outcome, truncated), fetched.error
    if body is not None:
        assert fetched.body == body
    assert "\n" not in fetched.error
    assert bool(fetched.head) == (outcome in WITH_RESPONSE) == (fetched.status is not None)
    assert fetched.request.startswith(b"GET /")


@pytest.mark.parametrize("path", ["/hang", "/hang-in-head", "/drip-head"])
def test_no_whole_head_in_time_is_a_timeout(tmp_path, web, path):
    fetched = run(tmp_path, [web.url(path)], QUICK)[web.url(path)]
    assert fetched.outcome is Outcome.TIMEOUT
    assert fetched.head == b""
    assert 250 <= fetched.duration_ms < 2000


@pytest.mark.parametrize(("path", "body"), [("/hang-in-body", b"some"), ("/drip-body", b"x")])
def test_a_body_cut_by_time_is_kept_and_marked(tmp_path, web, path, body):
    fetched = run(tmp_path, [web.url(path)], QUICK)[web.url(path)]
    assert (fetched.outcome, fetched.truncated) == (Outcome.OK, "time")
    assert fetched.body.startswith(body)


def test_broken_chunks_keep_what_came(tmp_path, web):
    fetched = run(tmp_path, [web.url("/broken-chunk")])[web.url("/broken-chunk")]
    assert (fetched.outcome, fetched.truncated) == (Outcome.OK, "disconnect")
    assert fetched.body.startswith(b"4\r\ngood\r\n")


def test_negative_length_ends_somehow(tmp_path, web):
    fetched = run(tmp_path, [web.url("/negative")])[web.url("/negative")]
    assert fetched.outcome in (Outcome.OK, Outcome.PROTOCOL_ERROR)


def test_the_last_header_block_is_kept_byte_for_byte(tmp_path, web):
    found = run(tmp_path, [web.url("/spacing"), web.url("/interim")])
    assert found[web.url("/spacing")].head == SPACED_HEAD
    assert found[web.url("/interim")].head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type")
    assert b"103" not in found[web.url("/interim")].head


@pytest.mark.parametrize(
    ("size", "truncated"), [(999, None), (1000, None), (1001, "length"), (500_000, "length")]
)
def test_a_body_is_kept_up_to_exactly_the_limit(tmp_path, web, size, truncated):
    url = web.url(f"/body/{size}")
    fetched = run(tmp_path, [url], replace(CONFIG, max_body_bytes=1000))[url]
    assert (len(fetched.body), fetched.truncated) == (min(size, 1000), truncated)
    assert fetched.outcome is Outcome.OK


def test_an_endless_body_ends_at_the_limit(tmp_path, web):
    url = web.url("/endless-body")
    fetched = run(tmp_path, [url], replace(CONFIG, max_body_bytes=1_000_000))[url]
    assert (len(fetched.body), fetched.truncated) == (1_000_000, "length")


def test_a_gzip_bomb_is_not_unpacked(tmp_path, web):
    fetched = run(tmp_path, [web.url("/bomb")])[web.url("/bomb")]
    assert fetched.body.startswith(b"\x1f\x8b")
    assert len(fetched.body) < 20_000


def test_refused_types_keep_their_head_only(tmp_path, web):
    config = replace(CONFIG, mime_types=("text/*",))
    found = run(tmp_path, [web.url("/pdf"), web.url("/ok"), web.url("/status/404")], config)
    refused = found[web.url("/pdf")]
    assert (refused.outcome, refused.body, refused.status) == (Outcome.MIME_REFUSED, b"", 200)
    assert b"application/pdf" in refused.head
    assert found[web.url("/ok")].outcome is Outcome.OK
    assert found[web.url("/status/404")].outcome is Outcome.GONE


def test_closing_at_accept_is_no_connection(tmp_path, web):
    def slam(sock: socket.socket) -> bool:
        sock.close()
        return True

    web.at_accept = slam
    fetched = run(tmp_path, [web.url()])[web.url()]
    assert fetched.outcome is Outcome.CONNECT_FAILED
    assert fetched.attempts == 3


def test_a_closed_port_is_no_connection(tmp_path):
    with HostileWeb() as web:
        url = web.url()
    fetched = run(tmp_path, [url])[url]
    assert fetched.outcome is Outcome.CONNECT_FAILED
    assert (fetched.request, fetched.head) == (b"", b"")


@pytest.mark.parametrize(("path", "outcome", "tries"), [
    ("/flaky/500/1", Outcome.OK, 2), ("/flaky/503/2", Outcome.OK, 3), ("/flaky/502/9", Outcome.SERVER_ERROR, 3),
    ("/flaky/429/1", Outcome.OK, 2), ("/flaky/404/1", Outcome.GONE, 1),
])  # fmt: skip
def test_server_errors_are_tried_again(tmp_path, web, path, outcome, tries):
    fetched = run(tmp_path, [web.url(path)])[web.url(path)]
    assert (fetched.outcome, fetched.attempts) == (outcome, tries)
    assert len(web.requests) == tries


def test_a_url_that_curl_cannot_send_ends_alone(tmp_path, web):
    bad = [
        f"http://127.0.0.1:{web.port}/a b",
        f"http://127.0.0.1:{web.port}/\u2603",
        "http://[::1:80/",
    ]
    found = run(tmp_path, [*bad, web.url()])
    assert len(found.fetched) == 4
    assert found[web.url()].outcome is Outcome.OK


def test_one_bad_host_does_not_hold_the_others(tmp_path):
    config = replace(CONFIG, time_limit_s=1.0, connections=4)
    with HostileWeb("127.0.0.2") as bad, HostileWeb() as good:
        hanging = [bad.url("/hang"), bad.url("/hang?2")]
        fine = [good.url(f"/ok?{number}") for number in range(20)]
        found = run(tmp_path, hanging + fine, config, limit_s=0.5)
    assert sum(fetched.outcome is Outcome.OK for fetched in found.fetched) == 20
    assert found.closed
