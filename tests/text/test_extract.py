"""The main text: what is chosen on a page, and how well on real ones."""

from __future__ import annotations

import pytest

from crawl_lib.text.extract import language_of, main_text

BODY = "The tentacles of an octopus are properly called arms, and every octopus has eight of them. "


def test_menus_and_side_columns_are_left_out() -> None:
    page = f"""<html><head><title>x</title><script>var a = 1</script></head><body>
        <div class="topbar menu"><ul><li><a href=/>Start</a><li><a href=/2>Next</a></ul></div>
        <div class="article-body"><h1>Octopus</h1><p>{BODY * 3}</p><p>Second.</p></div>
        <div class="sidebar widget">Today: 24 November</div><footer>Imprint</footer></body></html>"""
    assert main_text(page).split() == ["Octopus", *(BODY * 3).split(), "Second."]


def test_blocks_are_lines() -> None:
    assert main_text(f"<main><h1>Octopus</h1><p>{BODY}</p><p>Second.</p></main>").split("\n")[-1] == "Second."


def test_where_the_main_content_is_less_than_a_third_of_what_is_shown_all_of_that_counts() -> None:
    long = "".join(f'<div class="sidebar"><p>{BODY * 3}</p></div>' for _ in range(4))
    text = main_text(f"<body><nav>Start</nav><article><p>{BODY}</p></article>{long}</body>")
    assert text.split() == (BODY * 13).split()


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (BODY, "en"),
        ("Die Arme des Kraken sind mit Saugnäpfen besetzt, und er hat acht davon.", "de"),
        ("", None),
        ("ok", None),
    ],
)
def test_languages(text: str, language: str | None) -> None:
    assert language_of(text) == language
