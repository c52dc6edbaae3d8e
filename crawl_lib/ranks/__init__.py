"""Ranks: how much a page matters by the links to it.

`kernel` is what each round does: sums over the inlinks of every node, in an order that does not change.
"""

from crawl_lib.ranks.kernel import Inlinks, mapped, starts_of
