"""Acts against three fetchers and two schedulers; `make torture CLUSTER=200` has more of them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from tests.cluster.processes import wait_until
from tests.contracts.mariadb import PASSWORD
from tests.torture.cluster import FETCHERS, Cluster, cluster, host_of

pytestmark = pytest.mark.timeout(1200)
ACTS = 20
IN_FORCE_S, RATE_DELAY_S = 2.0, 10.0


def test_nothing_is_lost_and_no_host_is_asked_too_soon(tmp_path: Path) -> None:
    with cluster(tmp_path, seed=42) as found:
        found.run(ACTS)
    assert found.acts.total() == ACTS
    assert len(found.accepted) > ACTS
    # A busy machine is silent by itself: `make torture CLUSTER=` judges the silences of hosts, on an idle machine.
    assert [one for one in found.findings if not one.startswith("silent")] == []


def test_a_rate_holds_two_seconds_later_across_fail_overs_too(tmp_path: Path) -> None:
    """Each fetcher dies once, so the host's owner does; the scheduler that took the rate dies as well."""
    host = host_of(3)
    with cluster(tmp_path, seed=7) as found, found.running():
        with found.client("one") as client:
            client.submit([f"http://{host}:{found.site.port}/c//{n}" for n in range(100)])
        _wait_for_requests(found, host, 3)
        _set_rate(found, host)
        since_s = time.monotonic() + IN_FORCE_S
        for program in (found.schedulers["one"], *(found.fetchers[name] for name in FETCHERS)):
            program.end(signal.SIGKILL)
            program.start()
            _wait_for_requests(found, host, 1)
        times = [at_s for at_s, at, _ in found.site.requests if at == host and at_s >= since_s]
    assert len(times) > len(FETCHERS)
    assert min(later - earlier for earlier, later in pairwise(times)) >= RATE_DELAY_S - 0.01


def _set_rate(found: Cluster, host: str) -> None:
    command = [str(Path(sys.executable).with_name("krake"))]
    config = ["--config", str(found.folder / "one" / "krake-config.yml")]
    words = ["realtime", "rate", host, "--delay-s", str(int(RATE_DELAY_S))]
    subprocess.run(
        [*command, *config, *words], check=True, env={"KRAKE_KEY_STORAGE_PASSWORD": PASSWORD}
    )


def _wait_for_requests(found: Cluster, host: str, more: int) -> None:
    """Wait until the host was asked so many times from now on."""

    def asked() -> int:
        return sum(at == host for _, at, _ in found.site.requests)

    count = asked() + more
    wait_until("requests to the host", lambda: asked() >= count, 60)
