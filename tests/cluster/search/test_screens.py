"""The screens of the search page in a real browser: without JavaScript, by keyboard, light and dark, narrow and wide.

The screenshots in docs/images are some of those that a test leaves in `shots/` of its temporary folder.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.search.axe import axe_source, violations
from tests.cluster.search.browser import chromium, needs_chromium
from tests.export.crawls import Capture
from tests.index.made import HEAD, Made
from tests.serve.made import Served
from tests.text.pdfs import pdf

pytestmark = [pytest.mark.timeout(900), needs_chromium]
DOCS = Path("/usr/share/doc/python3.11/html")
DAY_S = 86_400
LAYOUTS = [(scheme, width) for scheme in ("light", "dark") for width in (320, 1200)]


def captures() -> Iterator[Capture]:
    """Pages of Python's documentation, a page with a long title, and a PDF file."""
    for number, file in enumerate(
        sorted([*(DOCS / "library").glob("[a-g]*.html"), *(DOCS / "tutorial").glob("*.html")])
    ):
        body, name = file.read_bytes(), file.relative_to(DOCS)
        title = re.search("<title>(.*?)</title>", body.decode(), re.DOTALL)
        more = {"title": html.unescape(title[1]) if title else None}
        time = 1_764_000_000 + number * 2 * DAY_S
        yield Capture(
            f"https://docs.python.org/3/{name}",
            body,
            time=time,
            head=HEAD.format("").encode(),
            more=more,
        )
    text = "Iterators and generators of asynchronous programs: a study"
    head = HEAD.format("").encode()
    yield Capture(
        "https://files.example.org/iterators.pdf", pdf(text), head=head, mime="application/pdf"
    )
    long = "asynchronous" * 40
    body = f"<html lang=en><title>{long}</title><p>asynchronous iterators {long}</p>".encode()
    yield Capture(f"https://long.example.org/{long}", body, head=head, more={"title": long})


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    if not DOCS.exists():
        pytest.skip("Debian's python3.11-doc")
    made = Made.below(tmp_path_factory.mktemp("docs"))
    made.crawl(*captures())
    made.update()
    with Served(made) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def axe() -> str:
    return axe_source()


def screens(served: Served, tab: Any) -> Iterator[str]:
    """Open each screen, and give its name."""
    tab.goto(f"{served.url}/?q=asynchronous+iterators")
    copy = tab.get_by_role("link", name="Cached copy of").first.get_attribute("href")
    tab.goto(f"{served.url}/?q=type:pdf+iterators")
    text = tab.get_by_role("link", name="Cached copy of").first.get_attribute("href")
    paths = {
        "home": "/",
        "results": "/?q=asynchronous+iterators",
        "filters": "/?q=file+objects+site:docs.python.org+after:2025-12",
        "last": "/?q=python&page=4",
        "meant": "/?q=asyncronous+itterators",
        "none": "/?q=nowhere+type:pdf",
        "help": "/help",
        "refused": "/?q=lava&page=x",
        "cached": copy,
        "text": text,
    }
    for name, path in paths.items():
        tab.goto(f"{served.url}{path}")
        if name == "filters":
            tab.locator("details.menu summary").nth(2).click()
        yield name


@pytest.mark.parametrize(("scheme", "width"), LAYOUTS)
def test_each_screen_fits_without_javascript(
    served: Served, browser: Any, tmp_path: Path, scheme: str, width: int
) -> None:
    """A screen that is wider than the window would have to be moved sideways for each line."""
    size = {"width": width, "height": 860 if width > 320 else 700}
    context = browser.new_context(color_scheme=scheme, viewport=size, java_script_enabled=False)
    tab = context.new_page()
    for name in screens(served, tab):
        tab.screenshot(path=tmp_path / "shots" / f"{name}-{scheme}-{width}.png")
        measured = tab.evaluate(
            "[document.documentElement.scrollWidth, getComputedStyle(document.body).backgroundColor]"
        )
        assert measured[0] <= width, name
        assert (sum(map(int, re.findall(r"\d+", measured[1])[:3])) > 600) == (scheme == "light")
        for menu in tab.locator("details[open] ul").all():
            box = menu.bounding_box()
            assert box is None or (box["x"] >= 0 and box["x"] + box["width"] <= width), name
    context.close()


@pytest.mark.parametrize(("scheme", "width"), LAYOUTS)
def test_axe_finds_no_violation(
    served: Served, browser: Any, axe: str, scheme: str, width: int
) -> None:
    """A copy is a stranger's page, so its frame is left out."""
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})
    tab = context.new_page()
    found: dict[str, list[str]] = {}
    for name in screens(served, tab):
        found |= {f"{name}: {rule}": elements for rule, elements in violations(tab, axe).items()}
    context.close()
    assert found == {}


def test_by_keyboard_alone(served: Served, browser: Any) -> None:
    """Search, the second result's copy, back, a filter, and the next page; each focus is seen."""
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(served.url)
    tab.locator(
        "input[name=q]:focus"
    ).wait_for()  # Chromium gives the focus after the page is loaded
    tab.keyboard.type("asynchronous iterators")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/?q=asynchronous+iterators")
    second = tab.locator("ol.results > li").nth(1)
    wanted = second.get_by_role("link", name="Cached copy of").get_attribute("href")
    press_until(tab, "Tab", f"document.activeElement.getAttribute('href') === '{wanted}'")
    tab.keyboard.press("Enter")
    tab.wait_for_url(f"**{wanted}")
    assert "may be out of date" in tab.inner_text("header")
    tab.go_back()  # Alt and the left arrow are keys of the window, which Chromium has none of here
    tab.wait_for_url("**/?q=asynchronous+iterators")
    press_until(tab, "Tab", "document.activeElement.innerText.includes('Any type')")
    tab.keyboard.press("Enter")
    press_until(tab, "Tab", "document.activeElement.innerText === 'PDF'")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/?q=asynchronous+iterators+type%3Apdf")
    assert tab.locator("ol.results > li").count() == 1
    context.close()


def press_until(tab: Any, key: str, holds: str) -> None:
    """Press a key until something holds of the focused element, each of which has an outline or is the search box."""
    outline = "getComputedStyle(document.activeElement).outlineStyle !== 'none' || document.activeElement.id === 'q'"
    for _ in range(100):
        tab.keyboard.press(key)
        assert tab.evaluate(f"document.activeElement === document.body || {outline}")
        if tab.evaluate(holds):
            return
    raise AssertionError(f"no {key} leads to where {holds}")
