"""Telling the key store what became of a segment's pages."""

from __future__ import annotations

from typing import Any

from crawl_lib.segment import SegmentReader
from crawl_lib.states import KEY_STATE_OF_OUTCOME, KeyState, Outcome
from crawl_lib.stores import Stores


def mark_pages(stores: Stores, segment: str, node: str | None = None) -> None:
    """Mark the keys of a segment's pages as crawled or gone; may be repeated.

    `segment`: its path. `node`: whose own server is asked first. Raises KeyStoreError, and what reading it raises.
    """
    with stores.keys(node) as keys:
        for batch in SegmentReader(stores.storage, segment).pages(["key", "outcome"], with_dropped=True):
            by_state: dict[KeyState, list[bytes]] = {}
            rows: list[list[Any]] = [column.to_pylist() for column in batch.columns]
            for key, outcome in zip(*rows, strict=True):
                by_state.setdefault(KEY_STATE_OF_OUTCOME[Outcome(outcome)], []).append(key)
            for state, marked in by_state.items():
                keys.set_state(marked, state)
