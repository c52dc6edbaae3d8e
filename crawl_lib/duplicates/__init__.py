"""Duplicates: pages that say the same, which of them stays, hosts that mirror others, and blocks that repeat.

How data flows: `mark_duplicates` makes a version of the CrawlDb in which all but the best of equal pages have the
status `duplicate`. `find_near` makes a table of groups of pages whose texts are nearly the same; `find_mirrors` and
`find_templates` are reports. `crawl_lib.captures` says which captures are read.
"""

from crawl_lib.duplicates.marking import mark_duplicates
from crawl_lib.duplicates.near import DUPLICATES, DUPLICATES_OUTPUT, DUPLICATES_SCHEMA, find_near
from crawl_lib.duplicates.reports import find_mirrors, find_templates
