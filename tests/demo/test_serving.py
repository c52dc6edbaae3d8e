"""The server gives what the model says, and its log tells what it was asked."""

import gzip
import hashlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
import zlib

import brotli
import pytest

from crawl_lib.errors import KrakeError
from crawl_lib.states import Outcome
from demo import LoggedRequest, RequestLog, Serving, SynthWeb, Target
from demo.__main__ import main
from demo.server import bind

WEB = SynthWeb(seed=11, sites=3, pages_per_site=25)
DECODERS = {
    "gzip": gzip.decompress,
    "br": brotli.decompress,
    "deflate": zlib.decompress,
    None: bytes,
}


def ask(url: str, method: str = "GET", **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
    authority, _, path = url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(authority, timeout=60)
    connection.request(method, f"/{path}", headers={"User-Agent": "tester", **headers})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def test_every_url_answers_as_the_model_says(serving: Serving) -> None:
    accepts = {"Accept-Encoding": "gzip, br, deflate"}
    for visit in serving.truth().visits.values():
        if visit.status is None or visit.url.endswith("/busy-once.html"):
            continue
        answer, body = ask(visit.url, **accepts)
        assert answer.status == visit.status, visit.url
        if visit.digest is not None:
            content = DECODERS[answer.getheader("Content-Encoding")](body)
            assert hashlib.sha1(content).digest() == visit.digest, visit.url
        if visit.outcome is Outcome.REDIRECT:
            assert answer.getheader("Location"), visit.url


def test_codings_only_where_the_client_accepts_them(serving: Serving) -> None:
    url = serving.url(1, "/x/gzip-chunked.html")
    coded, _ = ask(url, **{"Accept-Encoding": "gzip"})
    assert (coded.getheader("Content-Encoding"), coded.getheader("Transfer-Encoding")) == (
        "gzip",
        "chunked",
    )
    plain, body = ask(url, **{"Accept-Encoding": "identity"})
    assert plain.getheader("Content-Encoding") is None
    assert body == WEB.resource(Target(1, "/x/gzip-chunked.html")).content(serving.port)


def test_each_address_is_its_own_site(serving: Serving) -> None:
    assert len({ask(url)[1] for url in serving.seeds}) == 3


def test_busy_page_answers_503_once() -> None:
    with Serving(SynthWeb(seed=1, sites=1, pages_per_site=2)) as fresh:
        url = fresh.url(0, "/x/busy-once.html")
        assert [ask(url)[0].status for _ in range(3)] == [503, 200, 200]


def test_slow_body_ends_late_and_connection_goes_on(serving: Serving) -> None:
    connection = http.client.HTTPConnection("127.0.1.1", serving.port, timeout=60)
    for path in ("/x/slow.html", "/"):
        connection.request("GET", path, headers={"User-Agent": "keep-alive"})
        assert connection.getresponse().read()
    connection.close()
    slow, root = [request for request in serving.log().requests if request.agent == "keep-alive"]
    assert slow.end - slow.start >= 0.2
    assert root.start >= slow.end


def test_head_has_no_body_and_other_methods_are_refused(serving: Serving) -> None:
    answer, body = ask(serving.seeds[0], "HEAD")
    assert (answer.status, body) == (200, b"")
    assert ask(serving.seeds[0], "POST")[0].status == 405


def test_log_counts_requests_by_url_and_tells_agents(serving: Serving) -> None:
    url = serving.url(2, "/x/notes.txt")
    before = serving.log().counts()[url]
    ask(url)
    ask(url)
    log = serving.log()
    assert log.counts()[url] == before + 2
    assert "tester" in log.agents()
    assert f"127.0.1.3:{serving.port}" in log.hosts()


def test_log_outlives_the_server_and_the_server_ends_with_the_block() -> None:
    with Serving(SynthWeb(seed=1, sites=2, pages_per_site=2)) as fresh:
        ask(fresh.seeds[1])
        port = fresh.port
    assert list(fresh.log().counts()) == [f"http://127.0.1.2:{port}/"]
    with pytest.raises(ConnectionRefusedError):
        ask(fresh.seeds[1])


def test_a_server_that_died_is_a_clear_error() -> None:
    with Serving(SynthWeb(seed=1, sites=1, pages_per_site=2)) as fresh:
        os.kill(fresh._process.pid, signal.SIGKILL)
        fresh._process.wait()
        with pytest.raises(KrakeError, match="does not answer"):
            fresh.log()


def test_all_addresses_have_one_port_and_a_taken_one_is_named() -> None:
    sockets = bind(["127.0.8.1", "127.0.8.2"])
    try:
        port = sockets[0].getsockname()[1]
        assert [opened.getsockname() for opened in sockets] == [
            ("127.0.8.1", port),
            ("127.0.8.2", port),
        ]
        with pytest.raises(KrakeError, match=rf"127\.0\.8\.2:{port}: cannot be listened on"):
            bind(["127.0.8.3", "127.0.8.2"], port)
    finally:
        for opened in sockets:
            opened.close()


def test_command_line_serves_until_interrupted() -> None:
    command = [
        sys.executable,
        "-m",
        "demo",
        "serve",
        "--sites",
        "1",
        "--pages-per-site",
        "3",
        "--plain",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        said = json.loads(process.stdout.readline())
        assert ask(said["seeds"][0])[0].status == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0


def test_command_line_prints_the_truth(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["truth", "--sites", "1", "--pages-per-site", "3", "--plain", "--port", "80"]) == 0
    outcomes = json.loads(capsys.readouterr().out)
    assert outcomes["http://127.0.1.1:80/"] == "ok"
    assert main(["truth", "--sites", "0"]) == 1
    assert "at least one site" in capsys.readouterr().err


def test_rate_is_far_above_what_a_crawler_asks(serving: Serving) -> None:
    """At least 3,000 requests a second of server time: its own CPU, so that a busy machine does not matter."""
    connection = http.client.HTTPConnection("127.0.1.2", serving.port, timeout=60)
    before = cpu_s(serving)
    for _ in range(1500):
        connection.request("GET", "/", headers={"User-Agent": "fast"})
        connection.getresponse().read()
    connection.close()
    assert cpu_s(serving) - before < 0.5


def cpu_s(serving: Serving) -> float:
    with open(f"/proc/{serving._process.pid}/stat") as stat:  # noqa: PTH123
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def request_at(start: float, end: float, host: str = "a:1") -> LoggedRequest:
    return LoggedRequest(host, "/", 200, start, end)


def test_closest_gap_runs_from_the_end_of_any_earlier_answer() -> None:
    log = RequestLog.of(
        [
            request_at(5.0, 5.1),
            request_at(0.0, 3.0),
            request_at(1.0, 1.1, "b:1"),
            request_at(3.5, 3.6),
        ]
    )
    assert log.closest_gap_s("a:1") == pytest.approx(0.5)
    assert log.closest_gap_s("b:1") == float("inf")
    assert log.closest_starts_s() == pytest.approx(1.0)
    overlapping = RequestLog.of([request_at(0.0, 3.0), request_at(1.0, 1.2), request_at(3.1, 3.2)])
    assert overlapping.closest_gap_s("a:1") == pytest.approx(-2.0)


def test_log_reads_back_what_it_wrote_and_skips_a_torn_line(tmp_path) -> None:
    requests = [request_at(1.0, 2.0), request_at(time.monotonic(), time.monotonic(), "b:2")]
    path = tmp_path / "log"
    path.write_text("".join(r.to_line() for r in requests) + requests[0].to_line()[:20])
    assert RequestLog.read(path).requests == requests
    assert RequestLog.read(tmp_path / "none").requests == []
