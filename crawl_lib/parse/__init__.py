"""A server's answer: content, type, and the page's links and descriptions.

Data flows through this room in this order, once for each fetched answer:

1. `parse_head` reads status line and header lines (`headers`).
2. `decode_content` undoes transfer and content codings, up to a limit (`content`).
3. `detect_mime` says what the content is (`mime`).
4. `parse_html` finds the charset (`charset`), has the page scanned once (`scan`, which is C: `native/links.c`), and
   returns a `ParsedPage` with its links as bytes (`html`). `parse_sitemap` and `parse_css` do so for other types.
5. `facts` chooses the page's metadata, where asked; for the text stage `directives_of` reads what a page forbids.

Links leave as bytes with the page's `base`; `native/rows.c` makes rows of them, with targets by `crawl_lib.urls`.

Whatever the bytes are, nothing here raises: strangers wrote them. Damage gives the part that could be read, and a word
that says so. Nothing is kept on disk, and the same bytes always give the same answer.
"""

from typing import TYPE_CHECKING

from crawl_lib.lazy import loads_later

if TYPE_CHECKING:
    from crawl_lib.parse.charset import PRESCAN_BYTES, charset_of, to_utf8
    from crawl_lib.parse.content import Content, decode_content
    from crawl_lib.parse.css import CSS, parse_css
    from crawl_lib.parse.dates import http_date, written_date
    from crawl_lib.parse.directives import Directives, directives_of, x_robots_nofollow
    from crawl_lib.parse.facts import Facts, Metadata, read_facts
    from crawl_lib.parse.headers import Headers, escape_octets, parse_head
    from crawl_lib.parse.html import (
        TEXTS_OF_LINK,
        ParsedPage,
        count_links,
        html_to_utf8,
        parse_html,
        words_of,
    )
    from crawl_lib.parse.languages import language_of_tag
    from crawl_lib.parse.mime import HTML_TYPES, XHTML, detect_mime
    from crawl_lib.parse.refresh import with_refresh
    from crawl_lib.parse.robotsbody import robots_text
    from crawl_lib.parse.scan import (
        SKETCH_BYTES,
        load_native,
        may_name_charset,
        native_library,
        require_scanner,
        sketch,
    )
    from crawl_lib.parse.sitemap import (
        GZIP_MAGIC,
        SITEMAP_TYPES,
        may_be_sitemap,
        parse_sitemap,
        robots_sitemaps,
    )
else:
    # All of it takes 10 ms, and tables need the compiled library alone.
    __getattr__ = loads_later(
        __name__,
        {
            "charset": ("PRESCAN_BYTES", "charset_of", "to_utf8"),
            "content": ("Content", "decode_content"),
            "css": ("CSS", "parse_css"),
            "dates": ("http_date", "written_date"),
            "directives": ("Directives", "directives_of", "x_robots_nofollow"),
            "facts": ("Facts", "Metadata", "read_facts"),
            "headers": ("Headers", "escape_octets", "parse_head"),
            "html": (
                "TEXTS_OF_LINK",
                "ParsedPage",
                "count_links",
                "html_to_utf8",
                "parse_html",
                "words_of",
            ),
            "languages": ("language_of_tag",),
            "mime": ("HTML_TYPES", "XHTML", "detect_mime"),
            "refresh": ("with_refresh",),
            "robotsbody": ("robots_text",),
            "scan": (
                "SKETCH_BYTES",
                "load_native",
                "may_name_charset",
                "native_library",
                "require_scanner",
                "sketch",
            ),
            "sitemap": (
                "GZIP_MAGIC",
                "SITEMAP_TYPES",
                "may_be_sitemap",
                "parse_sitemap",
                "robots_sitemaps",
            ),
        },
    )
