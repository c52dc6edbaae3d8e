"""The page of `make realtime` in a real browser: by keyboard alone, for screen readers, narrow and wide."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.search.axe import axe_source, violations
from tests.cluster.search.browser import chromium, needs_chromium
from tests.demo.test_realtime import Running

pytestmark = [pytest.mark.timeout(600), needs_chromium]
LIMIT_MS = 120_000
LAYOUTS = [(scheme, width) for scheme in ("light", "dark") for width in (320, 1200)]


@pytest.fixture(scope="module")
def page_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The address of the page, and a URL with three redirects."""
    running = Running(tmp_path_factory.mktemp("realtime"))
    try:
        url = running.value("try")
        yield running.value("page"), url
    finally:
        running.interrupt()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


def test_a_url_is_typed_and_watched_by_keyboard_alone(
    page_url: tuple[str, str], browser: Any
) -> None:
    """Each focus is seen, and news are read out: the region with the stages is live."""
    address, url = page_url
    context = browser.new_context()
    context.set_default_timeout(LIMIT_MS)
    tab = context.new_page()
    tab.goto(address)
    tab.locator("input[name=url]:focus").wait_for()
    tab.keyboard.type(url)
    tab.keyboard.press("Enter")
    tab.get_by_text("End of the chain").wait_for()
    assert tab.locator("#live[aria-live=polite] li .text", has_text="200 ok").count() == 1
    tab.locator("#url").focus()
    for name in ("Fetch", "a page", "three redirects", "a loop"):
        tab.keyboard.press("Tab")
        focused = tab.locator("button:focus-visible")
        assert focused.inner_text() == name
        assert focused.evaluate("element => getComputedStyle(element).outlineStyle") != "none"
    tab.keyboard.press("Enter")
    tab.get_by_text("redirect_loop").first.wait_for()
    context.close()


@pytest.mark.parametrize(("scheme", "width"), LAYOUTS)
def test_axe_finds_no_violation_and_each_screen_fits(
    page_url: tuple[str, str], browser: Any, tmp_path: Path, scheme: str, width: int
) -> None:
    address, _ = page_url
    source, found = axe_source(), dict[str, list[str]]()
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})
    context.set_default_timeout(LIMIT_MS)
    tab = context.new_page()
    for name in ("home", "three redirects", "a loop", "closed by robots.txt"):
        tab.goto(address)
        if name != "home":
            tab.get_by_role("button", name=name, exact=True).click()
            tab.locator("#live li.done, #live li.failed").last.wait_for()
            tab.locator("#live li:not(.done):not(.failed)").first.wait_for(state="detached")
        tab.screenshot(path=tmp_path / "shots" / f"{name}-{scheme}-{width}.png")
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, name
        found |= {f"{name}: {rule}": elements for rule, elements in violations(tab, source).items()}
    context.close()
    assert found == {}
