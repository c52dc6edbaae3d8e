"""Latencies as counts in 60 fixed logarithmic buckets, and quantiles from these counts.

Bucket k has the latencies from 1.2^k to 1.2^(k+1) milliseconds; bucket 0 also has 0 ms, and the last bucket all longer
latencies. The sum and the sum of squares of each bucket tell where its latencies lie, so a quantile is closer than the
width of a bucket. Counts and sums of hours add up to those of a day.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

BUCKETS = 60
GROWTH = 1.2


class Bucket(NamedTuple):
    """The latencies of a bucket. `total_ms`, `squares`: the sums of the latencies and of their squares, in ms."""

    latencies: int = 0
    total_ms: int = 0
    squares: int = 0


def quantile_ms(buckets: Mapping[int, Bucket], share: float) -> float | None:
    """Estimate a quantile of latencies in ms, None without latencies.

    `share`: 0.5 for the median. Latencies of a bucket are taken as spread evenly, as far around their mean as their
    squares tell.
    """
    total = sum(bucket.latencies for bucket in buckets.values())
    rank = max(1, math.ceil(share * total))  # from 1: the nearest rank
    for number, bucket in sorted(buckets.items()):
        if 0 < rank <= bucket.latencies:
            return _within(number, bucket, (rank - 0.5) / bucket.latencies)
        rank -= bucket.latencies
    return None


def _within(number: int, bucket: Bucket, share: float) -> float:
    """Estimate a quantile of the latencies of one bucket."""
    mean = bucket.total_ms / bucket.latencies
    spread = math.sqrt(3 * max(0.0, bucket.squares / bucket.latencies - mean * mean))
    least = GROWTH**number if number else 0.0
    most = GROWTH ** (number + 1) if number < BUCKETS - 1 else math.inf
    return min(max(mean + (2 * share - 1) * spread, least), most)
