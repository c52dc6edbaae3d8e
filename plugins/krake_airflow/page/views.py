"""Rows of text, and plots, for the templates, from the status of a crawl."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from crawl_lib.cli.bar import duration
from crawl_lib.plots import DARK, LIGHT, bars, small, stacked
from crawl_lib.plots import STYLE as PLOT_STYLE
from crawl_lib.rounds.elsewhere import progress_of
from crawl_lib.storage import shown_address
from krake_airflow.configs import BadConfig
from krake_airflow.page.crawls import Crawl
from krake_airflow.taskdocs import doc_of

_LIGHT = f"--text: #1d2733; --back: #fff; --faint: #5a6570; --line: #d8dee4; --link: #1f5f8f; {LIGHT}"
_DARK = f"--text: #e3e8ed; --back: #161b21; --faint: #a4afba; --line: #39424c; --link: #7cbbe6; {DARK}"
STYLE = f"""
:root {{ color-scheme: light; {_LIGHT} }}
:root[data-theme=dark] {{ color-scheme: dark; {_DARK} }}
body {{ margin: 1rem; font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); }}
h1 {{ font-size: 1.4rem; }} h2 {{ font-size: 1.1rem; margin: 1.5rem 0 .2rem; }} a {{ color: var(--link); }}
.faint {{ color: var(--faint); }} .wide {{ overflow-x: auto; }}
.wide > table {{ border-collapse: collapse; }}
.wide > table > * > tr > * {{ text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }}
.plots {{ max-width: 46rem; }}
{PLOT_STYLE}
"""


def list_view(crawls: Sequence[Crawl], bad: Sequence[BadConfig]) -> dict[str, Any]:
    """Return the values for the list of crawls."""
    return {"crawls": list(map(_crawl_row, crawls)), "bad": [(one.dag_id, one.lines) for one in bad]}


def _crawl_row(crawl: Crawl) -> dict[str, Any]:
    status = crawl.look()
    entries = status.get("iterations", [])
    urls = [entry["counts"]["urls"] for entry in entries if "counts" in entry]
    progress = [queue["progress"] for queue in status["queues"].values() if "open_take" in queue]
    return {
        "name": crawl.name,
        "link": f"crawl/{quote(crawl.name, safe='')}",
        "state": _state(status),
        "urls": f"{status.get('totals', {}).get('urls', 0):,}",
        "rate": f"{sum(one.get('pages_per_s') or 0 for one in progress):,.1f}" if progress else "",
        "waits": status.get("waiting", ""),
        "error": status.get("error", ""),
        "chart": _html(small(f"URLs of {crawl.name} by iteration", urls, names=_folders(entries))),
    }


def _folders(entries: Sequence[Mapping[str, Any]]) -> list[str]:
    return [str(entry["folder"]) for entry in entries if "counts" in entry]


def _state(status: Mapping[str, Any]) -> str:
    """Say in a few words whether a crawl works, rests or waits."""
    if "error" in status:
        return "the file store does not answer"
    if any("open_take" in queue for queue in status["queues"].values()):
        return "crawls"
    count = len(status["iterations"]) + status["older"]
    return f"rests after {count:,} iterations" if count else "has not run yet"


def crawl_view(crawl: Crawl, status: Mapping[str, Any], run_id: str = "") -> dict[str, Any]:
    """Return the values for the page of a crawl; `run_id`: show the iterations of this run alone."""
    entries = [entry for entry in status.get("iterations", []) if run_id in {"", entry.get("run_id")}]
    counted = {entry["folder"]: entry["counts"]["outcomes"] for entry in entries if "counts" in entry}
    outcomes = dict(status.get("totals", {}).get("outcomes", {}))
    return {
        "title": crawl.name,
        "run_id": run_id,
        "trigger": f"/dags/{quote(crawl.dag_id, safe='')}",
        "state": _state(status),
        "is_new": "error" not in status and not status["iterations"],
        "error": status.get("error", ""),
        "waits": status.get("waiting", ""),
        "nodes": [_node_row(node, queue) for node, queue in status["queues"].items()],
        "iterations": [_iteration_row(crawl, entry) for entry in reversed(entries)],
        "plots": [
            _html(stacked("Tries by outcome, by iteration", "The newest iterations.", counted)),
            *([_html(bars("Tries by outcome", "Of all iterations.", outcomes, unit="tries"))] if not run_id else []),
        ],
        "hosts": [row for node, queue in status["queues"].items() for row in _host_rows(node, queue)],
        "keys": [_key_row(entry) for entry in status["keys"]],
        "exports": [_export_row(crawl, entry) for entry in status.get("exports", [])],
    }


def _node_row(node: str, queue: Mapping[str, Any]) -> dict[str, Any]:
    said = queue.get("progress", {})
    eta = duration(said["eta_s"]) if "eta_s" in said else ""
    return {
        "node": node,
        "phase": said.get("phase", ""),
        "fetched": f"{said['fetched']:,} of {said.get('taken', 0):,}" if "fetched" in said else "",
        "rate": f"{said.get('pages_per_s') or 0:,.1f}" if "open_take" in queue else "",
        "queue": f"{queue['length']:,}" if "length" in queue else "",
        "eta": eta,
        "said": _said(queue),
        "chart": _curve(f"pages in a second of {node}", queue.get("curve") or said.get("curve") or []),
    }


def _said(queue: Mapping[str, Any]) -> str:
    """Say why a node pauses or failed, and since when it says nothing."""
    said = queue.get("progress", {})
    if "silent_since" in queue:
        return f"no report since {queue['silent_since'] or 'the try began'}; Airflow says: {queue['task']['state']}"
    if words := queue.get("error") or said.get("reason") or said.get("error") or queue.get("note"):
        return str(words)
    return f"said {duration(max(0, time.time() - said['time']))} ago" if said.get("time") else ""


def _curve(title: str, points: Sequence[Sequence[float]]) -> Markup:
    """Draw how fast a task was between each two moments."""
    whole = [point for point in points if len(point) > 1]
    steps = [(before, after) for before, after in pairwise(whole) if after[0] > before[0]]
    rates = [max(0, after[1] - before[1]) / (after[0] - before[0]) for before, after in steps]
    return _html(small(title, rates, names=[f"to {after[0]:,.0f} s" for _, after in steps]))


def _iteration_row(crawl: Crawl, entry: Mapping[str, Any]) -> dict[str, str]:
    counts = entry.get("counts", {})
    run_id = str(entry.get("run_id", ""))
    late = ", ".join([*entry.get("late", ()), *entry.get("missing", ())])
    state = entry.get("error") or ("complete" if entry["complete"] else "not complete")
    return {
        "folder": str(entry["folder"]),
        "run_id": run_id,
        "link": f"/dags/{quote(crawl.dag_id, safe='')}/runs/{quote(run_id, safe='')}" if run_id else "",
        "number": str(entry.get("iteration", "")),
        "urls": f"{counts.get('urls', 0):,}",
        "tries": f"{counts.get('fetched', 0):,}",
        "state": f"{state}, without {late}" if late else str(state),
        "words": "; ".join(str(entry[name]) for name in ("warning", "budgets") if name in entry),
    }


def _host_rows(node: str, queue: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    for host, entry in queue.get("hosts", {}).items():
        yield {"node": node, "host": host, "urls": f"{entry['urls']:,}", "until": entry.get("back_off", "")}


def _key_row(entry: Mapping[str, Any]) -> dict[str, str]:
    count = f"{entry['total']:,}" if "total" in entry else "not reachable"
    return {"name": str(entry.get("name", "all")), "keys": count, "error": str(entry.get("error", ""))}


def _export_row(crawl: Crawl, entry: Mapping[str, Any]) -> dict[str, str]:
    path = f"{shown_address(crawl.config)}/{crawl.config.export.directory}/{entry['name']}"
    size = sum(entry["bytes"].values())
    return {"path": path, "pages": f"{entry['pages'] or 0:,}", "megabytes": f"{size / 1e6:,.1f}"}


def task_view(crawl: Crawl, task_id: str, value: Any) -> dict[str, Any]:
    """Return the values for the tab of a task: its curve and its newest facts. `value`: of the state store, or None."""
    known = progress_of(value)
    doc = doc_of(task_id)
    facts = {name: str(fact) for name, fact in known.items() if name != "curve" and fact not in ("", 0)}
    return {
        "title": task_id,
        "crawl": f"crawl/{quote(crawl.name, safe='')}",
        "does": doc.does if doc else "",
        "failed": doc.failed if doc else "",
        "facts": facts if value is not None else {},
        "chart": _curve(f"pages in a second of {task_id}", known["curve"]),
    }


def _html(plot: str) -> Markup:
    """Mark a plot as HTML: `crawl_lib.plots` has escaped all names in the plot."""
    return Markup(plot)  # noqa: S704
