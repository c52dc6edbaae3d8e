"""Fetching: from URLs of a take to what the web answered.

`loop.fetch_all` puts a host's URLs into its slot when it is begun (`slots`; `book` knows what the node remembers of it,
`limits` what the config allows). When a slot is ready, the `desk` says by the `robots` rules (`robotstxt` reads them)
whether the URL may be fetched, asking for robots.txt first where nothing is known. `dispatch` sends it: `dns` finds an
address that the `address` filter allows (asked of the `resolver`, which does not block), `turns` gives the IP's turn,
and `transport` carries one request by an `exchange` of curl (`messages`: what goes in and comes out), within the
`budget` of all bodies in flight. `classify` says what came back means, `retry` what to do after a failure; `answers`
does it: the answer goes to the caller, or the URL back to its slot, which rests for its host's delay. A slot with
nothing left to do is freed after that.

After a crash: URLs that were not reported are fetched again by the caller's next run. `hosts` finds its mark, so every
host waits one delay (its own, since answers to robots.txt are stored at once) before it is asked again.
"""

from crawl_lib.fetch.address import AddressFilter
from crawl_lib.fetch.classify import outcome_of_status
from crawl_lib.fetch.hoststore import (
    FILE_NAME,
    HOSTS_TABLES,
    HostRow,
    HostStore,
    RobotsRow,
    host_stores,
    make_hosts_folder,
)
from crawl_lib.fetch.loop import fetch_all
from crawl_lib.fetch.messages import user_agent_header
from crawl_lib.fetch.retry import RETRIES, Retry, Scope, Trouble
from crawl_lib.fetch.robots import MIN_TTL_S
from crawl_lib.fetch.seams import FetchSummary, Seams
from crawl_lib.fetch.turns import IpTurns, boot_id

__all__ = [
    "FILE_NAME",
    "HOSTS_TABLES",
    "MIN_TTL_S",
    "RETRIES",
    "AddressFilter",
    "FetchSummary",
    "HostRow",
    "HostStore",
    "IpTurns",
    "Retry",
    "RobotsRow",
    "Scope",
    "Seams",
    "Trouble",
    "boot_id",
    "fetch_all",
    "host_stores",
    "make_hosts_folder",
    "outcome_of_status",
    "user_agent_header",
]
