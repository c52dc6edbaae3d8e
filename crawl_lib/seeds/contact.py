"""The duty to give a contact: without `fetch.contact`, only hosts of the operator's own machines are seeds."""

import ipaddress
from collections.abc import Iterator

from crawl_lib.config import FetchConfig
from crawl_lib.errors import ConfigError
from crawl_lib.records import QueuedUrl
from crawl_lib.seeds.lines import Seeds
from crawl_lib.urls import host_of


def has_contact(fetch: FetchConfig) -> bool:
    """Say whether the config has a contact for crawled sites."""
    return bool((fetch.contact or "").strip())


def require_contact(seeds: Seeds, fetch: FetchConfig) -> Iterator[QueuedUrl]:
    """Yield the seeds.

    Raises ConfigError before the first seed that `require_contact_for` refuses.
    """
    for seed in seeds:
        require_contact_for(host_of(seed.url), seeds.place, fetch)
        yield seed


def require_contact_for(host: str, place: str, fetch: FetchConfig) -> None:
    """Require a contact for hosts other than our own.

    Raises ConfigError for a host that is neither on loopback nor in `fetch.allow_networks`, if the config names no
    contact. `place`: where the host is named.
    """
    if not has_contact(fetch) and not is_our_own(host, fetch.allow_networks):
        raise ConfigError(
            f"fetch.contact: is not set, and {place} is a site of other people: set it to a URL or mail"
            " address where they can reach you (only seeds on loopback, and addresses in fetch.allow_networks,"
            " need none)"
        )


def is_our_own(host: str, allow_networks: tuple[str, ...]) -> bool:
    """Say whether a host is on loopback or in `allow_networks`.

    `host`: canonical. No name is looked up: localhost is the only name of our own.
    """
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    networks = [ipaddress.ip_network(text, strict=False) for text in allow_networks]
    inside = getattr(address, "ipv4_mapped", None) or address
    both = (address, inside)
    return any(one.is_loopback for one in both) or any(
        one in network for network in networks for one in both
    )
