"""Links: which page links where, and who links to a page with which words.

How data flows: `update_outlinks` takes new segments into the table of the links that pages have now, by source, and
`update_linkdb` turns it around, within the limits of `linkdb` in the config. `LinkEnds` numbers the ends of links, of
which ranks are made too (`crawl_lib.ranks`). All are versions (`crawl_lib.versions`), and need no CrawlDb.
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
