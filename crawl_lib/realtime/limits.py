"""Limits of clients: the rate of a token's submissions, and answers to repeated requests."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256

from crawl_lib.errors import BusyError, InputError

KEPT_S = 86_400.0
KEPT_BYTES = 32 << 20
"""Limits for kept answers of requests with an Idempotency-Key."""


class TokenBuckets:
    """A bucket for each name: `per_s` flow in, and a second's worth, or a whole request, has room."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Make no bucket yet. `most`: of a single request."""
        self._most, self._clock = most, clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, name: str, per_s: float, number: int) -> None:
        """Take a number out of a bucket.

        Raises BusyError for an empty bucket.
        """
        room, now_s = max(per_s, self._most), self._clock()
        left, then_s = self._buckets.get(name, (room, now_s))
        left = min(room, left + (now_s - then_s) * per_s)
        if left < number:
            self._buckets[name] = (left, now_s)
            raise BusyError(
                "the token submits more URLs than its rate allows", int((number - left) / per_s) + 1
            )
        self._buckets[name] = (left - number, now_s)


@dataclass
class _Kept:
    """An answer, complete or under way. `digest`: of the request's body."""

    digest: bytes
    answer: "asyncio.Future[bytes]"
    began_s: float


class Repeats:
    """Answers by Idempotency-Key: a repeated request gets the first one's answer, and counts once.

    The answers are in memory: a restarted service decides again. The table still counts the shares once.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()
        self._bytes = 0

    async def once(
        self, token: str, key: str, body: bytes, make: Callable[[], Awaitable[bytes]]
    ) -> bytes:
        """Return the answer of the first request with this key.

        `make` makes the answer if this request is the first. Raises InputError if the first request had another body,
        and the errors of `make`.
        """
        digest = sha256(body).digest()
        self._expire()
        kept = self._kept.get((token, key))
        if kept is not None:
            if kept.digest != digest:
                raise InputError(
                    "the Idempotency-Key was used for another body: use a new key for each submission"
                )
            return await asyncio.shield(kept.answer)
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._kept[token, key] = _Kept(digest, future, self._clock())
        try:
            answer = await make()
        except BaseException as error:
            del self._kept[token, key]
            future.set_exception(
                error if isinstance(error, Exception) else BusyError("the first request was ended")
            )
            future.exception()  # perhaps without a waiter
            raise
        future.set_result(answer)
        self._bytes += len(answer)
        return answer

    def _expire(self) -> None:
        """Drop old answers, and the oldest of too many bytes."""
        while self._kept:
            name, kept = next(iter(self._kept.items()))
            is_old = self._clock() - kept.began_s > KEPT_S
            if not kept.answer.done() or not (is_old or self._bytes > KEPT_BYTES):
                return
            del self._kept[name]
            self._bytes -= len(kept.answer.result())
