"""The metrics of Krake's tasks, for StatsD or OpenTelemetry through Airflow: all names, with the sources of numbers.

Each task sends its metrics once, at its end; a failed try sends its time and its failure. Every metric has the tag
`crawl` and, for a task of one node or key server, `node` or `server`; plain StatsD drops tags. A repeated task counts
again, as in Airflow's own counters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from airflow.sdk.observability import stats

from crawl_lib.errors import KrakeError

DURATION = "krake.{stage}.duration"
"""Timer of a task's stage, milliseconds; failed tries count too."""
FAILURES = "krake.{stage}.failures"
"""Counter of failed tries; tag `error`: the class of the error."""


@dataclass(frozen=True)
class Metric:
    """A number of a stage's result.

    `result`: the field of the result, and the end of the metric's name: `krake.<stage>.<result>`. A mapping is summed,
    or with `by_key` gives a metric for each key, `krake.<stage>.<result>.<key>`. `is_gauge`: a current value, else a
    counter.
    """

    result: str
    text: str
    is_gauge: bool = False
    by_key: bool = False


METRICS: Mapping[str, tuple[Metric, ...]] = {
    "inject": (
        Metric("accepted", "seeds left for the nodes"),
        Metric("rejected", "refused seeds, by reason", by_key=True),
    ),
    "generate": (
        Metric("listed", "URLs of the new list"),
        Metric(
            "counts",
            "URLs of the CrawlDb, by the reason for being listed or not",
            is_gauge=True,
            by_key=True,
        ),
    ),
    "update_crawldb": (
        Metric("rows", "URLs in the CrawlDb", is_gauge=True),
        Metric("statuses", "URLs in the CrawlDb, by status", is_gauge=True, by_key=True),
    ),
    "crawl": (
        Metric("taken", "URLs taken from a node's queue"),
        Metric("outcomes", "URLs by outcome, also of tries before the last", by_key=True),
        Metric("retried", "tries before the last"),
        Metric("deferred", "URLs put back at the time limit"),
        Metric("passed_over", "lines of the queue passed over"),
        Metric("bytes", "bytes of a node's WARC files"),
        Metric("hosts_in_back_off", "failing hosts in a node's back-off", is_gauge=True),
        Metric("links", "found links"),
        Metric("outlinks", "found URLs within the crawl"),
        Metric("rejections", "rejected links, by rule", by_key=True),
    ),
    "commit": (Metric("urls", "URLs with a final outcome in the iteration"),),
    "collect": (
        Metric("pages", "pages of the real-time service in the new segment"),
        Metric("parts", "closed parts of the service's fetcher in the segment"),
    ),
    "statistics": (Metric("versions", "counted hours and days of the real-time service"),),
    "settle": (
        Metric("queue", "URLs waiting in the node's queue", is_gauge=True),
        Metric("undecided", "URLs waiting for a key server", is_gauge=True),
    ),
    "maintain_keys": (
        Metric("missing", "missing keys filled into a replica"),
        Metric("behind", "keys with a raised state on a replica"),
    ),
    "export": (
        Metric("pages", "pages of the newest export", is_gauge=True),
        Metric("bytes", "bytes of the export's content file", is_gauge=True),
        Metric("late_segments", "segments too late for the export", is_gauge=True),
    ),
    "linker": (),
    "invert_links": (Metric("rows", "links in the LinkDb", is_gauge=True),),
    "duplicates": (),
    "text": (
        Metric("pages", "pages read"),
        Metric("killed", "pages without a text, beyond the limits of time or memory"),
    ),
    "captures": (Metric("rows", "URLs with a known capture", is_gauge=True),),
    "index": (
        Metric("pages", "pages of the newest index", is_gauge=True),
        Metric("left_out", "pages left out of the index, by reason", is_gauge=True, by_key=True),
    ),
    "push": (
        Metric("pages", "pages of the index in OpenSearch", is_gauge=True),
        Metric("sent", "pages sent to OpenSearch"),
        Metric("deleted", "pages deleted from OpenSearch"),
    ),
    "commoncrawl": (
        Metric(
            "rows",
            "captures of the newest index, and records of WET files",
            is_gauge=True,
            by_key=True,
        ),
    ),
    "graphs": (
        Metric("counts", "nodes and arcs of the newest graphs", is_gauge=True, by_key=True),
    ),
    "score": (),
    "finalizer": (
        Metric("nodes", "nodes of the web graph", is_gauge=True),
        Metric("arcs", "arcs of the web graph", is_gauge=True),
    ),
}
"""The metrics of each stage, besides duration and failures."""


def tell_result(
    stage: str, seconds: float, result: Mapping[str, Any], tags: Mapping[str, str]
) -> None:
    """Send the metrics of a finished stage."""
    stats.timing(DURATION.format(stage=stage), timedelta(seconds=seconds), tags=dict(tags))
    for metric in METRICS[stage]:
        send = stats.gauge if metric.is_gauge else stats.incr
        for name, number in _numbers(metric, result.get(metric.result, 0)):
            send(f"krake.{stage}.{name}", number, tags=dict(tags))


def tell_failure(stage: str, seconds: float, error: KrakeError, tags: Mapping[str, str]) -> None:
    """Send the metrics of a failed try."""
    stats.timing(DURATION.format(stage=stage), timedelta(seconds=seconds), tags=dict(tags))
    stats.incr(FAILURES.format(stage=stage), tags={**tags, "error": type(error).__name__})


def _numbers(metric: Metric, value: Any) -> Iterator[tuple[str, int]]:
    if metric.by_key:
        yield from ((f"{metric.result}.{key}", number) for key, number in dict(value or {}).items())
    else:
        yield metric.result, sum(value.values()) if isinstance(value, Mapping) else value
