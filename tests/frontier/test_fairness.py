"""A fair take: no host gets more than its share of a batch while others wait, and nothing waits for ever."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import chain, pairwise
from math import ceil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_lib.frontier import (
    Change,
    Queue,
    Shares,
    Take,
    TakeHeader,
)
from crawl_lib.frontier.fairness import choose, interleaved, positions_of, runs_of
from crawl_lib.records import QueuedUrl
from crawl_lib.urlfiles import BARE_META, encode_meta
from tests.frontier.helpers import held

NOW, MAX_WAIT_S = 1_000, 100


def shares(
    size: int, of_host: int, *, of_domain: int | None = None, look_ahead: int = 1000
) -> Shares:
    return Shares(size, lambda host: of_host, of_domain, look_ahead, NOW, MAX_WAIT_S)


def bare(urls: list[str]) -> list[tuple[bytes, bytes]]:
    return [(url.encode(), BARE_META) for url in urls]


def waiting(*dues: int) -> list[tuple[bytes, bytes]]:
    """Lines of URLs of a host that failed once, and are due then."""
    urls = [
        QueuedUrl(url, retries=1, due=due)
        for url, due in zip(pages("a.test", len(dues)), dues, strict=True)
    ]
    return [(one.url.encode(), encode_meta(one)) for one in urls]


def pages(host: str, count: int, first: int = 0) -> list[str]:
    return [f"http://{host}/{number}" for number in range(first, first + count)]


def make_queue(directory: Path, urls: list[str]) -> Queue:
    """A queue of these URLs, in this order; each one's depth is its place."""
    directory.mkdir()
    queue = Queue(directory, "node")
    held(queue).queue.create()
    lines = (
        (url.encode(), encode_meta(QueuedUrl(url, depth=place))) for place, url in enumerate(urls)
    )
    change = Change(
        "filled",
        queue.state(),
        queue.record(),
        ours=True,
        appended=("new", held(queue).queue.write_lines("new", lines)),
    )
    held(queue).queue.change(change)
    return queue


def take(queue: Queue, limits: Shares, name: str = "t") -> Take:
    return held(queue).takes.make(limits, TakeHeader(name, "r", 1, "9", 1))


def urls_of(taken: Take) -> list[str]:
    return [one.queued.url for one in taken.urls()]


def test_a_greedy_host_gets_its_share_and_what_was_passed_over_goes_to_the_end(
    tmp_path: Path,
) -> None:
    """In order, with its meta, after what the time limit left over."""
    greedy, others = pages("greedy.test", 8), [*pages("b.test", 2), *pages("c.test", 1)]
    queue = make_queue(tmp_path / "node", [*greedy[:5], *others, *greedy[5:]])
    taken = take(queue, shares(5, 2))
    assert urls_of(taken) == [*greedy[:2], *others]
    header = taken.header
    assert (header.looked_at, list(header.runs)) == (8, [(0, 2), (5, 8)])
    assert header.looked_at == taken.count + taken.passed_over
    held(queue).takes.advance(taken, taken.select([1]))
    left = [*queue]
    assert [one.url for one in left] == [*greedy[5:], greedy[1], *greedy[2:5]]
    assert [one.depth for one in left] == [8, 9, 10, 1, 2, 3, 4]


def test_a_batch_that_is_not_full_is_filled_with_what_was_passed_over(tmp_path: Path) -> None:
    """So a crawl of one site is as fast as its delay allows."""
    greedy = pages("greedy.test", 9)
    queue = make_queue(tmp_path / "node", [*greedy, *pages("b.test", 1)])
    taken = take(queue, shares(5, 2))
    assert urls_of(taken) == [*greedy[:4], *pages("b.test", 1)]
    held(queue).takes.advance(taken)
    assert [one.url for one in queue] == greedy[4:]


def test_hosts_of_a_domain_share_its_limit() -> None:
    urls = [*pages("a.example.org", 3), *pages("b.example.org", 3), *pages("c.test", 1)]
    assert [*choose(bare(urls), shares(4, 3, of_domain=3))] == [1, 1, 1, 0, 0, 0, 1]


def test_what_is_not_due_is_passed_over_and_fills_no_batch() -> None:
    dues = (0, NOW, NOW + 1, 5, NOW + MAX_WAIT_S)
    assert [*choose(waiting(*dues), shares(9, 1))] == [1, 1, 0, 1, 0]


def test_what_is_not_due_hides_nothing_behind_it() -> None:
    """An outage may leave more of it than a take looks at."""
    lines = [*waiting(*[NOW + 1] * 50), *bare([*pages("b.test", 2), *pages("c.test", 20)])]
    taken = choose(lines, shares(9, 1, look_ahead=12))
    assert (len(taken), taken.count(1), taken.find(1)) == (62, 9, 50)
    assert [*choose(lines[:50], shares(9, 1, look_ahead=12))] == [0] * 12


def test_what_a_clock_that_was_ahead_would_have_wait_for_years_is_due() -> None:
    assert [*choose(waiting(NOW + MAX_WAIT_S + 1, 10**12), shares(9, 1))] == [1, 1]


def test_a_host_in_back_off_is_passed_over_and_fills_no_batch() -> None:
    urls = [*pages("busy.test:8080", 3), *pages("a.test", 3), *pages("busy.test", 1)]
    limits = replace(shares(9, 1), back_off={b"busy.test": NOW + 9.5})
    assert [*choose(bare(urls), limits)] == [0, 0, 0, 1, 1, 1, 0]


def test_looking_ends_where_the_batch_is_full() -> None:
    urls = bare(pages("a.test", 50))
    assert len(choose(urls, shares(3, 10))) == 3
    assert len(choose(urls, shares(0, 10))) == 0
    assert len(choose(urls, shares(30, 1, look_ahead=40))) == 40


@given(
    hosts=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    size=st.integers(1, 30),
    share=st.integers(1, 10),
    look_ahead=st.integers(30, 60),
    seed=st.randoms(),
)
def test_each_url_is_taken_in_time(
    hosts: list[int], size: int, share: int, look_ahead: int, seed: object
) -> None:
    """With nothing new arriving, within ceil(Q / L) x ceil(H / share) + ceil(Q / size) takes."""
    queue = list(
        chain.from_iterable(pages(f"h{number}.test", count) for number, count in enumerate(hosts))
    )
    seed.shuffle(queue)  # type: ignore[attr-defined]
    total, takes = len(queue), 0
    while queue:
        takes += 1
        taken = choose(bare(queue), shares(size, share, look_ahead=look_ahead))
        here = [url for url, is_taken in zip(queue, taken, strict=False) if is_taken]
        for url in here:
            of_host = hosts[int(url.split(".")[0][8:])]
            assert takes <= ceil(total / look_ahead) * ceil(of_host / share) + ceil(total / size)
        assert len(here) == min(size, len(queue)), "a batch is full while anything waits"
        passed = [url for url, is_taken in zip(queue, taken, strict=False) if not is_taken]
        queue = [*queue[len(taken) :], *passed]


@given(st.lists(st.sampled_from("abcd")))
def test_an_intake_adds_the_first_of_each_host_then_the_second(hosts: list[str]) -> None:
    lines = [(f"http://{host}.test/{number}".encode(), b"") for number, host in enumerate(hosts)]
    mixed = interleaved(lines)
    assert sorted(mixed) == sorted(lines)
    seen: Counter[bytes] = Counter()
    turns = []
    for url, _ in mixed:
        host = url.split(b"/")[2]
        turns.append(seen[host])
        seen[host] += 1
    assert turns == sorted(turns)
    for host in {url.split(b"/")[2] for url, _ in lines}:
        assert [one for one in mixed if host in one[0]] == [one for one in lines if host in one[0]]


@given(st.sets(st.integers(0, 50)))
def test_runs_are_the_positions(positions: set[int]) -> None:
    runs = runs_of(sorted(positions))
    assert [*positions_of(runs)] == sorted(positions)
    assert all(end < begin for (_, end), (begin, _) in pairwise(runs))


@pytest.mark.parametrize("leftover", [[], [0]])
def test_a_queue_moves_on_once(tmp_path: Path, leftover: list[int]) -> None:
    queue = make_queue(tmp_path / "node", [*pages("a.test", 4), *pages("b.test", 1)])
    taken = take(queue, shares(3, 1))
    for _ in range(2):
        held(queue).takes.advance(taken, taken.select(leftover))
    assert queue.length() == 2 + len(leftover)


def test_what_is_left_of_a_batch_goes_to_domains_in_turns() -> None:
    """Not to the first one in the queue: it may be a farm of hosts."""
    farm = [f"http://x{number}.farm.example/" for number in range(50)]
    urls = [*farm, *(f"http://good.test/{number}" for number in range(50))]
    taken = choose(bare(urls), shares(40, 40, of_domain=10))
    assert (sum(taken[:50]), sum(taken[50:])) == (20, 20)
    assert sum(choose(bare(farm), shares(40, 40, of_domain=10))) == 40
