"""One style sheet: the requisites that it names. docs/links.md says what is one."""

import re

from crawl_lib.config import ParseConfig
from crawl_lib.parse.charset import PRESCAN_BYTES, Charset, charset_of_mark, decoded
from crawl_lib.parse.encodings import encoding_of
from crawl_lib.parse.html import ParsedPage, kinds_of
from crawl_lib.parse.scan import CUT, scan_css

CSS = "text/css"
"""The type of style sheets."""
_AT_CHARSET = re.compile(rb'@charset "([^"]*)";')


def parse_css(
    data: bytes, *, url: str, header_charset: str | None, config: ParseConfig, is_cut: bool = False
) -> ParsedPage:
    """Read a style sheet as a page with requisites and no links.

    `data`: content with its codings undone; `url`: the sheet's canonical URL, which references are relative to;
    `header_charset`: of its Content-Type; `is_cut`: the end is missing, so a URL that is open there does not count.
    Time and memory are linear in `data`. Raises MemoryError, and SetupError where the scanner was not compiled. Source:
    CSS Syntax Level 3, https://www.w3.org/TR/css-syntax-3/
    """
    charset = _charset_of(data, header_charset)
    found = scan_css(
        decoded(data, charset), kinds_of(config) + is_cut * CUT, config.requisites_per_page
    )
    requisites = found.requisites.decode("utf-8", "replace").encode()
    return ParsedPage(
        charset.name,
        title=None,
        description=None,
        meta_robots=None,
        canonical_url=None,
        base=url,
        links=b"",
        nofollow=False,
        links_cut=0,
        requisites=requisites,
        requisites_cut=found.requisites_cut,
    )


def _charset_of(data: bytes, header_charset: str | None) -> Charset:
    """Return the encoding of a sheet: https://www.w3.org/TR/css-syntax-3/#input-byte-stream

    The charset of the page that names the sheet is unknown here, so UTF-8 comes last.
    """
    if (marked := charset_of_mark(data)) is not None:
        return marked
    said = _AT_CHARSET.match(data, 0, PRESCAN_BYTES)
    name = encoding_of(header_charset) if header_charset else None
    if name is None and said:
        name = encoding_of(said[1].decode("latin-1"))
        name = "utf-8" if name in {"utf-16be", "utf-16le"} else name  # the rule itself is in ASCII
    return Charset(name or "utf-8", 0, True)
