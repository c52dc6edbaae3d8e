"""A crawl of some volcanoes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.index.made import Made, a, page
from tests.serve.made import Client

NUMBERS = range(25)


@pytest.fixture(scope="package")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """25 pages with `lava`, of which one is on another host; others ask for more care."""
    made = Made.below(tmp_path_factory.mktemp("crawl"))
    text = "hot lava flows from volcano number {} and its island is called {}"
    pages = [
        page(a(f"p{number}"), text.format(number, "abc"[number % 3]), title=f"Volcano {number}")
        for number in NUMBERS
    ]
    shy = page(
        a("shy"),
        "a shy geyser that says little",
        header="X-Robots-Tag: noarchive, nosnippet\r\n",
        title="Geyser",
    )
    other = page("http://b.example/x", "tephra and ash of another host", title="Tephra", lang="de")
    made.crawl(*pages, shy, other)
    made.update()
    return made


@pytest.fixture(scope="package")
def client(made: Made) -> Client:
    """A client of its search page."""
    return Client(made)


@pytest.fixture
def own(made: Made, tmp_path: Path) -> Made:
    """A copy of the crawl that a test may change."""
    return made.copied(tmp_path / "own")
