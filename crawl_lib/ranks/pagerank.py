"""PageRank: the chance that someone is on a page who follows links at random, and now and then begins elsewhere.

S. Brin, L. Page: The Anatomy of a Large-Scale Hypertextual Web Search Engine (1998), in the form of LDBC Graphalytics:
all ranks together are 1, and the rank of pages without links goes to all pages, the same to each.
"""

from dataclasses import dataclass

import numpy as np

from crawl_lib.config import PageRankConfig
from crawl_lib.ranks.kernel import Floats, Inlinks, Ints
from crawl_lib.stopping import Progress


@dataclass(frozen=True)
class Ranked:
    """Ranks by node. `rounds`: how many were done; `change`: by how much the last one changed all ranks together."""

    ranks: Floats
    rounds: int
    change: float


def page_rank(inlinks: Inlinks, out_degrees: Ints, options: PageRankConfig, progress: Progress) -> Ranked:
    """Rank the nodes of a graph that has some. `out_degrees`: arcs from each node; `progress`: counts arcs.

    Rounds end once one changes the ranks by no more than `options.tolerance`, the sum of all changes; what is left of
    the way to the limit is at most `damping / (1 - damping)` times that. The same graph gives the same bytes. Raises
    StoppedError.
    """
    nodes, damping = inlinks.nodes, options.damping
    dangling = np.flatnonzero(out_degrees == 0)
    shares = np.divide(damping, out_degrees, out=np.zeros(nodes), where=out_degrees > 0)
    ranks, change, rounds = np.full(nodes, 1 / nodes), np.inf, 0
    while rounds < options.max_rounds and change > options.tolerance:
        found = inlinks.sums(ranks * shares, progress)
        found += (1 - damping + damping * ranks[dangling].sum()) / nodes
        ranks -= found
        change = float(np.abs(ranks, out=ranks).sum())
        ranks, rounds = found, rounds + 1
    return Ranked(ranks, rounds, change)
