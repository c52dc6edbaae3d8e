"""Metrics of the service in the text format of Prometheus."""

import math
from collections.abc import Iterator, Mapping

from crawl_lib.errors import KeyStoreError
from crawl_lib.realtime.scheduler import LATENCIES_S, Scheduler


async def metrics_text(service: Scheduler) -> str:
    """Return the metrics as they are now."""
    lines = [
        *_metric("krake_realtime_waiting", "gauge", "URLs in memory that are due.", {"": service.waiting}),
        *_metric(
            "krake_realtime_fetcher_restarts_total", "counter", "Fetchers that died.", {"": service.link.restarts}
        ),
    ]
    for prefix, text in (("decision", "Submitted URLs by decision."), ("outcome", "Requests by outcome.")):
        counts = {
            f'{{{prefix}="{name.removeprefix(f"{prefix}_")}"}}': count
            for name, count in service.counts.items()
            if name.startswith(f"{prefix}_")
        }
        lines += _metric(f"krake_realtime_{prefix}s_total", "counter", text, counts)
    for name in ("store_failed", "task_failed", "rows_swept", "rows_damaged", "submissions_left_out"):
        lines += _metric(f"krake_realtime_{name}_total", "counter", name.replace("_", " "), {"": service.counts[name]})
    lines += _latencies(service)
    due, ages = {}, {}
    for place in service.store.places:
        label = f'{{server="{place + 1}"}}'
        try:
            queue = await service.store.queue(place)
        except KeyStoreError:
            continue
        due[label], ages[label] = queue.due, queue.age_ms / 1000
    lines += _metric("krake_realtime_due", "gauge", "Rows that are due.", due)
    lines += _metric("krake_realtime_queue_age_seconds", "gauge", "How long the oldest due row waits.", ages)
    return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, text: str, values: Mapping[str, float]) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    for labels, value in values.items():
        yield f"{name}{labels} {value:g}"


def _latencies(service: Scheduler) -> Iterator[str]:
    name, total = "krake_realtime_latency_seconds", 0
    yield f"# HELP {name} From the start of the work on a URL to its document."
    yield f"# TYPE {name} histogram"
    for end_s in LATENCIES_S:
        total += service.latencies[end_s]
        yield f'{name}_bucket{{le="{"+Inf" if end_s == math.inf else f"{end_s:g}"}"}} {total}'
    yield f"{name}_sum {service.latency_s:g}"
    yield f"{name}_count {total}"
