"""The most frequent language of a host."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import pytest

from crawl_lib.engine import sql_text
from crawl_lib.text.extract import ExtractOptions, page_text
from tests.export.crawls import member

DOCS = Path("/usr/share/doc")
PACKAGES = {
    "python3.11-doc": "python3.11/html",
    "postgresql-doc-15": "postgresql-doc-15/html",
    "erlang-doc": "erlang-doc",
}
"""Documentation in English, by Debian's package: the folder of its pages."""
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
FEW = 80
"""Pages of a package, always the same."""


def test_pages_without_a_language_get_the_most_frequent_one_of_their_host() -> None:
    said = [
        ("a", "en"),
        ("a", "de"),
        ("a", "en"),
        ("a", None),
        ("a", None),
        ("a", None),
        ("b", "fr"),
        ("b", "de"),
    ]
    with duckdb.connect() as db:
        db.execute("create table said (host text, language text)")
        db.executemany("insert into said values (?, ?)", [*said, ("c", None)])
        assert db.execute(sql_text("text/languages")).fetchall() == [("a", "en"), ("b", "de")]


@pytest.mark.parametrize("count", [FEW, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize("package", PACKAGES)
def test_the_language_of_98_of_100_pages_of_documentation_is_right(
    package: str, count: int | None
) -> None:
    """Of all pages with a text: as declared, else as detected, else the most frequent one of their host."""
    paths = sorted((DOCS / PACKAGES[package]).rglob("*.html"))
    if not paths:
        pytest.skip(f"the Debian package {package} is needed")
    random.Random(98).shuffle(paths)
    pages = [
        page_text(member("", HEAD + path.read_bytes()), "h", ExtractOptions(1 << 22, 1 << 22))
        for path in paths[:count]
    ]
    found = [page.language for page in pages if page.text]
    most = max(set(found) - {None}, key=found.count)
    assert sum((language or most) == "en" for language in found) >= 0.98 * len(found)
