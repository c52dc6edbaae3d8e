"""A host's state is freed when its URLs are done and its delay is over, and comes back as polite as it was."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.fetch import HostStore
from crawl_lib.fetch.book import HostBook
from crawl_lib.fetch.hosts import Job, Site, Slot
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


def book_of(store: HostStore, clock: Clock) -> HostBook:
    return HostBook(replace(CONFIG, host_delay_s=1.0), store, clock, clock)


def asked(slot: Slot, clock: Clock) -> None:
    """The host's last response has ended now."""
    slot.ended_at = slot.asked = clock.now
    slot.changed = True


BUSY: list[Callable[[Slot], None]] = [
    lambda slot: slot.pages.append(JOB),
    lambda slot: slot.errands.append(JOB),
    lambda slot: slot.parked.append(JOB),
    lambda slot: slot.later.append((0.0, 0, JOB)),
    lambda slot: setattr(slot, "in_flight", 1),
    lambda slot: setattr(slot, "in_heap", True),
    lambda slot: setattr(slot, "waits_for", SITE),
    lambda slot: setattr(slot, "changed", True),
    lambda slot: setattr(slot, "not_before", 5000.0),
    lambda slot: setattr(slot, "delay_s", 500.0),
]


@pytest.mark.parametrize("make_busy", BUSY)
def test_a_host_with_anything_to_do_or_to_wait_for_stays(
    store: HostStore, clock: Clock, make_busy: Callable[[Slot], None]
) -> None:
    book = book_of(store, clock)
    site = book.site("http://a.test")
    slot = book.slot("a.test")
    asked(slot, clock)
    book.save()
    make_busy(slot)
    clock.now += 100.0
    assert book.free() == []
    assert (book.slot("a.test"), book.site("http://a.test")) == (slot, site)


def test_a_host_is_freed_with_its_sites_when_its_delay_is_over_and_not_before(store: HostStore, clock: Clock) -> None:
    book = book_of(store, clock)
    sites = [book.site(authority) for authority in ("http://a.test", "https://a.test", "http://a.test:8080")]
    slot = book.slot("a.test")
    slot.delay_s = 7.0
    asked(slot, clock)
    assert book.free() == []
    book.save()
    for _ in range(7):
        assert book.free() == []
        clock.now += 1.0
    assert book.free() == sites
    assert book.slots == {}
    clock.now -= 3.0  # had it come back earlier, or where the wall clock was set back, it is owed the rest
    again = book.slot("a.test")
    assert again is not slot
    assert again.ready_at() == 1007.0


def test_few_hosts_are_in_memory_at_a_time(tmp_path: Path) -> None:
    """However many a batch has: they are begun when no other is ready, and freed soon after their last answer."""
    alive = []

    def count_slots(*_: object) -> None:
        if len(carrier.sent) % 500 == 0:
            alive.append(sum(isinstance(thing, Slot) for thing in gc.get_objects()))

    gc.collect()  # what other tests left
    hosts = 2400
    carrier = FakeCarrier(lambda *_: answer(404))
    urls = [f"http://h{number}.test/" for number in range(hosts)]
    with HostStore(tmp_path, wall=lambda: 0.0) as kept:
        run_virtual(
            tmp_path, urls, replace(POLITE, connections=8, ip_delay_s=0.0), carrier, hosts=kept, on_fetched=count_slots
        )
        assert all(kept.host(f"h{number}.test") is not None for number in range(0, hosts, 100))
    assert len(carrier.sent) == 2 * hosts
    assert max(alive) < hosts / 4


@pytest.mark.parametrize("delay_s", [3, 12, 30])
def test_a_host_that_is_asked_for_again_and_again_is_owed_its_delay(tmp_path: Path, delay_s: int) -> None:
    """Its own page is done at once; then robots.txt of other hosts lead to it, before and after it was freed."""

    def respond(url: str, _: int) -> Any:
        if url == "http://b.test/robots.txt":
            return answer(body=b"user-agent: *\ncrawl-delay: %d" % delay_s)
        if url.endswith("/robots.txt"):
            return answer(301, b"Location: http://b.test/shared.txt\r\n")
        return answer()

    urls = ["http://b.test/", *(f"http://a{number}.test/" for number in range(8))]
    carrier = FakeCarrier(respond, takes_s=lambda url: 9.0 * int(url[8]) + 1.0 if url[7] == "a" else 0.1)
    found = run_virtual(tmp_path, urls, replace(POLITE, ip_delay_s=0.0), carrier)
    assert {fetched.outcome for fetched in found.fetched} == {Outcome.OK}
    sent = of_hosts(carrier)["b.test"]
    assert len(sent) == 2 + 8
    assert min(gaps(sent)[1:]) >= delay_s - SLACK_S


def test_hosts_with_most_urls_are_begun_first_and_each_keeps_its_order(tmp_path: Path) -> None:
    """A host's delay makes it last as long as it has URLs, so the longest must not begin last."""
    urls = [f"http://h{number}.test/{page}" for page in range(6) for number in range(6) if page <= number]
    carrier = FakeCarrier(lambda *_: answer())
    run_virtual(tmp_path, urls, replace(POLITE, robots="ignore", ip_delay_s=0.0, connections=1), carrier)
    sent = [entry.url for entry in carrier.sent]
    assert sent[:6] == [f"http://h{number}.test/0" for number in (5, 4, 3, 2, 1, 0)]
    for number in range(6):
        mine = [url for url in sent if f"//h{number}." in url]
        assert mine == sorted(mine)
