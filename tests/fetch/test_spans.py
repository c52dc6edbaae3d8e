"""Turns that nodes share, as a fetching process sees them: it sends in the spans that it was given, and else never."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl_lib.fetch import Spans
from crawl_lib.fetch.retry import Trouble
from crawl_lib.fetch.turns import START_S
from tests.fetch.driver import AT_ONCE, CONFIG, FakeCarrier, answer, run, run_virtual
from tests.web.hostile import HostileWeb

POLITE = replace(CONFIG, host_delay_s=1.0, ip_delay_s=0.25)
SLACK_S = 1e-6
ONCE = {failure: replace(row, max_tries=1) for failure, row in AT_ONCE.items()}


@dataclass
class Node:
    """Gives what is asked for after `after_s`, and for `lasts_s`; what begins with `never` is never given."""

    addresses: bool = True
    hosts: bool = False
    after_s: list[float] = field(default_factory=lambda: [0.1])
    lasts_s: list[float] = field(default_factory=lambda: [1.0])
    never: str = "none"
    asked: list[tuple[float, str, int, float]] = field(default_factory=list)
    ended: list[tuple[float, str, float]] = field(default_factory=list)
    given: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self.spans = Spans(self.ask, self.end, addresses=self.addresses, hosts=self.hosts)

    def ask(self, name: str, count: int, start_s: float) -> None:
        loop, number = asyncio.get_running_loop(), len(self.asked)
        self.asked.append((loop.time(), name, count, start_s))
        if not name.startswith(self.never):
            begins_s = loop.time() + self.after_s[number % len(self.after_s)]
            span = begins_s, begins_s + self.lasts_s[number % len(self.lasts_s)]
            self.given[name].append(span)
            # Told early, or in the middle of it: it begins when it says.
            loop.call_at(
                begins_s + (span[1] - begins_s) * (number % 3 - 1) / 4, self.spans.give, name, *span
            )

    def end(self, name: str, rest_s: float) -> None:
        self.ended.append((asyncio.get_running_loop().time(), name, rest_s))


def lies_in(when: float, spans: list[tuple[float, float]], before_end_s: float) -> bool:
    return any(
        begins_s - SLACK_S <= when <= ends_s - before_end_s + SLACK_S for begins_s, ends_s in spans
    )


def starts(carrier: FakeCarrier) -> list[float]:
    return sorted(sent.start for sent in carrier.sent)


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_requests_are_begun_in_the_spans_of_their_address_alone(tmp_path_factory, data) -> None:
    """However long spans take to come, and last; a moment before their end none begins, and the node's delay holds."""
    seconds = st.lists(st.floats(0.0, 3.0), min_size=1, max_size=5)
    node = Node(
        after_s=data.draw(seconds), lasts_s=[START_S + 0.01 + more for more in data.draw(seconds)]
    )
    urls = [
        f"http://h{number % 7}.test/{number}" for number in range(data.draw(st.integers(1, 40)))
    ]
    carrier = FakeCarrier(lambda *_: answer(), takes_s=lambda url: 0.3)
    found = run_virtual(tmp_path_factory.mktemp("spans"), urls, POLITE, carrier, spans=node.spans)
    assert sorted(fetched.url for fetched in found.fetched) == sorted(urls)
    assert all(lies_in(when, node.given["ip 127.0.0.1"], START_S) for when in starts(carrier))
    assert (
        min((after - before for before, after in pairwise(starts(carrier))), default=9)
        >= 0.25 - SLACK_S
    )


def test_an_address_is_begun_to_be_asked_again_when_the_request_before_was_sent_or_was_not(
    tmp_path,
) -> None:
    """The loop may be held up in between: a request that was begun is sent later than a delay after that."""
    node = Node(lasts_s=[60.0])
    urls = [f"http://h{number}.test/{number}" for number in range(5)]
    unsent = FakeCarrier(lambda url, _: answer(0, code=7), takes_s=lambda url: 0.01)
    config = replace(POLITE, host_delay_s=0.0)
    run_virtual(tmp_path, urls, config, unsent, spans=node.spans, retries=ONCE)
    assert [after - before for before, after in pairwise(starts(unsent))] == [
        pytest.approx(0.26, abs=0.01)
    ] * 4
    node = Node(lasts_s=[60.0])
    slow = FakeCarrier(lambda *_: answer(), takes_s=lambda url: 5.0)
    run_virtual(tmp_path, urls, config, slow, spans=node.spans, start=2000.0)
    assert [after - before for before, after in pairwise(starts(slow))] == [
        pytest.approx(0.25 + START_S, abs=0.01)
    ] * 4


def test_a_span_is_asked_for_once_with_what_waits(tmp_path) -> None:
    node = Node(after_s=[2.0], lasts_s=[60.0])
    carrier = FakeCarrier(lambda *_: answer())
    run_virtual(
        tmp_path,
        [f"http://h{number}.test/" for number in range(30)],
        POLITE,
        carrier,
        spans=node.spans,
    )
    assert [(name, start_s) for _, name, _, start_s in node.asked] == [("ip 127.0.0.1", START_S)]
    assert len(carrier.sent) == 30


def test_urls_that_follow_without_a_delay_are_in_the_span_of_the_first(tmp_path) -> None:
    """Else each would wait for a span of its own, which has to be asked for, and wastes its end."""
    node = Node(lasts_s=[60.0])
    urls = [f"http://h.test/{number}" for number in range(5)]
    carrier = FakeCarrier(lambda *_: answer(), takes_s=lambda url: 0.1)
    run_virtual(tmp_path, urls, replace(POLITE, host_delay_s=0.0), carrier, spans=node.spans)
    assert [count for _, _, count, _ in node.asked] == [5]
    rests = Node(lasts_s=[60.0])
    run_virtual(
        tmp_path, urls, POLITE, FakeCarrier(lambda *_: answer()), spans=rests.spans, start=2000.0
    )
    assert rests.asked[0][2] == 1, "other nodes may use the address while this host rests"


def test_an_address_whose_turn_does_not_come_holds_up_no_other(tmp_path) -> None:
    """Its key server is down: what waits for it is left to a later run."""
    node = Node(never="ip 127.0.0.9")
    carrier = FakeCarrier(lambda *_: answer())
    urls = [f"http://h{number}.test/" for number in range(20)]
    found = run_virtual(
        tmp_path, urls, POLITE, carrier, spans=node.spans, limit_s=300.0,
        resolver=lambda host: ["127.0.0.9" if host in ("h3.test", "h4.test") else "127.0.0.1"],
    )  # fmt: skip
    assert found.left == 2
    assert len(found.fetched) == 18
    assert starts(carrier)[-1] < 1000.0 + 20 * 1.5


def test_a_host_that_nodes_share_is_asked_for_before_each_request_and_given_back_after_it(
    tmp_path,
) -> None:
    node = Node(addresses=False, hosts=True, after_s=[0.5, 0.0, 3.0], lasts_s=[30.0])
    carrier = FakeCarrier(lambda *_: answer(), takes_s=lambda url: 0.3)
    urls = [f"http://{host}.test/{number}" for number in range(5) for host in "ab"]
    found = run_virtual(tmp_path, urls, replace(POLITE, ip_delay_s=0.0), carrier, spans=node.spans)
    assert len(found.fetched) == 10
    for host in "ab":
        name = f"host {host}.test"
        sent = [sent for sent in carrier.sent if f"//{host}." in sent.url]
        asked = [when for when, other, _, _ in node.asked if other == name]
        ended = [(when, rest_s) for when, other, rest_s in node.ended if other == name]
        assert len(asked) == len(ended) == len(sent) == 5
        assert [(when, rest_s) for when, rest_s in ended] == [
            (pytest.approx(one.end), 1.0) for one in sent
        ]
        for one, (begins_s, _), when in zip(sent, node.given[name], asked, strict=True):
            assert when <= one.start
            assert one.start >= begins_s - SLACK_S


def test_a_host_is_asked_for_when_its_address_is_ours_and_again_if_it_waited_too_long_for_the_next_span(
    tmp_path,
) -> None:
    node = Node(hosts=True, after_s=[0.0, 5.0, 10.0, 0.0], lasts_s=[2.0, 3.0, 60.0, 60.0])
    carrier = FakeCarrier(lambda *_: answer())
    run_virtual(tmp_path, ["http://a.test/"], POLITE, carrier, spans=node.spans)
    asked = [name for _, name, _, _ in node.asked]
    assert asked == ["ip 127.0.0.1", "host a.test"] * 2
    assert [rest_s for _, _, rest_s in node.ended] == [0.0, 1.0]
    assert lies_in(carrier.sent[0].start, node.given["host a.test"][1:], START_S)


def test_more_hosts_than_an_address_can_serve_while_they_are_ours_come_all_the_same(
    tmp_path,
) -> None:
    """Only few are asked for at once, so none is given back unused, and no turn of the address is lost."""
    node = Node(hosts=True, after_s=[0.05], lasts_s=[10.0])
    carrier = FakeCarrier(lambda *_: answer())
    urls = [f"http://h{number}.test/{page}" for page in range(2) for number in range(60)]
    found = run_virtual(tmp_path, urls, POLITE, carrier, spans=node.spans, limit_s=120.0)
    assert len(found.fetched) == len(urls)
    assert starts(carrier)[-1] < 1000.0 + len(urls) * (0.25 + START_S) + 10
    assert len(node.ended) == len(urls)


def test_a_request_goes_to_the_address_whose_turn_it_has(tmp_path) -> None:
    """Also when another request of its host has failed meanwhile, and the host goes on with another address."""
    node = Node(lasts_s=[60.0])
    carrier = FakeCarrier(
        lambda url, _: answer(0, code=7) if url.endswith("/0") else answer(),
        takes_s=lambda url: 0.3,
    )
    config = replace(CONFIG, ip_delay_s=0.5, connections_per_host=3)
    both = ["127.0.0.1", "127.0.0.2"]
    urls = [f"http://h.test/{number}" for number in range(6)]
    run_virtual(tmp_path, urls, config, carrier, spans=node.spans, resolver=lambda host: both)
    assert len(carrier.sent) > len(urls)
    assert all(
        lies_in(sent.start, node.given[f"ip {sent.address}"], START_S) for sent in carrier.sent
    )


def test_a_host_without_delay_is_not_shared(tmp_path) -> None:
    node = Node(addresses=False, hosts=True)
    carrier = FakeCarrier(lambda *_: answer())
    run_virtual(tmp_path, ["http://a.test/1", "http://a.test/2"], CONFIG, carrier, spans=node.spans)
    assert node.asked == node.ended == []


def test_what_was_begun_in_a_span_may_be_sent_to_its_end_also_when_the_next_is_known() -> None:
    node = Node()
    node.spans.give("ip a", 10.0, 11.0)
    node.spans.give("ip a", 12.0, 20.0)
    assert [node.spans.may_send("ip a", now) for now in (9.0, 10.5, 11.5, 12.0, 20.5)] == [
        False,
        True,
        False,
        True,
        False,
    ]
    assert node.spans.may_send("ip ::ffff:7f00:1", 0.0), (
        "an address in another spelling than that of the transport"
    )


def test_what_is_connected_when_its_turn_is_over_is_not_sent_and_gets_more_time(
    tmp_path, monkeypatch
) -> None:
    """The request goes with a longer span, and counts as one that was not made."""
    node = Node(lasts_s=[START_S + 0.4, 3.0])
    may_send, late = node.spans.may_send, [True, False, True]
    monkeypatch.setattr(
        node.spans, "may_send", lambda name, now: may_send(name, now if late.pop() else now + 60)
    )
    with HostileWeb() as web:
        found = run(
            tmp_path,
            [web.url("/ok"), web.url("/ok?2")],
            replace(CONFIG, ip_delay_s=0.05),
            spans=node.spans,
        )
        assert sorted(web.paths()) == ["/ok", "/ok?2"]
    assert found.outcomes() == ["ok", "ok"]
    assert sorted(fetched.attempts for fetched in found.fetched) == [1, 2]
    assert {start_s for _, _, _, start_s in node.asked} == {START_S, 4 * START_S}
    assert AT_ONCE[Trouble.TURN_OVER].max_tries > 1
