"""Seeds: read from lines and files, made canonical, and left in the crawl directory for the nodes that own them."""

from crawl_lib.seeds.contact import has_contact, is_our_own
from crawl_lib.seeds.inject import hand_over, inject
from crawl_lib.seeds.lines import SeedReport, Seeds, parse_seeds

__all__ = [
    "SeedReport",
    "Seeds",
    "hand_over",
    "has_contact",
    "inject",
    "is_our_own",
    "parse_seeds",
]
