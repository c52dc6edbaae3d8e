"""The cached view: a page as it was captured, read from its record.

The policy of the answer forbids scripts and requests, and gives the page an origin of its own (CSP `sandbox`, Content
Security Policy Level 3). A document of such an origin sends no `Referer` (Referrer Policy, 8.3). Chromium 156 connects
to the host of a frame before the policy refuses the frame, and no policy covers `<link rel=preconnect>`. So frames and
links become elements without effect. Links of the page resolve by a `<base>` before the page's own, and open a new tab.
"""

import logging
import re
from dataclasses import dataclass
from html import escape

from starlette.exceptions import HTTPException

from crawl_lib.errors import DamagedFileError, PathNotFoundError
from crawl_lib.parse import HTML_TYPES, XHTML, decode_content, html_to_utf8, parse_head
from crawl_lib.search import CapturePlace, OpenIndex, Sites, StoredPage, stored_page
from crawl_lib.segment import DroppedLists, SegmentReader
from crawl_lib.stores import Stores
from crawl_lib.warc import WarcRecord, safe_uri, split_head

SANDBOX = (
    "sandbox allow-popups allow-popups-to-escape-sandbox; "
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
)
MOST_BYTES, MOST_CHARS = 4 << 20, 1 << 20
"""Limits of a shown page and of a shown text; longer ones are cut."""
NOT_FOUND = "The index has no such page, or has a page that must not be shown."
NO_ARCHIVE = "This page asks not to be shown from a copy (noarchive)."
DROPPED = "This page was dropped from the crawl."
MOVED = "The capture of this page has moved. Update the index: krake index update."
_DOCTYPE = re.compile(
    rb"\s*(?><\?[^>]*+>\s*)?(?><!--(?!-?>)(?>(?!--!?>).)*+--!?>\s*)*+<!doctype[^>]*+>",
    re.IGNORECASE | re.DOTALL,
)
"""The start of a page up to its doctype, if only comments are before. Browsers end a comment at `--!>` too, and take
`<!-->` and `<!--->` for whole comments (HTML, 13.2.5.43 and 13.2.5.52): after these, elements could be before ours."""
_LOOKED_BYTES = 4 << 10
_CONNECTING = re.compile(rb"<(/?)(link|i?frame)(?=[\t\n\f\r />])", re.IGNORECASE)
"""Tags of elements that connect unasked. Names of tags have no escapes (HTML, 13.2.5.8), so this finds all of them."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Copy:
    """A page as it was captured. `html`: in UTF-8, None for other types; `text`: of these, from the index.

    `is_cut`: whether the capture is longer.
    """

    page: StoredPage
    html: bytes | None = None
    text: str = ""
    is_cut: bool = False


def read_copy(stores: Stores, index: OpenIndex, key: bytes, sites: Sites) -> Copy:
    """Return the copy of a page.

    Raises HTTPException (404) with a sentence if no copy may be shown, StorageError.
    """
    page = stored_page(index, key, sites)
    if page is None:
        raise HTTPException(404, NOT_FOUND)
    if "noarchive" in page.robots:
        raise HTTPException(404, NO_ARCHIVE)
    record = None if page.place is None else _record(stores, page, page.place)
    if record is None:
        raise HTTPException(404, MOVED)
    if page.mime_type in HTML_TYPES:
        return _copy(page, record)
    return Copy(page, text=page.text[:MOST_CHARS], is_cut=len(page.text) > MOST_CHARS)


def _record(stores: Stores, page: StoredPage, place: CapturePlace) -> WarcRecord | None:
    """Return the record at a place, or None.

    None: the record of the page has moved.
    """
    path = stores.crawl.segment_named(place.segment).path
    try:
        if page.key in DroppedLists(stores.storage, path).read():
            raise HTTPException(404, DROPPED)
        record = SegmentReader(stores.storage, path).read_record(
            place.warc_file, place.offset, place.length
        )
    except (PathNotFoundError, DamagedFileError) as error:
        log.warning("the capture of %s is not where the index says: %s", page.key.hex(), error)
        return None
    return record if record.type == "response" and record.url == safe_uri(page.url) else None


def _copy(page: StoredPage, record: WarcRecord) -> Copy:
    head, body = split_head(record.block)
    headers = parse_head(head)
    content = decode_content(headers, body, max_bytes=MOST_BYTES)
    html = html_to_utf8(content.data, headers.content_type[1], is_xml=page.mime_type == XHTML)
    is_cut = (
        content.truncated or len(html) > MOST_BYTES
    )  # UTF-8 may be three times as long as another encoding
    return Copy(page, _harmless(html[:MOST_BYTES], page.url), is_cut=is_cut)


def _harmless(html: bytes, url: str) -> bytes:
    """Return a page with resolved links that connects to nothing.

    Links resolve by its URL; elements that connect unasked are left out.

    `<link>` and `<frame>` are empty elements, so each becomes a `<meta>`. An `<iframe>` becomes an unknown element.
    """
    html = _CONNECTING.sub(_without_effect, html)
    found = _DOCTYPE.match(html[:_LOOKED_BYTES])
    start = found.end() if found else 0
    base = f'<base href="{escape(url)}" target="_blank">'.encode()
    return html[:start] + base + html[start:]


def _without_effect(tag: re.Match[bytes]) -> bytes:
    return b"<%sx-frame" % tag[1] if tag[2].lower() == b"iframe" else b"<%smeta" % tag[1]
