"""SIGKILLs of scheduler, fetcher and MariaDB: a real-time service loses nothing; `make torture` kills more often."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.live import torture

pytestmark = pytest.mark.timeout(900)
KILLS = 20


def test_nothing_is_lost(tmp_path: Path) -> None:
    with torture(tmp_path, seed=42) as found:
        found.run(KILLS)
    assert found.deaths.total() == KILLS
    assert len(found.accepted) > KILLS
    assert found.findings == []
