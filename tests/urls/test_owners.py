"""Rendezvous hashing: stable, fair, and moving only what must move."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_lib.errors import ConfigError
from crawl_lib.urls import Owners

nodes = st.lists(
    st.text(alphabet="abc-.0", min_size=1, max_size=5), min_size=1, max_size=6, unique=True
)
hosts = st.lists(st.text(min_size=1, max_size=10), max_size=30)
HOSTS = [f"host{number}.example.org" for number in range(6000)]


def test_owners_are_part_of_the_format() -> None:
    """Queues on disk are laid out by these answers: they may never change."""
    owners = Owners(["node-a", "node-b", "node-c"])
    hosts = ["example.org", "127.0.0.1", "[::1]", "a.b", "localhost", "e.com"]
    # From `printf 'node-a\\nexample.org' | b2sum -l 64`, and so on: the largest of the three.
    assert [owners.index(host) for host in hosts] == [0, 0, 1, 0, 0, 1]


def test_another_process_with_another_hash_seed_agrees() -> None:
    code = "from crawl_lib.urls import Owners; o = Owners('abc'); print(''.join(o.owner(str(n)) for n in range(50)))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


@given(nodes, hosts)
def test_the_order_of_nodes_does_not_matter(names: list[str], some: list[str]) -> None:
    one, other = Owners(names), Owners(names[::-1])
    for host in some:
        assert one.owner(host) == other.owner(host) == names[one.index(host)]


@given(nodes, hosts, st.integers(min_value=0))
def test_a_new_node_takes_hosts_and_moves_none_between_the_others(
    names: list[str], some: list[str], place: int
) -> None:
    before = Owners(names)
    after = Owners(
        [*names[: place % (len(names) + 1)], "new-node", *names[place % (len(names) + 1) :]]
    )
    for host in some:
        assert after.owner(host) in (before.owner(host), "new-node")


@pytest.mark.parametrize("count", [2, 3, 7])
def test_shares_are_roughly_equal(count: int) -> None:
    owners = Owners([f"node-{number}" for number in range(count)])
    shares = Counter(map(owners.owner, HOSTS))
    assert len(shares) == count
    assert max(shares.values()) < 1.15 * len(HOSTS) / count
    assert min(shares.values()) > 0.85 * len(HOSTS) / count


def test_what_is_remembered_is_bounded_and_the_answers_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = list(map(Owners(["a", "b"]).index, HOSTS))
    monkeypatch.setattr("crawl_lib.urls.names._MAX_REMEMBERED", 100)
    owners = Owners(["a", "b"])
    assert list(map(owners.index, HOSTS)) == expected
    assert owners.index.cache_info().currsize <= 100


@pytest.mark.parametrize("names", [[], ["a", "a"]])
def test_bad_nodes(names: list[str]) -> None:
    with pytest.raises(ConfigError, match="each node once"):
        Owners(names)
