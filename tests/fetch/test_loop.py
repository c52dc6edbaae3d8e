"""The crawl loop: it ends when it should, as it should, and one URL's trouble stays its own."""

import asyncio
import threading
import time
from collections import Counter
from dataclasses import replace

import pytest

from crawl_lib.fetch import RETRIES
from crawl_lib.fetch.dns import literal_address
from crawl_lib.fetch.retry import Trouble
from crawl_lib.states import Outcome
from tests.fetch.driver import CONFIG, FakeCarrier, NoAddressError, answer, run, run_virtual
from tests.web.hostile import HostileWeb


def test_every_outcome_and_trouble_has_a_row():
    assert set(RETRIES) == set(Outcome) | set(Trouble)
    assert all(row.max_tries >= 1 and row.wait_s >= 0 for row in RETRIES.values())
    assert all(row.of_host for row in RETRIES.values() if row.counts)


def test_nothing_to_do_is_done_at_once(tmp_path):
    assert run(tmp_path, []).left == 0


def test_thousands_of_hosts_each_in_order(tmp_path):
    urls = [f"http://h{number % 3000}.test/{number // 3000}" for number in range(9000)]
    carrier = FakeCarrier(lambda *_: answer(), takes_s=lambda url: 0.1 + len(url) % 3)
    began = time.process_time()
    found = run_virtual(tmp_path, urls, replace(CONFIG, connections=64, host_delay_s=1.0), carrier)
    assert time.process_time() - began < 15
    assert len(found.fetched) == 9000
    assert carrier.peak == 64
    for number in range(0, 3000, 500):
        prefix = f"http://h{number}.test/"
        assert [sent.url for sent in carrier.sent if sent.url.startswith(prefix)] == [
            f"{prefix}{page}" for page in range(3)
        ]


def test_the_deadline_starts_nothing_new_and_lets_what_runs_end(tmp_path):
    carrier = FakeCarrier(lambda *_: answer(), takes_s=lambda _: 4.0)
    urls = [f"http://h{number}.test/" for number in range(100)]
    found = run_virtual(tmp_path, urls, replace(CONFIG, connections=10), carrier, limit_s=6.0)
    assert len(carrier.sent) == 20
    assert max(sent.start for sent in carrier.sent) <= 1006.1
    assert found.outcomes() == ["ok"] * 20
    assert (found.left, found.closed) == (80, True)


def test_a_deadline_in_the_past_fetches_nothing(tmp_path):
    carrier = FakeCarrier(lambda *_: answer())
    found = run_virtual(
        tmp_path, ["http://a.test/"] * 3, replace(CONFIG, host_delay_s=5.0), carrier, limit_s=-1.0
    )
    assert len(carrier.sent) <= 1
    assert found.left >= 2


def test_stop_abandons_what_runs_at_once(tmp_path):
    with HostileWeb() as web:
        began = time.monotonic()
        stopping = threading.Event()
        web.on("/hang", lambda talk: (stopping.set(), talk.hang(), False)[2])
        found = run(tmp_path, [web.url("/hang"), web.url()], stop=stopping.is_set)
        assert time.monotonic() - began < 2
    assert (found.fetched, found.left) == ([], 2)


def test_what_a_callback_raises_ends_the_run_and_is_raised(tmp_path):
    class MineError(Exception):
        pass

    def burst(_taken, _fetched):
        raise MineError("from the caller")

    with HostileWeb() as web:
        urls = [web.url(f"/ok?{number}") for number in range(5)]
        with pytest.raises(MineError, match="from the caller"):
            run(tmp_path, urls, on_fetched=burst)
        with pytest.raises(MineError):
            run(tmp_path, urls, stop=lambda: burst(None, None))


def test_a_host_without_address_ends_all_its_urls(tmp_path):
    def resolver(host: str) -> list[str]:
        if host == "gone.test":
            raise NoAddressError("no such name")
        return ["127.0.0.1"]

    carrier = FakeCarrier(lambda *_: answer())
    urls = [f"http://{host}.test/{page}" for page in range(5) for host in ("gone", "fine")]
    found = run_virtual(tmp_path, urls, replace(CONFIG, robots="obey"), carrier, resolver=resolver)
    assert Counter(found.outcomes()) == {"dns_failed": 5, "ok": 5}
    assert not [sent for sent in carrier.sent if "gone" in sent.url]
    assert "no such name" in found["http://gone.test/3"].error


def test_a_resolver_that_is_down_is_asked_again(tmp_path):
    asked = []

    def resolver(host: str) -> list[str]:
        asked.append(host)
        if len(asked) == 1:
            raise NoAddressError("try again", temporary=True)
        return ["127.0.0.1"]

    found = run_virtual(
        tmp_path, ["http://a.test/"], CONFIG, FakeCarrier(lambda *_: answer()), resolver=resolver
    )
    assert (found.outcomes(), len(asked)) == (["ok"], 2)


def test_names_are_looked_up_once_while_they_are_fresh(tmp_path):
    asked = []

    def resolver(host: str) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    carrier = FakeCarrier(lambda *_: answer(), takes_s=lambda _: 10.0)
    urls = [f"http://a.test/{page}" for page in range(10)]
    run_virtual(tmp_path, urls, replace(CONFIG, dns_ttl_s=35.0), carrier, resolver=resolver)
    assert len(asked) == 3
    assert {sent.address for sent in carrier.sent} == {"127.0.0.1"}


def test_another_address_is_tried_where_one_does_not_answer(tmp_path):
    def respond(url: str, _: int):
        bad = carrier.sent[-1].address == "127.0.0.9"
        return answer(0, code=7) if bad else answer()

    carrier = FakeCarrier(respond)
    found = run_virtual(
        tmp_path, ["http://a.test/"], CONFIG, carrier, resolver=lambda _: ["127.0.0.9", "127.0.0.1"]
    )
    assert [sent.address for sent in carrier.sent] == ["127.0.0.9", "127.0.0.1"]
    assert found.outcomes() == ["ok"]


@pytest.mark.parametrize("robots", ["obey", "ignore"])
def test_inner_addresses_are_refused_before_a_socket_opens(tmp_path, robots):
    config = replace(CONFIG, allow_networks=(), robots=robots)
    with HostileWeb() as web:
        urls = [
            web.url(),
            web.url("/ok", host="evil.test"),
            f"http://[::1]:{web.port}/",
            "http://169.254.169.254/",
        ]
        found = run(tmp_path, urls, config)
        assert web.connections == 0
    assert found.outcomes() == ["address_refused"] * 4
    assert all("of the inner network" in fetched.error for fetched in found.fetched)


def test_of_mixed_addresses_only_allowed_ones_are_used(tmp_path):
    carrier = FakeCarrier(lambda *_: answer())
    run_virtual(
        tmp_path, ["http://a.test/"], CONFIG, carrier, resolver=lambda _: ["10.0.0.1", "127.0.0.3"]
    )
    assert [sent.address for sent in carrier.sent] == ["127.0.0.3"]


@pytest.mark.parametrize(("host", "address"), [
    ("127.0.0.1", "127.0.0.1"), ("[::1]", "::1"), ("a.test", None), ("a1", None),
])  # fmt: skip
def test_hosts_that_are_addresses(host, address):
    assert literal_address(host) == address


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, None])
def test_it_runs_on_asyncios_own_loop_too(tmp_path, factory):
    more = {"loop_factory": factory} if factory else {}
    with HostileWeb() as web:
        urls = [web.url(f"/ok?{number}") for number in range(50)]
        assert Counter(run(tmp_path, urls, **more).outcomes()) == {"ok": 50}
        assert web.connections == 1
