"""The type of content: a small part of the MIME Sniffing Standard (https://mimesniff.spec.whatwg.org/)."""

import re

from crawl_lib.parse.charset import to_utf8

XHTML = "application/xhtml+xml"
HTML_TYPES = frozenset({"text/html", XHTML})
"""The types that `parse_html` is meant for."""

_SNIFFED_BYTES = 1445
_ROOT_BYTES = 1 << 14
"""How far the first element of XML is looked for."""
# Types that say nothing about the content (section 7), and what servers send when they do not know.
_UNKNOWN = frozenset(
    {None, "", "unknown/unknown", "application/unknown", "*/*", "application/octet-stream"}
)

_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"%PDF-", "application/pdf"),
    (b"%!PS-Adobe-", "application/postscript"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"\x00\x00\x01\x00", "image/x-icon"),
    (b"\x1f\x8b\x08", "application/gzip"),
    (b"PK\x03\x04", "application/zip"),
    (b"Rar!\x1a\x07", "application/x-rar-compressed"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"OggS\x00", "application/ogg"),
    (b"ID3\x02", "audio/mpeg"),
    (b"ID3\x03", "audio/mpeg"),
    (b"ID3\x04", "audio/mpeg"),
    (b"\x1aE\xdf\xa3", "video/webm"),
    (b"wOFF", "font/woff"),
    (b"wOF2", "font/woff2"),
)
# Signatures of letters only, which a text may begin with too. A PDF or PostScript file ends its first line after the
# version; a text about these formats goes on.
_WORDS = re.compile(
    rb"GIF8|wOF|RIFF|%(?:PDF|!PS-Adobe)-(?!\d\.\d(?: EPSF-\d\.\d)?[ \t]*(?:[\r\n]|\Z))"
)
_MARK = b"\xef\xbb\xbf"
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff", b"<\x00", b"\x00<")
_MAGIC = (b"RIFF", *(magic for magic, _ in _SIGNATURES))
_TAG = re.compile(
    rb"[\t\n\f\r ]*<(?:!doctype html|html|head|script|iframe|h1|div|font|table|a|style|title|b|body"
    rb"|br|p|meta|link)[ >\t\n\f\r/]",
    re.IGNORECASE,
)
_COMMENT = re.compile(rb"[\t\n\f\r ]*<!--")
_XML = re.compile(rb"[\t\n\f\r ]*<\?xml[\t\n\f\r ]")
# The first element behind comments, declarations and a document type.
_ROOT = re.compile(
    rb"(?>\s*+(?:<!--(?s:(?>.*?-->|.*))|<[?!](?:[^<>\[]|\[[^\]]*+\])*+>))*+\s*+"
    rb"""<([\w-]++:)?([\w-]++)((?:[^<>"']++|"[^"<]*+"|'[^'<]*+'|["'])*+)>""",
)
_ROOTS = {
    b"html": XHTML,
    b"rss": "application/rss+xml",
    b"RDF": "application/rss+xml",
    b"feed": "application/atom+xml",
    b"svg": "image/svg+xml",
    b"urlset": "application/xml",
    b"sitemapindex": "application/xml",
}
_LISTS = (b"rss", b"RDF", b"feed", b"urlset", b"sitemapindex")
_XML_TYPES = frozenset({"application/xml", "text/xml"})
_XHTML = re.compile(rb"""xmlns\s*+=\s*+["']http://www\.w3\.org/1999/xhtml["']""")
# A text of nothing but URLs, the last of which may be cut off.
_URLS = re.compile(rb"\s*+(?:https?://[^\s<>]++\s*+)++(?:ht{0,2}|https?:?/{0,2})?", re.IGNORECASE)
# Bytes that no text holds (section 3, "binary data byte").
_BINARY = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")


def detect_mime(declared: str | None, data: bytes) -> str:
    """Return the media type of content.

    The first bytes decide, else the declared type counts.

    `declared`: type of the Content-Type field, lower case, None if there was none; `data`: content, codings undone. A
    signature (PDF, PNG, JPEG, GIF, zip...) beats a declared text type, unless its letters begin a plain text; HTML, XML
    and text are looked for only where the declared type says nothing, so that a text about HTML stays text. The first
    element tells XHTML from other XML, and feeds and sitemaps from HTML (section 8).
    """
    start = data[:_SNIFFED_BYTES]
    unknown = declared in _UNKNOWN
    if unknown or (declared or "").startswith(("text/", "image/")) or declared in HTML_TYPES:
        binary = _signature(start)
        is_text = not unknown and not (declared or "").startswith("image/")
        if binary is not None and not (
            is_text and _WORDS.match(start) and _BINARY.search(start) is None
        ):
            return binary
    if declared in _XML_TYPES:
        return XHTML if _root_of(data)[1] else declared or ""
    if declared in HTML_TYPES:
        return declared if _TAG.match(start) else _list_type(data) or declared
    if not unknown:
        if declared == "text/plain" and _is_binary(start):
            return "application/octet-stream"
        return declared or ""
    return _sniff_text(start)


def _signature(start: bytes) -> str | None:
    if not start.startswith(_MAGIC):
        return None
    if start.startswith(b"RIFF") and start[8:14] == b"WEBPVP":
        return "image/webp"
    return next((mime for magic, mime in _SIGNATURES if start.startswith(magic)), None)


def _root_of(data: bytes) -> tuple[bytes, bool]:
    """Return the name of XML's first element, and whether it is XHTML.

    b"": there is no element.
    """
    match = _ROOT.match(_start_of(data, _ROOT_BYTES))
    if match is None:
        return b"", False
    prefix, name, attributes = match.groups()
    return name, prefix is None and name == b"html" and _XHTML.search(attributes) is not None


def _start_of(data: bytes, size: int) -> bytes:
    """Return the beginning of a text, in an ASCII-compatible encoding."""
    start = data[:size]
    return (
        to_utf8(start, None, is_xml=True)[0]
        if start.startswith(_WIDE_MARKS)
        else start.removeprefix(_MARK)
    )


def _list_type(data: bytes) -> str | None:
    """Return the type of a feed or sitemap declared as HTML.

    None: HTML.
    """
    text = _start_of(data, _SNIFFED_BYTES)
    if _URLS.fullmatch(text):
        return "text/plain"
    name, _ = _root_of(data)
    return _ROOTS[name] if name in _LISTS else None


def _sniff_text(start: bytes) -> str:
    if not start:
        return "application/octet-stream"
    text = start.removeprefix(_MARK)
    if _TAG.match(text) or _COMMENT.match(text):
        return "text/html"
    if _XML.match(text):
        return _ROOTS.get(_root_of(text)[0], "text/xml")
    return "application/octet-stream" if _is_binary(start) else "text/plain"


def _is_binary(start: bytes) -> bool:
    return not start.startswith((b"\xfe\xff", b"\xff\xfe")) and _BINARY.search(start) is not None
