"""The graph of a large crawl, as Airflow draws it: in Debian's Chromium."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.cluster.ui.test_browser import CHROMIUM, PATIENCE_MS, Pages
from tests.dags.api import Ui
from tests.dags.crawls import small_config

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="the extra `browser`: make setup-browser"
)
pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium"),
]


BOXES = {
    "inject",
    "iterations",
    "committed",
    "settle",
    "maintain_keys",
    "export",
    "linker",
    "finalizer",
}
READABLE_PX = 90
"""So wide is a box at least whose name can be read: a third of its size unscaled."""


def test_the_graph_of_twenty_iterations_and_three_nodes_can_be_read(tmp_path: Path) -> None:
    """All iterations are one box that leads to `committed`; Airflow keeps groups closed until somebody opens one."""
    _, file = small_config(tmp_path / "crawl", crawl={"max_iterations": 20})
    mapping = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump({**mapping, "servers": ["node-0", "node-1", "node-2"]}))
    with (
        Ui(tmp_path / "home", file) as ui,
        sync_api.sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]) as browser,
    ):
        page = browser.new_page(viewport={"width": 1600, "height": 900})
        page.set_default_timeout(PATIENCE_MS)
        pages = Pages(page, ui, tmp_path / "shots")
        pages.log_in()
        page.goto(f"{ui.url}/dags/{ui.dag}")
        page.get_by_label("Show Graph").click()
        found = {name: page.get_by_test_id(f"rf__node-{name}") for name in BOXES}
        for box in found.values():
            box.wait_for()
        page.get_by_label("Fit View").click()
        pages.shoot("graph")
        assert page.locator("[data-testid^=rf__node-]").count() == len(BOXES)
        assert page.get_by_label("Edge from iterations to committed").count() == 1
        widths = {
            name: (box.bounding_box() or {"width": 0})["width"] for name, box in found.items()
        }
        assert min(widths.values()) > READABLE_PX, widths
