"""LinkRank: how much a URL matters by the links to it, over all ends of links, crawled or not.

Nutch's LinkRank (`org.apache.nutch.scoring.webgraph`): links are thinned once, and each round hands on the part
`damping` of a page's rank, the same to each page that it links to. Ranks begin with 1, and are about 1 in the mean.
Nutch takes the first of several links as it comes; here it is the one to, or from, the smallest key.
"""

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crawl_lib.config import LinkRankConfig
from crawl_lib.crawldb import CRAWLDB_SCHEMA, newest_version
from crawl_lib.errors import InputError
from crawl_lib.export import scratch_folder
from crawl_lib.linkdb import OUTLINKS_SCHEMA, update_outlinks
from crawl_lib.ranks.kernel import Floats, Inlinks, Ints, mapped, starts_of
from crawl_lib.segment import open_parquet
from crawl_lib.stopping import Progress
from crawl_lib.stores import Stores
from crawl_lib.urls import domain_of
from crawl_lib.versions import GROUP_ROWS, Family, Version, Versions, Work, columns, derive

_FIELDS: "list[pa.Field[Any]]" = [
    pa.field("key", pa.binary(20), nullable=False),
    pa.field("url", pa.string(), nullable=False),
    pa.field("rank", pa.float64(), nullable=False),
]
LINKRANK_SCHEMA = pa.schema(_FIELDS)
LINKRANK = Family(
    folder="linkrank",
    name="LinkRank",
    schema=LINKRANK_SCHEMA,
    remedy="move its folder away: `krake linkdb rank` makes it again",
    rebuilt="`krake linkdb rank` makes one",
)
"""A version's manifest has `now` (POSIX seconds), `config_digest`, `of` (a digest of the rows that it was made of) and
`settings`: the section `linkrank` of the config, and where duplicates are dropped `crawldb`, a digest of its rows."""
_ARCS = columns(
    "source bytes, target bytes, source_domain text, target_domain text, source_group text, target_group text"
)
_KEPT = columns("source bytes, target bytes, source_group text")
_NODES = columns("key bytes, url text, id int32")
_BATCH_ARCS = 1 << 20


def update_linkrank(stores: Stores, *, now: datetime) -> Version:
    """Take in new segments, and rank the ends of all links that count; returns the version that has the ranks: the
    newest one, where nothing has changed.

    In memory are 40 bytes a URL; arcs lie in a mapped file in `scratch.directory`, 4 bytes each. Raises InputError
    where no link counts, and as `linkdb.update_outlinks` does.
    """
    links, options = update_outlinks(stores, now=now), stores.config.linkrank
    drops = options.duplicates == "drop" and stores.config.frontier.is_crawldb
    crawldb = newest_version(stores) if drops else None

    def rows(work: Work) -> Iterator[pa.RecordBatch]:
        if crawldb is None:
            work.engine.values("duplicates", CRAWLDB_SCHEMA.empty_table().select(["key"]))
        else:
            work.engine.tables("crawldb", crawldb.paths, CRAWLDB_SCHEMA)
            work.engine.view("duplicates", "linkrank/duplicates")
        _thin(work, links, options)
        nodes = work.write("nodes", _NODES, _numbered(work))
        if nodes is None:
            raise InputError(
                f"{links.path}: has no links that count, so there is nothing to rank; linkrank.within_host and"
                " linkrank.within_domain leave out those within a site"
            )
        work.engine.table("nodes", nodes)
        with scratch_folder(stores.config, f"work-{uuid.uuid4().hex}") as scratch:
            yield from _ranked(work, nodes, _ranks(work, scratch, nodes, options))

    settings = {**asdict(options), **({"crawldb": crawldb.digest} if crawldb else {})}
    return derive(Versions(stores, LINKRANK), of=links, settings=settings, rows=rows, now=now)


def _thin(work: Work, links: Version, options: LinkRankConfig) -> None:
    """The table `kept`: links that count, with the group of their source."""
    engine = work.engine
    flags = {name: int(value) for name, value in asdict(options).items() if isinstance(value, bool)}
    engine.values("options", pa.Table.from_pylist([flags]))
    engine.tables("outlinks", links.paths, OUTLINKS_SCHEMA)
    engine.view("links", "linkrank/links")
    work.keep("domains", columns("host text, domain text"), _domains(work))
    work.ask("arcs", _ARCS, "linkrank/arcs", "linkrank.arcs")
    loops = columns("source_domain text, target_domain text")
    if options.drop_reciprocal or options.drop_triangles:
        work.ask("domain_arcs", loops, "linkrank/domain_arcs", "linkrank.domains")
        work.ask("loops", loops, "linkrank/loops", "linkrank.loops")
    else:
        engine.values("loops", loops.empty_table())
    work.ask("kept", _KEPT, "linkrank/kept", "linkrank.thin")


def _domains(work: Work) -> Iterator[pa.Table]:
    for batch in work.engine.stream("linkrank/hosts", GROUP_ROWS, "linkrank.hosts"):
        hosts = batch.column("host").to_pylist()
        yield pa.table({"host": hosts, "domain": [domain_of(str(host)) for host in hosts]})


def _numbered(work: Work) -> Iterator[pa.Table]:
    """The ends of links in order of keys, with their numbers."""
    first = 0
    for batch in work.engine.stream("linkrank/nodes", GROUP_ROWS, "linkrank.nodes"):
        numbers = np.arange(first, first + len(batch), dtype=np.int32)
        yield pa.Table.from_batches([batch]).append_column("id", pa.array(numbers))
        first += len(batch)


def _ranks(work: Work, scratch: Path, nodes: str, options: LinkRankConfig) -> Floats:
    """The ranks by number."""
    with open_parquet(work.stores.storage, nodes, _NODES) as table:
        count = table.rows
    out_degrees, in_degrees = np.ones(count), np.zeros(count, np.int64)
    for batch in work.engine.stream("linkrank/degrees", _BATCH_ARCS, "linkrank.degrees"):
        out_degrees[batch.column("id").to_numpy()] = batch.column("degree").to_numpy()
    batches = work.engine.stream("linkrank/inlinks", _BATCH_ARCS, "linkrank.inlinks")
    sources = mapped(scratch / "sources", _sources(work.stores.until_stopped(batches), in_degrees))
    inlinks = Inlinks(starts_of(in_degrees), sources)
    progress = Progress(work.stores, "linkrank.rounds", options.rounds * inlinks.arcs, "arcs")
    ranks = link_rank(inlinks, out_degrees, options, progress)
    progress.end()
    return ranks


def _sources(batches: Iterable[pa.RecordBatch], in_degrees: Ints) -> Iterator[Ints]:
    """The sources of inlinks, which come by target; how many each target has is added to `in_degrees`."""
    for batch in batches:
        targets, counts = np.unique(batch.column("target").to_numpy(), return_counts=True)
        in_degrees[targets] += counts
        yield batch.column("source").to_numpy()


def link_rank(inlinks: Inlinks, out_degrees: Floats, options: LinkRankConfig, progress: Progress) -> Floats:
    """Rank the nodes of a graph. `out_degrees`: by how many a page's rank is divided, at least 1; it may be more than
    `inlinks` have of it. `progress`: counts arcs. The same graph gives the same bytes. Raises StoppedError."""
    damping, ranks = options.damping, np.ones(inlinks.nodes)
    for _ in range(options.rounds):
        found = inlinks.sums(ranks / out_degrees, progress)
        ranks = (1 - damping) + damping * (found + 1 / inlinks.nodes)
    return ranks


def _ranked(work: Work, nodes: str, ranks: Floats) -> Iterator[pa.RecordBatch]:
    first = 0
    with open_parquet(work.stores.storage, nodes, _NODES) as table:
        for batch in table.batches(GROUP_ROWS, ["key", "url"]):
            some = pa.array(ranks[first : first + len(batch)])
            yield pa.RecordBatch.from_arrays([*batch.columns, some], names=["key", "url", "rank"])
            first += len(batch)
