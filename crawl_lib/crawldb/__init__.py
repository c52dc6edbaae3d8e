"""The CrawlDb: a row a URL, with its state and when it is due, made of seeds and committed segments.

Versions are in `<crawl>/crawldb/<number>/` (`version`): parts by interval of keys (`table` has the columns, `writing`
writes them), and a sealed manifest. A version is written next to its place, under a hidden name, and renamed, so a
killed task leaves nothing that is read; the newest whole one counts.
"""

from crawl_lib.crawldb.check import check_crawldb, init_crawldb
from crawl_lib.crawldb.generate import Reason, explain, generate
from crawl_lib.crawldb.table import CRAWLDB_SCHEMA, Status
from crawl_lib.crawldb.update import filter_crawldb, rebuild, update
from crawl_lib.crawldb.version import CRAWLDB_FOLDER, Version, counts_of, newest_version
