"""Real time: a URL is submitted, and its metadata are there within seconds.

The scheduler has the secrets. `service` listens, `asgi` takes requests, `api` maps routes to answers, and a submission
goes through the `stages` of the `scheduler`, which asks a fetcher by its `link` and keeps `documents` in a table:
`store` asks the servers (`pages*`), `recovery` finds due rows, and `redirects` hand documents on. `events` are
followed, `tokens` and `limits` say who may ask, `metrics` counts, `probes` asks for pictures, `captures` finds what a
visit again refers to, and `client` asks from elsewhere with the types of `answers`. The fetcher reads strangers' bytes,
behind the walls of a crawl's worker: `fetch.LiveRun` asks, `reading` and `picture` read, and parts of a spool get
records (`places`). Both speak the lines of `protocol`. `collect` makes a segment of closed parts, `filling` a lost
table of segments; commands find and delete `rows`, and `checking` finds damage.

On a machine of its own a fetcher is behind a `gate` with TLS (`certificates`). `remote` is the scheduler's line to a
gate, `fetchers` are all such lines, and `hostnews` tell an owner what earlier owners knew of a host. `leases` say which
fetcher has which parts of hosts, `held` are a fetcher's own. `arriving` brings its closed parts, by the lines of
`spooling`. `rates` are what operators set at run time, and `turns` of addresses are reserved for fetchers.
"""

from typing import TYPE_CHECKING

from crawl_lib.lazy import loads_later
from crawl_lib.realtime.places import FETCHER
from crawl_lib.realtime.tokens import TokenFile

if TYPE_CHECKING:
    from crawl_lib.realtime.arriving import collect_all, collect_from
    from crawl_lib.realtime.certificates import Identity, make_certificates
    from crawl_lib.realtime.checking import check_live, repair_live
    from crawl_lib.realtime.client import Client
    from crawl_lib.realtime.collect import CollectReport, collect_parts
    from crawl_lib.realtime.fetcher import start_fetcher
    from crawl_lib.realtime.filling import FillReport, fill_table
    from crawl_lib.realtime.gate import FetcherPlace, serve_fetcher
    from crawl_lib.realtime.rates import change_rate, rate_of
    from crawl_lib.realtime.rows import RowsReport, drop_rows, forget_rows, row_facts
    from crawl_lib.realtime.service import fetcher_of, serve_realtime
else:
    # Starlette, uvicorn and msgspec are an extra.
    __getattr__ = loads_later(
        __name__,
        {
            "arriving": ("collect_all", "collect_from"),
            "certificates": ("Identity", "make_certificates"),
            "checking": ("check_live", "repair_live"),
            "client": ("Client",),
            "collect": ("CollectReport", "collect_parts"),
            "fetcher": ("start_fetcher",),
            "filling": ("FillReport", "fill_table"),
            "gate": ("FetcherPlace", "serve_fetcher"),
            "rates": ("change_rate", "rate_of"),
            "rows": ("RowsReport", "drop_rows", "forget_rows", "row_facts"),
            "service": ("fetcher_of", "serve_realtime"),
        },
    )
