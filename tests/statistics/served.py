"""A service of 24 hours with a set clock: what the web's server logged, and what clients submitted."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from crawl_lib.config import Config
from crawl_lib.realtime import collect_parts
from crawl_lib.realtime.fetcher import queued_of
from crawl_lib.realtime.places import FETCHER, live_spool, live_submissions
from crawl_lib.realtime.protocol import Fetch
from crawl_lib.realtime.submissions import SubmissionLog
from crawl_lib.records import TakenUrl
from crawl_lib.segment import PartWriter, WarcInfo
from crawl_lib.states import Outcome
from crawl_lib.statistics import Domain
from crawl_lib.urls import key_of
from tests.e2e.crawl import make_config
from tests.repair.crawled import stores_of
from tests.segment.helpers import HEAD, answered, failed

BEGIN = datetime(2026, 11, 28, tzinfo=UTC)
BEGIN_S = BEGIN.timestamp()
HOSTS = {
    "www.a.example": "a.example",
    "b.a.example": "a.example",
    "c.example": "c.example",
    "10.1.2.3": "10.1.2.3",
}
MOVED = b"HTTP/1.1 301 Moved\r\nLocation: /target\r\n\r\n"
IMAGE = b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\n"


@dataclass(frozen=True)
class Served:
    """A line of the server's log. `status`: 0 for a request that got no answer."""

    time_s: float
    host: str
    path: str
    status: int
    size_bytes: int
    took_ms: int

    @property
    def is_image(self) -> bool:
        return self.path.startswith("/image")

    @property
    def outcome(self) -> str:
        return {200: "ok", 301: "redirect", 404: "gone", 0: "timeout"}[self.status]


@dataclass(frozen=True)
class Shared:
    """A submission as its client saw it. `host`: None for a malformed URL."""

    time_s: float
    host: str | None
    decision: str


@dataclass
class Truth:
    """What a count in plain Python says of a period. `took_ms`: of the answered requests, by domain."""

    domains: dict[str, Domain] = field(default_factory=dict)
    took_ms: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))


def service_config(directory: Path, **more: object) -> Config:
    order = {"order": "crawldb", "routing": "host"}
    return make_config(
        directory, nodes=1, urls={"scope": "any"}, frontier=order, realtime={}, **more
    )


def some_requests(number: int, rng: random.Random, *, hour: int) -> list[Served]:
    """Requests of an hour, the first of them at its first moment."""
    found = []
    for place in range(number):
        time_s = BEGIN_S + 3600 * hour + (rng.uniform(0, 3599.9) if place else 0)
        status = rng.choices((200, 301, 404, 0), (8, 2, 1, 1))[0]
        kind = "image" if rng.random() < 0.2 and status == 200 else "page"
        took_ms = min(60_000, round(rng.lognormvariate(4.8, 1.0)))
        size = rng.randrange(3, 900) if status == 200 else 0
        found.append(
            Served(time_s, rng.choice([*HOSTS]), f"/{kind}/{hour}/{place}", status, size, took_ms)
        )
    return sorted(found, key=lambda one: one.time_s)


def some_shares(number: int, rng: random.Random, *, hour: int) -> list[Shared]:
    decisions = ("new", "waiting", "known", "refused", "busy", "unavailable")
    return [
        Shared(
            BEGIN_S + 3600 * hour + rng.uniform(0, 3599.9),
            rng.choice([*HOSTS, None]),
            rng.choice(decisions),
        )
        for _ in range(number)
    ]


def leave(config: Config, requests: list[Served], shares: list[Shared], *, number: int = 0) -> None:
    """Leave a closed part and a closed log, as fetcher and service do."""
    node_dir = stores_of(config).node_dir("node-0")
    prefix = f"krake-{number + 1}-live-0-0"
    info = WarcInfo("", "", "", "", "live/live-0")
    with PartWriter(
        live_spool(node_dir, FETCHER), prefix, info, config.segment, has_rows=False
    ) as writer:
        for position, one in enumerate(requests):
            url = f"http://{one.host}{one.path}"
            wanted = Fetch(id=position, url=url, key=key_of(url).hex(), is_probe=one.is_image)
            writer.append(TakenUrl(position, key_of(url), queued_of(wanted)), _fetched(url, one))
    log = SubmissionLog(live_submissions(node_dir, FETCHER))
    log.note(
        (round(1000 * one.time_s), None, one.host or "", "chat", one.decision, 7) for one in shares
    )
    log.flush(ends=True)


def _fetched(url: str, one: Served):
    if one.status == 0:
        return failed(url, time=one.time_s, duration_ms=one.took_ms)
    head = IMAGE if one.is_image else HEAD if one.status == 200 else MOVED
    found = answered(
        url,
        b"x" * one.size_bytes,
        head,
        time=one.time_s,
        duration_ms=one.took_ms,
        status=one.status,
    )
    return replace(found, outcome=Outcome(one.outcome))


def collect(config: Config, *, hour: float) -> str:
    """Collect what was left, at a time in hours after the beginning; return the name of the segment."""
    report = collect_parts(stores_of(config), FETCHER, clock=lambda: BEGIN_S + 3600 * hour)
    return f"{report.folder}/{FETCHER}"


def counted(requests: list[Served], shares: list[Shared]) -> Truth:
    """Count the lines of both logs."""
    truth = Truth()
    for one in requests:
        name = HOSTS[one.host]
        domain = truth.domains.setdefault(name, Domain(name))
        domain.images += one.is_image
        domain.urls += not one.is_image
        domain.bytes += one.size_bytes
        domain.outcomes[one.outcome] += 1
        if one.status:
            truth.took_ms[name].append(one.took_ms)
    for share in shares:
        name = HOSTS[share.host] if share.host else ""
        domain = truth.domains.setdefault(name, Domain(name))
        domain.decisions[share.decision] += 1
        domain.shares += share.decision in {"new", "waiting", "known"}
        domain.hits += share.decision == "known"
    return truth


def plain(domains: list[Domain]) -> dict[str, dict[str, object]]:
    """Return all numbers but latencies, for a comparison."""
    return {one.domain: {**vars(one), "latency": Counter()} for one in domains}
