"""A server's answer: content, type, and the page's links and descriptions.

Data flows through this room in this order, once for each fetched answer:

1. `parse_head` reads status line and header lines (`headers`).
2. `decode_content` undoes transfer and content codings, up to a limit (`content`).
3. `detect_mime` says what the content is (`mime`).
4. `parse_html` finds the charset (`charset`), has the page scanned once (`scan`, which is C: `native/links.c`), and
   returns a `ParsedPage` with its links as bytes (`html`). `PageParser` does so for all types (`sitemap`, `css`).
5. `facts` chooses the page's metadata, where asked; for the text stage `Directives` has what a page forbids.

Links leave as bytes with the page's `base`; `native/rows.c` makes rows of them, with targets by `crawl_lib.urls`.

Whatever the bytes are, nothing here raises: strangers wrote them. Damage gives the part that could be read, and a word
that says so. Nothing is kept on disk, and the same bytes always give the same answer.
"""

from typing import TYPE_CHECKING

from crawl_lib.lazy import loads_later

if TYPE_CHECKING:
    from crawl_lib.parse.charset import to_utf8
    from crawl_lib.parse.content import Content, decode_content
    from crawl_lib.parse.dates import http_date, written_date
    from crawl_lib.parse.directives import Directives
    from crawl_lib.parse.facts import Facts, Metadata
    from crawl_lib.parse.headers import Headers, escape_octets, parse_head
    from crawl_lib.parse.html import (
        TEXTS_OF_LINK,
        ParsedPage,
        count_links,
        html_to_utf8,
        is_surely_utf8,
        parse_html,
        words_of,
    )
    from crawl_lib.parse.languages import language_of_tag
    from crawl_lib.parse.mime import HTML_TYPES, XHTML, detect_mime
    from crawl_lib.parse.pages import PageParser
    from crawl_lib.parse.refresh import with_refresh
    from crawl_lib.parse.robotsbody import robots_text
    from crawl_lib.parse.scan import (
        SKETCH_BYTES,
        native_library,
        require_scanner,
        sketch,
    )
    from crawl_lib.parse.sitemap import (
        robots_sitemaps,
    )
else:
    # All of it takes 10 ms, and tables need the compiled library alone.
    __getattr__ = loads_later(
        __name__,
        {
            "charset": ("to_utf8",),
            "content": ("Content", "decode_content"),
            "dates": ("http_date", "written_date"),
            "directives": ("Directives",),
            "facts": ("Facts", "Metadata"),
            "headers": ("Headers", "escape_octets", "parse_head"),
            "html": (
                "TEXTS_OF_LINK",
                "ParsedPage",
                "count_links",
                "html_to_utf8",
                "is_surely_utf8",
                "parse_html",
                "words_of",
            ),
            "languages": ("language_of_tag",),
            "mime": ("HTML_TYPES", "XHTML", "detect_mime"),
            "pages": ("PageParser",),
            "refresh": ("with_refresh",),
            "robotsbody": ("robots_text",),
            "scan": (
                "SKETCH_BYTES",
                "native_library",
                "require_scanner",
                "sketch",
            ),
            "sitemap": ("robots_sitemaps",),
        },
    )
