"""Duplicates: equal pages and the best of these, near duplicates, mirror hosts, and repeated blocks of text.

How data flows: `mark_duplicates` makes a version of the CrawlDb in which all but the best of equal pages have the
status `duplicate`. `find_near` makes a table of groups of pages whose texts are nearly the same; `find_mirrors` and
`find_templates` are reports. All read the captures that `crawl_lib.captures` chooses.
"""

from crawl_lib.duplicates.marking import mark_duplicates
from crawl_lib.duplicates.near import DUPLICATES, DUPLICATES_OUTPUT, DUPLICATES_SCHEMA, find_near
from crawl_lib.duplicates.reports import find_mirrors, find_templates
