"""The page Krake in a running Airflow, as people see it in Debian's Chromium.

The screenshots in docs/images are some of those that a test leaves in `shots/` of its temporary folder.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import psutil
import pytest

from crawl_lib.config import Config
from crawl_lib.rounds import status_of
from demo import Serving, SynthWeb
from tests.cluster.search.axe import axe_source, violations
from tests.cluster.search.browser import chromium, needs_chromium
from tests.dags.api import Ui
from tests.dags.crawls import small_config
from tests.dags.hostile_texts import HOSTILE
from tests.web.files import FileServing

pytestmark = [pytest.mark.timeout(1500), needs_chromium]
LAYOUTS = [(scheme, width) for scheme in ("light", "dark") for width in (390, 1280)]
PATIENCE_MS = 180_000
WATCH_SHIFTS = """() => {
    window.shifts = [];
    const note = list => list.getEntries().forEach(one => one.hadRecentInput || window.shifts.push(
        one.sources.map(({node, previousRect, currentRect}) => [
            node && (node.outerHTML || node.data || '').slice(0, 120), previousRect, currentRect])));
    new PerformanceObserver(note).observe({type: 'layout-shift'});
}"""


@dataclass
class Seen:
    """A running Airflow whose crawl has a harmless web and a page for each hostile text, and a browser."""

    ui: Ui
    config: Config
    browser: Any
    web: Serving
    hostile: FileServing
    run: str

    def open(self, path: str, scheme: str = "light", width: int = 1280) -> Any:
        """Open a path in a new tab. Airflow has this scheme, and the system the other scheme."""
        system = "dark" if scheme == "light" else "light"
        context = self.browser.new_context(
            color_scheme=system, viewport={"width": width, "height": 900}
        )
        context.add_cookies([{"name": "_token", "value": self.ui.token, "url": self.ui.url}])
        context.add_init_script(f"localStorage.theme = '{scheme}'")
        tab = context.new_page()
        tab.set_default_timeout(PATIENCE_MS)
        tab.goto(f"{self.ui.url}{path}")
        return tab

    def paths(self) -> dict[str, str]:
        """Return a path of each view."""
        tab = f"/krake/tab?dag_id=krake_crawl&run_id={quote(self.run)}"
        return {
            "crawls": "/krake/",
            "crawl": "/krake/crawl/krake",
            "run": tab,
            "task": f"{tab}&task_id=iteration_1.crawl.node-0",
            "url": f"/krake/crawl/krake/url?url={quote(self.web.seeds[0], safe='')}",
            "nowhere": "/krake/crawl/krake/x",
        }


def lay_hostile(root: Path) -> None:
    """Write a page for each hostile text: as title, as description and as words of a link to the next page."""
    root.mkdir()
    for number, text in enumerate(HOSTILE):
        said = html.escape(text)
        body = f"<p>{said} {'octopus ' * 40}</p><a href='/{number + 1}.html?{said}'>{said}</a>"
        head = f"<title>{said}</title><meta name=description content='{said}'>"
        (root / f"{number}.html").write_text(
            f"<html lang=en><head>{head}</head><body>{body}</body></html>"
        )
    links = "".join(
        f"<a href='/{number}.html'>{html.escape(text)}</a>" for number, text in enumerate(HOSTILE)
    )
    (root / "index.html").write_text(f"<html lang=en><title>all</title>{links}</html>")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("page")
    lay_hostile(folder / "hostile")
    config, file = small_config(
        folder / "crawl",
        fetch={"host_delay_s": 0.25},
        outputs={"replay_url": "https://replay.example/krake"},
    )
    with (
        Serving(SynthWeb(seed=12, sites=4, pages_per_site=40)) as web,
        FileServing(folder / "hostile", "127.0.9.7") as hostile,
        Ui(folder / "home", file) as ui,
        chromium() as browser,
    ):
        run = ui.trigger(seeds="\n".join([*web.seeds, hostile.url("/")]), iterations=2)
        yield Seen(ui, config, browser, web, hostile, run)


@pytest.fixture(scope="module")
def ended(seen: Seen) -> Seen:
    """The same, once the run has ended."""
    assert seen.ui.wait_end(seen.run) == "success"
    return seen


def test_numbers_move_while_nothing_else_does_and_end_at_what_the_manifests_say(
    seen: Seen, tmp_path: Path
) -> None:
    tab = seen.open("/krake/crawl/krake")
    tab.get_by_text("crawls on").wait_for()
    tab.evaluate(WATCH_SHIFTS)
    first = tab.locator(".nodes tbody").inner_text()
    tab.wait_for_function(
        "first => document.querySelector('.nodes tbody').innerText != first", arg=first
    )
    tab.screenshot(path=tmp_path / "shots" / "works.png", full_page=True)
    tab.get_by_text("rests after 2 iterations").wait_for()
    urls = status_of(seen.config)["totals"]["urls"]
    assert tab.locator(".tiles dd").first.inner_text() == f"{urls:,}"
    assert tab.evaluate("window.shifts") == []
    tab.get_by_text("2 iterations", exact=True).click()
    for _ in range(2):
        now = tab.locator(".state + .faint").inner_text()
        tab.wait_for_function(
            "now => document.querySelector('.state + .faint').innerText != now", arg=now
        )
    assert tab.locator("details[open]").count() == 1, "what is open stays open"
    tab.context.close()


@pytest.mark.parametrize(("scheme", "width"), LAYOUTS)
def test_each_view_fits_follows_airflow_and_has_no_violation(
    ended: Seen, tmp_path: Path, scheme: str, width: int
) -> None:
    source, found = axe_source(), dict[str, list[str]]()
    for name, path in ended.paths().items():
        tab = ended.open(path, scheme, width)
        tab.screenshot(path=tmp_path / "shots" / f"{name}-{scheme}-{width}.png", full_page=True)
        found |= {f"{name}: {rule}": elements for rule, elements in violations(tab, source).items()}
        back = tab.evaluate(
            "[document.documentElement.scrollWidth, getComputedStyle(document.body).backgroundColor]"
        )
        assert back[0] <= width, name
        assert (sum(map(int, re.findall(r"\d+", back[1])[:3])) > 600) == (scheme == "light"), name
        tab.context.close()
    assert found == {}


def test_by_keyboard_alone_a_url_is_looked_up(ended: Seen) -> None:
    tab = ended.open("/krake/")
    press_until(tab, "document.activeElement.innerText === 'krake'")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/crawl/krake")
    press_until(tab, "document.activeElement.name === 'url'")
    tab.keyboard.type(ended.web.url(0, "/no-such-page"))
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/url?url=*")
    tab.get_by_text(re.compile("was not found|Not reached")).first.wait_for()
    tab.context.close()


def press_until(tab: Any, holds: str) -> None:
    """Press the tab key until something holds of the focused element."""
    for _ in range(60):
        tab.keyboard.press("Tab")
        if tab.evaluate(holds):
            return
    raise AssertionError(f"the tab key does not lead to where {holds}")


def test_links_of_airflow_leave_the_frame(ended: Seen, tmp_path: Path) -> None:
    """Airflow's sandbox lets a frame open nothing outside of itself."""
    tab = ended.open("/plugin/krake")
    frame = tab.frame_locator("iframe")
    frame.get_by_role("link", name="krake").click()
    frame.get_by_text("rests after").wait_for()
    tab.screenshot(path=tmp_path / "shots" / "frame.png")
    frame.locator("svg.columns a").first.click()
    tab.wait_for_url(f"**/dags/krake_crawl/runs/{quote(ended.run)}*")
    tab.context.close()


def test_the_button_of_a_task_leads_to_its_tab(ended: Seen) -> None:
    tab = ended.open(
        f"/dags/krake_crawl/runs/{quote(ended.run)}/tasks/iteration_1.crawl.node-0/details"
    )
    tab.get_by_role("heading", name="Extra Links").locator("xpath=..").get_by_role(
        "link", name="Krake"
    ).click()
    tab.wait_for_url("**/plugin/krake-task*")
    tab.frame_locator("iframe").get_by_text("URLs taken").wait_for()
    tab.context.close()


def test_a_retry_and_a_clear_are_shown(ended: Seen, tmp_path: Path) -> None:
    """node-1's lock cannot be opened at first; once its task has ended, somebody clears the task."""
    ui, lock = ended.ui, Path(ended.config.queue.local_dir) / "node-1" / "lock"
    lock.unlink()
    lock.mkdir()
    run, task = ui.trigger(seeds="", iterations=1), "iteration_1.crawl.node-1"
    tab = ended.open("/krake/crawl/krake")
    row = tab.locator(".nodes > tbody > tr", has_text="node-1")
    row.get_by_text("try 1 failed, and Airflow tries again").wait_for()
    assert row.get_by_text("failed", exact=True).is_visible()
    tab.screenshot(path=tmp_path / "shots" / "retry.png", full_page=True)
    lock.rmdir()
    row.get_by_text(re.compile("^try [2-9]")).wait_for()
    assert ui.wait_end(run) == "success"
    tries = ui.tasks(run)[task][1]
    ui.clear(run, task, only_failed=False, alone=True)
    row.get_by_text(f"try {tries + 1}").wait_for()
    assert ui.wait_end(run) == "success"
    tab.goto(f"{ui.url}/krake/tab?dag_id=krake_crawl&run_id={quote(run)}&task_id={task}")
    tab.get_by_text(re.compile(f"^try {tries + 1}, said")).wait_for()
    assert tab.locator(".state").inner_text() in {"done", "skipped"}
    tab.context.close()


def test_texts_of_strangers_are_text(ended: Seen) -> None:
    """Titles, descriptions, URLs and anchors of a hundred pages: none runs, and nothing is asked of another origin."""
    tab = ended.open("/krake/crawl/krake")
    asked = list[str]()
    tab.on("request", lambda request: asked.append(request.url))
    for number in (0, 3, 37, 71, 80, 99):
        url = ended.hostile.url(f"/{number}.html")
        tab.goto(f"{ended.ui.url}/krake/crawl/krake/url?url={quote(url, safe='')}")
        tab.get_by_text(re.compile("ended as ok|Not reached")).first.wait_for()
        assert tab.evaluate("window.krakeRan") is None
        assert tab.locator("script").count() == 1
    for path in ended.paths().values():
        tab.goto(f"{ended.ui.url}{path}")
        assert tab.evaluate("window.krakeRan") is None
    assert [url for url in asked if not url.startswith(f"{ended.ui.url}/")] == []
    tab.context.close()


REQUESTS = 40


def test_a_page_costs_a_small_multiple_of_what_airflows_own_answers_do(ended: Seen) -> None:
    """In CPU of the API server, next to `/api/v2/version`, which Airflow's UI asks for too."""
    processes = list[psutil.Process]()
    for one in psutil.Process(ended.ui.process.pid).children(recursive=True):
        with suppress(psutil.Error):  # a process of a task has ended
            if re.search("api.server", " ".join(one.cmdline())):
                processes.append(one)
    assert processes
    page = "/krake/crawl/krake"
    asked: dict[str, tuple[str, dict[str, str]]] = {
        "version": ("/api/v2/version", {}),
        "page": (page, {}),
        "refresh": (page, {"part": "1"}),
    }
    spent_s = dict.fromkeys(asked, 0.0)
    for _ in range(5):
        for name, (path, headers) in asked.items():
            request = Request(
                f"{ended.ui.url}{path}",
                headers={"Authorization": f"Bearer {ended.ui.token}", **headers},
            )
            # The kernel counts CPU in ticks of 10 ms, and the version takes less: so many requests stand in a row.
            before_s = sum(sum(one.cpu_times()[:2]) for one in processes)
            for _ in range(REQUESTS):
                with urlopen(request, timeout=120) as answer:
                    answer.read()
            spent_s[name] += sum(sum(one.cpu_times()[:2]) for one in processes) - before_s
    assert spent_s["page"] < 20 * spent_s["version"], spent_s
    assert spent_s["refresh"] < 10 * spent_s["version"], spent_s


def test_what_is_wrong_is_said(ended: Seen) -> None:
    """A config that makes no DAG, and a file store that is gone: the last test, since the crawl ends here."""
    configs = ended.ui.home / "ui" / "configs"
    (configs / "broken.yml").write_text("servers: []\n")
    dags = "/api/v2/dags?dag_id_pattern=broken_config_error"
    ended.ui.wait(
        lambda: bool(ended.ui.ask("GET", dags)["dags"]), "the DAG in place of the broken config's"
    )
    tab = ended.open("/krake/")
    tab.get_by_text("This config makes no DAGs:").wait_for()
    store = Path(ended.config.dfs_primary)
    store.rename(store.with_name("away"))
    store.write_text("no folder")
    tab.goto(f"{ended.ui.url}/krake/crawl/krake")
    tab.get_by_text("The file store does not answer. What Airflow knows is shown.").wait_for()
    tab.get_by_text("node-0").first.wait_for()
    tab.context.close()
