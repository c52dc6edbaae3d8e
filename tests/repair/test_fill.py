"""A fill of the key tables: many keys at once, in ascending order, give what single keys would give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crawl_lib.keyarrays import key_list
from crawl_lib.repair.keys import fill
from crawl_lib.states import KeyState
from crawl_lib.stores import open_stores
from tests.e2e.crawl import make_config

QUEUED, CRAWLED, GONE = KeyState
A, B, C, D = (bytes([number]) * 19 + b"\0" for number in (9, 3, 7, 1))
"""With a zero at the end, and in no order."""


def asked(states: dict[bytes, KeyState], urls: tuple[bytes, ...] = ()) -> fill._Asked:
    """Give a source's keys with their states."""
    keys, values = np.array([*states], "S20"), np.array([*states.values()], np.int8)
    return fill._Asked(keys, values, "page_key_unknown", "segment", urls)


@pytest.mark.parametrize("most", [1, 4, 500_000])
@pytest.mark.parametrize("write", [True, False])
def test_of_several_captures_the_newest_decides_and_a_key_counts_once(
    most: int, write: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fill, "COMPARED_KEYS", most)
    stores = open_stores(make_config(tmp_path, nodes=1))
    report = fill.KeysReport(dry_run=not write)
    with stores.key_servers() as store:
        store.create()
        store.insert([C], QUEUED)
        walk = fill._Walk(stores, store, {}, {}, report, None)
        walk._ask(asked({}))
        walk._compare()
        walk._ask(asked({A: CRAWLED, B: GONE}))
        walk._ask(asked({}))
        walk._ask(asked({B: CRAWLED, C: CRAWLED, A: GONE}))
        walk._compare()
        walk._ask_queued([A, D], "queued_key_unknown", "state", [b"http://a/", b"http://d/"])
        walk._compare()
        states = store.states([A, B, C, D])
    found = {one.name: (one.count, one.problem) for one in walk.findings.list()}
    if write:
        assert states == {A: GONE, B: CRAWLED, C: CRAWLED, D: QUEUED}
        assert (report.added, report.raised, found) == (3, 1, {})
    else:
        assert states == {A: None, B: None, C: QUEUED, D: None}
        assert found["page_key_behind"][0] == 1
        assert C.hex() in found["page_key_behind"][1]
        assert found["queued_key_unknown"][1].endswith("of http://d/, of http://a/")
        if most == 500_000:
            said = f"no key server knows the key {B.hex()}, {A.hex()}"
            assert found["page_key_unknown"] == (2, said)


def test_keys_keep_the_zeros_at_their_ends() -> None:
    assert key_list(np.array([A, B], "S20")) == [A, B]
