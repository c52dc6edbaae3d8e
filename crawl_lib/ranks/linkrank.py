"""LinkRank: the weight of each URL by the links to the URL, over all ends of links, crawled or not.

As in Nutch (`org.apache.nutch.scoring.webgraph`), links are thinned once. In each round, a page gives the part
`damping` of its rank to the targets of its links in equal parts. If several links compete, the link to or from the
smallest key stays.
"""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crawl_lib.config import LinkRankConfig
from crawl_lib.crawldb import CRAWLDB, newest_version
from crawl_lib.engine import (
    Ints,
    KeyNumbers,
    column_of,
    count_sorted,
    in_batches,
    keys_of,
    numbered,
    numbered_names,
    values_of,
)
from crawl_lib.errors import InputError
from crawl_lib.linkdb import LinkEnds, update_outlinks
from crawl_lib.ranks.arcs import Firsts, Pairs, between, packed
from crawl_lib.ranks.kernel import Floats, Inlinks, mapped, starts_of, with_ranks
from crawl_lib.stopping import Progress
from crawl_lib.stores import Stores
from crawl_lib.urls import domain_of
from crawl_lib.versions import (
    GROUP_ROWS,
    Family,
    TableOutput,
    Version,
    Versions,
    VersionWork,
    columns,
    derive,
)

LINKRANK_SCHEMA = columns("key key!, url text!, rank number!")
LINKRANK = Family(
    folder="linkrank",
    name="LinkRank",
    schema=LINKRANK_SCHEMA,
    made_again="`krake linkdb rank` makes it again",
)
"""`settings` of a manifest: the section `linkrank` of the config, and a digest of the CrawlDb if its duplicates go."""
LINKRANK_OUTPUT = TableOutput("linkrank", ("outlinks",), LINKRANK)
_LOOPS = columns("source_domain int32, target_domain int32")
_STAGE = "linkrank"
_Arcs = Iterator[tuple[Ints, Ints]]


def update_linkrank(stores: Stores, *, now: datetime) -> Version:
    """Add new segments, and rank the ends of links.

    Returns the version with the ranks. Memory: 50 bytes for each end of a link while links are thinned, then 40 bytes
    for each URL with a rank, 5 bytes for each end, and 300 bytes a host. Keys and arcs lie in local files. Raises
    InputError if no link counts, and the errors of `linkdb.update_outlinks`.
    """
    links, options = update_outlinks(stores, now=now), stores.config.linkrank
    crawldb = (
        newest_version(stores)
        if options.duplicates == "drop" and stores.config.order.has_crawldb
        else None
    )

    def rows(work: VersionWork) -> Iterator[pa.RecordBatch]:
        ends = LinkEnds(work, links, _STAGE, _duplicates(work, crawldb) if crawldb else None)
        thinned = _Thinned(work, ends, options)
        inlinks, is_node, out_degrees = thinned.inlinks(), thinned.is_node, thinned.out_degrees
        del thinned, ends.places, ends.unseen  # memory is for ranks from here on
        if not inlinks.arcs:
            raise InputError(
                f"{links.path}: has no links that count, so there is nothing to rank; linkrank.within_host and"
                " linkrank.within_domain leave out those within a site"
            )
        ranks = _ranks(stores, inlinks, out_degrees[is_node], options)
        batches = ends.batches("id", "key", "url")
        nodes = (
            batch.filter(column_of(is_node[values_of(batch.column(0))])).select([1, 2])
            for batch in batches
        )
        yield from in_batches(with_ranks(nodes, ranks), GROUP_ROWS)

    settings = {**asdict(options), **({"crawldb": crawldb.digest} if crawldb else {})}
    return derive(Versions(stores, LINKRANK), of=links, settings=settings, rows=rows, now=now)


def _duplicates(work: VersionWork, crawldb: Version) -> KeyNumbers:
    """Read the keys of a CrawlDb's duplicates."""
    is_duplicate = pc.field("status") == "duplicate"
    batches = Versions(work.stores, CRAWLDB).batches(crawldb, ["key", "status"])
    return KeyNumbers(
        work.scratch / "duplicates",
        (keys_of(one.filter(is_duplicate).column(0)) for one in batches),
    )


class _Thinned:
    """The links that count, by options. `inlinks` fills two arrays with a value for each end.

    `out_degrees`: the divisor of the end's rank. `is_node`: whether the end has a remaining link.
    """

    def __init__(self, work: VersionWork, ends: LinkEnds, options: LinkRankConfig) -> None:
        self._work, self._ends, self._options = work, ends, options
        self._host, self._domain = _sites(ends)
        self.out_degrees, self.is_node = np.zeros(len(ends), np.int32), np.zeros(len(ends), bool)

    def inlinks(self) -> Inlinks:
        """Thin the links, and number the remaining ends.

        First the links from each page are thinned, then the links to each page.
        """
        group_of, scratch = self._groups(), self._work.scratch
        turned = ((targets, sources) for sources, targets in self._by_source(group_of))
        pairs = Pairs.write(self._work.stores, scratch / "arcs", len(self._ends), turned)
        numbers, first = (
            np.cumsum(self.is_node, dtype=np.int32) - np.int32(1),
            Firsts(len(self._ends)),
        )
        in_degrees = np.zeros(np.count_nonzero(self.is_node), np.int64)

        def sources() -> Iterator[Ints]:
            for targets, sources in pairs.sorted():
                stays = first.of(targets, group_of[sources])
                count_sorted(in_degrees, numbers[targets[stays]])
                yield numbers[sources[stays]]

        found = mapped(scratch / "sources", sources())
        return Inlinks(starts_of(in_degrees), found)

    def _by_source(self, group_of: Ints) -> _Arcs:
        """Yield a page's first link to each group.

        The first link has the target with the smallest key. Remaining ends are noted.
        """
        first, loops = Firsts(len(self._ends)), self._loops()
        for sources, targets in self._apart():
            if len(loops):
                stays = ~_is_in(packed(self._domain[sources], self._domain[targets]), loops)
                sources, targets = sources[stays], targets[stays]  # noqa: PLW2901
            stays = first.of(sources, group_of[targets])
            sources, targets = sources[stays], targets[stays]  # noqa: PLW2901
            count_sorted(self.out_degrees, sources)
            self.is_node[sources] = self.is_node[targets] = True
            yield sources, targets

    def _apart(self) -> _Arcs:
        """Read the links.

        By option, links within a host or a domain are left out. Links within a host are also within its domain.
        """
        options, of = self._options, self._domain
        if options.within_domain:
            of = np.arange(len(of)) if options.within_host else self._host
        for sources, targets in self._ends.arcs():
            stays = of[sources] != of[targets]
            yield sources[stays], targets[stays]

    def _groups(self) -> Ints:
        """Number the groups of targets; one link to each group stays.

        A page's domain contains all pages of its host.
        """
        if self._options.one_per_domain:
            return self._domain
        if not self._options.one_per_page:
            return np.arange(len(self._ends), dtype=np.int32)
        batches = self._work.engine.stream("linkrank/by_page", GROUP_ROWS, "linkrank.pages")
        return np.concatenate(
            [np.empty(0, np.int32), *(values_of(batch.column("node_group")) for batch in batches)]
        )

    def _loops(self) -> Ints:
        """Find arcs between domains on loops, as packed numbers.

        The numbers are in order.
        """
        found = [np.empty(0, np.int64)]
        if self._options.drop_reciprocal or self._options.drop_triangles:
            work, scratch, of = self._work, self._work.scratch, self._domain
            pairs = Pairs.write(
                work.stores, scratch / "domains", len(of), between(self._apart(), of)
            )
            rows = (pa.table([*map(column_of, some)], _LOOPS.names) for some in pairs.sorted())
            work.keep("domain_arcs", _LOOPS, rows)
            work.engine.values("options", pa.Table.from_pylist([asdict(self._options)]))
            batches = work.engine.stream("linkrank/loops", GROUP_ROWS, "linkrank.loops")
            found += [packed(*map(values_of, batch.columns)) for batch in batches]
        return np.concatenate(found)


def _is_in(numbers: Ints, some: Ints) -> Ints:
    """Mark the numbers that are in a sorted array."""
    return np.searchsorted(some, numbers, "right") > np.searchsorted(some, numbers)


def _sites(ends: LinkEnds) -> tuple[Ints, Ints]:
    """Number the hosts and the domains of ends."""
    hosts, host = numbered_names(batch.column(0) for batch in ends.batches("host"))
    _, domain_of_host = numbered(hosts, domain_of)
    return host, domain_of_host[host]


def _ranks(stores: Stores, inlinks: Inlinks, out_degrees: Ints, options: LinkRankConfig) -> Floats:
    """Return the ranks of the nodes, in order of keys.

    The same graph gives the same bytes.
    """
    damping, ranks = options.damping, np.ones(inlinks.nodes)
    out_degrees = np.maximum(out_degrees, 1)
    progress = Progress(stores, "linkrank.rounds", options.rounds * inlinks.arcs, "arcs")
    for _ in range(options.rounds):
        found = inlinks.sums(ranks / out_degrees, progress)
        ranks = (1 - damping) + damping * (found + 1 / inlinks.nodes)
    progress.end()
    return ranks
