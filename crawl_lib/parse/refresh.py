"""The Refresh field of an answer: a hop to another page, as a meta refresh is."""

from html import escape

from crawl_lib.config import ParseConfig
from crawl_lib.errors import UrlError
from crawl_lib.parse.headers import escape_octets
from crawl_lib.parse.html import TEXTS_OF_LINK, ParsedPage, count_links, links_as_bytes, parse_html
from crawl_lib.urls import resolve


def with_refresh(page: ParsedPage, field: str, *, url: str, config: ParseConfig) -> ParsedPage:
    """Add the target of a Refresh field as the first link.

    The link is a `meta`, as for a meta refresh.

    `field`: its value, in which each octet is one character; octets beyond ASCII are escaped as they are. `url`: the
    page's, which the target is relative to: a base element comes later than the field. The field is read by the parser
    of the meta (https://html.spec.whatwg.org/#shared-declarative-refresh-steps); the page's nofollow holds for both.
    """
    value = escape(escape_octets(field))
    meta = f'<meta http-equiv="refresh" content="{value}">'.encode("ascii", "ignore")
    found = parse_html(meta, url=url, header_charset=None, config=config).links
    if not found:
        return page
    if page.base != url:
        href = found.partition(b"\0")[0].decode()
        target = href[0] + _absolute(url, href[1:])
        found = links_as_bytes([(target, "", "")])
    *links, _ = (found + page.links).split(b"\0", TEXTS_OF_LINK * config.max_links_per_page)
    cut = count_links(page.links) + 1 - len(links) // TEXTS_OF_LINK
    return page._replace(links=b"\0".join([*links, b""]), links_cut=page.links_cut + cut)


def _absolute(url: str, href: str) -> str:
    try:
        return resolve(url, href)
    except UrlError:
        return href
