"""Event loops of the programs of real time."""

import asyncio
import gc
from collections.abc import Awaitable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import uvloop

COLLECTED = 50_000
"""New objects before each search for unreachable cycles. The usual 700 cost a scheduler a twelfth of its CPU."""
_T = TypeVar("_T")


async def together(calls: Sequence[Awaitable[_T]]) -> list[_T]:
    """Wait for calls at once; return the results in order.

    Most callers have one call or none, and need no task for that.
    """
    return await asyncio.gather(*calls) if len(calls) > 1 else [await call for call in calls]


def run_on_uvloop(serving: Coroutine[None, None, None]) -> None:
    """Run a coroutine in a thread of its own, and wait for its end.

    In the main thread, uvloop would take the signals that `signals.stop_on_signals` waits for.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="krake-loop") as pool:
        pool.submit(_run, serving).result()


def _run(serving: Coroutine[None, None, None]) -> None:
    gc.set_threshold(COLLECTED, 20, 100)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serving)
