"""`krake status`, `krake show`, `krake graph stats`, `krake config`."""

import argparse
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from crawl_lib.cli.common import console, print_counts, print_json, print_result, tool_stores
from crawl_lib.config import Config, is_sqlite_server, load_config, to_mapping
from crawl_lib.export import newest_export, show_page
from crawl_lib.graph import open_web_graph
from crawl_lib.keys import parse_server
from crawl_lib.rounds import status_of
from crawl_lib.seeds import has_contact, is_our_own
from crawl_lib.stores import PASSWORD_VARIABLE, Secrets
from crawl_lib.urls import UrlFilter


def config(arguments: argparse.Namespace) -> int:
    """Check the config and print what is in force, secrets masked. Raises ConfigError."""
    checked = load_config(arguments.config)
    UrlFilter(checked.urls, ())  # rules may be good YAML and no good rules
    mapping = to_mapping(checked)
    mapping["fetch"]["proxy"] = masked(mapping["fetch"]["proxy"])
    mapping["dfs_primary"] = masked(mapping["dfs_primary"])
    password = Secrets.from_environment().key_storage_password
    print(f"# {PASSWORD_VARIABLE} is {'set: ****' if password else 'not set'}")
    print(yaml.safe_dump(mapping, sort_keys=False, allow_unicode=True), end="")
    for warning in _warnings(checked):
        print(f"warning: {warning}", file=sys.stderr)
    return 0


def _warnings(config: Config) -> Iterator[str]:
    """What is allowed, and what an operator should know of."""
    if not has_contact(config.fetch):
        yield (
            "fetch.contact is not set: `krake inject` takes only seeds on loopback and addresses in"
            " fetch.allow_networks. Set it to a URL or mail address where the people you crawl can reach you"
        )
    hosts = {name: parse_server(name)[0] for name in config.key_storage.servers if not is_sqlite_server(name)}
    strangers = [name for name, host in hosts.items() if not is_our_own(host, ())]
    if strangers and config.key_storage.tls != "verify":
        yield (
            f"key_storage.tls is {config.key_storage.tls}: any machine between here and {', '.join(strangers)} can"
            " pass for it; `verify` looks at its certificate"
        )


def masked(address: str | None) -> str | None:
    """An address, or several with `;` between, without the passwords in them."""
    return address and ";".join(
        re.sub(r"^((?:[^/]*//)?[^/:@]*):(?!//).*@", r"\1:****@", one) for one in address.split(";")
    )


def status(arguments: argparse.Namespace) -> int:
    """What is there of the crawl; the exit code is 1 if the file store could not tell."""
    found = status_of(load_config(arguments.config), Secrets.from_environment())
    print_result(arguments, found, lambda: _show_status(found, console()))
    return 1 if "error" in found else 0


def _show_status(found: Mapping[str, Any], console: Console) -> None:
    """The status as tables."""
    console.print(f"crawl {found['crawl']}")
    if "error" in found:
        console.print(f"what is there cannot be told: {found['error']}")
        _show_local(found, console)
        return
    names = ("folder", "run / iteration", "complete", "URLs", "deferred", "links")
    console.print(_rows("iterations", names, list(map(_iteration_row, found["iterations"]))))
    if found["totals"].get("outcomes"):
        console.print(_rows("outcomes", ("outcome", "URLs"), list(found["totals"]["outcomes"].items())))
    console.print(nodes_table(found["nodes"]))
    _show_local(found, console)
    exports = [
        (entry["name"], f"{entry['pages']:,} pages" if entry["complete"] else "unfinished")
        for entry in found["exports"]
    ]
    console.print(_rows("exports", ("name", ""), exports))


def _show_local(found: Mapping[str, Any], console: Console) -> None:
    queues = [(node, _queue_text(queue)) for node, queue in found["queues"].items()]
    console.print(_rows("queues", ("node", "URLs"), queues))
    names = ("queued", "crawled", "gone")
    keys = [
        (entry["server"], entry["error"]) if "error" in entry
        else (entry["server"], f"{entry['total']:,} ({', '.join(f'{entry.get(name, 0):,} {name}' for name in names)})")
        for entry in found["keys"]
    ]  # fmt: skip
    console.print(_rows("keys", ("server", "keys"), keys))


def _queue_text(queue: Mapping[str, Any]) -> str:
    if said := queue.get("error") or queue.get("note"):
        return str(said)
    text = f"{queue['length']:,}"
    progress = queue.get("progress", {})
    if "open_take" in queue:
        text += f" ({queue['open_take']['count']:,} of them taken, {progress.get('fetched', 0):,} fetched)"
    if "open_move" in queue:
        text += "; a move is open: a task changes the queue now, or the next one goes on with it"
    if "reason" in progress:
        text += f"; {progress['phase']}: {progress['reason']}"
    return text


def nodes_table(nodes: Mapping[str, Any], more: Mapping[str, str] | None = None) -> Table:
    """What is known of each node from the DFS. `more`: a column of its own, the share of hosts."""
    rows = []
    for node, entry in nodes.items():
        late = f"late in {', '.join(entry['late'])}" if entry["late"] else ""
        queue = f"{entry['queue']:,}" if "queue" in entry else ""
        share = (more.get(node, ""),) if more is not None else ()
        rows.append((node, *share, queue, _settled_text(entry), late))
    hosts = ("hosts",) if more is not None else ()
    return _rows("nodes", ("node", *hosts, "queue when it settled", "settled after", ""), rows)


def _settled_text(entry: Mapping[str, Any]) -> str:
    if "settled" not in entry:
        return str(entry.get("error", "not yet, or not since it took URLs"))
    if entry.get("lost") or entry.get("retired"):
        return "lost" if entry.get("lost") else "retired"
    at = entry["settled"] or "before the first iteration"
    return f"{at}, and is behind" if entry["behind"] else at


def _iteration_row(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    missing = entry.get("error") or (f"missing: {', '.join(entry['missing'])}" if entry["missing"] else "yes")
    if entry.get("late"):
        missing = f"committed without {', '.join(entry['late'])}"
    counts = [entry.get("counts", {}).get(name, 0) for name in ("fetched", "deferred", "links")]
    return entry["folder"], f"{entry.get('run_id', '')} / {entry.get('iteration', '')}", missing, *counts


def _rows(title: str, names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> Table:
    table = Table(*names, title=title, title_justify="left")
    for row in rows:
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row))
    return table


def show(arguments: argparse.Namespace) -> int:
    """A page and its links."""
    with tool_stores(arguments) as stores:
        print_json(show_page(stores, name=arguments.export or newest_export(stores), page=arguments.page))
    return 0


def graph_stats(arguments: argparse.Namespace) -> int:
    """The web graph in numbers."""
    with tool_stores(arguments) as stores:
        name = arguments.export or newest_export(stores)
        with open_web_graph(stores, name=name) as graph:
            print_counts(f"web graph of {name}", graph.stats())
    return 0
