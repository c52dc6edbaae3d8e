"""How many URLs of a host fit into one batch: as many as the host's delay allows within the batch's time.

The hosts of a registered domain share a quarter of the batch.
"""

from math import ceil
from time import time

from crawl_lib.config import Config
from crawl_lib.fetch import HostStore, pace_s
from crawl_lib.frontier import Shares, look_ahead_of, share_of_domain


def shares_of(config: Config, hosts: HostStore, size: int, new: int | None = None) -> Shares:
    """Return the shares of a batch of `size` URLs.

    A host in back-off has no share.

    `hosts`: the node's knowledge of hosts; `new`: see `Shares`.
    """
    batch = config.batch

    def of_host(host: str) -> int:
        if batch.max_per_host is not None:
            return batch.max_per_host
        pace = pace_s(config.fetch, hosts.host(host), host)
        return max(1, ceil(min(size, batch.time_limit_s / pace)) if pace else size // 2)

    of_domain = batch.max_per_domain or share_of_domain(size, batch.max_per_host)
    now, max_wait_s = time(), config.retry.max_wait_s
    back_off = {host.encode(): until for host, until in hosts.in_back_off(now, max_wait_s).items()}
    # One second more for URLs: `retry_at` rounds up.
    return Shares(size, of_host, of_domain, look_ahead_of(size), now, max_wait_s + 1, new, back_off)
