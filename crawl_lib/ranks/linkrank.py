"""LinkRank: how much a URL matters by the links to it, over all ends of links, crawled or not.

As in Nutch (`org.apache.nutch.scoring.webgraph`) links are thinned once, and each round hands on the part `damping` of
a page's rank, the same to each page that it links to. Of several links the one to, or from, the smallest key stays.
"""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime

import numpy as np
import pyarrow as pa

from crawl_lib.config import LinkRankConfig
from crawl_lib.crawldb import CRAWLDB, newest_version
from crawl_lib.engine import in_batches
from crawl_lib.errors import InputError
from crawl_lib.linkdb import OUTLINKS, update_outlinks
from crawl_lib.ranks.kernel import Floats, Inlinks, Ints, mapped, starts_of, with_ranks
from crawl_lib.segment import parquet_batches
from crawl_lib.stopping import Progress
from crawl_lib.stores import Stores
from crawl_lib.urls import domain_of
from crawl_lib.versions import GROUP_ROWS, Family, TableOutput, Version, Versions, Work, columns, derive

LINKRANK_SCHEMA = columns("key key!, url text!, rank number!")
LINKRANK = Family(
    folder="linkrank",
    name="LinkRank",
    schema=LINKRANK_SCHEMA,
    made_again="`krake linkdb rank` makes it again",
)
"""`settings` of a manifest are the section `linkrank` of the config, and a digest of a CrawlDb whose duplicates go."""
LINKRANK_OUTPUT = TableOutput("linkrank", ("outlinks",), LINKRANK)
_ENDS = columns("key bytes, url text, id int32, host int32, domain int32")
_KEPT = columns("source int32, target int32, source_group int32")
_LOOPS = columns("source_domain int32, target_domain int32")
_BATCH_ARCS = 1 << 20


def update_linkrank(stores: Stores, *, now: datetime) -> Version:
    """Take in new segments, and rank the ends of all links that count; returns the version that has the ranks.

    In memory are 40 bytes a URL that has a rank, 9 bytes more for each end of a link, and 300 bytes a host; arcs lie in
    a mapped file, 4 bytes each. Raises InputError where no link counts, and as `linkdb.update_outlinks` does.
    """
    links, options = update_outlinks(stores, now=now), stores.config.linkrank
    crawldb = newest_version(stores) if options.duplicates == "drop" and stores.config.frontier.is_crawldb else None

    def rows(work: Work) -> Iterator[pa.RecordBatch]:
        Versions(stores, OUTLINKS).give(links, work.engine, "outlinks")
        if crawldb is not None:
            Versions(stores, CRAWLDB).give(crawldb, work.engine, "crawldb")
        work.engine.view("links", "linkrank/links_but_duplicates" if crawldb else "linkrank/links")
        work.engine.keep("unseen", "linkrank/unseen", "linkrank.unseen")
        ends = work.keep("ends", _ENDS, _numbered(work))
        out_degrees, is_node = _thin(work, options)
        if ends is None or not is_node.any():
            raise InputError(
                f"{links.path}: has no links that count, so there is nothing to rank; linkrank.within_host and"
                " linkrank.within_domain leave out those within a site"
            )
        ranks = _ranks(work, out_degrees[is_node], is_node, options)
        batches = parquet_batches(stores.storage, ends, _ENDS, ["id", "key", "url"])
        nodes = (batch.filter(pa.array(is_node[batch.column(0).to_numpy()])).select([1, 2]) for batch in batches)
        yield from in_batches(with_ranks(nodes, ranks), GROUP_ROWS)

    settings = {**asdict(options), **({"crawldb": crawldb.digest} if crawldb else {})}
    return derive(Versions(stores, LINKRANK), of=links, settings=settings, rows=rows, now=now)


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
        yield pa.table([batch["key"], batch["url"], np.arange(first, first + len(batch)), *numbers.T], _ENDS.names)
        first += len(batch)


def _thin(work: Work, options: LinkRankConfig) -> tuple[Ints, Ints]:
    """The table `kept`: links that count, by the numbers of their ends, with the group of their source. Returns, for
    each end, by how many its rank is divided, and whether a link stays that has it."""
    engine = work.engine
    engine.values("options", pa.Table.from_pylist([asdict(options)]))
    # What is one where one of several links stays: a page's domain is all its pages' too.
    group = "by_domain" if options.one_per_domain else "by_page" if options.one_per_page else "by_url"
    engine.view("nodes", f"linkrank/{group}")
    for name in ("sources", "arcs"):  # each join is written down: memory need hold one table of all ends at a time
        engine.keep(name, f"linkrank/{name}", f"linkrank.{name}")
    if options.drop_reciprocal or options.drop_triangles:
        work.ask("domain_arcs", _LOOPS, "linkrank/domain_arcs", "linkrank.domains")
        work.ask("loops", _LOOPS, "linkrank/loops", "linkrank.loops")
    else:
        engine.values("loops", _LOOPS.empty_table())
    count = engine.value("linkrank/count")
    out_degrees, is_node = np.zeros(count, np.int32), np.zeros(count, bool)

    def counted() -> Iterator[pa.Table]:
        for batch in engine.stream("linkrank/kept", _BATCH_ARCS, "linkrank.thin"):
            sources = batch.column("source").to_numpy()
            np.add.at(out_degrees, sources, 1)
            is_node[sources] = is_node[batch.column("target").to_numpy()] = True
            yield pa.Table.from_batches([batch])

    work.keep("kept", _KEPT, counted())
    return out_degrees, is_node


def _ranks(work: Work, out_degrees: Ints, is_node: Ints, options: LinkRankConfig) -> Floats:
    """The ranks of the nodes, in order of their keys. The same graph gives the same bytes."""
    numbers = np.cumsum(is_node, dtype=np.int32) - np.int32(1)
    in_degrees = np.zeros(len(out_degrees), np.int64)

    def counted() -> Iterator[Ints]:
        for batch in work.stores.until_stopped(work.engine.stream("linkrank/inlinks", _BATCH_ARCS, "linkrank.inlinks")):
            np.add.at(in_degrees, numbers[batch.column("target").to_numpy()], 1)
            yield numbers[batch.column("source").to_numpy()]

    sources = mapped(work.scratch / "sources", counted())
    inlinks, damping, ranks = Inlinks(starts_of(in_degrees), sources), options.damping, np.ones(len(out_degrees))
    out_degrees = np.maximum(out_degrees, 1)
    progress = Progress(work.stores, "linkrank.rounds", options.rounds * inlinks.arcs, "arcs")
    for _ in range(options.rounds):
        found = inlinks.sums(ranks / out_degrees, progress)
        ranks = (1 - damping) + damping * (found + 1 / inlinks.nodes)
    progress.end()
    return ranks
