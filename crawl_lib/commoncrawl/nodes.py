"""Nodes of graphs: pages of an export or all ends of links, and the hosts and domains of these.

Hosts and domains are those of Common Crawl's graphs (https://github.com/commoncrawl/cc-webgraph): names are reversed
(`org.example.news`), a leading `www.` is cut, and addresses and names without a listed suffix are left out. Numbers
begin with 0 and go by the bytes of the reversed names; pages are numbered by their keys, as in an export.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crawl_lib.engine import numbered, numbered_names
from crawl_lib.export import ARCS_IN, ARCS_OUT, PAGES, ExportFolder
from crawl_lib.graph import arc_column, both_degrees, page_arcs
from crawl_lib.linkdb import LinkEnds, update_outlinks
from crawl_lib.ranks import Ints, Pairs, Side, between
from crawl_lib.stores import Stores
from crawl_lib.urls import domain_of, has_listed_suffix
from crawl_lib.versions import VersionWork

KINDS = {"pages": "page", "hosts": "host", "domains": "domain"}
"""The kinds of graphs, each with the word for file names."""


@dataclass(frozen=True)
class Graph:
    """A graph with numbered nodes. `names`: URLs, or reversed names of hosts or domains, by number.

    `n_hosts`: of each domain, else None. `out`, `into`: its arcs by source and by target, each once, no loops.
    """

    kind: str
    names: "pa.Array[Any]"
    n_hosts: Ints | None
    out: Side
    into: Side


class NumberedPages(ABC):
    """Pages with numbers, and the links between them."""

    stores: Stores
    nodes: int

    @abstractmethod
    def column(self, name: str) -> "Iterator[pa.Array[Any]]":
        """Read the column `url` or `host` by number. Raises DamagedFileError, StorageError, StoppedError."""

    @abstractmethod
    def arcs(self) -> Iterator[tuple[Ints, Ints]]:
        """Read arcs between pages in any order: sources and targets.

        Raises as `column` does.
        """

    def sides(self, scratch: Path) -> tuple[Side, Side]:
        """Sort the arcs by source and by target. Raises as `column` does."""
        pairs = Pairs.write(self.stores, scratch / "pages.arcs", self.nodes, self.arcs())
        return pairs.side(), pairs.side(by_target=True)


class ExportPages(NumberedPages):
    """The pages of an export whose links are arcs already."""

    def __init__(self, folder: ExportFolder) -> None:
        """Raise PathNotFoundError without the export or its arcs."""
        folder.read_inputs()
        folder.require([PAGES, ARCS_OUT, ARCS_IN], "krake graph link")
        self.stores, self.folder = folder.stores, folder
        self.nodes = folder.table(PAGES).rows

    def column(self, name: str) -> "Iterator[pa.Array[Any]]":
        """Read a column of `pages.parquet`."""
        batches = self.folder.table(PAGES).batches([name])
        return (batch.column(0) for batch in self.stores.until_stopped(batches))

    def arcs(self) -> Iterator[tuple[Ints, Ints]]:
        """Read `arcs-out.parquet`."""
        return ((arcs.sources, arcs.targets) for arcs in page_arcs(self.folder))

    def sides(self, scratch: Path) -> tuple[Side, Side]:
        """Find the arcs sorted, as the linker left them."""
        storage, folder, nodes = self.folder.storage, self.folder, self.nodes
        degrees = both_degrees(folder, nodes)
        ends = ((ARCS_OUT, "target"), (ARCS_IN, "source"))
        out, into = (
            Side(
                count,
                lambda name=name, end=end: arc_column(  # type: ignore[misc]
                    storage, folder.file(name), end, nodes
                ),
            )
            for count, (name, end) in zip(degrees, ends, strict=True)
        )
        return out, into


class LinkedPages(NumberedPages):
    """All ends of the pages' current links, crawled or not, as in LinkRank."""

    def __init__(self, work: VersionWork, now: datetime) -> None:
        """Take in new segments, and number the ends by key.

        Raises as `update_outlinks` does.
        """
        self.stores = work.stores
        self.ends = LinkEnds(work, update_outlinks(work.stores, now=now), "graph")
        self.nodes = len(self.ends)

    def column(self, name: str) -> "Iterator[pa.Array[Any]]":
        """Read a column of the table of ends."""
        return (batch.column(0) for batch in self.ends.batches(name))

    def arcs(self) -> Iterator[tuple[Ints, Ints]]:
        """Read the links by number, without those of a page to itself."""
        return between(self.ends.arcs(), np.arange(self.nodes))


@contextmanager
def linked_pages(stores: Stores, now: datetime) -> Iterator[LinkedPages]:
    """Open all ends of links for a block.

    The tables are deleted with the block. Raises as `VersionWork.to_read` and `LinkedPages` do.
    """
    with VersionWork.to_read(stores) as work:
        yield LinkedPages(work, now)


def host_name(host: str) -> str | None:
    """Return a host's name in a graph, not yet reversed.

    None: the graph leaves the host out.
    """
    cut = host.removeprefix("www.")
    name = cut if "." in cut else host
    return name if has_listed_suffix(name) else None


def reversed_name(name: str) -> str:
    """Return a name with its labels turned around: `news.example.org` -> `org.example.news`."""
    return ".".join(reversed(name.split(".")))


def _reversed_host(host: str) -> str | None:
    name = host_name(host)
    return name and reversed_name(name)


def _reversed_domain(host: str) -> str:
    return reversed_name(domain_of(reversed_name(host)))


def graph_of(pages: NumberedPages, of: str, scratch: Path) -> Graph:
    """Make the graph of pages, hosts or domains.

    `of`: one of `KINDS`; `scratch`: a folder for arcs. In memory are 30 bytes a node; and of hosts and domains the
    names. Raises DamagedFileError, StorageError, StoppedError.
    """
    if of == "pages":
        return Graph(
            KINDS[of],
            _mapped_names(scratch / "names", pages.column("url")),
            None,
            *pages.sides(scratch),
        )
    names, group_of = numbered_names(pages.column("host"), _reversed_host)
    n_hosts = None
    if of == "domains":
        names, domain_of_host = numbered(names, _reversed_domain)
        n_hosts = np.bincount(domain_of_host, minlength=len(names))
        group_of = np.append(domain_of_host, np.int32(-1))[group_of]  # -1 is the last one
    pairs = Pairs.write(
        pages.stores, scratch / f"{of}.arcs", len(names), between(pages.arcs(), group_of)
    )
    return Graph(
        KINDS[of],
        pa.array(names, pa.large_string()),
        n_hosts,
        pairs.side(),
        pairs.side(by_target=True),
    )


def _mapped_names(file: Path, columns_of: "Iterable[pa.Array[Any]]") -> "pa.Array[Any]":
    """Map texts from a local file, to save memory.

    Each takes 8 bytes of memory.
    """
    lengths = [np.empty(0, np.int64)]
    with pa.OSFile(str(file), "wb") as out:
        for column in columns_of:
            texts = column.cast(pa.large_string())
            _, starts, data = texts.buffers()
            if not len(texts) or starts is None or data is None:
                continue
            ends = np.frombuffer(memoryview(starts), np.int64)[
                texts.offset : texts.offset + len(texts) + 1
            ]
            if ends[-1] > ends[0]:
                out.write(data.slice(int(ends[0]), int(ends[-1] - ends[0])))
            lengths.append(np.diff(ends))
    starts_of_all = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    whole = pa.memory_map(str(file)).read_buffer() if starts_of_all[-1] else pa.py_buffer(b"")
    return pa.LargeStringArray.from_buffers(
        len(starts_of_all) - 1, pa.py_buffer(starts_of_all.data), whole
    )
