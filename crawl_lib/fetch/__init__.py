"""Fetching: from URLs of a take to answers of the web.

`loop.fetch_all` gives a host its URLs when it is begun (`hosts`; `hoststore` is the node's memory of hosts,
`pagetables` of pages). When a host is ready, `robots` says whether its next URL may be fetched (`robotstxt` reads the
rules), asking for robots.txt first where nothing is known. `dispatch` sends the request: `dns` finds an address that
passes the `address` filter; `turns` gives the turns of IP and host, in spans reserved by the task if nodes share turns;
and `transport`, woken by sockets and by an `alarm`, carries the request by an `exchange` of curl; a slow request goes
on in the slow `lane`. `classify` judges the answer, `retry` names the action after a failure; `dispatch` does it: the
answer goes to the caller, or the URL back to its host, which rests for its delay. A host that fails too often, or wants
to be left alone, is: `again` says for how long, and when its URLs are tried again, over iterations. A `loop.LiveRun`
gets URLs one by one during the run; all else is the same.

After a crash: the caller's next run fetches unreported URLs again. `hoststore` finds the mark, so
every host waits its own delay (answers to robots.txt are stored at once) before the next request.
"""

from typing import TYPE_CHECKING

from crawl_lib.lazy import loads_later

if TYPE_CHECKING:
    from crawl_lib.fetch.address import AddressFilter, how_to_allow, inner_networks
    from crawl_lib.fetch.again import retry_at
    from crawl_lib.fetch.classify import outcome_of_status
    from crawl_lib.fetch.hosts import Limits, limits_of, pace_s
    from crawl_lib.fetch.hoststore import (
        HOSTS_TABLES,
        HostState,
        HostStore,
        host_store_file,
        hosts_in_back_off,
        make_hosts_folder,
        read_hosts,
    )
    from crawl_lib.fetch.loop import LiveRun, fetch_all
    from crawl_lib.fetch.pagetables import Text, TextRow, domain_number, page_number
    from crawl_lib.fetch.retry import RETRIES, costs_a_retry
    from crawl_lib.fetch.robots import MIN_TTL_S, rules_of_row
    from crawl_lib.fetch.robotstxt import deciding_line
    from crawl_lib.fetch.turns import Spans, Turns, boot_id
    from crawl_lib.fetch.useragent import user_agent_header
else:
    # asyncio, curl and c-ares take 25 ms; readers of host data need none of these.
    __getattr__ = loads_later(
        __name__,
        {
            "address": (
                "AddressFilter",
                "how_to_allow",
                "inner_networks",
            ),
            "again": ("retry_at",),
            "classify": ("outcome_of_status",),
            "hosts": (
                "Limits",
                "limits_of",
                "pace_s",
            ),
            "hoststore": (
                "HOSTS_TABLES",
                "HostState",
                "HostState",
                "HostStore",
                "host_store_file",
                "hosts_in_back_off",
                "make_hosts_folder",
                "read_hosts",
            ),
            "loop": (
                "LiveRun",
                "fetch_all",
            ),
            "pagetables": ("Text", "TextRow", "domain_number", "page_number"),
            "retry": (
                "RETRIES",
                "costs_a_retry",
            ),
            "robots": (
                "MIN_TTL_S",
                "rules_of_row",
            ),
            "robotstxt": ("deciding_line",),
            "turns": (
                "Spans",
                "Turns",
                "boot_id",
            ),
            "useragent": ("user_agent_header",),
        },
    )
