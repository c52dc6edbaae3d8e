"""`krake keys create|check|reshard`."""

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict

from crawl_lib.cli.common import at_work, print_counted, print_result, require_yes, say, tool_stores
from crawl_lib.config import Config, load_config
from crawl_lib.errors import KeyTablesError
from crawl_lib.frontier import NodeLock
from crawl_lib.keys import (
    LOOK_S,
    ShardedKeyStore,
    check,
    open_key_store,
    reshard,
)
from crawl_lib.stores import Secrets, node_dir


@contextmanager
def _opened(config: Config) -> Iterator[ShardedKeyStore]:
    password = Secrets.from_environment().key_storage_password
    with open_key_store(config.key_storage, password, crawl=config.crawl.name) as store:
        yield store


def create(arguments: argparse.Namespace) -> int:
    """Create the missing key tables.

    Raises KeyTablesError where that would make crawled pages new.
    """
    config = load_config(arguments.config)
    if arguments.drop:
        servers = ", ".join(config.key_storage.servers)
        require_yes(
            arguments, f"all keys on {servers} are deleted: every URL of the crawl is new again"
        )
    with _opened(config) as store:
        if not arguments.drop and not store.exists():
            with tool_stores(arguments) as stores:
                if stores.crawl.segments():
                    raise KeyTablesError(
                        "the crawl has pages: run `krake fsck --repair` to create and fill the tables"
                    )
        made = store.create(drop=arguments.drop)
        store.require_ring()
    say(f"key tables made on {', '.join(made)}" if made else "key tables are there on every server")
    return 0


def check_keys(arguments: argparse.Namespace) -> int:
    """Count keys and compare replicas.

    People are also told which server each short name is.
    """
    config = load_config(arguments.config)
    with _opened(config) as store, at_work(arguments) as work:
        report = check(store, work=work)
    names = "".join(
        f"{name} is {server}\n" for name, server in config.key_storage.by_short_name.items()
    )
    servers = [asdict(one) for one in report.servers]
    shown = {**vars(report), "servers": servers, "ok": report.ok}
    print_result(arguments, shown, lambda: say(names + report.to_text()))
    return 0 if report.ok else 1


def reshard_keys(arguments: argparse.Namespace) -> int:
    """Move keys to the servers that the config names now."""
    config, dry_run = load_config(arguments.config), arguments.dry_run
    there = {
        node: node_dir(config, node) for node in config.servers if node_dir(config, node).is_dir()
    }
    with ExitStack() as stack, at_work(arguments) as work:
        for node, directory in there.items():
            stack.enter_context(
                NodeLock(directory, node, 0.0, what="krake keys reshard", leaves_trace=not dry_run)
            )
        store = stack.enter_context(_opened(config))
        old = (
            stack.enter_context(_opened(load_config(arguments.old_config)))
            if arguments.old_config
            else None
        )
        patience_s = 2 * LOOK_S if len(there) < len(config.servers) else 0.0
        report = reshard(store, old, dry_run=dry_run, patience_s=patience_s, work=work)
    return print_counted(arguments, "resharded", report)
