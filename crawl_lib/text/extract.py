"""The main text of a page, by resiliparse (measured against others: `docs/recrawl.md`), and its language.

The text is the main content if this has at least a third of the visible text outside of navigation. Otherwise the
text is all visible text outside of navigation: on some pages the heuristics find only a part of the main content.
Only child processes use this module: a page of 150 KB may take 20 s and gigabytes.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLTree
from resiliparse.parse.lang import detect_fast

from crawl_lib.parse import (
    XHTML,
    Directives,
    Facts,
    Headers,
    decode_content,
    detect_mime,
    html_to_utf8,
    language_of_tag,
    parse_head,
    to_utf8,
    written_date,
)
from crawl_lib.text.normal import nfc
from crawl_lib.text.page import KINDS, PageText
from crawl_lib.text.profile import count_words, is_long_word, text_profile
from crawl_lib.warc import read_one, split_head

LANGUAGE_CHARS = 10_000
"""The start of the text, by which the language is detected."""
LEAST_CHARS, MAX_SCORE = 500, 600
"""Limits of the detection of languages: the least length of a text, and its greatest distance from the language."""
MAX_TITLE_CHARS = 1000
_OPTIONS: dict[str, Any] = {
    "preserve_formatting": True,
    "list_bullets": False,
    "alt_texts": False,
    "comments": False,
}
_ROLES = ("navigation", "banner", "contentinfo")
_AROUND = ["nav", "header", "footer", "aside", *(f'[role="{role}"]' for role in _ROLES)]
_LEAST_SHARE = 3


class ExtractOptions(NamedTuple):
    """Options of the reading of pages.

    `max_bytes`: limit of content; `max_chars`: limit of text; `wet_text`: with `all`, pages also give all visible text;
    `user_agent`: our token, for robots directives.
    """

    max_bytes: int
    max_chars: int
    wet_text: str = "main"
    user_agent: str = ""

    @property
    def all_shown(self) -> bool:
        """Whether pages also give all visible text."""
        return self.wet_text == "all"


def page_text(member: bytes, kind: str, asked: ExtractOptions) -> PageText:
    """Read a page.

    `member`: its response record, as in the WARC file; `kind`: a letter of `KINDS`. The limits are `max_bytes` of
    content and `max_chars` of text. Raises DamagedFileError if the member is not a record.
    """
    record = read_one(member, 0, "")
    head, body = split_head(record.block)
    headers = parse_head(head)
    content = decode_content(headers, body, max_bytes=asked.max_bytes).data
    now = written_date(record.headers.get("warc-date", ""), 0) or time.time()
    found = _READERS[kind](content, headers, now, asked)
    values = headers.all("x-robots-tag")
    robots = Directives.of(found.facts.robots, values, user_agent=asked.user_agent, now=now)
    declared = found.facts.language or declared_language(headers.all("content-language"))
    page = PageText(
        headings=nfc(found.facts.headings), robots=robots, published=found.facts.published
    )
    if found.text is None:
        return page._replace(error=found.error)
    return _with_words(page, _cut(found.text, asked), declared)._replace(
        shown=None if found.shown is None else _cut(found.shown, asked)
    )


class _Found(NamedTuple):
    """The findings of a reader. `error`: why there is no text."""

    text: str | None = None
    facts: Facts = Facts()
    shown: str | None = None
    error: str | None = None


def _read_html(content: bytes, headers: Headers, now: float, asked: ExtractOptions) -> _Found:
    mime, charset = headers.content_type
    is_xml = detect_mime(mime, content) == XHTML
    data = html_to_utf8(content, charset, is_xml=is_xml)
    facts = Facts.of(data, user_agent=asked.user_agent, now=now, is_xml=is_xml)
    tree = HTMLTree.parse(_decoded(data))
    shown = extract_plain_text(tree, **_OPTIONS) if asked.all_shown else None
    return _Found(_main_text(tree), facts, shown)


def _read_plain(content: bytes, headers: Headers, now: float, asked: ExtractOptions) -> _Found:
    text = _decoded(to_utf8(content, headers.content_type[1])[0])
    return _Found(text, shown=text if asked.all_shown else None)


def _read_pdf(content: bytes, headers: Headers, now: float, asked: ExtractOptions) -> _Found:
    from crawl_lib.text.pdf import pdf_text  # noqa: PLC0415, most pages do not need the memory of its library

    try:
        title, text = pdf_text(content, asked.max_chars)
    except ValueError as error:
        return _Found(error=f"no text: the PDF cannot be read: {error}")
    return _Found(text, Facts(headings=title[:MAX_TITLE_CHARS]), text if asked.all_shown else None)


_READERS: dict[str, Callable[[bytes, Headers, float, ExtractOptions], _Found]] = {
    KINDS["text/html"]: _read_html,
    KINDS["text/plain"]: _read_plain,
    KINDS["application/pdf"]: _read_pdf,
}


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace").encode("utf-8", "replace").decode()


def _cut(text: str, asked: ExtractOptions) -> str:
    return nfc(text[: asked.max_chars])[: asked.max_chars]


def _with_words(page: PageText, text: str, declared: str | None) -> PageText:
    """Add text, language, words and profile to a page.

    The profile counts long words too.
    """
    counted = count_words(text)
    profile = text_profile(counted)
    words = {word: count for word, count in counted.items() if not is_long_word(word)}
    return page._replace(
        text=text,
        language=declared or language_of(text),
        words=words,
        signature=profile.hex() if profile else None,
        long_words=len(counted) - len(words),
    )


def main_text(html: str) -> str:
    """Return an HTML page's main text, a line for each block."""
    return _main_text(HTMLTree.parse(html))


def _main_text(tree: HTMLTree) -> str:
    shown = extract_plain_text(tree, skip_elements=_AROUND, **_OPTIONS)
    main = extract_plain_text(tree, main_content=True, **_OPTIONS)
    return main if len(main) * _LEAST_SHARE >= len(shown) else shown


def declared_language(values: Sequence[str]) -> str | None:
    """Return the language in Content-Language, if exactly one."""
    tags = [tag for value in values for tag in value.split(",") if tag.strip()]
    return language_of_tag(tags[0]) if len(tags) == 1 else None


def language_of(text: str) -> str | None:
    """Detect the language of a text; None for unclear and short texts."""
    if len(text) < LEAST_CHARS:
        return None
    language, score = detect_fast(text[:LANGUAGE_CHARS])
    return str(language) if score <= MAX_SCORE and language != "unknown" else None
