"""No request goes to a port that browsers refuse: of pages that are queued all the same, and of robots.txt."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from crawl_lib.states import Outcome
from crawl_lib.urls.names import REFUSED_PORTS
from tests.fetch.driver import CONFIG, FakeCarrier, answer, run_virtual

PORTS = sorted(REFUSED_PORTS)


@pytest.mark.parametrize("robots", ["obey", "ignore"])
@pytest.mark.parametrize("proxy", [None, "http://127.0.0.1:1"])
def test_a_queued_url_ends_without_a_request_and_the_others_of_its_host_are_fetched(
    tmp_path: Path, robots: str, proxy: str | None
) -> None:
    bad = [f"{scheme}://a.test:{port}/" for port in PORTS for scheme in ("http", "https")]
    good = ["http://a.test/", "http://a.test:8080/"]
    carrier = FakeCarrier(lambda url, _: answer(404) if url.endswith("/robots.txt") else answer())
    found = run_virtual(tmp_path, bad + good, replace(CONFIG, robots=robots, proxy=proxy), carrier)
    assert {sent.url for sent in carrier.sent if not sent.url.endswith("/robots.txt")} == set(good)
    assert not {sent.url for sent in carrier.sent} & {f"{url}robots.txt" for url in bad}
    assert {found[url].outcome for url in bad} == {Outcome.PORT_REFUSED}
    assert f"port {PORTS[-1]}" in found[bad[-1]].error
    assert [found[url].outcome for url in good] == [Outcome.OK] * 2


@pytest.mark.parametrize("seed", range(20))
def test_a_redirect_of_robots_txt_is_not_followed_there(tmp_path: Path, seed: int) -> None:
    """After any number of hops, to any host: what cannot be read forbids all, and the refusal is recorded."""
    draw = random.Random(seed)
    hops, port = draw.randrange(5), draw.choice(PORTS)
    last = f"{draw.choice(['http', 'https'])}://{draw.choice(['a.test', 'b.test', '127.0.0.1', '[::1]'])}:{port}/r"

    def respond(url: str, _: int):
        place = int(url.rpartition("?")[2]) if "?" in url else 0
        return answer(
            302,
            b"Location: %s\r\n" % (last if place == hops else f"/robots.txt?{place + 1}").encode(),
        )

    carrier = FakeCarrier(respond)
    found = run_virtual(tmp_path, ["http://a.test/x"], replace(CONFIG, robots="obey"), carrier)
    assert len(carrier.sent) == hops + 1
    assert all(":" not in sent.url[len("http:") :] for sent in carrier.sent)
    assert (found.robots[-1].url, found.robots[-1].outcome) == (last, Outcome.PORT_REFUSED)
    assert found.fetched[0].outcome is Outcome.ROBOTS_UNREACHABLE
    assert str(port) in found.fetched[0].error
