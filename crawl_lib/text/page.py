"""The answer of a child process about one page."""

from typing import NamedTuple

from crawl_lib.parse import HTML_TYPES, Directives

KINDS = {**dict.fromkeys(sorted(HTML_TYPES), "h"), "text/plain": "p", "application/pdf": "f"}
"""The readable types of content: for each MIME type, the letter that tells a child which reader to use."""


class PageText(NamedTuple):
    """Text of a page. `text`: the main text in NFC; `words`: how often each word of at most 64 bytes is in the text.

    `language`: declared or detected, a code of ISO 639; None if unknown. `signature`: the text profile in hex, None for
    a page without words. `headings`, `published`: as in `parse.Facts`. `shown`: all visible text, None unless the
    options ask for this. `long_words`: number of different longer words. `error`: why the page has no text.
    """

    text: str | None = None
    language: str | None = None
    words: dict[str, int] | None = None
    signature: str | None = None
    headings: str | None = None
    robots: Directives | None = Directives()
    published: float | None = None
    shown: str | None = None
    long_words: int = 0
    error: str | None = None
