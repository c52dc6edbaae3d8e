"""Pages that pywb replays in a browser look as they did, and no requisite that the site answers is missing."""

from __future__ import annotations

import base64
import mimetypes
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.curate import merge_indexes
from crawl_lib.stores import open_stores
from tests.cluster.replayed import made_site
from tests.e2e.crawl import Result, make_config, run_crawl
from tests.serving import Answering, running
from tests.web.pywb import COLLECTION, PYTHON, Pywb

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="the extra `browser`: make setup-browser"
)
CHROMIUM = shutil.which("chromium")
DOCS = Path("/usr/share/doc/python3.11/html")
pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium"),
    pytest.mark.skipif(not PYTHON.exists(), reason="pywb: make setup-pywb"),
]
PAGES = 20
PATIENCE_MS = 120_000
VIEW = {"width": 1200, "height": 1000}
MOST_DIFFERENT = 0.05
"""The share of the pixels of a page that may differ."""
DIFFERENT = """async ([one, other]) => {
  const read = async (data) => {
    const picture = await createImageBitmap(await (await fetch(`data:image/png;base64,${data}`)).blob());
    const canvas = new OffscreenCanvas(picture.width, picture.height).getContext("2d");
    canvas.drawImage(picture, 0, 0);
    return new Uint32Array(canvas.getImageData(0, 0, picture.width, picture.height).data.buffer);
  };
  const [a, b] = [await read(one), await read(other)];
  let count = Math.abs(a.length - b.length);
  for (let i = 0; i < Math.min(a.length, b.length); i++) count += a[i] !== b[i];
  return count / Math.max(a.length, b.length);
}"""
_REPLAYED = re.compile(rf"/{COLLECTION}/\d*\w*/(https?://.*)")
Answer = Callable[[str], tuple[str, bytes] | None]


@contextmanager
def served(answer: Answer) -> Iterator[str]:
    """Serve a site on loopback; gives its root."""

    class Handler(Answering):
        def do_GET(self) -> None:
            found = answer(self.path)
            kind, body = found or ("text/plain", b"")
            self.answer(200 if found else 404, body, {"Content-Type": kind})

    with running(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        yield f"http://127.0.0.1:{server.server_address[1]}"


def from_docs(path: str) -> tuple[str, bytes] | None:
    file = DOCS / path.partition("?")[0].lstrip("/")
    return (
        (mimetypes.guess_type(file.name)[0] or "text/plain", file.read_bytes())
        if file.is_file()
        else None
    )


class Browser:
    """Pages as a browser shows them. `answers`: the status of each URL that the last page asked for."""

    def __init__(self, browser: Any) -> None:
        self._page = browser.new_page(viewport=VIEW)
        self._page.set_default_timeout(PATIENCE_MS)
        self._blank = browser.new_page()
        self._page.on("response", lambda one: self.answers.update({one.url: one.status}))
        self.answers: dict[str, int] = {}

    def shown(self, url: str) -> str:
        """A picture of a page, as base64."""
        self.answers.clear()
        self._page.goto(url, wait_until="networkidle")
        return base64.b64encode(self._page.screenshot(animations="disabled")).decode()

    def difference(self, one: str, other: str) -> float:
        """The share of pixels that differ."""
        found: float = self._blank.evaluate(DIFFERENT, [one, other])
        return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with (
        sync_api.sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"]) as running,
    ):
        yield Browser(running)


def compared(
    browser: Browser, answer: Answer, paths: list[str], tmp_path: Path
) -> dict[str, tuple[float, list[str]]]:
    """For each page: the share of pixels that differ, and the URLs that the site answers and the replay does not."""
    (tmp_path / "crawl").mkdir()
    parse = {
        "requisites": "all",
        "requisite_kinds": ["style", "script", "image", "font", "object", "frame", "other"],
    }
    options: dict[str, Any] = {"parse": parse, "urls": {"scope": "hosts", "max_depth": 0}}
    config = make_config(tmp_path / "crawl", nodes=1, fetch={"host_delay_s": 0.0}, **options)
    with served(answer) as root:
        urls = [f"{root}{path}" for path in paths]
        run_crawl(config, urls, process=False)
        live = {url: browser.shown(url) for url in urls}
    merge_indexes(open_stores(config))
    result, found = Result(config), {}
    stamps = {
        row["url"]: f"{row['time']:%Y%m%d%H%M%S}" for row in result.rows("pages", ["url", "time"])
    }
    with Pywb(
        tmp_path, index=result.crawl_dir / "index.cdxj", archive=result.crawl_dir, is_bare=True
    ) as wayback:
        for url in urls:
            picture = browser.shown(
                f"http://127.0.0.1:{wayback.port}/{COLLECTION}/{stamps[url]}/{url}"
            )
            missing = [one for one, status in browser.answers.items() if status == 404]
            asked = [
                match[1].removeprefix(root) for one in missing if (match := _REPLAYED.search(one))
            ]
            lost = [path for path in asked if answer(path) is not None]
            found[url.removeprefix(root)] = browser.difference(live[url], picture), lost
    return found


def test_a_site_with_every_kind_of_requisite_looks_the_same(
    browser: Browser, tmp_path: Path
) -> None:
    [(difference, missing)] = compared(browser, made_site().get, ["/"], tmp_path).values()
    assert (missing, difference < MOST_DIFFERENT) == ([], True), difference


@pytest.mark.skipif(not DOCS.is_dir(), reason="Debian's package python3.11-doc")
def test_pages_of_documentation_look_the_same(browser: Browser, tmp_path: Path) -> None:
    files = sorted((DOCS / "library").glob("*.html"))
    paths = ["/index.html", *(f"/library/{file.name}" for file in files[:: len(files) // PAGES])][
        :PAGES
    ]
    found = compared(browser, from_docs, paths, tmp_path)
    assert len(found) == PAGES
    assert {
        path: both for path, both in found.items() if both[1] or both[0] >= MOST_DIFFERENT
    } == {}
