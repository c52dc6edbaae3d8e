"""The decision to hand a queue over: believed only as it was written, since the queue is emptied by it."""

from pathlib import Path
from typing import Any

import pytest

from crawl_lib.errors import DamagedFileError
from crawl_lib.node.retire import read_decision
from crawl_lib.sealed import sealed_json
from tests.harms import all_flipped

DECISION: dict[str, Any] = {"name": "ab" * 20, "nodes": ["n1", "n2"], "routing": "host"}


def test_no_single_bit_of_a_decision_is_believed(tmp_path: Path) -> None:
    data = sealed_json(DECISION)
    for flipped in all_flipped(data):
        (tmp_path / "retire").write_bytes(flipped)
        with pytest.raises(DamagedFileError, match="retire"):
            read_decision(tmp_path)
