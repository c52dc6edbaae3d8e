"""Intervals, replicas and the split, against the one line that defines them: floor(key * n / 2^160)."""

import hashlib
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_lib.errors import ConfigError
from crawl_lib.keys import interval
from crawl_lib.keys.intervals import bounds, replicas, ring, split

KEYS = st.binary(min_size=20, max_size=20)
SERVERS = st.integers(1, 300)


def test_examples_by_hand():
    assert interval(bytes(20), 3) == 0
    assert interval(b"\xff" * 20, 3) == 2
    assert interval(bytes.fromhex("80" + "00" * 19), 2) == 1
    assert interval(bytes.fromhex("7f" + "ff" * 19), 2) == 0
    assert interval(bytes.fromhex("55" * 20), 3) == 0, "the last key below a third"
    assert interval(bytes.fromhex("55" * 19 + "56"), 3) == 1
    assert replicas(b"\xff" * 20, 3, 2) == [2, 0]


@given(KEYS, SERVERS)
def test_the_first_server_is_the_floor_of_the_share(key, n):
    assert interval(key, n) == Fraction(int.from_bytes(key, "big") * n, 2**160).__floor__()


@given(SERVERS)
def test_intervals_partition_the_key_space(n):
    ends = [bounds(index, n) for index in range(n)]
    assert ends[0][0] == bytes(20)
    assert ends[-1][1] == b"\xff" * 20
    for (_, high), (low, _) in pairwise(ends):
        assert int.from_bytes(low, "big") == int.from_bytes(high, "big") + 1
    for index, (low, high) in enumerate(ends):
        assert interval(low, n) == interval(high, n) == index


@given(KEYS, SERVERS, st.data())
def test_replicas_are_distinct_and_follow_each_other_in_the_ring(key, n, data):
    replication = data.draw(st.integers(1, n))
    places = replicas(key, n, replication)
    assert len(set(places)) == replication
    assert places[0] == interval(key, n)
    assert all(after == (before + 1) % n for before, after in pairwise(places))


@given(st.lists(KEYS, unique=True, max_size=200), SERVERS)
def test_the_split_covers_all_keys_each_in_its_interval(keys, n):
    keys.sort()
    parts = split(keys, n)
    assert len(parts) == n
    assert [key for part in parts for key in part] == keys
    assert all(interval(key, n) == index for index, part in enumerate(parts) for key in part)


@given(st.integers(1, 50))
def test_the_split_cuts_exactly_at_the_bounds(n):
    edges = sorted({end for index in range(n) for end in bounds(index, n)})
    for index, part in enumerate(split(edges, n)):
        assert set(part) == set(bounds(index, n))


def test_shares_are_even():
    keys = sorted(hashlib.sha1(b"%d" % number).digest() for number in range(20_000))
    sizes = [len(part) for part in split(keys, 4)]
    assert max(sizes) - min(sizes) < 500


@pytest.mark.parametrize("replication", [0, 4, -1])
def test_more_replicas_than_servers_or_none_are_refused(replication):
    with pytest.raises(ConfigError, match="replication"):
        ring(0, 3, replication)
