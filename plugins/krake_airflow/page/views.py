"""The values for the templates of the list, of a crawl and of a task, from the status of a crawl."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, NamedTuple

from markupsafe import Markup

from crawl_lib.cli.figures import duration
from crawl_lib.plots import columns as bar_columns
from crawl_lib.plots import lines, meters, small
from crawl_lib.rounds.elsewhere import ENDED, mapping_of, progress_of
from crawl_lib.storage import shown_address
from krake_airflow.configs import BadConfig
from krake_airflow.page.crawls import (
    COUNTED_ITERATIONS,
    SHOWN_ITERATIONS,
    STALE_S,
    Crawl,
    look_at_all,
)
from krake_airflow.page.table import Link, Links, Row, columns
from krake_airflow.taskdocs import doc_of

_MB = 1e6
Status = Mapping[str, Any]
_LIST = columns(
    ("crawl", "name", 15),
    ("state", "state", 19),
    ("URLs", "urls", 9, "num"),
    ("URLs/s", "rate", 7, "num"),
    ("MB", "megabytes", 9, "num"),
    ("URLs by iteration", "chart", 15),
    ("waits, or went wrong", "remark", 26, "words"),
)
_NODES = columns(
    ("node", "node", 14),
    ("phase", "phase", 9),
    ("URLs/s", "rate", 7, "num"),
    ("its course", "chart", 15),
    ("fetched", "fetched", 9, "num"),
    ("of", "taken", 8, "num"),
    ("queue", "queue", 9, "num"),
    ("time left", "eta", 9, "num"),
    ("remark", "remark", 20, "words"),
)
_ITERATIONS = columns(
    ("folder", "folder", 11),
    ("run", "run", 24),
    ("iteration", "number", 8, "num"),
    ("URLs", "urls", 8, "num"),
    ("tries", "tries", 8, "num"),
    ("tasks", "task", 10),
    ("state", "state", 31, "words"),
)
_KEYS = columns(
    ("server", "name", 20),
    ("keys", "total", 13, "num"),
    ("queued", "queued", 13, "num"),
    ("crawled", "crawled", 13, "num"),
    ("gone", "gone", 13, "num"),
    ("state", "state", 28, "words"),
)
_SEGMENTS = columns(
    ("iteration", "folder", 15), ("path", "path", 55, "path"), ("nodes", "nodes", 18, "words"),
    ("MB", "megabytes", 12, "num"),
)  # fmt: skip
_EXPORTS = columns(
    ("export", "name", 20),
    ("path", "path", 50, "path"),
    ("pages", "pages", 15, "num"),
    ("MB", "megabytes", 15, "num"),
)


def list_view(crawls: Sequence[Crawl], bad: Sequence[BadConfig], links: Links) -> dict[str, Any]:
    """Return the values for the list of crawls."""
    rows = [
        _crawl_row(crawl, status, links)
        for crawl, status in zip(crawls, look_at_all(crawls), strict=True)
    ]
    return {"crawls": rows, "columns": _LIST, "bad": [(one.dag_id, one.lines) for one in bad]}


def _crawl_row(crawl: Crawl, status: Status, links: Links) -> Row:
    counted = [entry for entry in status.get("iterations", []) if "counts" in entry]
    values = [entry["counts"]["urls"] for entry in counted]
    chart = small(
        f"URLs of {crawl.name} by iteration",
        values,
        names=[str(entry["folder"]) for entry in counted],
    )
    wrong = [str(entry["error"]) for entry in status.get("iterations", []) if "error" in entry][-1:]
    remarks = [
        status.get("error", ""),
        *map(_remark, status["queues"].values()),
        *wrong,
        status.get("waiting", ""),
    ]
    return {
        "name": Link(crawl.name, links.crawl(crawl.name)),
        "state": _state(status)[1],
        "urls": _number(status.get("totals", {}).get("urls")),
        "rate": _rate(status),
        "megabytes": _megabytes(sum(entry.get("bytes", 0) for entry in counted)),
        "chart": _html(chart),
        "remark": next(filter(None, remarks), ""),
    }


def crawl_view(crawl: Crawl, status: Status, links: Links, run_id: str = "") -> dict[str, Any]:
    """Return the values for the page of a crawl; `run_id`: show the iterations of this run alone."""
    entries = [
        entry for entry in status.get("iterations", []) if run_id in {"", entry.get("run_id")}
    ]
    mood, state = _state(status)
    queues = status["queues"]
    return {
        "title": crawl.name,
        "run_id": run_id,
        "whole": links.crawl(crawl.name),
        "ask": links.ask(crawl.name),
        "dag": links.dag(crawl.dag_id),
        "mood": mood,
        "state": state,
        "at": f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}",
        "is_new": "error" not in status and not status["iterations"] and "unread" not in status,
        "known": _known(status),
        "error": status.get("error", ""),
        "tiles": _tiles(status, entries, is_of_run=bool(run_id)),
        "node_columns": _NODES,
        "nodes": [_node_row(crawl, node, queue, links) for node, queue in queues.items()],
        "chart": _html(_chart(crawl, entries, links)),
        "iteration_columns": _ITERATIONS,
        "iterations": [_iteration_row(crawl, entry, links) for entry in reversed(entries)],
        "breakdowns": list(_breakdowns(status, entries, is_of_run=bool(run_id))),
        "back_offs": dict(row for node, queue in queues.items() for row in _back_offs(node, queue)),
        "key_columns": _KEYS,
        "keys": list(map(_key_row, status["keys"])),
        "segment_columns": _SEGMENTS,
        "segments": [
            _segment_row(status, entry) for entry in reversed(entries) if entry.get("bytes")
        ],
        "export_columns": _EXPORTS,
        "exports": [_export_row(crawl, entry) for entry in reversed(status.get("exports", []))],
    }


def _state(status: Status) -> tuple[str, str]:
    """Say whether a crawl works, rests or waits: a class of the style sheet, and a few words."""
    if "error" in status:
        return "fails", "the file store does not answer"
    working = [queue for queue in status["queues"].values() if "open_take" in queue]
    if any(queue["progress"].get("phase") == "paused" for queue in working):
        return "waits", "pauses"
    if working:
        return "works", f"crawls on {len(working):,} of {len(status['queues']):,} nodes"
    count = len(status["iterations"]) + status["older"]
    return "", f"rests after {count:,} iterations" if count else "has not run yet"


def _known(status: Status) -> str:
    """Say in one line how old or incomplete the numbers are, and which URLs wait."""
    lines = [str(status.get("waiting", ""))]
    if "unread" in status:
        lines.insert(
            0,
            f"{status['unread']:,} older iterations are being read, and sums are without them until then",
        )
    if status.get("age_s", 0) > STALE_S:
        lines.insert(
            0,
            f"the file store has not answered for {duration(status['age_s'])}, and the numbers are as old",
        )
    return "; ".join(filter(None, lines))


def _tiles(status: Status, entries: Sequence[Status], *, is_of_run: bool) -> dict[str, str]:
    totals = status.get("totals", {})
    counts = [entry["counts"] for entry in entries if "counts" in entry]
    names = {"urls": "URLs", "fetched": "tries", "links": "links"}
    sums = {
        title: _number(sum(one.get(name, 0) for one in counts) if is_of_run else totals.get(name))
        for name, title in names.items()
    }
    newest = sum(entry.get("bytes", 0) for entry in entries)
    etas = [
        queue["progress"]["eta_s"]
        for queue in status["queues"].values()
        if "eta_s" in queue.get("progress", {})
    ]
    return {
        **sums,
        f"MB of the newest {COUNTED_ITERATIONS} iterations": _megabytes(newest),
        "URLs in a second": _rate(status) or "0",
        "in queues": _number(sum(queue.get("length", 0) for queue in status["queues"].values())),
        "time left of this iteration": duration(max(etas)) if etas else "-",
    }


def _rate(status: Status) -> str:
    """Return how many URLs all nodes fetch in a second; "" if no node works."""
    rates = [
        queue["progress"].get("pages_per_s") or 0
        for queue in status["queues"].values()
        if "open_take" in queue
    ]
    return f"{sum(rates):,.1f}" if rates else ""


def _node_row(crawl: Crawl, node: str, queue: Status, links: Links) -> Row:
    said, take = queue.get("progress", {}), queue.get("open_take")
    phase: str | Link = str(said.get("phase", ""))
    if take:
        task = f"iteration_{take['iteration']}.crawl.{node}"
        phase = Link(
            str(said.get("phase") or "begins"),
            links.task(crawl.dag_id, take["run_id"], task),
            "_top",
        )
    return {
        "node": node,
        "phase": phase,
        "fetched": _number(said.get("fetched")),
        "taken": _number(take["count"] if take else said.get("taken")),
        "rate": f"{said.get('pages_per_s') or 0:,.1f}" if take else "",
        "queue": _number(queue.get("length")),
        "eta": duration(said["eta_s"]) if "eta_s" in said else "",
        "remark": ", ".join(
            filter(None, (_try(queue.get("task", {})), _remark(queue) or _ago(said)))
        ),
        "chart": _html(_small_curve(node, queue.get("curve") or said.get("curve") or [])),
    }


def _remark(queue: Status) -> str:
    """Say why a node pauses or failed, and since when the node is silent."""
    said = queue.get("progress", {})
    if "silent_since" in queue:
        return f"no report since {queue['silent_since'] or 'the try began'}; Airflow says: {queue['task']['state']}"
    return str(
        queue.get("error") or said.get("reason") or said.get("error") or queue.get("note") or ""
    )


def _try(task: Status) -> str:
    """Say which try of a task this is, and whether another follows; "" for a first try without repetition."""
    number = task.get("try")
    if task.get("state") == "up_for_retry":
        return f"try {number} failed, and Airflow tries again"
    return f"try {number}" if isinstance(number, int) and number > 1 else ""


def _ago(said: Status) -> str:
    return f"said {duration(max(0, time.time() - said['time']))} ago" if said.get("time") else ""


def _rates(points: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """Return the speed of a task between every two moments: seconds since its begin, and URLs in a second."""
    whole = [point for point in points if len(point) > 1]
    return [
        (after[0], max(0, after[1] - before[1]) / (after[0] - before[0]))
        for before, after in pairwise(whole)
        if after[0] > before[0]
    ]


def _small_curve(node: str, points: Sequence[Sequence[float]]) -> str:
    rates = _rates(points)
    names = [f"to {at:,.0f} s" for at, _ in rates]
    return small(f"URLs in a second of {node}", [rate for _, rate in rates], names=names)


def _chart(crawl: Crawl, entries: Sequence[Status], links: Links) -> str:
    """Draw the iterations as bars with links to their runs."""
    rows = {entry["folder"]: entry["counts"]["outcomes"] for entry in entries if "counts" in entry}
    runs = {
        entry["folder"]: links.run(crawl.dag_id, entry["run_id"])
        for entry in entries
        if entry.get("run_id")
    }
    text = f"Tries by outcome, the newest {SHOWN_ITERATIONS} iterations. A bar leads to its run."
    return bar_columns("Iterations", text, rows, links=runs, slots=SHOWN_ITERATIONS)


def _iteration_row(crawl: Crawl, entry: Status, links: Links) -> Row:
    counts, run_id = entry.get("counts", {}), str(entry.get("run_id", ""))
    late = ", ".join([*entry.get("late", ()), *entry.get("missing", ())])
    state = entry.get("error") or ("complete" if entry["complete"] else "not complete")
    words = [
        f"{state}, without {late}" if late else state,
        entry.get("warning"),
        entry.get("budgets"),
    ]
    task = f"iteration_{entry.get('iteration')}.commit"
    return {
        "folder": str(entry["folder"]),
        "run": Link(run_id, links.run(crawl.dag_id, run_id), "_top") if run_id else "",
        "number": str(entry.get("iteration", "")),
        "urls": _number(counts.get("urls")),
        "tries": _number(counts.get("fetched")),
        "task": Link("commit", links.task(crawl.dag_id, run_id, task), "_top") if run_id else "",
        "state": "; ".join(map(str, filter(None, words))),
    }


class Breakdown(NamedTuple):
    """A table with bars. `of`: the counted set."""

    name: str
    of: str
    meters: Markup


def _breakdowns(
    status: Status, entries: Sequence[Status], *, is_of_run: bool
) -> Iterator[Breakdown]:
    """Yield the outcomes of tries, and properties of the newest pages and the queues."""
    counts = (
        [entry["counts"] for entry in entries if "counts" in entry]
        if is_of_run
        else [status.get("totals", {})]
    )
    outcomes = sum((Counter(one.get("outcomes", {})) for one in counts), Counter[str]())
    yield Breakdown("Outcomes", "Of all tries.", _meters(outcomes, "outcome", "tries"))
    if is_of_run:
        return
    pages = status.get("pages", {})
    of = (
        str(pages.get("error") or f"Of the newest {pages.get('rows', 0):,} tries.")
        if pages
        else "Being counted."
    )
    for name, head in {
        "status codes": "status code",
        "MIME types": "type",
        "hosts": "host",
    }.items():
        yield Breakdown(
            f"{name[0].upper()}{name[1:]}", of, _meters(pages.get(name, {}), head, "tries")
        )
    hosts = [queue.get("hosts", {}) for queue in status["queues"].values()]
    queued = sum(
        (Counter({host: one["urls"] for host, one in some.items()}) for some in hosts),
        Counter[str](),
    )
    yield Breakdown("Queued hosts", "The largest ones.", _meters(queued, "host", "URLs"))


def _meters(numbers: Mapping[str, int], head: str, unit: str) -> Markup:
    rows = dict(sorted(numbers.items(), key=lambda one: (-one[1], one[0])))
    return _html(meters(rows, head=head, unit=unit))


def _back_offs(node: str, queue: Status) -> Iterator[tuple[str, str]]:
    """Yield hosts in back-off, each with the end of the pause."""
    found = queue.get("back_off", {})
    until = found.get("until", {})
    yield from ((str(host), f"until {at}, on {node}") for host, at in until.items())
    if (left := found.get("hosts", 0) - len(until)) > 0:
        yield f"{left:,} others", f"on {node}"


def _key_row(entry: Status) -> Row:
    counts = {name: _number(entry.get(name)) for name in ("total", "queued", "crawled", "gone")}
    return {
        "name": str(entry.get("name", "all")),
        "state": str(entry.get("error", "answers")),
        **counts,
    }


def _segment_row(status: Status, entry: Status) -> Row:
    return {
        "folder": str(entry["folder"]),
        "path": f"{status['crawl']}/{entry['folder']}",
        "nodes": ", ".join(entry.get("segments", ())),
        "megabytes": _megabytes(entry["bytes"]),
    }


def _export_row(crawl: Crawl, entry: Status) -> Row:
    return {
        "name": str(entry["name"]),
        "path": f"{shown_address(crawl.config)}/{crawl.config.export.directory}/{entry['name']}",
        "pages": _number(entry["pages"]),
        "megabytes": _megabytes(sum(entry["bytes"].values())),
    }


def task_view(crawl: Crawl, task_id: str, value: Any, links: Links) -> dict[str, Any]:
    """Return the values for the tab of a task: its curve and its result. `value`: of the state store, or None."""
    known: Mapping[str, Any] = progress_of(value)
    counts = mapping_of(mapping_of(value).get("counts"))
    doc, phase, points = doc_of(task_id), known["phase"], known["curve"]
    title, rates = "URLs in a second", _rates(points)
    chart = lines(title, "Since the task began.", {title: rates}, unit="seconds") if rates else ""
    names = {"taken": "URLs taken", "fetched": "tries", "errors": "errors", "queue": "in the queue"}
    return {
        "title": task_id,
        "crawl": crawl.name,
        "whole": links.crawl(crawl.name),
        "does": doc.does if doc else "",
        "failed": doc.failed if doc else "",
        "told": value is not None,
        "mood": {"done": "works", "failed": "fails", "paused": "waits"}.get(
            phase, "" if phase in ENDED else "works"
        ),
        "phase": phase or "begins",
        "at": ", ".join(filter(None, (_try(mapping_of(value)), _ago(known)))),
        "reason": known.get("reason") or known.get("error") or "",
        "tiles": {words: _number(known[name]) for name, words in names.items()}
        | {"MB": _megabytes(known["bytes"]), title: f"{known['pages_per_s']:,.1f}"},
        "counts": {str(name): _text(fact) for name, fact in counts.items()},
        "chart": _html(chart),
    }


def _text(fact: Any) -> str:
    """Write a fact of a result in words."""
    if isinstance(fact, Mapping):
        return ", ".join(f"{name} {_text(inner)}" for name, inner in fact.items()) or "none"
    return f"{fact:,}" if isinstance(fact, int) and not isinstance(fact, bool) else str(fact)


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else ""


def _megabytes(size_bytes: float) -> str:
    return f"{size_bytes / _MB:,.1f}"


def _html(plot: str) -> Markup:
    """Mark a plot as HTML: `crawl_lib.plots` has escaped all names in the plot."""
    return Markup(plot)  # noqa: S704
