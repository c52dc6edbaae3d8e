"""LinkRank: how much a URL matters by the links to it, over all ends of links, crawled or not.

Nutch's LinkRank (`org.apache.nutch.scoring.webgraph`): links are thinned once, and each round hands on the part
`damping` of a page's rank, the same to each page that it links to. Ranks begin with 1, and are about 1 in the mean.
Nutch takes the first of several links as it comes; here it is the one to, or from, the smallest key.
"""

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crawl_lib.config import LinkRankConfig
from crawl_lib.crawldb import CRAWLDB_SCHEMA, newest_version
from crawl_lib.engine import in_batches
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
_ENDS = columns("key bytes, url text, id int32, host int32, domain int32")
_KEPT = columns("source int32, target int32, source_group int32")
_LOOPS = columns("source_domain int32, target_domain int32")
_BATCH_ARCS = 1 << 20


def update_linkrank(stores: Stores, *, now: datetime) -> Version:
    """Take in new segments, and rank the ends of all links that count; returns the version that has the ranks: the
    newest one, where nothing has changed.

    In memory are 40 bytes a URL that has a rank, 9 bytes more for each end of a link, and 300 bytes a host; arcs lie in
    a mapped file in `scratch.directory`, 4 bytes each. Raises InputError where no link counts, and as
    `linkdb.update_outlinks` does.
    """
    links, options = update_outlinks(stores, now=now), stores.config.linkrank
    drops = options.duplicates == "drop" and stores.config.frontier.is_crawldb
    crawldb = newest_version(stores) if drops else None

    def rows(work: Work) -> Iterator[pa.RecordBatch]:
        work.engine.tables("outlinks", links.paths, OUTLINKS_SCHEMA)
        if crawldb is not None:
            work.engine.tables("crawldb", crawldb.paths, CRAWLDB_SCHEMA)
        work.engine.view("links", "linkrank/links_but_duplicates" if crawldb else "linkrank/links")
        thinned = _thin(work, options)
        if thinned.ends is None or not thinned.is_node.any():
            raise InputError(
                f"{links.path}: has no links that count, so there is nothing to rank; linkrank.within_host and"
                " linkrank.within_domain leave out those within a site"
            )
        with scratch_folder(stores.config, f"work-{uuid.uuid4().hex}") as scratch:
            ranks = _ranks(work, scratch, thinned, options)
        yield from in_batches(_ranked(work, thinned.ends, thinned.is_node, ranks), GROUP_ROWS)

    settings = {**asdict(options), **({"crawldb": crawldb.digest} if crawldb else {})}
    return derive(Versions(stores, LINKRANK), of=links, settings=settings, rows=rows, now=now)


@dataclass(frozen=True)
class _Thinned:
    """The ends of links by number: by how many a page's rank is divided, and whether a link stays that has this end.
    `ends`: the file with their keys and URLs."""

    ends: str | None
    out_degrees: Ints
    is_node: Ints


def _thin(work: Work, options: LinkRankConfig) -> _Thinned:
    """The table `kept`: links that count, by the numbers of their ends, with the group of their source."""
    engine = work.engine
    flags = {name: int(value) for name, value in asdict(options).items() if isinstance(value, bool)}
    engine.values("options", pa.Table.from_pylist([flags]))
    ends = work.keep("ends", _ENDS, _numbered(work))
    engine.view("nodes", f"linkrank/{_group(options)}")
    engine.view("arcs", "linkrank/arcs")
    if options.drop_reciprocal or options.drop_triangles:
        work.ask("domain_arcs", _LOOPS, "linkrank/domain_arcs", "linkrank.domains")
        work.ask("loops", _LOOPS, "linkrank/loops", "linkrank.loops")
    else:
        engine.values("loops", _LOOPS.empty_table())
    count = engine.value("linkrank/count")
    thinned = _Thinned(ends, np.zeros(count, np.int32), np.zeros(count, bool))
    work.keep("kept", _KEPT, _counted(engine.stream("linkrank/kept", _BATCH_ARCS, "linkrank.thin"), thinned))
    return thinned


def _group(options: LinkRankConfig) -> str:
    """What is one where one of several links stays: a page's domain is all its pages' too."""
    if options.one_per_domain:
        return "by_domain"
    return "by_page" if options.one_per_page else "by_url"


def _numbered(work: Work) -> Iterator[pa.Table]:
    """The ends of links in order of keys, with their numbers, and numbers for their hosts and domains."""
    first, hosts, domains = 0, dict[str, tuple[int, int]](), dict[str, int]()
    for batch in work.engine.stream("linkrank/ends", GROUP_ROWS, "linkrank.ends"):
        names = batch.column("host").dictionary_encode()
        named = [str(host) for host in names.dictionary.to_pylist()]
        for host in named:
            if host not in hosts:
                hosts[host] = (len(hosts), domains.setdefault(domain_of(host), len(domains)))
        numbers = np.array([hosts[host] for host in named])[names.indices.to_numpy()]
        ids = np.arange(first, first + len(batch))
        yield pa.table([batch.column("key"), batch.column("url"), ids, *numbers.T], _ENDS.names)
        first += len(batch)


def _counted(batches: Iterable[pa.RecordBatch], thinned: _Thinned) -> Iterator[pa.Table]:
    """The same links, which are noted in `thinned`."""
    for batch in batches:
        sources = batch.column("source").to_numpy()
        np.add.at(thinned.out_degrees, sources, 1)
        thinned.is_node[sources] = thinned.is_node[batch.column("target").to_numpy()] = True
        yield pa.Table.from_batches([batch])


def _ranks(work: Work, scratch: Path, thinned: _Thinned, options: LinkRankConfig) -> Floats:
    """The ranks of the nodes, in order of their keys."""
    numbers = np.cumsum(thinned.is_node, dtype=np.int32) - np.int32(1)
    in_degrees = np.zeros(int(numbers[-1]) + 1, np.int64)
    batches = work.engine.stream("linkrank/inlinks", _BATCH_ARCS, "linkrank.inlinks")
    sources = mapped(scratch / "sources", _sources(work.stores.until_stopped(batches), numbers, in_degrees))
    inlinks = Inlinks(starts_of(in_degrees), sources)
    progress = Progress(work.stores, "linkrank.rounds", options.rounds * inlinks.arcs, "arcs")
    ranks = link_rank(inlinks, np.maximum(thinned.out_degrees[thinned.is_node], 1), options, progress)
    progress.end()
    return ranks


def _sources(batches: Iterable[pa.RecordBatch], numbers: Ints, in_degrees: Ints) -> Iterator[Ints]:
    """The sources of inlinks, which come by target; how many each target has is added to `in_degrees`."""
    for batch in batches:
        np.add.at(in_degrees, numbers[batch.column("target").to_numpy()], 1)
        yield numbers[batch.column("source").to_numpy()]


def link_rank(inlinks: Inlinks, out_degrees: Ints, options: LinkRankConfig, progress: Progress) -> Floats:
    """Rank the nodes of a graph. `out_degrees`: by how many a page's rank is divided, at least 1; it may be more than
    `inlinks` have of it. `progress`: counts arcs. The same graph gives the same bytes. Raises StoppedError."""
    damping, ranks = options.damping, np.ones(inlinks.nodes)
    for _ in range(options.rounds):
        found = inlinks.sums(ranks / out_degrees, progress)
        ranks = (1 - damping) + damping * (found + 1 / inlinks.nodes)
    return ranks


def _ranked(work: Work, ends: str, is_node: Ints, ranks: Floats) -> Iterator[pa.RecordBatch]:
    """The ends of links that have a rank, with it."""
    first, done = 0, 0
    with open_parquet(work.stores.storage, ends, _ENDS) as table:
        for batch in table.batches(GROUP_ROWS, ["key", "url"]):
            nodes = batch.filter(pa.array(is_node[first : first + len(batch)]))
            yield nodes.append_column("rank", pa.array(ranks[done : done + len(nodes)]))
            first, done = first + len(batch), done + len(nodes)
