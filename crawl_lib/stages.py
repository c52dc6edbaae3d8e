"""The stages of a crawl, as Airflow's operators and the command line call them.

Each function takes opened stores (`open_stores`), does one stage, and returns a small mapping of paths and counts,
fit for JSON. A stage may be run again at any time: the stage goes on where the last run stopped, or finds the work
done and says so. Once the stores' `stop` is set, a stage ends within seconds and raises StoppedError; finished work is
durable, and the next run goes on there. A crawl flushes its fetched pages. All other stages give up the current step
and interrupt the queries of their engine. Whole files stay, as do hidden files without readers. All errors are
KrakeErrors.

    inject -> (crawl_node per node -> commit_iteration) x N -> settle_node per node, maintain_keys at the same time
           -> export_pages -> link_export -> finalize_export

A crawl with a CrawlDb (`frontier.order`) does generate -> crawl_node per node -> commit_iteration -> update_crawldb in
each iteration, and `inject` ends with an update, so that seeds are due.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crawl_lib.crawldir import InboxManifest
from crawl_lib.errors import ConfigError
from crawl_lib.keys import repair
from crawl_lib.lazy import loads_later
from crawl_lib.rounds import (
    CrawlName,
    NodeLayout,
    at_once,
    ended_before,
    note_change,
    waits_until,
)
from crawl_lib.rounds import commit_iteration as _commit
from crawl_lib.seeds import Division, parse_seeds
from crawl_lib.seeds import inject as _inject
from crawl_lib.stores import Stores
from crawl_lib.urlfiles import OUTLINKS_NAME, read_outlinks, url_of_line
from crawl_lib.urls import UrlFilter, host_of

__all__ = [
    "collect_realtime",
    "commit_iteration",
    "crawl_node",
    "ended_before",
    "export_pages",
    "finalize_export",
    "generate",
    "inject",
    "invert_links",
    "link_export",
    "maintain_keys",
    "make_output",
    "make_statistics",
    "mark_duplicates",
    "rank_export",
    "require_usable",
    "retire_node",
    "retry_now",
    "settle_node",
    "status_of",
    "update_crawldb",
    "update_score",
]

if TYPE_CHECKING:
    from crawl_lib.node import retire_node
    from crawl_lib.rounds import status_of
    from crawl_lib.usable import require_usable
else:
    # Modules with numpy and Arrow are loaded at their first use, here and below. Both begin threads, so a process that
    # forks a child for each task must not have them. Loading takes a third of a second, which most tasks save.
    __getattr__ = loads_later(
        "crawl_lib",
        {
            "node": ("retire_node",),
            "rounds": ("status_of",),
            "usable": ("require_usable",),
        },
    )

Result = dict[str, Any]
_NAMED_SEEDS = 100


def inject(
    stores: Stores,
    *,
    run_id: str,
    seeds: str,
    below: Path | None = None,
) -> Result:
    """Leave seeds for the nodes that own their hosts.

    A CrawlDb takes in the seeds at once (`crawldb`: its version).

    `seeds`: URLs, a line each, or the path of a file or of a directory of files. `below`: the only directory whose
    files may be named, for users without an account on this machine; None: any file that this process may read. A
    second run makes this machine's config and code count for the run's iterations (`note_change`). Returns counts, and
    the first rejections by file and line. For up to `_NAMED_SEEDS` seeds the result has `waiting` (URLs that wait
    already, with their times) and `warning` (addresses that the config refuses).

    Raises InputError if the path is missing or may not be named, or no given line is a URL to crawl; ConfigError if no
    iteration may have the nodes of the config yet, a place is of another crawl, or seeds are sites of others and
    `fetch.contact` is not set.
    people's sites and `fetch.contact` is not set.
    """
    CrawlName(stores).require()
    note_change(stores, run_id)
    NodeLayout(stores).require()
    config = stores.config
    parsed = parse_seeds(
        seeds,
        below=below,
        max_length_chars=config.urls.max_length_chars,
        url_filter=UrlFilter(config.urls, ()),
        work=stores,
    )
    manifest = _inject(
        stores.crawl, run_id, parsed, Division.of(config), fetch=config.fetch, work=stores
    )
    CrawlName(stores).note()
    result = {"path": stores.crawl.inbox.path(manifest.said["digest"]), **manifest.said["seeds"]}
    if config.order.has_crawldb:
        grown = update_crawldb(stores)
        result["crawldb"] = {name: grown[name] for name in ("version", "rows")}
    urls = _few_seeds(stores, manifest)
    if refused := [url for url in urls if _is_refused(stores, url)]:
        from crawl_lib.fetch import how_to_allow, inner_networks  # noqa: PLC0415 - pycurl takes a moment

        hosts = " ".join(host_of(url).strip("[]") for url in refused)
        allow = how_to_allow(inner_networks(hosts), "the config")
        named = ", ".join(refused[:3])
        result["warning"] = (
            f"{named}: addresses of inner networks are not fetched. If they are yours: {allow}"
        )
    if waiting := {} if config.order.makes_lists else waits_until(config, urls):
        result["waiting"] = [
            f"{url} waits already, {at_once(until, url)}" for url, until in sorted(waiting.items())
        ]
    return result


def _few_seeds(stores: Stores, manifest: InboxManifest) -> list[str]:
    """Return the seeds of a manifest with at most `_NAMED_SEEDS`.

    If there are more, no seed is returned, since no caller waits for a single seed.
    """
    if manifest.accepted > _NAMED_SEEDS:
        return []
    where = f"{stores.crawl.inbox.path(manifest.said['digest'])}/{OUTLINKS_NAME}"
    return [
        url_of_line(line).decode() for line in read_outlinks(stores.storage.open_read(where), where)
    ]


def _is_refused(stores: Stores, url: str) -> bool:
    """Return whether a URL's host is a refused address.

    A name says nothing before DNS, so the answer is False.
    """
    from crawl_lib.fetch import AddressFilter  # noqa: PLC0415 - pycurl takes a moment

    try:
        address = str(ip_address(host_of(url).strip("[]")))
    except ValueError:
        return False
    return not stores.config.fetch.proxy and not AddressFilter(
        stores.config.fetch.allow_networks
    ).allows(address)


def retry_now(stores: Stores, *, run_id: str) -> Result:
    """Fetch all waiting URLs with a run's first iteration.

    `krake retry --now` does the same. A run does this once. Returns counts of the waiting URLs on this machine, and the
    path of the note. Raises the errors of `curate.retry_now`.
    """
    from crawl_lib import curate  # noqa: PLC0415

    report = curate.retry_now(stores, curate.Failures(None, waits=True), run_id=run_id)
    found = {
        "note": report.note,
        "waiting": report.waiting,
        "hosts": report.hosts,
        "listed": report.listed,
    }
    return {name: value for name, value in found.items() if value}


def generate(
    stores: Stores, *, run_id: str, iteration: int, batch_size: int | None = None
) -> Result:
    """Make or find an iteration's list and folder.

    Returns the fields of `crawldb.Generated`; only with `ended`, no URL is due, and the run's iterations end.
    """
    from crawl_lib import crawldb  # noqa: PLC0415

    require_crawldb(stores)
    now = datetime.now(UTC)
    made = vars(crawldb.generate(stores, run_id, iteration, now=now, batch_size=batch_size))
    return {name: value for name, value in made.items() if name != "ended" or value}


def update_crawldb(stores: Stores) -> Result:
    """Take in all seeds and segments that the CrawlDb lacks.

    Returns the newest `version`, its `path`, the number of `rows`, rows by status, and `segments`.
    """
    from crawl_lib import crawldb  # noqa: PLC0415

    require_crawldb(stores)
    return asdict(crawldb.counts_of(crawldb.update(stores, now=datetime.now(UTC))))


def require_crawldb(stores: Stores) -> None:
    """Raise ConfigError for a crawl without a CrawlDb."""
    if not stores.config.order.has_crawldb:
        raise ConfigError(
            "frontier.order: is fifo, and this needs crawldb (docs/recrawl.md says what that changes)"
        )


def crawl_node(
    stores: Stores, *, run_id: str, iteration: int, node: str, batch_size: int | None = None
) -> Result:
    """Crawl one node's batch of an iteration and commit its segment.

    Returns the fields of `node.NodeCrawled`, with the counts among them. Raises what `node.crawl_node` does.
    """
    from crawl_lib import node as room  # noqa: PLC0415

    done = vars(
        room.crawl_node(
            stores, run_id=run_id, iteration=iteration, node=node, batch_size=batch_size
        )
    )
    return _with_items(done, "counts")


def settle_node(stores: Stores, *, node: str, run_id: str | None = None) -> Result:
    """Take in everything that waits for a node.

    Returns the node, the length of its `queue`, and the intake's counts. Raises what `node.settle_node` does.
    """
    from crawl_lib import node as room  # noqa: PLC0415

    return _with_items(asdict(room.settle_node(stores, node=node, run_id=run_id)), "intake")


def _with_items(found: Result, name: str) -> Result:
    """Return a result with the items of one field in its place."""
    result: Result = {}
    for field, value in found.items():
        result |= value if field == name else {field: value}
    return result


def commit_iteration(stores: Stores, *, run_id: str, iteration: int) -> Result:
    """Check that an iteration's segments exist, and write the index.

    Returns the fields of `rounds.Committed`, with the counts among them; fields that say nothing are left out. Raises
    what `rounds.commit_iteration` does.
    """
    done = vars(_commit(stores, run_id=run_id, iteration=iteration))
    kept = {name: value for name, value in done.items() if value or name in {"counts", "urls"}}
    return _with_items(kept, "counts")


def maintain_keys(
    stores: Stores,
    *,
    server: str | None = None,
) -> Result:
    """Count keys, compare replicas, and fill in missing keys.

    Returns the report.

    `server`: one server of `key_storage.servers`, for its part of the work (its own interval on all replicas, and its
    counts), or None for all parts. Parts may run at the same time. Raises KeyServerDownError naming unrepaired servers,
    after all others were repaired; KeyAccessError or KeyTablesError if these servers wait for the operator.
    """
    with stores.keys() as keys:
        report = repair(keys, server, stores)
    report.raise_if_failed()
    found: Result = json.loads(json.dumps({**vars(report), "ok": report.ok}, default=asdict))
    return found


def export_pages(
    stores: Stores,
    *,
    run_id: str | None = None,
    label: str | None = None,
    folders: Sequence[str] | None = None,
    with_requisites: bool = False,
) -> Result:
    """Write mapping, content and offsets of the crawled pages.

    Requisites are included if asked for.

    `run_id`: exclude segments later than this run; `folders`: only these iterations (names, `A..B`, `newest 3`);
    `label`: the export's name. Returns the name as `export`, and counts. Raises OutputConflictError if the export has
    other inputs.
    """
    from crawl_lib import export as room  # noqa: PLC0415

    name, segments = room.choose(stores, run_id=run_id, label=label, folders=folders)
    parts: Sequence[str] = ()
    if stores.config.order.has_crawldb and stores.config.export.duplicates == "drop":
        from crawl_lib import crawldb  # noqa: PLC0415

        version = crawldb.newest_version(stores)
        parts = version.paths if version else ()
    report = room.export_pages(
        stores, name=name, segments=segments, crawldb=parts, with_requisites=with_requisites
    )
    return {**asdict(report), "export": name, "path": f"{stores.config.export.directory}/{name}"}


def link_export(stores: Stores, *, export: str) -> Result:
    """Turn the links between the pages of an export into arcs."""
    from crawl_lib import graph  # noqa: PLC0415

    return asdict(graph.link_export(stores, name=export))


def finalize_export(stores: Stores, *, export: str) -> Result:
    """Write the web graph of an export.

    Then exports beyond `export.keep` are deleted (`removed`).
    """
    from crawl_lib import graph  # noqa: PLC0415
    from crawl_lib.export import remove_older  # noqa: PLC0415

    return {
        **asdict(graph.finalize_export(stores, name=export)),
        "removed": remove_older(stores, export),
    }


def rank_export(stores: Stores, *, export: str, of: str = "pages") -> Result:
    """Rank the pages, hosts or domains of an export.

    `of`: `pages`, `hosts` or `domains`. The ranks follow from the links between the pages.
    """
    from crawl_lib import ranks  # noqa: PLC0415

    return asdict(ranks.rank_export(stores, name=export, of=of))


def update_score(stores: Stores, *, export: str | None = None) -> Result:
    """Make ranks the scores of the CrawlDb's rows.

    The ranks are those of `scores.of`, or of the pages of an `export`. Returns the result of `update_crawldb`, and
    `export`: None for LinkRank; else the given export, or the newest export with arcs.
    """
    from crawl_lib import crawldb, ranks  # noqa: PLC0415
    from crawl_lib.export import ARCS_IN, ARCS_OUT, newest_export  # noqa: PLC0415

    require_crawldb(stores)
    if export is None and stores.config.scores.of == "linkrank":
        version = ranks.update_score_by_links(stores, now=datetime.now(UTC))
        return {**asdict(crawldb.counts_of(version)), "export": None}
    name = export or newest_export(stores, having=(ARCS_OUT, ARCS_IN))
    version = ranks.update_score(stores, export=name, now=datetime.now(UTC))
    return {**asdict(crawldb.counts_of(version)), "export": name}


def invert_links(stores: Stores) -> Result:
    """Take new segments into the LinkDb.

    Returns the newest `version`, its `path`, and the number of `rows`.
    """
    from crawl_lib import linkdb  # noqa: PLC0415

    return asdict(linkdb.update_linkdb(stores, now=datetime.now(UTC)).facts)


def make_output(stores: Stores, *, output: str) -> Result:
    """Make the missing parts of an output; return counts.

    `output`: a name that `outputs.tasks` may have.
    """
    from crawl_lib.outputs import MADE_BY_TASKS  # noqa: PLC0415

    return asdict(MADE_BY_TASKS[output].make(stores, now=datetime.now(UTC)))


def collect_realtime(stores: Stores) -> Result:
    """Make segments of the fetches of the real-time service.

    The service runs on this machine. `folder` is "" if there is nothing to collect. Returns the result of
    `realtime.collect_all`, and raises the same errors.
    """
    from crawl_lib import realtime  # noqa: PLC0415

    return asdict(realtime.collect_all(stores))


def make_statistics(stores: Stores, *, hour: datetime | None = None) -> Result:
    """Make real-time statistics of an hour.

    Statistics of earlier hours with late segments, and of the days of all these hours, are made too.

    `hour`: any moment of the hour; None: the last complete hour. Returns and raises the same as
    `statistics.update_statistics`.
    """
    from crawl_lib import statistics  # noqa: PLC0415

    now = datetime.now(UTC)
    hour = hour or statistics.last_hour(now)
    report = statistics.update_statistics(stores, hour=hour, now=now)
    return {**asdict(report), "versions": len(report.made)}


def mark_duplicates(stores: Stores) -> Result:
    """Give all but the best of equal pages the status `duplicate`.

    Returns the result of `update_crawldb`.
    """
    from crawl_lib import crawldb, duplicates  # noqa: PLC0415

    require_crawldb(stores)
    return asdict(crawldb.counts_of(duplicates.mark_duplicates(stores, now=datetime.now(UTC))))
