"""`krake keys create|check|repair` and `krake forget`."""

from __future__ import annotations

import argparse

from crawl_lib.cli.common import config_of, print_json
from crawl_lib.errors import UrlError
from crawl_lib.keys import MaintenanceReport, check, open_key_store, repair
from crawl_lib.stores import Secrets
from crawl_lib.urls import canonicalize, key_of


def create(arguments: argparse.Namespace) -> int:
    """Create the key tables."""
    config = config_of(arguments).key_storage
    with open_key_store(config, Secrets.from_environment().key_storage_password) as store:
        if arguments.missing:
            made = store.create_missing()
        else:
            store.create(drop=arguments.drop)
            made = list(config.servers)
    print(f"key tables made on {', '.join(made)}" if made else "key tables stand on every server")
    return 0


def check_keys(arguments: argparse.Namespace) -> int:
    """Count keys and compare replicas."""
    config = config_of(arguments).key_storage
    with open_key_store(config, Secrets.from_environment().key_storage_password) as store:
        report = check(store)
    return _show(report, as_json=arguments.json)


def repair_keys(arguments: argparse.Namespace) -> int:
    """Fill replicas that miss keys."""
    config = config_of(arguments).key_storage
    with open_key_store(config, Secrets.from_environment().key_storage_password) as store:
        report = repair(store)
    return _show(report, as_json=arguments.json)


def _show(report: MaintenanceReport, *, as_json: bool) -> int:
    if as_json:
        print_json(report.to_mapping())
    else:
        print(report.to_text())
    return 0 if report.ok else 1


def forget(arguments: argparse.Namespace) -> int:
    """Make URLs new again."""
    config = config_of(arguments)
    urls = [_canonical(url, config.urls.max_length_chars) for url in arguments.url]
    with open_key_store(config.key_storage, Secrets.from_environment().key_storage_password) as store:
        known = store.forget([key_of(url) for url in urls])
    print(f"forgot {known} of {len(urls)} URLs; {len(urls) - known} were not known")
    return 0


def _canonical(url: str, max_length_chars: int) -> str:
    try:
        return canonicalize(url, max_length_chars=max_length_chars)
    except UrlError as error:
        raise UrlError(error.reason, f"{url} (not a URL that Krake crawls)") from error
