"""What one transfer may not do to the others: hold their time, their memory, or the loop."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_lib.fetch.exchange import InflightBudget
from crawl_lib.fetch.hosts import Job, Site
from crawl_lib.fetch.transport import Transport
from crawl_lib.states import Outcome
from crawl_lib.urls import authority_of
from tests.fetch.driver import CONFIG, run
from tests.web.hostile import HostileWeb

LARGE = bytes(range(256)) * 4096


def job_of(url):
    return Job(url, Site(authority_of(url)), None)


@pytest.mark.parametrize("body", [b"<p>good</p>", LARGE])
def test_an_answer_that_came_while_the_loop_was_held_is_no_timeout(tmp_path, body):
    """The first answer's callback blocks until the second one has been sent, and for longer than the time limit."""
    config = replace(CONFIG, time_limit_s=0.3, connect_timeout_s=0.3)
    with HostileWeb() as web:
        urls = [web.url("/first", "a.test"), web.url("/second", "b.test")]
        asked, held, sent = threading.Event(), threading.Event(), threading.Event()

        def first(talk):
            assert asked.wait(20)
            return talk.reply()

        def second(talk):
            asked.set()
            assert held.wait(20)
            talk.reply(body=body[:200_000])  # what the sockets take without a reader
            sent.set()
            return True

        def on_fetched(taken, fetched):
            if fetched.url == urls[0]:
                held.set()
                assert sent.wait(20)
                time.sleep(0.5)  # the one sleep: it is the stall

        web.on("/first", first)
        web.on("/second", second)
        found = run(tmp_path, urls, config, on_fetched=on_fetched)
    assert found.outcomes() == ["ok", "ok"]
    assert (found[urls[1]].attempts, found[urls[1]].truncated) == (1, None)
    assert found[urls[1]].body == body[:200_000]


def test_a_host_that_was_connected_while_the_loop_was_held_may_still_answer():
    """The request has not even been sent when both limits have passed."""
    config = replace(CONFIG, time_limit_s=0.3, connect_timeout_s=0.3)

    async def main(url):
        ended = asyncio.get_running_loop().create_future()
        transport = Transport(config, ended.set_exception)
        transport.start(job_of(url), "127.0.0.1", lambda fetched, _: ended.set_result(fetched))
        time.sleep(0.6)
        fetched = await ended
        transport.close()
        return fetched

    with HostileWeb() as web:
        fetched = asyncio.run(asyncio.wait_for(main(web.url("/ok")), 20))
    assert (fetched.outcome, fetched.status) == (Outcome.OK, 200)


def test_a_transfer_whose_loop_is_always_held_ends_all_the_same(tmp_path):
    """It is spared once: a loop that is late each time must not keep it for ever."""
    config = replace(CONFIG, time_limit_s=0.2, connect_timeout_s=0.2)

    async def main(url):
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        transport = Transport(config, ended.set_exception)
        transport.start(job_of(url), "127.0.0.1", lambda fetched, _: ended.set_result(fetched))
        while not ended.done():
            time.sleep(0.15)
            await asyncio.sleep(0)
        transport.close()
        return ended.result()

    with HostileWeb() as web:
        fetched = asyncio.run(asyncio.wait_for(main(web.url("/hang")), 20))
    assert "after" in fetched.error
    assert fetched.request


def serve_large(web, count, gate=None):
    """Paths of large bodies, each sent in two halves; between them the server waits for `gate`."""

    def answer(talk):
        talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(LARGE))
        talk.send(LARGE[: len(LARGE) // 2])
        if gate is not None:
            gate.wait(20)
        talk.send(LARGE[len(LARGE) // 2 :])
        return True

    urls = []
    for number in range(count):
        web.on(f"/large{number}", answer)
        urls.append(web.url(f"/large{number}", f"h{number}.test"))
    return urls


def test_bodies_pause_at_the_budget_and_all_come_whole(tmp_path, monkeypatch):
    config = replace(CONFIG, max_inflight_bytes=1 << 20, connections=8, max_body_bytes=2 << 20)
    most = []
    true = InflightBudget.takes

    def takes(self, holder, had, more):
        took = true(self, holder, had, more)
        most.append((sum(one.held for one in holders.setdefault(id(self), set()) | {holder}), took))
        holders[id(self)].add(holder)
        if not took:
            paused.set()
        return took

    holders, paused = {}, threading.Event()
    monkeypatch.setattr(InflightBudget, "takes", takes)
    with HostileWeb() as web:
        urls = serve_large(web, 8, paused)
        found = run(tmp_path, urls, config)
    assert found.outcomes() == ["ok"] * 8
    assert {fetched.body == LARGE and fetched.truncated is None for fetched in found.fetched} == {
        True
    }
    assert not all(took for _, took in most), "nothing ever paused, so nothing was tested"
    assert max(held for held, _ in most) <= (512 << 10) + len(LARGE)


def test_small_pages_do_not_wait_for_large_ones(tmp_path):
    """The large bodies' server waits until all small pages were served; the budget is used up meanwhile."""
    config = replace(CONFIG, max_inflight_bytes=512 << 10, connections=16)
    gate, served = threading.Event(), []
    with HostileWeb() as web:

        def small(talk):
            talk.reply(body=b"x" * 10_000)
            served.append(talk.seen.path)
            if len(served) == 20:
                gate.set()
            return True

        urls = serve_large(web, 6, gate)
        for number in range(20):
            web.on(f"/small{number}", small)
        small_urls = [web.url(f"/small{number}", "small.test") for number in range(20)]
        found = run(tmp_path, urls + small_urls, config)
    assert set(found.outcomes()) == {"ok"}
    assert {len(found[url].body) for url in urls} == {len(LARGE)}


def test_a_pause_is_not_the_transfers_time(tmp_path):
    """The first one uses up all of its time and holds the budget; the other one pauses so long, and comes whole."""
    config = replace(
        CONFIG, max_inflight_bytes=64 << 10, connections=2, time_limit_s=1.0, max_body_bytes=4 << 20
    )
    with HostileWeb() as web:

        def slow(talk):
            talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(LARGE))
            talk.send(LARGE[: len(LARGE) // 2])
            first.set()
            talk.hang()
            return False

        first = threading.Event()
        web.on("/slow", slow)
        [quick] = serve_large(web, 1, first)
        web.on("/quick", lambda talk: first.wait(20) and web._handlers["/large0"](talk))
        quick = web.url("/quick", "quick.test")
        found = run(tmp_path, [web.url("/slow", "slow.test"), quick], config)
    assert found[web.url("/slow", "slow.test")].truncated == "time"
    assert found[quick].outcome is Outcome.OK
    assert found[quick].body == LARGE
    assert found[quick].truncated is None


def test_bodies_that_hold_the_budget_one_after_the_other_end_all_the_same(tmp_path):
    """Ten hosts use up the budget and say nothing more: each could hold up those behind it for its whole time."""
    config = replace(
        CONFIG,
        max_inflight_bytes=64 << 10,
        connections=16,
        time_limit_s=0.5,
        max_body_bytes=4 << 20,
    )
    with HostileWeb() as web:

        def hold(talk):
            talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(LARGE))
            talk.send(LARGE[: len(LARGE) // 8])
            talk.hang()
            return False

        web.on("/hold", hold)
        found = run(tmp_path, [web.url("/hold", f"h{number}.test") for number in range(10)], config)
    assert {fetched.truncated for fetched in found.fetched} == {"time"}
    assert max(fetched.duration_ms for fetched in found.fetched) < 3000, (
        "one after the other takes 5 s"
    )


def test_a_body_that_ends_at_its_limit_after_a_pause_is_cut_there(tmp_path):
    config = replace(CONFIG, max_inflight_bytes=64 << 10, connections=8, max_body_bytes=100_000)
    with HostileWeb() as web:
        found = run(tmp_path, serve_large(web, 8), config)
    assert {(len(fetched.body), fetched.truncated) for fetched in found.fetched} == {
        (100_000, "length")
    }


class Transfer:
    """A holder whose body comes in pieces, each as large as it likes."""

    def __init__(self, budget, pieces):
        self.budget, self.pieces, self.held, self.had, self.paused = (
            budget,
            list(pieces),
            0,
            0,
            False,
        )
        self.is_slow = False

    def resume(self):
        self.paused = False
        self.step()

    def step(self):
        if not self.pieces:
            return
        if self.budget.takes(self, self.had, self.pieces[0]):
            self.had += self.pieces.pop(0)
        else:
            self.paused = True
            assert self.is_slow or self.had + self.pieces[0] > self.budget.share, (
                "held up, though within its share"
            )

    def leave(self):
        """Leave the slot, so another transfer has the share."""
        self.is_slow = self.budget.leaves_share(self, self.had)
        return self.is_slow


@given(
    st.lists(st.lists(st.integers(1, 60), max_size=12), min_size=1, max_size=8),
    st.integers(8, 300),
    st.integers(1, 8),
    st.randoms(use_true_random=False),
)
def test_the_budget_is_kept_and_everything_ends(bodies, max_bytes, slots, rng):
    """Whatever leaves its slot, where there is room for what it has: then another transfer begins."""
    budget = InflightBudget(max_bytes, slots)
    waiting, running = [Transfer(budget, pieces) for pieces in bodies], []
    while waiting or running:
        while waiting and sum(not one.is_slow for one in running) < slots:
            running.append(waiting.pop())
        able = [one for one in running if not one.paused]
        assert able, "all are paused: nothing would ever go on"
        one = rng.choice(able)
        if one.is_slow or rng.random() < 0.7 or not one.leave():
            one.step()
        for ended in [one for one in running if not one.pieces]:
            running.remove(ended)
            budget.release(ended)
        assert sum(one.had for one in running) <= max_bytes + max(
            (sum(body) for body in bodies), default=0
        )
