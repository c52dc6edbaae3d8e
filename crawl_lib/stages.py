"""The stages of a crawl, as Airflow's operators and the command line call them.

Each function takes opened stores (`open_stores`), does one stage, and returns a small mapping of paths and counts that
can be written as JSON. Each may be run again at any time: it goes on where it stopped, or finds its work done and says
so. Once the stores' `stop` is set, the stage ends within seconds and raises StoppedError; what it had is durable, and
the next run goes on there. A crawl flushes what it fetched; the others give up the step they are at, interrupt the
queries of their engine, and leave nothing but files that exist whole and hidden ones, which no one reads. All raise
KrakeError, never anything else.

    inject -> (start_iteration -> crawl_node per node -> commit_iteration) x N -> settle_node per node
           -> maintain_keys -> export_pages -> link_export -> finalize_export
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from crawl_lib.export import choose
from crawl_lib.export import export_pages as _export
from crawl_lib.graph import finalize_export as _finalize
from crawl_lib.graph import link_export as _link
from crawl_lib.keys import repair
from crawl_lib.node import crawl_node, retire_node, settle_node
from crawl_lib.rounds import commit_iteration, require_layout, status_of
from crawl_lib.rounds import start as _start
from crawl_lib.seeds import Division, parse_seeds
from crawl_lib.seeds import inject as _inject
from crawl_lib.stores import Stores
from crawl_lib.urls import UrlFilter

__all__ = [
    "commit_iteration",
    "crawl_node",
    "export_pages",
    "finalize_export",
    "inject",
    "link_export",
    "maintain_keys",
    "retire_node",
    "settle_node",
    "start_iteration",
    "status_of",
]

Result = dict[str, Any]


def inject(
    stores: Stores,
    *,
    run_id: str,
    seeds: str,
    below: Path | None = None,
) -> Result:
    """Leave seeds for the nodes that own their hosts.

    `seeds`: URLs, a line each, or the path of a file or of a directory of files. `below`: the only directory whose
    files may be named, for those who are no users of this machine; None: all that this process may read. Returns
    counts, and the first rejections by file and line. Raises InputError if the path is not there or may not be named,
    or no line of what was given is a URL to crawl; ConfigError if no iteration may have the nodes of the config yet,
    or seeds are other people's sites and `fetch.contact` is not set.
    """
    require_layout(stores)
    config = stores.config
    parsed = parse_seeds(
        seeds,
        below=below,
        max_length_chars=config.urls.max_length_chars,
        url_filter=UrlFilter(config.urls, ()),
        stop=stores.stop,
    )
    manifest = _inject(stores.crawl, run_id, parsed, Division.of(config), fetch=config.fetch, stop=stores.stop)
    return {"path": stores.crawl.seeds_path(manifest["digest"]), **manifest["seeds"]}


def start_iteration(
    stores: Stores,
    *,
    run_id: str,
    iteration: int,
    batch_size: int | None = None,
) -> Result:
    """Name the folder of a run's iteration (from 1), or find it. `batch_size`: URLs a node may take; None: config."""
    found = _start.start_iteration(stores, run_id=run_id, iteration=iteration, batch_size=batch_size)
    return {"folder": found.folder, "iteration": iteration, "nodes": list(found.nodes), "batch": found.batch_sizes}


def maintain_keys(
    stores: Stores,
    *,
    server: str | None = None,
) -> Result:
    """Count the keys of each server, compare replicas, and fill what is missing. Returns the report.

    `server`: one of `key_storage.servers`, whose part of the work is to be done (its own interval on all replicas, and
    its counts), None for all. The parts may be done at the same time. Raises KeyServerDownError naming servers that
    could not be repaired, after all others were; KeyAccessError or KeyTablesError if they wait for the operator.
    """
    with stores.keys() as keys:
        report = repair(keys, server, stores)
    report.raise_if_failed()
    return report.to_mapping()


def export_pages(
    stores: Stores,
    *,
    run_id: str | None = None,
    label: str | None = None,
    folders: Sequence[str] | None = None,
) -> Result:
    """Write mapping, content and offsets of the crawled pages.

    `run_id`: take in nothing younger than this run; `folders`: only these iterations; `label`: the export's name.
    Returns its name as `export`, and counts. Raises OutputConflictError if that name has other inputs.
    """
    name, segments = choose(stores, run_id=run_id, label=label, folders=folders)
    report = _export(stores, name=name, segments=segments)
    return {**asdict(report), "export": name, "path": f"{stores.config.export.directory}/{name}"}


def link_export(stores: Stores, *, export: str) -> Result:
    """Turn the links between the pages of an export into arcs."""
    return asdict(_link(stores, name=export))


def finalize_export(stores: Stores, *, export: str) -> Result:
    """Write the web graph of an export."""
    return asdict(_finalize(stores, name=export))
