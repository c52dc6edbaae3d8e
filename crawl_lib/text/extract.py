"""The main text of a page, by resiliparse (measured against others: `docs/recrawl.md`), and its language.

Its main content is taken if that has a third of what the page shows outside of navigation; else all of that is: on
some pages the heuristics see a part only. For child processes alone: a page of 150 KB may take 20 s and gigabytes.
"""

from typing import Any, NamedTuple

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLTree
from resiliparse.parse.lang import detect_fast

from crawl_lib.parse import XHTML, decode_content, detect_mime, html_to_utf8, parse_head, to_utf8
from crawl_lib.segment import read_one, split_head
from crawl_lib.text.profile import count_words, text_profile

LANGUAGE_CHARS = 10_000
"""Of the text, from which the language is told."""
_OPTIONS: dict[str, Any] = {"preserve_formatting": True, "list_bullets": False, "alt_texts": False, "comments": False}
_ROLES = ("navigation", "banner", "contentinfo")
_AROUND = ["nav", "header", "footer", "aside", *(f'[role="{role}"]' for role in _ROLES)]
_LEAST_SHARE = 3


class PageText(NamedTuple):
    """What a page says. `language`: ISO 639-1, None if unknown; `words`: how often each is there; `signature`: its text
    profile in hex, None for a page without words."""

    text: str
    language: str | None
    words: dict[str, int]
    signature: str | None


def page_text(member: bytes, *, is_html: bool, max_bytes: int, max_chars: int) -> PageText:
    """The text of a page. `member`: its response record, as in the WARC file. Raises DamagedFileError if it is none.

    Content is read up to `max_bytes`, and the text kept up to `max_chars`.
    """
    head, body = split_head(read_one(member, 0, "").block)
    headers = parse_head(head)
    mime, charset = headers.content_type
    content = decode_content(headers, body, max_bytes=max_bytes).data
    is_xml = is_html and detect_mime(mime, content) == XHTML
    data = html_to_utf8(content, charset, is_xml=is_xml) if is_html else to_utf8(content, charset)[0]
    page = data.decode("utf-8", "replace").encode("utf-8", "replace").decode()
    text = (main_text(page) if is_html else page)[:max_chars]
    words = count_words(text)
    profile = text_profile(words)
    return PageText(text, language_of(text), words, profile.hex() if profile else None)


def main_text(html: str) -> str:
    """The main text of an HTML page, a line for each of its blocks."""
    tree = HTMLTree.parse(html)
    shown = extract_plain_text(tree, skip_elements=_AROUND, **_OPTIONS)
    main = extract_plain_text(tree, main_content=True, **_OPTIONS)
    return main if len(main) * _LEAST_SHARE >= len(shown) else shown


def language_of(text: str) -> str | None:
    """The language of a text, None if it is none that is known, or too short to tell."""
    language = str(detect_fast(text[:LANGUAGE_CHARS])[0]) if text else "unknown"
    return None if language == "unknown" else language
