"""Quantiles from counts in 60 buckets: within 5 % of the exact ones, whatever the latencies look like."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from crawl_lib.statistics import BUCKETS, quantile_ms
from crawl_lib.statistics.latency import GROWTH, Bucket

SHAPES: dict[str, Callable[[random.Random], float]] = {
    "log-normal": lambda rng: rng.lognormvariate(math.log(120), 1.0),
    "wide": lambda rng: min(60_000, rng.lognormvariate(math.log(800), 2.0)),
    "even": lambda rng: rng.uniform(20, 3000),
    "loopback": lambda rng: rng.choice((1, 1, 2, 2, 3, 4)),
    "always the same": lambda rng: 101,
    "nearly the same": lambda rng: rng.uniform(113, 116),
    "a time limit": lambda rng: 20_000 + rng.uniform(0, 30),
    "two servers": lambda rng: rng.gauss(80, 1) if rng.random() < 0.7 else rng.gauss(700, 20),
    "beyond the last bucket": lambda rng: rng.uniform(60_000, 90_000),
}


def bucket_of(latency_ms: int) -> int:
    """The number of a latency's bucket, as `sql/statistics/fetches.sql` computes it."""
    if latency_ms <= 1:
        return 0
    return min(BUCKETS - 1, math.floor(math.log(latency_ms) / math.log(GROWTH)))


def buckets_of(latencies: list[int]) -> dict[int, Bucket]:
    found: dict[int, Bucket] = {}
    for latency in latencies:
        before = found.get(bucket_of(latency), Bucket())
        found[bucket_of(latency)] = Bucket(
            before.latencies + 1, before.total_ms + latency, before.squares + latency**2
        )
    return found


def exact(latencies: list[int], share: float) -> int:
    return sorted(latencies)[math.ceil(share * len(latencies)) - 1]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share", [0.5, 0.99])
def test_quantiles_are_within_five_percent(shape: str, share: float) -> None:
    rng = random.Random(shape)
    latencies = [max(0, round(SHAPES[shape](rng))) for _ in range(20_000)]
    found = quantile_ms(buckets_of(latencies), share)
    assert found == pytest.approx(exact(latencies, share), rel=0.05, abs=0.5)


def test_there_is_none_without_latencies() -> None:
    assert quantile_ms({}, 0.5) is None


def test_buckets_are_fixed() -> None:
    assert [bucket_of(ms) for ms in (0, 1, 2, 3, 10, 1000, 47_000, 10**9)] == [
        0,
        0,
        3,
        6,
        12,
        37,
        59,
        59,
    ]
    assert max(map(bucket_of, range(70_000))) == BUCKETS - 1
