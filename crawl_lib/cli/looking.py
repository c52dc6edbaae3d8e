"""`krake status`, `krake report`, `krake graph stats|export`, `krake config`."""

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import yaml
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.control import Control
from rich.segment import Segment, SegmentLines
from rich.table import Table

from crawl_lib.cli.common import print_counted, print_result, say, tool_stores
from crawl_lib.cli.figures import duration
from crawl_lib.cli.tables import console, grid
from crawl_lib.commoncrawl import FORMATS, export_graph_files
from crawl_lib.config import Config, load_config
from crawl_lib.errors import ConfigError
from crawl_lib.export import newest_export
from crawl_lib.graph import export_graph, open_web_graph
from crawl_lib.keys import parse_server
from crawl_lib.report import write_report
from crawl_lib.rounds import CrawlReader
from crawl_lib.seeds import has_contact, is_our_own
from crawl_lib.stores import PASSWORD_VARIABLE, Secrets
from crawl_lib.usable import is_one_machine, local_problems, shared_problems

WATCH_S = 2.0
LAST = 10
"""Iterations that people are shown."""


def config(arguments: argparse.Namespace) -> int:
    """Check config, machine and servers, and print the options.

    Secrets are masked. The exit code is 1 if something is wrong. On many machines, a need of some machines only is a
    warning. Raises ConfigError.
    """
    checked, secrets = load_config(arguments.config), Secrets.from_environment()
    mapping = checked.to_mapping()
    mapping["fetch"]["proxy"] = masked(mapping["fetch"]["proxy"])
    for step in _steps(mapping["urls"]):
        step["rules"] = step["rules"] if step["file"] is None else None  # the file has them
    mapping["dfs_primary"] = masked(mapping["dfs_primary"])
    say(f"# {PASSWORD_VARIABLE} is {'set: ****' if secrets.key_storage_password else 'not set'}")
    say(yaml.safe_dump(mapping, sort_keys=False, allow_unicode=True), end="")
    problems, local = (
        shared_problems(checked, secrets, arguments.stop),
        local_problems(checked, nodes=True, batch=True),
    )
    warnings = chain(
        _warnings(checked),
        () if is_one_machine(checked) else (f"{one}{_ELSEWHERE}" for one in local),
    )
    for warning in warnings:
        say(f"warning: {warning}", file=sys.stderr)
    lines = [line for problem in chain(problems, local) for line in problem.lines]
    for line in lines:
        say(f"krake: {line}", file=sys.stderr)
    return 1 if lines else 0


def _steps(urls: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the normalisers and filters of all scopes."""
    for steps in chain(urls["normalizers"].values(), urls["filters"].values()):
        yield from steps or ()


_ELSEWHERE = (
    " (needed on the machines of nodes: queue.local_dir; of the batch stages: scratch.directory)"
)


def _warnings(config: Config) -> Iterator[str]:
    """Yield warnings about allowed but risky options."""
    if not has_contact(config.fetch):
        yield (
            "fetch.contact is not set: `krake inject` takes only seeds on loopback and addresses in"
            " fetch.allow_networks. Set it to a URL or mail address where the people you crawl can reach you"
        )
    hosts = {
        name: parse_server(name)[0]
        for name in config.key_storage.servers
        if not config.key_storage.is_sqlite(name)
    }
    strangers = [name for name, host in hosts.items() if not is_our_own(host, ())]
    if strangers and config.key_storage.tls != "verify":
        yield (
            f"key_storage.tls is {config.key_storage.tls}: any machine between here and {', '.join(strangers)} can"
            " pass for it; `verify` looks at its certificate"
        )


def masked(address: str | None) -> str | None:
    """Return addresses without their passwords.

    `address`: None, or several with `;` between.
    """
    return address and ";".join(
        re.sub(r"^((?:[^/]*//)?[^/:@]*):(?!//).*@", r"\1:****@", one) for one in address.split(";")
    )


def status(arguments: argparse.Namespace) -> int:
    """Show the crawl's status.

    The exit code is 1 if the file store could not tell. People see `LAST` iterations by default.
    """
    config, last = (
        load_config(arguments.config),
        arguments.last or (None if arguments.json else LAST),
    )
    look = partial(CrawlReader(config, Secrets.from_environment()).status, last=last)
    if arguments.watch:
        return _watch(arguments, look)
    found = look()
    print_result(arguments, found, partial(_show_status, found))
    return 1 if "error" in found else 0


def _watch(arguments: argparse.Namespace, look: Callable[[], CrawlReader.Status]) -> int:
    """Show the status every `WATCH_S` seconds, until stopped.

    Return the exit code. A terminal uses a separate screen: at the end the earlier content comes back.
    """
    shown, stop = console(), arguments.stop
    if arguments.json or not sys.stdout.isatty():
        while not stop.is_set():
            found = look()
            print_result(arguments, found, partial(_show_status, found))
            sys.stdout.flush()
            stop.wait(WATCH_S)
        return int(stop.code)
    with shown.screen(hide_cursor=False) as screen:
        drawing = Lock()
        Thread(
            target=_leave_screen, args=(stop, shown, drawing), name="screen", daemon=True
        ).start()
        while not stop.is_set():
            whole = Group(*_status_parts(look(), work_first=True))
            with drawing:
                if not stop.is_set():
                    shown.control(Control.home())
                    screen.update(_Fitted(whole))
            stop.wait(WATCH_S)
    return int(stop.code)


def _leave_screen(stop: Event, shown: Console, drawing: Lock) -> None:
    """Restore the terminal's screen at once.

    With a slow store, the process ends at any point.
    """
    stop.wait()
    with drawing:
        shown.set_alt_screen(False)


class _Fitted:
    """As many lines as a screen has; the last line counts the rest."""

    def __init__(self, whole: RenderableType) -> None:
        self._whole = whole

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._whole, options.reset_height(), pad=False)
        room = options.height or console.height
        if len(lines) > room:
            more = f"... {len(lines) - room + 1:,} more lines: `krake status` shows all"
            lines = [*lines[: room - 1], [Segment(more)]]
        yield SegmentLines(lines, new_lines=True)


def _show_status(found: CrawlReader.Status) -> None:
    console().print(Group(*_status_parts(found)))


def _status_parts(found: CrawlReader.Status, *, work_first: bool = False) -> list[RenderableType]:
    """Return the status as lines and tables.

    `work_first`: nodes at work come before the iterations.
    """
    title: list[RenderableType] = [f"crawl {found['crawl']}"]
    kept: list[RenderableType] = []
    exports: list[RenderableType] = []
    if "error" in found:
        title.append(f"what is there cannot be told: {found['error']}")
    else:
        kept, exports = list(_kept_parts(found)), [_exports_table(found)]
    work = list(_work_parts(found))
    return [*title, *(work + kept if work_first else kept + work), *_local_parts(found), *exports]


def _kept_parts(found: CrawlReader.Status) -> Iterator[RenderableType]:
    """Yield the parts that the file store tells: iterations, outcomes, nodes."""
    names = ("folder", "run / iteration", "complete", "URLs", "tries", "deferred", "links", "MB")
    yield grid(names, list(map(_iteration_row, found["iterations"])), "iterations")
    if found["older"]:
        yield f"and {found['older']:,} older iterations; --last N shows the last N"
    for entry in found["iterations"]:
        if "warning" in entry:
            yield f"warning: iteration {entry['folder']}: {entry['warning']}"
        if "budgets" in entry:
            yield f"limits reached: iteration {entry['folder']}: {entry['budgets']}"
    tries, retried = found["totals"]["outcomes"], found["totals"].get("retried", {})
    if tries:
        rows = [
            (outcome, number - retried.get(outcome, 0), number) for outcome, number in tries.items()
        ]
        yield grid(("outcome", "URLs", "tries"), rows, "outcomes")
    yield nodes_table(found["nodes"])


def _exports_table(found: CrawlReader.Status) -> Table:
    exports = [
        (entry["name"], f"{entry['pages']:,} pages" if entry["complete"] else "unfinished")
        for entry in found["exports"]
    ]
    return grid(("name", ""), exports, "exports")


def _work_parts(found: CrawlReader.Status) -> Iterator[RenderableType]:
    """Yield the waiting URLs, and this machine's nodes at work."""
    if "waiting" in found:
        yield f"{found['waiting']} (`krake retry --now` ends the waiting)"
    work: list[tuple[Any, ...]] = [
        _work_row(node, queue) for node, queue in found["queues"].items() if "open_take" in queue
    ]
    if work:
        columns = (
            "node",
            "run / iteration",
            "phase",
            "fetched",
            "of",
            "URLs/s",
            "MB",
            "ends in",
            "queue in",
            "said",
        )
        yield grid(columns, work, "at work")


def _local_parts(found: CrawlReader.Status) -> Iterator[RenderableType]:
    """Yield the tables of this machine's queues, and of the keys."""
    queues: list[tuple[Any, ...]] = [
        (node, _queue_text(queue)) for node, queue in found["queues"].items()
    ]
    yield grid(("node", "URLs"), queues, "queues")
    hosts: list[tuple[Any, ...]] = [
        (node, host, count)
        for node, queue in found["queues"].items()
        for host, count in _hosts(queue)
    ]
    if hosts:
        yield grid(("node", "host", "URLs"), hosts, "hosts of what is queued")
    keys = [(entry.get("name", "all"), _keys_text(entry)) for entry in found["keys"]]
    yield grid(("server", "keys"), keys, "keys")


def _keys_text(entry: Mapping[str, Any]) -> str:
    """Say how many keys a server has, or why the number is unknown."""
    if "error" in entry:
        return str(entry["error"])
    counts = ", ".join(f"{entry.get(name, 0):,} {name}" for name in ("queued", "crawled", "gone"))
    return f"{entry['total']:,} ({counts})"


def _work_row(node: str, queue: CrawlReader.NodeQueue) -> tuple[Any, ...]:
    """Return a node's row for its open take.

    Its task reported the row last.
    """
    take, said = queue["open_take"], queue["progress"]
    times = [duration(said[name]) if name in said else "" for name in ("eta_s", "queue_eta_s")]
    ago = f"{duration(max(0, time.time() - said['time']))} ago" if "time" in said else ""
    rate, megabytes = said.get("pages_per_s", 0.0), f"{said.get('bytes', 0) / 1e6:,.1f}"
    place = f"{take['run_id']} / {take['iteration']}"
    return (
        node,
        place,
        said.get("phase", ""),
        said.get("fetched", 0),
        take["count"],
        rate,
        megabytes,
        *times,
        ago,
    )


def _hosts(queue: CrawlReader.NodeQueue) -> Iterator[tuple[str, str]]:
    """Yield the hosts of most next URLs, with counts.

    The end of their back-off is included.
    """
    for host, entry in queue.get("hosts", {}).items():
        until = f", in back-off until {entry['back_off']}" if "back_off" in entry else ""
        yield host, f"{entry['urls']:,}{until}"


def _queue_text(queue: CrawlReader.NodeQueue) -> str:
    if said := queue.get("error") or queue.get("note"):
        return str(said)
    text = f"{queue['length']:,}"
    progress = queue.get("progress", {})
    if "open_take" in queue:
        text += f" ({queue['open_take']['count']:,} of them taken, {progress.get('fetched', 0):,} fetched)"
    if "back_off" in queue:
        hosts, until = queue["back_off"]["hosts"], queue["back_off"]["until"]
        first = ", ".join(f"{host} until {at}" for host, at in until.items())
        text += f"; hosts in back-off: {hosts:,} ({first}{', ...' if hosts > len(until) else ''})"
    if "open_move" in queue:
        text += "; a move is open: a task changes the queue now, or the next task finishes the move"
    if said := progress.get("reason") or progress.get("error"):
        text += f"; {progress['phase']}: {said}"
    if "task" in queue:
        text += _task_text(queue)
    return text


def _task_text(queue: CrawlReader.NodeQueue) -> str:
    """Say Airflow's facts about the newest task of a node elsewhere."""
    task, progress = queue["task"], queue["progress"]
    if "silent_since" not in queue:
        return f"; {progress['phase']}, as Airflow knows from {task['run_id']}"
    since = f"since {queue['silent_since']}" if queue["silent_since"] else f"of try {task['try']}"
    return f"; no report {since}, and Airflow says: {task['state']}"


def nodes_table(
    nodes: Mapping[str, CrawlReader.Node], more: Mapping[str, str] | None = None
) -> Table:
    """Return the table of nodes by the DFS.

    `more`: a column of its own, the share of hosts.
    """
    rows = []
    for node, entry in nodes.items():
        late = f"late in {', '.join(entry['late'])}" if entry["late"] else ""
        queue = f"{entry['queue']:,}" if "queue" in entry else ""
        share = (more.get(node, ""),) if more is not None else ()
        rows.append((node, *share, queue, _settled_text(entry), late))
    hosts = ("hosts",) if more is not None else ()
    return grid(("node", *hosts, "queue when it settled", "settled after", ""), rows, "nodes")


def _settled_text(entry: CrawlReader.Node) -> str:
    if "settled" not in entry:
        return str(entry.get("error", "not yet, or not since the last take"))
    if entry.get("lost") or entry.get("retired"):
        return "lost" if entry.get("lost") else "retired"
    at = entry["settled"] or "before the first iteration"
    return f"{at}, and is behind" if entry["behind"] else at


def _iteration_row(entry: CrawlReader.Iteration) -> tuple[Any, ...]:
    missing = ", ".join(entry.get("missing", ()))
    complete = entry.get("error") or (f"missing: {missing}" if missing else "yes")
    if not entry.get("error") and not entry["committed"]:
        complete = f"not yet: waits for {missing or 'commit'}"
    elif entry.get("late"):
        complete = f"committed without {', '.join(entry['late'])}"
    counts = [
        entry.get("counts", {}).get(name, 0) for name in ("urls", "fetched", "deferred", "links")
    ]
    megabytes = f"{entry['bytes'] / 1e6:,.1f}" if "bytes" in entry else ""
    run = f"{entry.get('run_id', '')} / {entry.get('iteration', '')}"
    return entry["folder"], run, complete, *counts, megabytes


def report(arguments: argparse.Namespace) -> int:
    """Write plots as one HTML page."""
    with tool_stores(arguments) as stores:
        target = Path(arguments.file).absolute()
        write_report(stores, name=arguments.export or newest_export(stores), target=target)
    say(f"written: {target.as_uri()}")
    return 0


def graph_stats(arguments: argparse.Namespace) -> int:
    """Show the web graph in numbers."""
    with tool_stores(arguments) as stores:
        name = arguments.export or newest_export(stores)
        with open_web_graph(stores, name=name) as graph:
            found = graph.stats()
    return print_counted(arguments, f"web graph of {name}", found)


def graph_export(arguments: argparse.Namespace) -> int:
    """Write the arcs as files for other programs.

    Raises ConfigError for options that do not go together.
    """
    is_of_links, form, of = arguments.of == "links", arguments.format, arguments.graph
    if is_of_links and (arguments.export or form not in FORMATS):
        raise ConfigError(
            f"--of links: goes with --format {' or '.join(FORMATS)} alone, and not with --export"
        )
    with tool_stores(arguments) as stores:
        name = None if is_of_links else arguments.export or newest_export(stores)
        path, now = Path(arguments.file), datetime.now(UTC)
        report: Any
        if form in FORMATS:
            report = export_graph_files(stores, path, form=form, of=of, name=name, now=now)
        else:
            report = export_graph(stores, path, name=str(name), form=form, of=of)
    return print_counted(arguments, f"web graph of {name or 'all links'}", report)
