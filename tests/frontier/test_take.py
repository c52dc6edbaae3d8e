"""The header of a take: one that contradicts itself is no take, whatever wrote it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crawl_lib.errors import DamagedFileError
from crawl_lib.frontier import Take
from crawl_lib.sealed import sealed_json, unsealed
from tests.frontier.test_fairness import make_queue, pages, shares, take


def taken(directory: Path) -> Path:
    """A take with a gap: of seven lines four were taken."""
    queue = make_queue(
        directory, [*pages("greedy.test", 5), *pages("b.test", 3), *pages("greedy.test", 9, 5)]
    )
    found = take(queue, shares(4, 2))
    assert (found.header.looked_at, found.header.runs) == (7, [(0, 2), (5, 7)])
    return found.path


def rewrite(path: Path, **fields: Any) -> None:
    head, _, lines = path.read_bytes().partition(b"\n")
    path.write_bytes(sealed_json({**unsealed(head), **fields}) + lines)


def read(directory: Path) -> None:
    found = Take.open(directory)
    assert found
    list(found.lines())


@pytest.mark.parametrize(
    "fields",
    [
        {"looked_at": 8},
        {"looked_at": 6},
        {"looked_at": 99},
        {"looked_at": -1},
        {"runs": [[0, 2], [5, 8]]},
        {"runs": [[0, 2], [7, 9]]},
        {"runs": [[5, 7], [0, 2]]},
        {"runs": [[0, 2], [1, 3]]},
        {"runs": [[0, 2], [7, 5]]},
        {"runs": [[-1, 1], [5, 7]]},
        {"runs": [[0]]},
        {"count": 3},
        {"count": 5},
        {"position_after": [6, 17]},
        {"position_before": [1, 17]},
    ],
    ids=str,
)
def test_a_header_that_contradicts_itself_is_named(fields: dict[str, Any], tmp_path: Path) -> None:
    path = taken(tmp_path / "node")
    rewrite(path, **fields)
    with pytest.raises(DamagedFileError, match="run `krake fsck --repair`"):
        read(path.parent)


def test_any_bit_of_a_header_that_is_another_one_is_named(tmp_path: Path) -> None:
    path = taken(tmp_path / "node")
    data = path.read_bytes()
    for at in range(data.index(b"\n")):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        with pytest.raises(DamagedFileError):
            Take.open(path.parent)
