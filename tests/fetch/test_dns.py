"""Names to addresses: every question is answered, whatever becomes of the thread that asks."""

from __future__ import annotations

import queue
from typing import Any

import pytest

from crawl_lib.fetch.dns import Answer, DnsCache


@pytest.mark.parametrize("error", [ZeroDivisionError("planted"), SystemExit("planted")])
def test_a_resolver_that_fails_as_nobody_foresaw_is_an_answer(error: BaseException) -> None:
    """Else the URLs of the name would wait until the batch ends."""

    def resolver(host: str) -> list[str]:
        raise error

    calls: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
    cache = DnsCache(60.0, lambda: 0.0, lambda *call: calls.put(call), resolver)
    answers: list[Answer] = []
    cache.look_up("a.example", answers.append)
    arrived, *arguments = calls.get(timeout=60)
    arrived(*arguments)
    assert [(answer.addresses, answer.error) for answer in answers] == [((), f"{type(error).__name__}: planted")]
    cache.close()
