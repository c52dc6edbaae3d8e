"""Real time: a URL is submitted, and its metadata are there within seconds.

Two processes do it. The scheduler has the secrets: it answers requests, decides what is fetched, and follows redirects.
The fetcher reads the bytes of strangers, behind the walls of a crawl's worker: it makes each request (`fetch.LiveRun`),
reads the page, and writes WARC records into parts of a spool. Both speak the lines of `protocol` on a socket pair.

On the scheduler's side, `service` listens, and `api` maps routes to answers. A submission goes through the `stages` of
the `scheduler`. The scheduler asks the fetcher by its `link`, and keeps `documents` in the table `krakepages`: `store`
asks the servers of the table (`pages`, `pages_sqlite`, `pages_mysql`) without waiting. Subscribers follow `events`.
`tokens` and `limits` say who may ask how often, `metrics` counts, and `client` asks from elsewhere with the types of
`answers`. `probes` asks for pictures of pages, whose sizes `picture` reads.

`collect` makes a segment of the parts that are closed; `places` says where parts lie. Commands find and delete `rows`
while the service runs; `checking` finds damage, and `filling` makes a lost table again from segments.
"""

from typing import TYPE_CHECKING

from crawl_lib.lazy import loads_later
from crawl_lib.realtime.places import FETCHER
from crawl_lib.realtime.tokens import TokenFile

if TYPE_CHECKING:
    from crawl_lib.realtime.checking import check_live, repair_live
    from crawl_lib.realtime.client import Client
    from crawl_lib.realtime.collect import CollectReport, collect_parts
    from crawl_lib.realtime.fetcher import start_fetcher
    from crawl_lib.realtime.filling import FillReport, fill_table
    from crawl_lib.realtime.rows import RowsReport, drop_rows, forget_rows, row_facts
    from crawl_lib.realtime.service import fetcher_of, serve_realtime
else:
    # Starlette, uvicorn and msgspec are an extra.
    __getattr__ = loads_later(
        __name__,
        {
            "checking": ("check_live", "repair_live"),
            "client": ("Client",),
            "collect": ("CollectReport", "collect_parts"),
            "fetcher": ("start_fetcher",),
            "filling": ("FillReport", "fill_table"),
            "rows": ("RowsReport", "drop_rows", "forget_rows", "row_facts"),
            "service": ("fetcher_of", "serve_realtime"),
        },
    )
