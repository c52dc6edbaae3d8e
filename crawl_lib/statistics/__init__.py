"""Statistics of real time: what was shared and fetched, by domain, in each hour and each day.

How data flows: `update_statistics` finds the segments of real time that have rows of an hour (`inputs`), has an engine
count `pages` and `submissions`, and writes a version of the hour (`making`). A late segment makes a new version of its
hours. A day is the sum of its hours. `files` names and reads versions, `latency` computes quantiles from counts, and
`page` draws one HTML page.
"""

from crawl_lib.statistics.files import STATISTICS_SCHEMA, Period, StatisticsFiles
from crawl_lib.statistics.latency import BUCKETS, quantile_ms
from crawl_lib.statistics.making import StatisticsReport, last_hour, update_statistics
from crawl_lib.statistics.output import STATISTICS_OUTPUT
from crawl_lib.statistics.page import write_statistics
from crawl_lib.statistics.reading import Domain, domains_of
