"""Which options all nodes of a crawl must agree on, and where two configs differ.

Every option is one of them unless it is named here with the reason why it is not: an option that is added later must
agree until someone has thought about it.
"""

from collections.abc import Mapping
from typing import Any

from crawl_lib.config.load import to_mapping
from crawl_lib.config.model import Config

MAY_DIFFER = {
    "dfs_primary": "a machine may know the store by another address; if the crawl is found there, it is right",
    "dfs": "how this machine speaks to it",
    "key_storage.user": "an account of this machine",
    "key_storage.tls": "how this machine reaches the key servers",
    "key_storage.ca_file": "how this machine reaches the key servers",
    "key_storage.timeout_s": "how far this machine is from the key servers",
    "key_storage.connections": "room of this machine",
    "queue": "this machine's disk",
    "watermarks": "this machine's disk",
    "scratch": "this machine's disk",
    "spark": "asked by the machine of the batch stages alone",
    "batch.engine": "asked by the machine of the batch stages alone; both make the same",
    "batch.size": "asked by start alone, which notes each node's share",
    "crawl.max_pages": "asked by start alone, which notes each node's share",
    "crawl.min_nodes": "asked by commit alone",
    "crawl.schedule": "asked by the scheduler's machine alone",
    "inject": "asked by the machine of the batch stages alone",
    "export": "asked by the machine of the batch stages alone",
    "fetch.processes": "cores of this machine",
    "fetch.connections": "room of this machine",
    "fetch.max_inflight_bytes": "room of this machine",
    "fetch.connect_timeout_s": "this machine's way to the web",
    "fetch.time_limit_s": "this machine's way to the web",
    "fetch.dns_ttl_s": "this machine's way to the web",
    "fetch.dns_timeout_s": "this machine's way to the web",
    "fetch.proxy": "this machine's way to the web; it may hold a password, which must be noted nowhere",
    "segment.sync_interval_s": "this machine's disk",
}
"""Options and whole sections that may differ between the machines of a crawl, and why."""


def shared_options(config: Config) -> dict[str, Any]:
    """The options that all machines must agree on, by their names with dots. No secret is among them."""
    options: dict[str, Any] = {}
    for name, value in to_mapping(config).items():
        options |= {f"{name}.{key}": item for key, item in value.items()} if isinstance(value, dict) else {name: value}
    return {name: value for name, value in options.items() if not {name, name.partition(".")[0]} & MAY_DIFFER.keys()}


def differences(here: Mapping[str, Any], there: Mapping[str, Any]) -> list[str]:
    """Where two sets of shared options differ, a phrase an option: "fetch.host_delay_s is 2.0 here and 1.0 there".

    An option that only one of them knows (of another version of Krake) is no difference.
    """
    return [
        f"{name} is {_short(here[name])} here and {_short(there[name])} there"
        for name in sorted(here.keys() & there.keys())
        if here[name] != there[name]
    ]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
