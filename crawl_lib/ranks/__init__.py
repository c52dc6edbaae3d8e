"""Ranks: the weight of each page by the links to the page.

`arcs` sorts and thins arcs on the disk. `kernel` has the work of a round, and PageRank. `exported` ranks an export's
graph of pages, hosts or domains, and writes a table into the folder of the export. `harmonic` computes harmonic
centrality. `linkrank` ranks all ends of current links (`crawl_lib.linkdb`), crawled or not. `score` writes ranks into
the CrawlDb; `newest` finds ranks for answers.
"""

from crawl_lib.ranks.arcs import BLOCK_ARCS, Firsts, Pairs, Side, between
from crawl_lib.ranks.exported import GRAPHS, RankReport, rank_export, rank_table
from crawl_lib.ranks.harmonic import Harmonic, harmonic_centrality
from crawl_lib.ranks.kernel import Inlinks, Ints, Ranked, mapped, most_rounds, page_rank, starts_of
from crawl_lib.ranks.linkrank import LINKRANK, LINKRANK_OUTPUT, LINKRANK_SCHEMA, update_linkrank
from crawl_lib.ranks.newest import give_ranks
from crawl_lib.ranks.score import update_score, update_score_by_links
