"""What type content is: a small part of the MIME Sniffing Standard (https://mimesniff.spec.whatwg.org/)."""

import re

HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
"""The types that `parse_html` is meant for."""

_SNIFFED_BYTES = 1445
# Types that say nothing about the content (section 7), and what servers send when they do not know.
_UNKNOWN = frozenset({None, "", "unknown/unknown", "application/unknown", "*/*", "application/octet-stream"})

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
    (b"ID3", "audio/mpeg"),
    (b"\x1aE\xdf\xa3", "video/webm"),
    (b"wOFF", "font/woff"),
    (b"wOF2", "font/woff2"),
)
_MAGIC = (b"RIFF", *(magic for magic, _ in _SIGNATURES))
_HTML = re.compile(
    rb"[\t\n\f\r ]*<(?:!--|(?:!doctype html|html|head|script|iframe|h1|div|font|table|a|style|title|b|body"
    rb"|br|p|meta|link)[ >\t\n\f\r/])",
    re.IGNORECASE,
)
_XML = re.compile(rb"[\t\n\f\r ]*<\?xml[\t\n\f\r ]")
_ROOT = re.compile(rb"<(?![?!])(?:[a-z0-9_-]+:)?([a-z0-9_-]+)", re.IGNORECASE)
_ROOTS = {
    b"html": "application/xhtml+xml",
    b"rss": "application/rss+xml",
    b"feed": "application/atom+xml",
    b"svg": "image/svg+xml",
}
# Bytes that no text holds (section 3, "binary data byte").
_BINARY = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")


def detect_mime(declared: str | None, data: bytes) -> str:
    """Return the media type of content: what its first bytes show, else what was declared.

    `declared`: type of the Content-Type field, lower case, None if there was none; `data`: content, codings undone.
    A signature (PDF, PNG, JPEG, GIF, zip...) beats a declared text type; HTML, XML and text are looked for only where
    the declared type says nothing, so that a text about HTML stays text.
    """
    start = data[:_SNIFFED_BYTES]
    unknown = declared in _UNKNOWN
    if unknown or (declared or "").startswith(("text/", "image/")) or declared in HTML_TYPES:
        binary = _signature(start)
        if binary is not None:
            return binary
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


def _sniff_text(start: bytes) -> str:
    if not start:
        return "application/octet-stream"
    text = start.removeprefix(b"\xef\xbb\xbf")
    if _HTML.match(text):
        return "text/html"
    if _XML.match(text):
        root = _ROOT.search(text)
        return _ROOTS.get(root[1].lower(), "text/xml") if root else "text/xml"
    return "application/octet-stream" if _is_binary(start) else "text/plain"


def _is_binary(start: bytes) -> bool:
    return not start.startswith((b"\xfe\xff", b"\xff\xfe")) and _BINARY.search(start) is not None
