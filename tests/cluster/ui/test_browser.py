"""A run as its user sees it: in Debian's Chromium, on Airflow's own pages.

The screenshots in docs/images are some of those that it leaves in `shots/` of its temporary folder.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml

from demo import Serving
from tests.dags.api import Ui
from tests.dags.crawls import small_config

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="the extra `browser`: make setup-browser"
)
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium"),
]
PATIENCE_MS = 120_000
"""The pages of a busy Airflow take their time."""


class Pages:
    """Airflow's pages in a browser: what a user does there."""

    def __init__(self, page: sync_api.Page, ui: Ui, shots: Path) -> None:
        self.page, self.ui, self.shots = page, ui, shots

    def log_in(self) -> None:
        said = dict(line.split() for line in self.ui.output.splitlines() if line.startswith("  "))
        self.page.goto(self.ui.url)
        self.page.fill("input[name=username]", said["user"])
        self.page.fill("input[name=password]", said["password"])
        self.page.click("button[type=submit]")
        self.page.get_by_role("link", name="Dags").first.wait_for()

    def trigger(self, **fields: str) -> None:
        self.page.goto(f"{self.ui.url}/dags/{self.ui.dag}")
        self.page.get_by_role("button", name="Trigger").first.click()
        for name, text in fields.items():
            self.page.fill(f"[name=element_{name}]", text)
        self.page.screenshot(path=self.shots / "form.png")
        self.page.get_by_test_id("trigger-dag-submit").click()

    def open_task(self, run: str, task: str) -> None:
        self.page.goto(f"{self.ui.url}/dags/{self.ui.dag}/runs/{quote(run)}/tasks/{task}")

    def shoot(self, name: str) -> None:
        self.page.screenshot(path=self.shots / f"{name}.png")


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    _, file = small_config(tmp_path / "crawl")
    with (
        Ui(tmp_path / "home", file) as ui,
        sync_api.sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]) as browser,
    ):
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(PATIENCE_MS)
        yield Pages(page, ui, tmp_path / "shots")


def test_a_run_is_triggered_fails_is_understood_cleared_and_ends(
    pages: Pages, serving: Serving, tmp_path: Path
) -> None:
    page, ui = pages.page, pages.ui
    pages.log_in()

    pages.trigger(label="no such/label")
    page.get_by_text("'no such/label'").wait_for()
    pages.shoot("refused")
    assert ui.runs() == {}, "the form refuses it"

    pages.trigger(seeds="mine.txt", label="first")
    page.wait_for_url(re.compile("/runs/"))
    [run] = ui.runs()
    assert ui.wait_end(run) == "failed"
    pages.open_task(run, "inject")
    cure = page.get_by_text(
        "If only a file was wrong, correct it, then clear this task with its downstream."
    )
    cure.wait_for()
    assert page.get_by_text("Trigger a new run: a cleared task keeps its parameters.").is_visible()
    assert page.get_by_text("'mine.txt' is neither a URL").last.is_visible()
    assert cure.is_visible()
    pages.shoot("failed")

    seeds = tmp_path / "seeds"
    seeds.mkdir()
    (seeds / "mine.txt").write_text("\n".join(serving.seeds))
    page.get_by_label("Press shift+c to clear").click()
    page.get_by_role("dialog").get_by_text(
        f"Affected Tasks: {len(ui.tasks(run))}"
    ).wait_for()  # its downstream, too
    pages.shoot("clear")
    page.get_by_role("button", name="Confirm").click()

    ui.wait(lambda: ui.runs()[run] == "running", "the cleared run")
    page.goto(f"{ui.url}/dags/{ui.dag}/runs/{quote(run)}")
    page.get_by_text("Success").nth(len(ui.tasks(run))).wait_for()  # of each task, and of the run
    pages.shoot("run")
    assert ui.runs()[run] == "success"


def test_a_config_that_makes_no_dag_is_a_red_banner_on_home(pages: Pages, tmp_path: Path) -> None:
    """Beside its grey DAG: whoever opens Airflow sees it, and may read all of its text."""
    page, ui = pages.page, pages.ui
    mistakes = {f"option_{number}": 0 for number in range(30)}
    (ui.home / "ui" / "configs" / "broken.yml").write_text(yaml.safe_dump(mistakes))
    ui.wait(
        lambda: bool(ui.ask("GET", "/api/v2/importErrors")["import_errors"]), "the import error"
    )
    pages.log_in()
    page.get_by_role("button", name="Dag Import Error").click()
    error = page.get_by_text("krake_config_errors.py").first
    error.wait_for()
    if not page.get_by_text("option_29: unknown option").first.is_visible():
        error.click()  # unfolds its text
    for name in ("option_0", "option_29"):
        page.get_by_text(f"{name}: unknown option").first.wait_for()
    pages.shoot("import-errors")
    assert "broken_config_error" in {dag["dag_id"] for dag in ui.ask("GET", "/api/v2/dags")["dags"]}
