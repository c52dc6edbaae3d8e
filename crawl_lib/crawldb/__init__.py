"""The CrawlDb: a row a URL, with state and due time, made of seeds and committed segments.

`table` has its columns; `update` makes a version from the earlier version (`crawl_lib.versions`), `generate` a list
from a version. `hosts` has statistics of each host.
"""

from crawl_lib.crawldb.generate import Reason, WhyListed, explain, generate, look_up
from crawl_lib.crawldb.hosts import HostStatistics, host_statistics
from crawl_lib.crawldb.init import init_crawldb
from crawl_lib.crawldb.lists import KEYS_FILE, aside_lists
from crawl_lib.crawldb.revise import revise
from crawl_lib.crawldb.table import (
    CRAWLDB,
    CRAWLDB_OUTPUT,
    CRAWLDB_SCHEMA,
    Status,
    counts_of,
    newest_version,
)
from crawl_lib.crawldb.update import filter_crawldb, rebuild, update
