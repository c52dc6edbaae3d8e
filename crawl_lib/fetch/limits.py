"""What the config allows of a host: its delay, and its connections."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from crawl_lib.config import FetchConfig, HostConfig


@dataclass(frozen=True, slots=True)
class HostLimits:
    """At least `delay_s` from the end of a response to the next request, at most `connections` at a time."""

    delay_s: float
    connections: int


def limits_by_host(config: FetchConfig) -> Callable[[str], HostLimits]:
    """A function from a host, as canonical URLs have it, to its limits: of the first of `fetch.hosts` that matches."""
    usual = HostLimits(config.host_delay_s, config.connections_per_host)
    known = [(_matcher(entry), _limits(entry, usual)) for entry in config.hosts]

    def limits_of(host: str) -> HostLimits:
        return next((limits for matches, limits in known if matches(host)), usual)

    return limits_of


def _limits(entry: HostConfig, usual: HostLimits) -> HostLimits:
    return HostLimits(
        usual.delay_s if entry.delay_s is None else entry.delay_s,
        usual.connections if entry.connections is None else entry.connections,
    )


def _matcher(entry: HostConfig) -> Callable[[str], object]:
    if entry.kind == "regex":
        return re.compile(entry.value).search
    name, below = entry.value, "." + entry.value
    return lambda host: host == name or host.endswith(below)
