"""200 pages of strangers in a real browser: nothing runs and no other address is asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest

from tests.cluster.search.browser import Listener, chromium, listener, names_in, needs_chromium
from tests.index.made import Made, a, page
from tests.serve.hostile import hostile, queries
from tests.serve.made import LIMIT_S, Served

pytestmark = [pytest.mark.timeout(3600), needs_chromium]
PAGES, QUERIES = 200, 10_000
LAST = "/help"
"""Asked at the end: what an earlier page began has come by then."""


@pytest.fixture(scope="module")
def evil() -> Iterator[Listener]:
    with listener() as found:
        yield found


@pytest.fixture(scope="module")
def served(evil: Listener, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Made.below(tmp_path_factory.mktemp("hostile"))
    clicked = (
        f"<a id=first ping={evil.origin}/ping "
        f"href={evil.origin}/clicked>x</a><meta name=referrer content=unsafe-url>"
    )
    script = f"<a id=second href='javascript:fetch(`{evil.origin}/ran`)'>y</a>"
    made.crawl(*hostile(evil.origin, PAGES, seed=7), page(a("links"), f"{clicked}{script} walrus"))
    made.update()
    with Served(made) as running:
        yield running


def copies(served: Served, query: str) -> set[str]:
    """The addresses of the copies of all results."""
    found: set[str] = set()
    for number in range(1, 21):
        asked = urlencode({"q": query, "page": number})
        results = httpx.get(f"{served.url}/api/search?{asked}", timeout=LIMIT_S).json()["results"]
        found |= {f"/cached/{one['key']}" for one in results}
    return found


def test_nothing_runs_and_no_other_address_is_asked(
    served: Served, evil: Listener, tmp_path: Path
) -> None:
    keys, net_log, events = copies(served, "lava"), tmp_path / "net.json", list[str]()
    assert len(keys) > 150
    results = [f"/?q=lava&page={number}" for number in range(1, 21)]
    shown = [*results, *(path.replace("/?", "/api/search?") for path in results)]
    with chromium(evil.rules, f"--log-net-log={net_log}") as browser:
        tab = browser.new_page()
        tab.on("dialog", lambda dialog: (events.append(dialog.message), dialog.dismiss()))
        tab.on("popup", lambda popup: events.append(popup.url))
        for path in [*shown, *sorted(keys), *(f"{key}/page" for key in sorted(keys)), LAST]:
            answer = tab.goto(f"{served.url}{path}", wait_until="load")
            assert answer is None or answer.status in (200, 404), path
            assert tab.url == f"{served.url}{path}"
        assert tab.context.cookies() == []
    assert events == []
    assert evil.heard == []
    assert names_in(net_log) == set()


def test_the_listener_hears_a_page_that_is_not_guarded(evil: Listener, tmp_path: Path) -> None:
    """Else the test above would prove nothing."""
    net_log = tmp_path / "net.json"
    with chromium(evil.rules, f"--log-net-log={net_log}") as browser, listener() as other:
        tab = browser.new_page()
        tab.set_content(f"<img src=http://127.0.0.1:{other.port}/img>", wait_until="load")
        assert other.heard
        tab.set_content("<img src=//127.0.0.1:9/><link rel=dns-prefetch href=//dns.evil.example>")
        tab.goto(f"http://unknown.evil.example:{evil.port}/", wait_until="commit")
    assert names_in(net_log)
    evil.heard.clear()


def test_a_link_of_a_copy_opens_a_tab_and_says_not_where_it_was_clicked(
    served: Served, evil: Listener
) -> None:
    [key] = copies(served, "walrus")
    with chromium(evil.rules) as browser:
        tab = browser.new_page()
        tab.goto(f"{served.url}{key}")
        frame = tab.frames[1]
        with tab.expect_popup() as opened:
            frame.click("#first")
        opened.value.wait_for_load_state()
        assert opened.value.url == f"{evil.origin}/clicked"
        assert opened.value.evaluate("[self.origin, window.opener, document.referrer]") == [
            evil.origin,
            None,
            "",
        ]
        frame.click("#second")
        tab.goto(f"{served.url}{LAST}")
    asked = [heard for heard in evil.heard if not heard.startswith(b"GET /favicon")]
    assert [heard.split()[1] for heard in asked if heard] == [b"/clicked"]
    assert not any(b"referer" in heard.lower() for heard in asked)
    evil.heard.clear()


def test_ten_thousand_queries_are_answered(served: Served) -> None:
    statuses: dict[int, int] = {}
    with httpx.Client(base_url=served.url, timeout=LIMIT_S) as client:
        for number, query in enumerate(queries(QUERIES, seed=11)):
            path = "/api/search" if number % 2 else "/"
            status = client.get(f"{path}?{urlencode({'q': query}, errors='replace')}").status_code
            statuses[status] = statuses.get(status, 0) + 1
    assert statuses == {200: QUERIES}
