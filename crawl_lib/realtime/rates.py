"""Rates that an operator sets while services work: the table `krakerates` of the first key server.

Each scheduler reads the table twice a second, and tells its fetchers. A rate takes the place of the entries of
`fetch.hosts`, and lowers no Crawl-delay.
"""

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import msgspec

from crawl_lib.config import FetchConfig, HostConfig
from crawl_lib.errors import InputError, UrlError
from crawl_lib.realtime.protocol import Rate
from crawl_lib.realtime.store import connect_pages
from crawl_lib.stores import Stores
from crawl_lib.urls import canonicalize, host_matches, host_of

MOST_RATES = 1000
"""All rates must fit in a line to the fetcher."""


class RateList(msgspec.Struct, frozen=True, kw_only=True):
    """All rates, as the API gives them."""

    rates: tuple[Rate, ...]


def rated(config: FetchConfig, rates: Collection[Rate]) -> FetchConfig:
    """Return a config with rates before its entries for hosts.

    The longest domain that matches counts.
    """
    longest_first = sorted(rates, key=lambda rate: -len(rate.domain))
    entries = [
        HostConfig("domain", rate.domain, rate.delay_s, rate.connections) for rate in longest_first
    ]
    return replace(config, hosts=(*entries, *config.hosts))


def is_blocked(rates: Collection[Rate], host: str) -> bool:
    """Say whether a rate forbids requests to a host."""
    return any(rate.is_blocked and host_matches("domain", rate.domain, host) for rate in rates)


def rate_of(given: Mapping[str, Any]) -> Rate:
    """Return a rate of fields that a person gave.

    Its domain is in canonical form. Raises InputError for unusable fields.
    """
    text = str(given["domain"])
    try:
        host = host_of(canonicalize(f"http://{text}/", max_length_chars=1000))
        if "/" in text:
            raise InputError(f"{text[:100]!r} is no domain: give a name such as example.org")
        return msgspec.convert({**given, "domain": host}, Rate)
    except (UrlError, msgspec.ValidationError) as error:
        raise InputError(f"the rate of {text[:100]!r} cannot be set: {error}") from error


def change_rate(stores: Stores, rate: Rate | None) -> tuple[Rate, ...]:
    """Set the rate of a domain, if any; return all rates.

    Raises InputError beyond `MOST_RATES`, KeyStoreError.
    """
    config = stores.config.key_storage
    with closing(
        connect_pages(config, stores.secrets.key_storage_password, config.servers[0])
    ) as server:
        server.ensure()
        if rate is not None:
            require_few(server.rates(), rate)
            server.set_rate(rate)
        return server.rates()


def require_few(rates: Collection[Rate], rate: Rate) -> None:
    """Raise InputError if another rate is one too many."""
    if len(rates) >= MOST_RATES and rate.domain not in {one.domain for one in rates}:
        raise InputError(
            f"there are {MOST_RATES} rates already: remove one, or set fetch.hosts in the config"
        )
