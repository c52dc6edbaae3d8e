"""Acts against three fetchers and two schedulers; `make torture CLUSTER=200` has more of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.cluster import cluster

pytestmark = pytest.mark.timeout(1200)
ACTS = 20


def test_nothing_is_lost_and_no_host_is_asked_too_soon(tmp_path: Path) -> None:
    with cluster(tmp_path, seed=42) as found:
        found.run(ACTS)
    assert found.acts.total() == ACTS
    assert len(found.accepted) > ACTS
    # A busy machine is silent by itself: `make torture CLUSTER=` judges the silences of hosts, on an idle machine.
    assert [one for one in found.findings if not one.startswith("silent")] == []
