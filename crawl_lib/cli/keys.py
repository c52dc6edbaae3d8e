"""`krake keys create|check|reshard|dump|load` and `krake forget`."""

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from crawl_lib.cli.common import (
    config_of,
    print_counts,
    print_dry_run,
    print_json,
    require_yes,
    stores_of,
    tool_progress,
    tool_stores,
)
from crawl_lib.config import load_config
from crawl_lib.errors import ConfigError, InputError, KeyTablesError, UrlError
from crawl_lib.frontier import NodeLock, held_without_trace
from crawl_lib.keys import (
    LOOK_S,
    ShardedKeyStore,
    check,
    dump_keys,
    load_keys,
    open_key_store,
    reshard,
)
from crawl_lib.stopping import Work
from crawl_lib.stores import Secrets, node_dir
from crawl_lib.urls import canonicalize, host_of

DAY_S = 86400.0


@contextmanager
def _opened(arguments: argparse.Namespace, *, ring: bool = True) -> Iterator[ShardedKeyStore]:
    """The key store of the config; `ring`: only if its servers are those that the keys were written for."""
    with open_key_store(config_of(arguments).key_storage, Secrets.from_environment().key_storage_password) as store:
        if ring:
            store.require_ring(write=not arguments.dry_run)
        yield store


def _print(title: str, result: dict[str, Any], arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json(result)
    else:
        print_counts(title, result)
        print_dry_run(arguments)


def create(arguments: argparse.Namespace) -> int:
    """Create the key tables where there are none. Raises KeyTablesError where that would make crawled pages new."""
    config = config_of(arguments).key_storage
    if arguments.drop:
        servers = ", ".join(config.servers)
        require_yes(arguments, f"all keys on {servers} are deleted: every URL of the crawl is new again")
    with open_key_store(config, Secrets.from_environment().key_storage_password) as store:
        if arguments.drop:
            store.create(drop=True)
            made = list(config.servers)
        else:
            if not store.exists() and stores_of(arguments).crawl.segments():
                raise KeyTablesError("the crawl has pages: run `krake fsck --repair`, which also fills the tables")
            made = store.create_missing()
        store.require_ring()
    print(f"key tables made on {', '.join(made)}" if made else "key tables are there on every server")
    return 0


def check_keys(arguments: argparse.Namespace) -> int:
    """Count keys and compare replicas."""
    config = config_of(arguments).key_storage
    password = Secrets.from_environment().key_storage_password
    with open_key_store(config, password) as store, tool_progress(arguments) as progress:
        report = check(store, work=Work(stop=arguments.stop, on_progress=progress))
    if arguments.json:
        print_json(report.to_mapping())
    else:
        print(report.to_text())
    return 0 if report.ok else 1


def reshard_keys(arguments: argparse.Namespace) -> int:
    """Move keys to the servers that the config names now."""
    config, password = config_of(arguments), Secrets.from_environment().key_storage_password
    with ExitStack() as stack, tool_progress(arguments) as progress:
        for node in config.servers:
            if node_dir(config, node).is_dir():
                directory = node_dir(config, node)
                stack.enter_context(
                    held_without_trace(directory, node)
                    if arguments.dry_run
                    else NodeLock(directory, node, 0.0, what="krake keys reshard")
                )
        store = stack.enter_context(open_key_store(config.key_storage, password))
        old = None
        if arguments.old_config:
            old = stack.enter_context(open_key_store(load_config(arguments.old_config).key_storage, password))
        elsewhere = any(not node_dir(config, node).is_dir() for node in config.servers)
        patience_s = 2 * LOOK_S if elsewhere else 0.0
        report = reshard(
            store,
            old,
            dry_run=arguments.dry_run,
            patience_s=patience_s,
            work=Work(stop=arguments.stop, on_progress=progress),
        )
    _print("resharded", report.to_mapping(), arguments)
    return 0


def dump(arguments: argparse.Namespace) -> int:
    """Write all keys to a file."""
    with _opened(arguments, ring=False) as store, tool_progress(arguments) as progress:
        work = Work(stop=arguments.stop, on_progress=progress)
        report = dump_keys(store, Path(arguments.file), work, dry_run=arguments.dry_run)
    _print("dumped", report.to_mapping(), arguments)
    return 0


def load(arguments: argparse.Namespace) -> int:
    """Add the keys of such a file."""
    with _opened(arguments) as store, tool_progress(arguments) as progress:
        work = Work(stop=arguments.stop, on_progress=progress)
        report = load_keys(store, Path(arguments.file), work, dry_run=arguments.dry_run)
    _print("loaded", report.to_mapping(), arguments)
    return 0


def forget(arguments: argparse.Namespace) -> int:
    """Make URLs new again: these, those of a host, those whose newest capture is old.

    Raises ConfigError for an age beside a URL, InputError for what is neither a URL nor a host.
    """
    from crawl_lib.curate import Pages  # noqa: PLC0415
    from crawl_lib.curate import forget as forget_pages  # noqa: PLC0415

    longest = config_of(arguments).urls.max_length_chars
    urls = [_canonical(what, longest) for what in arguments.what if _is_url(what)]
    hosts = [_host(what, longest) for what in arguments.what if not _is_url(what)]
    if urls and arguments.older_than is not None:
        raise ConfigError("--older-than is for all pages, or for those of a host; a URL is forgotten whatever its age")
    older_than_s = None if arguments.older_than is None else arguments.older_than * DAY_S
    if urls or hosts or older_than_s is not None:
        named = ", ".join(arguments.what[:3]) + (", ..." if len(arguments.what) > 3 else "") or "all hosts"
        require_yes(arguments, f"pages of {named} become new: they are fetched again once they are found or injected")
    with _opened(arguments) as store, tool_stores(arguments) as stores:
        report = forget_pages(stores, store, Pages(urls, hosts, older_than_s), dry_run=arguments.dry_run)
    if arguments.json:
        print_json(asdict(report))
        return 0
    would = "would forget" if arguments.dry_run else "forgot"
    if report.asked or older_than_s is not None:
        unknown = report.asked - report.forgotten - report.waiting
        print(f"{would} {report.forgotten} of {report.asked} URLs; {unknown} were not known")
    elif not report.finished:
        print("nothing to do: name URLs, hosts, or --older-than DAYS")
    if report.waiting:
        print(f"{report.waiting} of them wait to be fetched, and stay as they are")
    if report.finished:
        print(f"carried out {report.finished} earlier commands that were killed")
    limited = stores.config.urls.max_pages_per_host is not None
    for node, count in report.not_lowered.items() if limited else ():
        where = f"of node {node}, which is not on this machine," if node else "(local routing) of whoever queued them"
        print(f"the counts {where} still have {count} of these URLs: urls.max_pages_per_host may reject them")
    print_dry_run(arguments)
    return 0


def _is_url(what: str) -> bool:
    return "://" in what


def _host(what: str, max_length_chars: int) -> str:
    """A host as it stands in `pages`. Raises InputError."""
    try:
        return host_of(canonicalize(f"http://{what}/", max_length_chars=max_length_chars))
    except UrlError as error:
        raise InputError(f"{what}: is neither a URL (one begins with http:// or https://) nor a host") from error


def _canonical(url: str, max_length_chars: int) -> str:
    try:
        return canonicalize(url, max_length_chars=max_length_chars)
    except UrlError as error:
        raise UrlError(error.reason, f"{url} (not a URL that Krake crawls)") from error
