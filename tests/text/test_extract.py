"""The main text: what is chosen on a page, and how well on real ones."""

from __future__ import annotations

import pytest

from crawl_lib.text.extract import ExtractOptions, language_of, main_text, page_text
from crawl_lib.text.normal import nfc
from tests.export.crawls import member

ENGLISH = """An octopus is a soft animal with eight arms that lives in the sea. Its arms carry suckers, with which it
grips prey and feels the ground. Most species live alone and hide during the day in dens, which they close with stones
and shells. At night they hunt for crabs, mussels and small fish. Their brains are larger than those of other animals
without a spine, and they learn quickly: in experiments they opened jars with lids, remembered ways through mazes and
told one keeper from another. A female guards her eggs for many weeks, eats nothing in that time."""
GERMAN = """Kraken sind Kopffüßer, die in allen Meeren leben. Ihre Arme tragen Saugnäpfe, mit denen sie Beute greifen
und den Boden abtasten. Die meisten Arten leben allein und verstecken sich am Tag in Höhlen, die sie mit Steinen und
Muschelschalen verschließen. In der Nacht jagen sie Krebse, Muscheln und kleine Fische. Ihr Gehirn ist größer als das
anderer wirbelloser Tiere, und sie lernen schnell: In Versuchen öffneten sie Gläser mit Deckeln, merkten sich Wege und
erkannten einzelne Menschen. Ein Weibchen bewacht seine Eier viele Wochen lang und frisst in dieser Zeit nichts."""
BODY = "The tentacles of an octopus are properly called arms, and every octopus has eight of them. "


def test_menus_and_side_columns_are_left_out() -> None:
    page = f"""<html><head><title>x</title><script>var a = 1</script></head><body>
        <div class="topbar menu"><ul><li><a href=/>Start</a><li><a href=/2>Next</a></ul></div>
        <div class="article-body"><h1>Octopus</h1><p>{BODY * 3}</p><p>Second.</p></div>
        <div class="sidebar widget">Today: 24 November</div><footer>Imprint</footer></body></html>"""
    assert main_text(page).split() == ["Octopus", *(BODY * 3).split(), "Second."]


def test_blocks_are_lines() -> None:
    assert (
        main_text(f"<main><h1>Octopus</h1><p>{BODY}</p><p>Second.</p></main>").split("\n")[-1]
        == "Second."
    )


def test_where_the_main_content_is_less_than_a_third_of_what_is_shown_all_of_that_counts() -> None:
    long = "".join(f'<div class="sidebar"><p>{BODY * 3}</p></div>' for _ in range(4))
    text = main_text(f"<body><nav>Start</nav><article><p>{BODY}</p></article>{long}</body>")
    assert text.split() == (BODY * 13).split()


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (ENGLISH, "en"),
        (GERMAN, "de"),
        (GERMAN[:499], None),
        (GERMAN[:500], "de"),
        ("x9 q7 zz3 kk " * 60, None),
        ("", None),
        ("ok", None),
    ],
)
def test_the_language_of_a_long_text_is_detected(text: str, language: str | None) -> None:
    assert language_of(text) == language


@pytest.mark.parametrize(
    ("html", "header", "language"),
    [
        ("<html lang=fr>", "", "fr"),
        ("<html lang=fr-CA>", "Content-Language: en", "fr"),
        ("<html>", "Content-Language: fr", "fr"),
        ("<html lang=''>", "Content-Language: fr", "fr"),
        ("<html>", "Content-Language: fr, en", "de"),
        ("<html>", "Content-Language: fr\r\nContent-Language: en", "de"),
        ("<html lang=xx><meta http-equiv=Content-Language content=fr>", "", "fr"),
        ("<html lang=und>", "", "de"),
        ("<html>", "", "de"),
    ],
)
def test_the_declared_language_counts_first(html: str, header: str, language: str) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n{header}\r\n\r\n"
    record = member("http://a.example/", head.encode() + f"{html}<p>{GERMAN}".encode())
    assert page_text(record, "h", ExtractOptions(1 << 20, 1 << 20)).language == language


def test_a_short_page_has_the_language_that_it_declares_only() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
    assert (
        page_text(
            member("", head + b"<html lang=de><p>Octopus"), "h", ExtractOptions(1 << 20, 1 << 20)
        ).language
        == "de"
    )
    assert (
        page_text(member("", head + b"<p>Octopus"), "h", ExtractOptions(1 << 20, 1 << 20)).language
        is None
    )


def test_what_a_page_shows_is_linear_in_its_marks() -> None:
    """Python's `normalize` would take a minute for these."""
    assert len(nfc("a" + "\u0301\u0323" * 150_000)) > 300_000


def test_marks_beyond_thirty_are_not_moved_and_others_are() -> None:
    assert nfc("a\u0323\u0302") == "\u1ead"
    assert nfc("e" + "\u0301" * 31) == "\u00e9" + "\u0301" * 29 + "\u034f\u0301"
    assert nfc("abc") == "abc"
