"""Real time: a URL is submitted, and its metadata are there within seconds.

Two processes do it. The scheduler has the secrets: it answers requests, decides what is fetched, and follows redirects.
The fetcher reads the bytes of strangers, behind the walls of a crawl's worker: it makes each request (`fetch.LiveRun`),
reads the page, and writes WARC records into parts of a spool. Both speak the lines of `protocol` on a socket pair.

`collect` makes a segment of the parts that are closed; `places` says where parts lie.
"""

from typing import TYPE_CHECKING

from crawl_lib.lazy import loads_later

if TYPE_CHECKING:
    from crawl_lib.realtime.collect import CollectReport, collect_parts
    from crawl_lib.realtime.fetcher import start_fetcher
else:
    __getattr__ = loads_later(__name__, {"collect": ("CollectReport", "collect_parts"), "fetcher": ("start_fetcher",)})
