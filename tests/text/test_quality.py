"""How much of the right text is found, and how much of what is found is right: on pages of Debian's documentation.

What is right is in an element that a person would point at. The table of `docs/figures/extractors.md` was made so,
with 40 pages a package.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from selectolax.lexbor import LexborHTMLParser

from crawl_lib.text import count_words
from crawl_lib.text.extract import main_text

PACKAGES = {
    "python3.11/html": "[role=main]",
    "postgresql-doc-15/html": "body > *:not(.navheader):not(.navfooter)",
    "apache2-doc/manual": "#page-content",
    "python-django-doc/html": "#yui-main, [role=main]",
    "git/html": "#content",
}
"""By folder of `/usr/share/doc`: where the main text is."""
PAGES = 12
LEAST, LEAST_MEAN = 0.6, 0.91


def pages(folder: Path, selector: str) -> list[tuple[str, Counter[str]]]:
    """Some pages, always the same, with the words of their main text."""
    found: list[tuple[str, Counter[str]]] = []
    paths = sorted(
        path
        for path in folder.rglob("*.html*")
        if path.is_file() and 1500 < path.stat().st_size < 300_000
    )
    random.Random(1).shuffle(paths)
    for path in paths:
        html = path.read_bytes().decode("utf-8", "replace")
        tree = LexborHTMLParser(html)
        tree.strip_tags(["script", "style"])
        words = count_words(" ".join(node.text(separator=" ") for node in tree.css(selector)))
        if words.total() >= 40:
            found.append((html, words))
        if len(found) == PAGES:
            break
    return found


def f1(found: Counter[str], right: Counter[str]) -> float:
    both = (found & right).total()
    return 2 * both / max(1, found.total() + right.total())


@pytest.mark.parametrize("package", PACKAGES)
def test_the_main_text_of_documentation(package: str) -> None:
    folder = Path("/usr/share/doc") / package
    if not folder.is_dir():
        pytest.skip(f"the documentation is not installed: {folder}")
    scores = [
        f1(count_words(main_text(html)), right) for html, right in pages(folder, PACKAGES[package])
    ]
    assert len(scores) == PAGES
    assert min(scores) > LEAST
    assert sum(scores) / len(scores) > LEAST_MEAN
