"""The options on which all nodes of a crawl must agree.

An option must agree unless `MAY_DIFFER` names the option with a reason. So a new option must agree until someone has
thought about it.
"""

from hashlib import sha256
from pathlib import Path
from typing import Any

from crawl_lib.config.model import ChainsConfig, Config, StepConfig

MAY_DIFFER = {
    "dfs_primary": "a machine may know the store by another address; if the crawl is found there, it is right",
    "dfs": "how this machine speaks to it",
    "s3": "how this machine speaks to it",
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
    "crawl.min_nodes": "asked by commit alone",
    "crawl.min_success": "asked by commit alone",
    "crawl.schedule": "asked by the scheduler's machine alone",
    "generate": "asked by the machine that makes the lists alone",
    "inject": "asked by the machine of the batch stages alone",
    "linkrank": "asked by the machine of the batch stages alone",
    "linkdb": "asked by the machine of the batch stages alone",
    "export": "asked by the machine of the batch stages alone",
    "pagerank": "asked by the machine of the batch stages alone",
    "search": "how this machine answers queries",
    "realtime": "asked by the machine of the service alone",
    "push": "asked by the machine of the batch stages alone",
    "scores": "asked by the scheduler's machine alone",
    "index": "asked by the machine of the batch stages alone",
    "commoncrawl.make": "asked by the machine of the batch stages alone",
    "graphs": "asked by the machine of the batch stages alone",
    "outputs": "asked by the scheduler's machine alone",
    "fetch.processes": "cores of this machine",
    "fetch.connections": "room of this machine",
    "fetch.slow_connections": "room of this machine",
    "fetch.max_inflight_bytes": "room of this machine",
    "fetch.connect_timeout_s": "this machine's way to the web",
    "fetch.time_limit_s": "this machine's way to the web",
    "fetch.min_bytes_per_s": "this machine's way to the web",
    "fetch.min_speed_s": "this machine's way to the web",
    "fetch.dns_ttl_s": "this machine's way to the web",
    "fetch.dns_timeout_s": "this machine's way to the web",
    "fetch.proxy": "this machine's way to the web; it may hold a password, which must be noted nowhere",
    "segment.sync_interval_s": "this machine's disk",
    "text.processes": "cores of this machine",
}
"""Options and whole sections that may differ between the machines of a crawl, and why."""


def shared_options(config: Config) -> dict[str, Any]:
    """Return the options that all machines must agree on.

    Names have dots. No secret is among the options. Files of normalisers and filters may lie anywhere, but have to have
    the same name and content.
    """
    options: dict[str, Any] = {}
    for name, value in config.to_mapping().items():
        options |= (
            {f"{name}.{key}": item for key, item in value.items()}
            if isinstance(value, dict)
            else {name: value}
        )
    for name, chains in (
        ("urls.normalizers", config.urls.normalizers),
        ("urls.filters", config.urls.filters),
    ):
        del options[name]
        options |= {f"{name}.{scope}": steps for scope, steps in _chains(chains).items()}
    return {
        name: value
        for name, value in options.items()
        if not {name, name.partition(".")[0]} & MAY_DIFFER.keys()
    }


def _chains(config: ChainsConfig) -> dict[str, list[str] | None]:
    """Return the chains by scope, each step in a phrase.

    The phrase has the kind, the name of the file, and the digest of its content.
    """
    return {
        scope: None if steps is None else [*map(_step, steps)]
        for scope, steps in vars(config).items()
    }


def _step(step: StepConfig) -> str:
    rules = None if step.rules is None else sha256(step.rules.encode()).hexdigest()[:16]
    return " ".join(filter(None, (step.kind, step.file and Path(step.file).name, rules)))
