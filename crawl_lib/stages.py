"""The stages of a crawl, as Airflow's operators and the command line call them.

Each function takes a config (and secrets), does one stage, and returns a small mapping of paths and counts that can
be written as JSON. Each may be run again at any time: it goes on where it stopped, or finds its work done and says so.
Every stage takes `stop`: once it is set, the stage ends within seconds and raises StoppedError; what it had is durable,
and the next run goes on there. A crawl flushes what it fetched; the others give up the step they are at, interrupt the
queries of their engine, and leave nothing but files that stand whole and hidden ones, which nobody reads. All raise
KrakeError, never anything else.

    inject -> (start_iteration -> crawl_node per node -> commit_iteration) x N -> settle_node per node
           -> maintain_keys -> export_pages -> link_export -> finalize_export
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any

from crawl_lib.config import Config
from crawl_lib.crawldir import SEEDS_FOLDER
from crawl_lib.export import choice as _exports
from crawl_lib.export import run as _export
from crawl_lib.graph import finalizer as _finalizer
from crawl_lib.graph import linker as _linker
from crawl_lib.keys import repair
from crawl_lib.node import crawl as _node
from crawl_lib.node import retire as _retire
from crawl_lib.node import settle as _settle
from crawl_lib.rounds import commit as _commit
from crawl_lib.rounds import require_layout
from crawl_lib.rounds import start as _start
from crawl_lib.rounds import status as _status
from crawl_lib.seeds import inject as _inject
from crawl_lib.stopping import OnProgress, go_on
from crawl_lib.stores import Secrets, Stores, open_stores

Result = dict[str, Any]


def _opened(config: Config, secrets: Secrets | None, stop: Event | None) -> Stores:
    """The stores of a stage that has something to do."""
    go_on(stop)
    return open_stores(config, secrets, stop=stop)


def inject(
    config: Config,
    secrets: Secrets | None = None,
    *,
    run_id: str,
    seeds: str,
    below: Path | None = None,
    stop: Event | None = None,
) -> Result:
    """Leave seeds for the nodes that own their hosts.

    `seeds`: URLs, a line each, or the path of a file or of a directory of files. `below`: the only directory whose
    files may be named, for those who are no users of this machine; None: all that this process may read. Returns
    counts, and the first rejections by file and line. Raises InputError if the path is not there or may not be named,
    or no line of what was given is a URL to crawl; ConfigError if no iteration may have the nodes of the config yet,
    or seeds are other people's sites and `fetch.contact` is not set.
    """
    stores = _opened(config, secrets, stop)
    require_layout(stores)
    manifest = _inject(
        stores.storage,
        stores.crawl.path,
        run_id,
        seeds,
        nodes=config.servers,
        routing=config.frontier.routing,
        urls_config=config.urls,
        fetch_config=config.fetch,
        below=below,
        stop=stores.stop,
    )
    return {"path": f"{stores.crawl.path}/{SEEDS_FOLDER}/{manifest['digest']}", **manifest["seeds"]}


def start_iteration(
    config: Config,
    secrets: Secrets | None = None,
    *,
    run_id: str,
    iteration: int,
    batch_size: int | None = None,
    stop: Event | None = None,
) -> Result:
    """Name the folder of a run's iteration (from 1), or find it. `batch_size`: URLs a node may take; None: config."""
    found = _start.start_iteration(
        _opened(config, secrets, stop), run_id=run_id, iteration=iteration, batch_size=batch_size
    )
    return {"folder": found.folder, "iteration": iteration, "nodes": list(found.nodes), "batch": found.batch_sizes}


def crawl_node(
    config: Config,
    secrets: Secrets | None = None,
    *,
    run_id: str,
    iteration: int,
    node: str,
    stop: Event | None = None,
    on_progress: OnProgress | None = None,
) -> Result:
    """Crawl one node's batch of an iteration and commit its segment; what an earlier attempt left open is done first.

    `on_progress` gets a mapping about once a second, see
    `crawldir.progress.NodeProgress`. Returns the segment's counts. Raises StoppedError, and LockedError if another task
    holds the node.
    """
    stop = stop or Event()
    return _node.crawl_node(
        open_stores(config, secrets, stop=stop),
        run_id=run_id,
        iteration=iteration,
        node=node,
        stop=stop,
        on_progress=on_progress,
    )


def commit_iteration(
    config: Config, secrets: Secrets | None = None, *, run_id: str, iteration: int, stop: Event | None = None
) -> Result:
    """Check that the segments of all nodes stand, or of `crawl.min_nodes` of them, and sum them up.

    `iteration`: counts from 1 within the run. Returns the folder's name and the sums of its segments' counts. Raises
    PathNotFoundError naming missing nodes: run their crawl tasks again.
    """
    return _commit.commit_iteration(_opened(config, secrets, stop), run_id=run_id, iteration=iteration)


def settle_node(
    config: Config,
    secrets: Secrets | None = None,
    *,
    node: str,
    run_id: str | None = None,
    stop: Event | None = None,
    on_progress: OnProgress | None = None,
) -> Result:
    """Take in what the last iterations found for a node, so that its queue is complete until the next run.

    `run_id`: of the run that this belongs to, if it does: then this machine must agree with where it was started.
    """
    stop = stop or Event()
    stores = open_stores(config, secrets, stop=stop)
    return _settle.settle_node(stores, node=node, run_id=run_id, stop=stop, on_progress=on_progress)


def retire_node(
    config: Config,
    secrets: Secrets | None = None,
    *,
    node: str,
    directory: Path | None = None,
    stop: Event | None = None,
    on_progress: OnProgress | None = None,
) -> Result:
    """Hand the queue of a node that is not in the config any more to those that are.

    `directory`: where the node's directory lies, None: at its place on this machine. Returns `handed_over`, a count,
    and `path`, where it went. Raises ConfigError if the others have not settled.
    """
    stop = stop or Event()
    stores = open_stores(config, secrets, stop=stop)
    return _retire.retire_node(stores, node=node, directory=directory, stop=stop, on_progress=on_progress)


def maintain_keys(
    config: Config,
    secrets: Secrets | None = None,
    *,
    server: str | None = None,
    stop: Event | None = None,
    on_progress: OnProgress | None = None,
) -> Result:
    """Count the keys of each server, compare replicas, and fill what is missing. Returns the report.

    `server`: one of `key_storage.servers`, whose part of the work is to be done (its own interval on all replicas, and
    its counts), None for all. The parts may be done at the same time. Raises KeyServerDownError naming servers that
    could not be mended, after all others were; KeyAccessError or KeyTablesError if they wait for the operator.
    """
    with _opened(config, secrets, stop).keys() as keys:
        report = repair(keys, server, stop=stop, on_progress=on_progress)
    report.raise_if_failed()
    return report.to_mapping()


def export_pages(
    config: Config,
    secrets: Secrets | None = None,
    *,
    run_id: str | None = None,
    label: str | None = None,
    folders: Sequence[str] | None = None,
    stop: Event | None = None,
    on_progress: OnProgress | None = None,
) -> Result:
    """Write mapping, content and offsets of the crawled pages.

    `run_id`: take in nothing younger than this run; `folders`: only these iterations; `label`: the export's name.
    Returns its name as `export`, and counts. Raises OutputConflictError if that name has other inputs.
    """
    stores = _opened(config, secrets, stop)
    chosen = _exports.choose_folders(stores, run_id=run_id, folders=folders)
    name = _exports.export_name(chosen, label)
    segments = _exports.segment_inputs(stores, chosen)
    report = _export.export_pages(
        stores.storage, stores.reached, name=name, segments=segments, on_progress=on_progress, stop=stores.stop
    )
    return {**report.to_mapping(), "export": name, "path": f"{config.export.directory}/{name}"}


def link_export(
    config: Config,
    secrets: Secrets | None = None,
    *,
    export: str,
    stop: Event | None = None,
    on_progress: OnProgress | None = None,
) -> Result:
    """Turn the links between the pages of an export into arcs."""
    stores = _opened(config, secrets, stop)
    report = _linker.link_export(stores.storage, stores.reached, name=export, on_progress=on_progress, stop=stores.stop)
    return report.to_mapping()


def finalize_export(
    config: Config,
    secrets: Secrets | None = None,
    *,
    export: str,
    stop: Event | None = None,
    on_progress: OnProgress | None = None,
) -> Result:
    """Write the web graph of an export."""
    stores = _opened(config, secrets, stop)
    report = _finalizer.finalize_export(
        stores.storage, stores.reached, name=export, on_progress=on_progress, stop=stores.stop
    )
    return report.to_mapping()


def status(config: Config, secrets: Secrets | None = None) -> Result:
    """What stands of the crawl: iterations, outcomes, queues, keys, outputs; `error` if the file store is not there."""
    return _status.status_of(config, secrets or Secrets.from_environment())
