"""The statistics of a period by domain, read from its newest version."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from crawl_lib.statistics.files import StatisticsFile, StatisticsFiles
from crawl_lib.statistics.latency import Bucket, quantile_ms


@dataclass
class Domain:
    """The numbers of a domain.

    `urls`: fetches of pages, redirects among them; `images`: fetches of pictures. `bytes`: of the contents of both.
    `shares`: submissions that were taken; `hits`: those that a known document answered. `outcomes`: fetches by outcome;
    `decisions`: submissions by decision. `latency`: answered fetches, by bucket.
    """

    domain: str
    urls: int = 0
    images: int = 0
    bytes: int = 0
    shares: int = 0
    hits: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    decisions: Counter[str] = field(default_factory=Counter)
    latency: dict[int, Bucket] = field(default_factory=dict)

    def add(self, row: dict[str, Any]) -> None:
        """Take a row of the domain."""
        measure, name, number = row["measure"], row["name"], row["number"]
        if measure in {"outcomes", "decisions"}:
            getattr(self, measure)[name] += number
        elif measure in _PARTS:
            bucket = self.latency.get(int(name), Bucket())
            part = _PARTS[measure]
            self.latency[int(name)] = bucket._replace(**{part: getattr(bucket, part) + number})
        else:
            setattr(self, measure, getattr(self, measure) + number)

    def merge(self, other: "Domain") -> None:
        """Add the numbers of another domain, or of another period."""
        for measure in ("urls", "images", "bytes", "shares", "hits"):
            setattr(self, measure, getattr(self, measure) + getattr(other, measure))
        self.outcomes.update(other.outcomes)
        self.decisions.update(other.decisions)
        for number, bucket in other.latency.items():
            own = self.latency.get(number, Bucket())
            self.latency[number] = Bucket(*map(sum, zip(own, bucket, strict=True)))

    def quantile_ms(self, share: float) -> float | None:
        """Estimate a quantile of the latency in ms; None without an answer."""
        return quantile_ms(self.latency, share)


_PARTS = {"latency": "latencies", "latency_ms": "total_ms", "latency_ms2": "squares"}


def domains_of(files: StatisticsFiles, file: StatisticsFile) -> Iterator[Domain]:
    """Yield the domains of a version in order. Raises DamagedFileError, StorageError, StoppedError."""
    for name, rows in groupby(files.rows(file), lambda row: str(row["domain"])):
        domain = Domain(name)
        for row in rows:
            domain.add(row)
        yield domain
