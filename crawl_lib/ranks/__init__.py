"""Ranks: how much a page matters by the links to it.

`arcs` sorts and thins arcs on the disk. `kernel` is what each round does, and PageRank. `exported` has an export's
graph ranked, or that between its hosts or domains, and writes a table next to it, which goes with the export.
`harmonic` is harmonic centrality. `linkrank` ranks all ends of the links that pages have now (`crawl_lib.linkdb`),
crawled or not. `score` writes ranks into the CrawlDb; `newest` finds ranks for answers.
"""

from crawl_lib.ranks.arcs import BLOCK_ARCS, Firsts, Pairs, Side, between
from crawl_lib.ranks.exported import GRAPHS, RankReport, rank_export, rank_table
from crawl_lib.ranks.harmonic import Harmonic, harmonic_centrality
from crawl_lib.ranks.kernel import Inlinks, Ints, Ranked, mapped, most_rounds, page_rank, starts_of
from crawl_lib.ranks.linkrank import LINKRANK, LINKRANK_OUTPUT, LINKRANK_SCHEMA, update_linkrank
from crawl_lib.ranks.newest import give_ranks
from crawl_lib.ranks.score import update_score, update_score_by_links
