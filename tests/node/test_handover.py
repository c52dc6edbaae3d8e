"""The decision to hand a queue over: believed only as it was written, since the queue is emptied by it."""

import json
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.errors import DamagedFileError
from crawl_lib.node.retire import RetireDecision, read_decision
from crawl_lib.sealed import sealed_json

DECISION: dict[str, Any] = {"name": "ab" * 20, "nodes": ["n1", "n2"], "routing": "host"}


def test_a_decision_of_before_is_read(tmp_path: Path) -> None:
    assert read_decision(tmp_path) is None
    for data in (json.dumps(DECISION).encode() + b"\n", sealed_json(DECISION)):
        (tmp_path / "retire").write_bytes(data)
        assert read_decision(tmp_path) == RetireDecision(**DECISION)


def test_no_single_bit_of_a_decision_is_believed(tmp_path: Path) -> None:
    data = sealed_json(DECISION)
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        (tmp_path / "retire").write_bytes(flipped)
        with pytest.raises(DamagedFileError, match="retire"):
            read_decision(tmp_path)
