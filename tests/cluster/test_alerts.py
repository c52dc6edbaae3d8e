"""The alerts for Prometheus fire when they should, as promtool says."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.pythons import ROOT

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool (Debian's prometheus)"
)
RULES = ROOT / "docs" / "prometheus-rules.yml"


def promtool(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["promtool", *map(str, words)], capture_output=True, text=True, check=False
    )


def test_each_alert_fires() -> None:
    done = promtool("test", "rules", Path(__file__).with_name("alerts.yml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_test_of_an_alert_can_fail(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "tests" / "cluster").mkdir(parents=True)
    (tmp_path / "docs" / RULES.name).write_text(RULES.read_text().replace("< 256", "< 99"))
    copy = shutil.copy(Path(__file__).with_name("alerts.yml"), tmp_path / "tests" / "cluster")
    done = promtool("test", "rules", copy)
    assert done.returncode == 1
    assert "alertname:KrakeNoFetcher" in done.stdout.replace(" ", "") + done.stderr.replace(" ", "")
