"""Metrics of the service in the text format of Prometheus, with the names of all metrics."""

import asyncio
import math
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from crawl_lib.errors import KeyStoreError
from crawl_lib.realtime.fetchers import Fetchers
from crawl_lib.realtime.places import RUN_FILE
from crawl_lib.realtime.scheduler import LATENCIES_S, Scheduler
from crawl_lib.realtime.spooling import Backlog, backlog_of
from crawl_lib.realtime.submissions import CLOSED_SUFFIX

PREFIX = "krake_realtime_"


class ServiceMetric(NamedTuple):
    """A metric. `name`: behind `PREFIX`; `kind`: counter, gauge or histogram; `label`: of its values, if any."""

    name: str
    kind: str
    text: str
    label: str = ""


METRICS = (
    ServiceMetric("waiting", "gauge", "URLs in memory, waiting or in fetch"),
    ServiceMetric("due", "gauge", "rows that are due", "server"),
    ServiceMetric("queue_age_seconds", "gauge", "how long the oldest due row waits", "server"),
    ServiceMetric("decisions_total", "counter", "submitted URLs, by decision", "decision"),
    ServiceMetric("outcomes_total", "counter", "requests of the fetcher, by outcome", "outcome"),
    ServiceMetric(
        "latency_seconds", "histogram", "from the start of the work on a URL to its document", "le"
    ),
    ServiceMetric("fetcher_restarts_total", "counter", "fetchers restarted after a crash"),
    ServiceMetric("start_time_seconds", "gauge", "POSIX time of the start of the service"),
    ServiceMetric("store_failed_total", "counter", "failed calls of a key server"),
    ServiceMetric("task_failed_total", "counter", "failed tasks of the service: the log has each"),
    ServiceMetric("rows_swept_total", "counter", "rows deleted by age (realtime.keep_s)"),
    ServiceMetric("rows_damaged_total", "counter", "damaged rows that were met"),
    ServiceMetric(
        "submissions_left_out_total", "counter", "submissions missing from the log of submissions"
    ),
    ServiceMetric("parts", "gauge", "parts of hosts of a fetcher, of 256 in all", "fetcher"),
    ServiceMetric(
        "uncollected_parts", "gauge", "closed parts waiting for the collection", "fetcher"
    ),
    ServiceMetric(
        "uncollected_seconds",
        "gauge",
        "age of the oldest part or log waiting for the collection",
        "fetcher",
    ),
    ServiceMetric(
        "spool_free_bytes", "gauge", "free bytes of the disk with a fetcher's parts", "fetcher"
    ),
)
"""All metrics, in the order of the text; `docs/realtime.md` has the same table, as a test checks.

A fetcher on another machine has one port, for its schedulers. The scheduler asks each gate (`RemoteLink.backlog`), and
Prometheus asks schedulers alone.
"""
_OF_FETCHERS = ("parts", "uncollected_parts", "uncollected_seconds", "spool_free_bytes")
_COUNTED = ("store_failed", "task_failed", "rows_swept", "rows_damaged", "submissions_left_out")


async def metrics_text(service: Scheduler) -> str:
    """Return the current metrics.

    The rows of an absent key server, or of an absent gate, are left out.
    """
    due, ages = await _queues(service)
    values: dict[str, Mapping[str, float]] = {
        "waiting": {"": service.waiting},
        "due": due,
        "queue_age_seconds": ages,
        "decisions_total": _by_label(service, "decision"),
        "outcomes_total": _by_label(service, "outcome"),
        "latency_seconds": _latencies(service),
        "fetcher_restarts_total": {"": service.link.restarts},
        "start_time_seconds": {"": service.began_s},
        **{f"{name}_total": {"": service.counts[name]} for name in _COUNTED},
        **await _fetchers(service),
    }
    return "".join(
        f"{line}\n" for metric in METRICS for line in _lines(metric, values[metric.name])
    )


def _lines(metric: ServiceMetric, values: Mapping[str, float]) -> Iterator[str]:
    """Yield the lines of a metric.

    A key of `values` is what follows the name: a suffix, labels, or nothing.
    """
    name = PREFIX + metric.name
    yield f"# HELP {name} {metric.text}"
    yield f"# TYPE {name} {metric.kind}"
    for rest, value in values.items():
        yield f"{name}{rest} {value}"


def _by_label(service: Scheduler, label: str) -> dict[str, float]:
    start = f"{label}_"
    numbers = {name: number for name, number in service.counts.items() if name.startswith(start)}
    return {f'{{{label}="{name.removeprefix(start)}"}}': number for name, number in numbers.items()}


async def _queues(service: Scheduler) -> tuple[dict[str, float], dict[str, float]]:
    """Return due rows and the oldest one's age by key server.

    Ages are in seconds. Servers that do not answer are left out.
    """
    due, ages = dict[str, float](), dict[str, float]()
    for place in service.store.places:
        label = f'{{server="{place + 1}"}}'
        try:
            queue = await service.store.queue(place)
        except KeyStoreError:
            continue
        due[label], ages[label] = queue.due, queue.age_ms / 1000
    return due, ages


async def _fetchers(service: Scheduler) -> dict[str, dict[str, float]]:
    """Return each fetcher's state, and the backlog of collections.

    The backlog is that of the fetcher's machine, and that of this machine.
    """
    links = service.link.links if isinstance(service.link, Fetchers) else (service.link,)
    found: dict[str, dict[str, float]] = {name: {} for name in _OF_FETCHERS}
    for link, there in zip(
        links, await asyncio.gather(*(link.backlog() for link in links)), strict=True
    ):
        here = _backlog_here(service, link.name)
        both = [backlog for backlog in (there, here) if backlog]
        label = f'{{fetcher="{link.name}"}}'
        found["parts"][label] = link.held_parts
        if both:
            found["uncollected_parts"][label] = sum(backlog.parts for backlog in both)
            found["uncollected_seconds"][label] = max(backlog.oldest_ms for backlog in both) / 1000
        if both and (there or not isinstance(service.link, Fetchers)):
            found["spool_free_bytes"][label] = both[0].free_bytes
    return found


def _backlog_here(service: Scheduler, name: str) -> Backlog | None:
    """Return this machine's backlog.

    It has parts, logs of submissions, and an unfinished collection.
    """
    logs = service.submissions.folder
    if logs is None:
        return None
    room = logs.parent.parent / name
    closed = (room / "submissions").glob(f"*{CLOSED_SUFFIX}")
    return backlog_of(room / "spool", time.time(), *closed, room / "collect" / RUN_FILE)


def _latencies(service: Scheduler) -> dict[str, float]:
    found, total = dict[str, float](), 0
    for end_s in LATENCIES_S:
        total += service.latencies[end_s]
        found[f'_bucket{{le="{"+Inf" if end_s == math.inf else f"{end_s:g}"}"}}'] = total
    return {**found, "_sum": service.latency_s, "_count": total}
