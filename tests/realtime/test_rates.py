"""Rates that operators set at run time, by command and by API: in force within 2 s, in each fetcher."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.cli import main
from crawl_lib.config import FetchConfig
from crawl_lib.errors import InputError
from crawl_lib.fetch import limits_of
from crawl_lib.realtime.protocol import Clock, Done, Fetch, Grant, Rate, Rates
from crawl_lib.realtime.rates import MOST_RATES, is_blocked, rate_of, rated, require_few
from crawl_lib.urls import key_of
from tests.e2e.crawl import write_config
from tests.realtime.fake import Served, make_config, run
from tests.realtime.remote import Talk, remote
from tests.realtime.test_gate import setup
from tests.web.hostile import HostileWeb


def test_the_longest_domain_counts_before_the_config() -> None:
    rates = [
        Rate(domain="example.org", delay_s=10.0),
        Rate(domain="www.example.org", connections=3),
    ]
    config = rated(FetchConfig(host_delay_s=1.0), rates)
    assert [
        limits_of(config, host)[0] for host in ("a.example.org", "www.example.org", "b.test")
    ] == [10.0, 1.0, 1.0]
    assert limits_of(config, "www.example.org")[1] == 3
    blocked = [Rate(domain="example.org", is_blocked=True)]
    assert [
        is_blocked(blocked, host) for host in ("example.org", "a.example.org", "notexample.org")
    ] == [1, 1, 0]


@pytest.mark.parametrize(
    "wrong", [{"domain": "a/b"}, {"domain": ""}, {"domain": "a.test", "delay_s": -1}]
)
def test_unusable_rates_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        rate_of(wrong)
    assert rate_of({"domain": "B\u00fccher.test"}).domain == "xn--bcher-kva.test"
    with pytest.raises(InputError, match="remove one"):
        require_few(
            [Rate(domain=f"{number}.test") for number in range(MOST_RATES)], Rate(domain="a.test")
        )


def test_a_table_keeps_rates(connect: Any) -> None:
    pages = connect()
    rates = (
        Rate(domain="a.test", delay_s=0.25),
        Rate(domain="b.test", connections=2, is_blocked=True),
    )
    for rate in rates:
        pages.set_rate(rate)
    assert pages.rates() == rates
    pages.set_rate(Rate(domain="a.test"))
    assert pages.rates() == rates[1:]


def test_a_running_fetcher_goes_by_a_rate_at_once(tmp_path: Path) -> None:
    fetch = {
        "host_delay_s": 30.0,
        "allow_networks": ["127.0.0.0/8"],
        "robots": "ignore",
        "ip_delay_s": 0.0,
    }
    with HostileWeb() as web, remote(tmp_path) as there, there.connect() as connection:
        talk = Talk(connection)
        talk.send(setup(tmp_path, fetch=fetch))
        clock = talk.hear(Clock)
        talk.send(Rates(rates=(Rate(domain="127.0.0.1", delay_s=0.05),)))
        talk.send(Grant(parts=((0, 255),), until_ms=clock.now_ms + 60_000, unowned=((0, 255),)))
        urls = [web.url(f"/ok?{number}") for number in range(4)]
        for number, url in enumerate(urls[:2], 1):
            talk.send(Fetch(id=number, url=url, key=key_of(url).hex()))
        assert [talk.hear(Done).hop.status for _ in range(2)] == [200, 200], "not 30 s later"
        talk.send(Rates(rates=(Rate(domain="127.0.0.1", delay_s=1000.0),)))
        talk.send(Fetch(id=3, url=urls[2], key=key_of(urls[2]).hex()))
        talk.send(Rates(rates=(Rate(domain="127.0.0.1", is_blocked=True),)))
        assert talk.hear(Done).hop.outcome == "filtered", "it waited for its turn, and was blocked"
        talk.send(Rates(rates=(Rate(domain="127.0.0.1", delay_s=0.05),)))
        talk.send(Fetch(id=4, url=urls[3], key=key_of(urls[3]).hex()))
        assert talk.hear(Done).hop.status == 200
    assert len(web.paths()) == 3


def test_the_api_sets_rates_and_the_service_goes_by_them(tmp_path: Path) -> None:
    async def test(served: Served) -> None:
        answer = await served.client.put(
            "/v1/rates", json={"domain": "a.example", "is_blocked": True}
        )
        assert answer.json()["rates"] == [{"domain": "a.example", "is_blocked": True}]
        [decision] = await served.submit("http://www.a.example/")
        assert (decision["decision"], decision["rule"]) == ("refused", "blocked")
        await served.client.put("/v1/rates", json={"domain": "a.example"})
        assert (await served.client.get("/v1/rates")).json()["rates"] == []
        assert (await served.submit("http://www.a.example/"))[0]["decision"] == "new"
        reader = served.client_of("read", name="reader")
        assert (await reader.get("/v1/rates")).status_code == 403
        assert (await served.client.put("/v1/rates", json={"domain": "a/b"})).status_code == 422
        # By another process: the service looks at the table.
        await served.store.set_rate(Rate(domain="b.example", is_blocked=True))
        while not served.service.is_blocked("b.example"):
            await asyncio.sleep(0)

    run(tmp_path, test)


def test_the_command_sets_lists_and_removes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = str(write_config(make_config(tmp_path), tmp_path))

    def rates(*words: str) -> Any:
        assert main(["--config", config, "realtime", "rate", *words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    set_now = {"domain": "a.example", "delay_s": 10.0, "connections": None, "blocked": False}
    assert rates("a.example", "--delay-s", "10") == [set_now]
    assert rates() == [set_now]
    assert rates("a.example", "--remove") == []
    assert main(["--config", config, "realtime", "rate", "--block"]) != 0
