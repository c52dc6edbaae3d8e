"""Links: the links of each page, and the links to each page with their texts.

How data flows: `update_outlinks` adds new segments to the table of current links, by source. `update_linkdb` sorts this
table by target, within the limits of `linkdb` in the config. `LinkEnds` numbers the ends of links for ranks
(`crawl_lib.ranks`). Both tables are versions (`crawl_lib.versions`), and need no CrawlDb.
"""

from crawl_lib.linkdb.ends import LinkEnds
from crawl_lib.linkdb.links import (
    INLINKS_SCHEMA,
    LINKDB,
    LINKDB_OUTPUT,
    OUTLINKS,
    OUTLINKS_OUTPUT,
    OUTLINKS_SCHEMA,
    update_linkdb,
    update_outlinks,
)
