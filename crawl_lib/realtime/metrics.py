"""Metrics of the service in the text format of Prometheus."""

from collections.abc import Iterator, Mapping

from crawl_lib.errors import KeyStoreError
from crawl_lib.realtime.scheduler import Scheduler


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
    for name in ("store_failed", "task_failed", "rows_swept"):
        lines += _metric(f"krake_realtime_{name}_total", "counter", name.replace("_", " "), {"": service.counts[name]})
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
