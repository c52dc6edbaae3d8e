"""The slow lane: a request that brings next to nothing gives its slot to another request, and ends if still slow.

    slot -> (a second without a byte, or below the least speed) -> slow lane -> its end, perhaps as `too_slow`

A host that hangs or drips would else hold one of `fetch.connections` for as long as a request may last. The reason for
waiting does not matter: a connection, TLS, an answer. (Look-ups of names take no slot, see `dns`.) All running requests
are checked ten times a second, so a quick request costs nothing. Curl's own option (`CURLOPT_LOW_SPEED_TIME`) frees no
slot, keeps a timer for each transfer, and counts on while the loop is held.
"""

from collections.abc import Callable, Mapping
from typing import Any

from crawl_lib.config import FetchConfig
from crawl_lib.fetch.classify import End
from crawl_lib.fetch.exchange import LONG_HEAD, Exchange, InflightBudget
from crawl_lib.states import Outcome

LOOK_S = 0.1
SLOW_S = 1.0
"""A request is slow that brings nothing, or less than the least speed, for so long."""
_MANY_LINES = 256
"""A head of more lines keeps its slot: so many objects are more memory than their bytes."""


class SlowLane:
    """The slow requests among `running`. `end`: ends one whose `ended` says why.

    * At most `fetch.slow_connections` have left their slots (`count`); the others keep theirs.
    * A request stays in the lane until the end, at any speed, within every other limit. The share of
    `fetch.max_inflight_bytes` goes with the slot, so a request leaves only if its bytes have room elsewhere.
    * A begun answer with less than `fetch.min_bytes_per_s` for `fetch.min_speed_s` is `too_slow`.
      How long that may take is a matter of `fetch.time_limit_s`.
    * Time in which the loop was held, or the transfer was paused, is not the server's.
    """

    def __init__(
        self,
        config: FetchConfig,
        budget: InflightBudget,
        running: Mapping[Any, Exchange],
        end: Callable[[Exchange], None],
    ) -> None:
        self.count = 0
        self._config = config
        self._budget = budget
        self._running = running
        self._end = end
        self._time_s = self._looked_at = 0.0

    def look(self, now: float) -> None:
        """Find slow requests, and end too slow requests.

        `now`: seconds, monotonic.
        """
        self._time_s += min(now - self._looked_at, 2 * LOOK_S)
        self._looked_at = now
        for exchange in list(self._running.values()):
            end = self._judge(exchange, exchange.received())
            if end is not None and exchange.handle in self._running:
                exchange.ended = end
                self._end(exchange)

    def leave(self, exchange: Exchange) -> None:
        """Remove an ended request from the lane."""
        exchange.is_slow = False
        self.count -= 1

    def _judge(self, exchange: Exchange, received: int) -> End | None:
        """Say why a request must end now, if it must."""
        if not exchange.parts and received > self._config.max_header_bytes:
            return LONG_HEAD
        least, before = self._config.min_bytes_per_s, exchange.received_before
        slow_s, got = self._time_s - exchange.quick_at, received - before
        # The beginning of an answer counts, however small; and the first look finds each request quick.
        if slow_s < 0 or exchange.is_paused or (got and (not before or got >= least * slow_s)):
            exchange.received_before, exchange.quick_at = received, self._time_s
        elif least and before and slow_s >= self._config.min_speed_s:
            return Outcome.TOO_SLOW, f"{got} bytes in {slow_s:.1f} s, after the first {before}"
        elif slow_s >= SLOW_S and not exchange.is_slow:
            self._enter(exchange)
        return None

    def _enter(self, exchange: Exchange) -> None:
        if self.count >= self._config.slow_connections or len(exchange.lines) > _MANY_LINES:
            return
        if self._budget.leaves_share(exchange, exchange.most - exchange.room):
            exchange.is_slow = True
            exchange.close_opened()  # two descriptors would be many, at hundreds of requests
            self.count += 1
