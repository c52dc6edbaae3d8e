"""A host's state is freed when its URLs are done and its delay is over, and comes back as polite as it was."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.config import RetryConfig
from crawl_lib.fetch import HostStore
from crawl_lib.fetch.hosts import Host, Hosts, Job, Site
from crawl_lib.states import Outcome
from tests.fetch.driver import CONFIG, FakeCarrier, answer, run_virtual
from tests.fetch.test_politeness import POLITE, SLACK_S, gaps, of_hosts

SITE = Site("http://a.test")
JOB = Job("http://a.test/x", SITE, None)


class Clock:
    """A clock that does not move until it is told."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Any:
    with HostStore(tmp_path, wall=clock) as opened:
        yield opened


def hosts_of(store: HostStore, clock: Clock) -> Hosts:
    return Hosts(replace(CONFIG, host_delay_s=1.0), RetryConfig(), store, clock, clock)


def asked(host: Host, clock: Clock) -> None:
    """The host's last response has ended now."""
    host.ended_at = host.asked = clock.now
    host.changed = True


BUSY: list[Callable[[Host], None]] = [
    lambda host: host.pages.append(JOB),
    lambda host: host.urgent.append(JOB),
    lambda host: host.later.append((0.0, 0, JOB)),
    lambda host: setattr(host, "in_flight", 1),
    lambda host: setattr(host, "in_heap", True),
    lambda host: setattr(host, "waits_for", SITE),
    lambda host: setattr(host, "changed", True),
    lambda host: setattr(host, "not_before", 5000.0),
    lambda host: setattr(host, "delay_s", 500.0),
]


@pytest.mark.parametrize("make_busy", BUSY)
def test_a_host_with_anything_to_do_or_to_wait_for_stays(
    store: HostStore, clock: Clock, make_busy: Callable[[Host], None]
) -> None:
    hosts = hosts_of(store, clock)
    site = hosts.site("http://a.test")
    host = hosts.host("a.test")
    asked(host, clock)
    hosts.save()
    make_busy(host)
    clock.now += 100.0
    assert hosts.free() == []
    assert (hosts.host("a.test"), hosts.site("http://a.test")) == (host, site)


def test_a_host_is_freed_with_its_sites_when_its_delay_is_over_and_not_before(
    store: HostStore, clock: Clock
) -> None:
    hosts = hosts_of(store, clock)
    sites = [
        hosts.site(authority)
        for authority in ("http://a.test", "https://a.test", "http://a.test:8080")
    ]
    host = hosts.host("a.test")
    host.delay_s = 7.0
    asked(host, clock)
    assert hosts.free() == []
    hosts.save()
    for _ in range(7):
        assert hosts.free() == []
        clock.now += 1.0
    assert hosts.free() == sites
    assert hosts.begun == {}
    clock.now -= (
        3.0  # had it come back earlier, or where the wall clock was set back, it is owed the rest
    )
    again = hosts.host("a.test")
    assert again is not host
    assert again.ready_at() == 1007.0


def test_few_hosts_are_in_memory_at_a_time(tmp_path: Path) -> None:
    """However many a batch has: they are begun when no other is ready, and freed soon after their last answer."""
    alive = []

    def count_hosts(*_: object) -> None:
        if len(carrier.sent) % 500 == 0:
            alive.append(sum(type(thing) is Host for thing in gc.get_objects()))

    gc.collect()  # what other tests left
    hosts = 2400
    carrier = FakeCarrier(lambda *_: answer(404))
    urls = [f"http://h{number}.test/" for number in range(hosts)]
    with HostStore(tmp_path, wall=lambda: 0.0) as kept:
        run_virtual(
            tmp_path,
            urls,
            replace(POLITE, connections=8, ip_delay_s=0.0),
            carrier,
            hosts=kept,
            on_fetched=count_hosts,
        )
        assert all(kept.host(f"h{number}.test") is not None for number in range(0, hosts, 100))
    assert len(carrier.sent) == 2 * hosts
    assert max(alive) < hosts / 4


@pytest.mark.parametrize("delay_s", [3, 12, 30])
def test_a_host_that_is_asked_for_again_and_again_is_owed_its_delay(
    tmp_path: Path, delay_s: int
) -> None:
    """Its own page is done at once; then robots.txt of other hosts lead to it, before and after it was freed."""

    def respond(url: str, _: int) -> Any:
        if url == "http://b.test/robots.txt":
            return answer(body=b"user-agent: *\ncrawl-delay: %d" % delay_s)
        if url.endswith("/robots.txt"):
            return answer(301, b"Location: http://b.test/shared.txt\r\n")
        return answer()

    urls = ["http://b.test/", *(f"http://a{number}.test/" for number in range(8))]
    carrier = FakeCarrier(
        respond, takes_s=lambda url: 9.0 * int(url[8]) + 1.0 if url[7] == "a" else 0.1
    )
    found = run_virtual(tmp_path, urls, replace(POLITE, ip_delay_s=0.0), carrier)
    assert {fetched.outcome for fetched in found.fetched} == {Outcome.OK}
    sent = of_hosts(carrier)["b.test"]
    assert len(sent) == 2 + 8
    assert min(gaps(sent)[1:]) >= delay_s - SLACK_S


def test_hosts_with_most_urls_are_begun_first_and_each_keeps_its_order(tmp_path: Path) -> None:
    """A host's delay makes it last as long as it has URLs, so the longest must not begin last."""
    urls = [
        f"http://h{number}.test/{page}"
        for page in range(6)
        for number in range(6)
        if page <= number
    ]
    carrier = FakeCarrier(lambda *_: answer())
    run_virtual(
        tmp_path, urls, replace(POLITE, robots="ignore", ip_delay_s=0.0, connections=1), carrier
    )
    sent = [entry.url for entry in carrier.sent]
    assert sent[:6] == [f"http://h{number}.test/0" for number in (5, 4, 3, 2, 1, 0)]
    for number in range(6):
        mine = [url for url in sent if f"//h{number}." in url]
        assert mine == sorted(mine)
