"""The charset of a page, found in the order of the HTML Standard, and the page's text.

Order (https://html.spec.whatwg.org/#determining-the-character-encoding): byte order mark, the header's charset, a meta
(or an XML declaration) within the first 1024 bytes; else UTF-8 where the bytes are UTF-8, and windows-1252 where not.
A page that neither a mark nor its header decides is decoded again, once, if the first meta that the scanner meets says
otherwise (`html`). Labels mean what the Encoding Standard says (`encodings`): iso-8859-1 is windows-1252.
"""

import re
from codecs import getincrementaldecoder
from functools import lru_cache
from typing import NamedTuple

from crawl_lib.parse.encodings import decode, encoding_of

PRESCAN_BYTES = 1024
FALLBACK = "windows-1252"
_PIECE_BYTES = 1 << 20

_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xfe\xff", "utf-16be"), (b"\xff\xfe", "utf-16le"))
# How XML in UTF-16 without a mark begins.
_WIDE_XML = (("<?x".encode("utf-16-le"), "utf-16le"), ("<?x".encode("utf-16-be"), "utf-16be"))
_XML = re.compile(rb"""<\?xml[\t\n\f\r ][^>]*?encoding[\t\n\f\r ]*=[\t\n\f\r ]*["']([^"'>]*)["']""")
# Declarations that the prescan looks for: a comment, a meta, another tag up to its name's end, or a declaration as a
# whole.
_MARKUP = re.compile(
    rb"<(?:(!--)|(meta)(?=[\t\n\f\r /])|/?[a-z][^\t\n\f\r >]*+|([!/?])[^>]*+>)",
    re.IGNORECASE,
)
# One attribute, or the end of the tag. Possessive quantifiers: hostile bytes cannot make it look twice.
_ATTRIBUTE = re.compile(
    rb"""[\t\n\f\r /]*+(?:(>)|([^>][^=\t\n\f\r />]*+)[\t\n\f\r ]*+"""
    rb"""(?:(?!=)|=[\t\n\f\r ]*+(?:"([^"]*+)"|'([^']*+)'|(?=>)|([^"'>\t\n\f\r ][^\t\n\f\r >]*+)(?=[\t\n\f\r >]))))"""
)
_META_CHARSET = re.compile(
    rb"""charset[\t\n\f\r ]*=[\t\n\f\r ]*(?:"([^"]*)"|'([^']*)'|([^\t\n\f\r ;"']+))""",
    re.IGNORECASE,
)


class Charset(NamedTuple):
    """The encoding that a text is read with."""

    name: str
    """The standard's name, in lower case."""
    mark_bytes: int
    """The length of the byte order mark."""
    is_certain: bool
    """A mark or the header says so. Otherwise a meta further down may change it."""


def to_utf8(data: bytes, header_charset: str | None, *, is_xml: bool = False) -> tuple[bytes, str]:
    """Return a text as UTF-8, and the name of its encoding.

    The result has no byte order mark.

    `header_charset`: the charset of its Content-Type; `is_xml`: as for `charset_of`. Undecodable bytes become
    U+FFFD. Bytes of a text declared as UTF-8 are returned unchanged, and the HTML parser replaces wrong bytes.
    """
    charset = charset_of(data, header_charset, is_xml=is_xml)
    return decoded(data, charset), charset.name


def decoded(data: bytes, charset: Charset) -> bytes:
    """Return a text as UTF-8 without its byte order mark.

    UTF-8 is returned unchanged.
    """
    if charset.mark_bytes:
        data = data[charset.mark_bytes :]
    return data if charset.name == "utf-8" else decode(data, charset.name)


def charset_of(data: bytes, header_charset: str | None, *, is_xml: bool = False) -> Charset:
    """Return the encoding that `to_utf8` reads a text with.

    `is_xml`: the text is XML, so its declaration counts, or else UTF-8; a meta counts only if the bytes are no UTF-8.
    """
    if (marked := charset_of_mark(data)) is not None:
        return marked
    in_header = encoding_of(header_charset) if header_charset else None
    if in_header is not None:
        return Charset(in_header, 0, True)
    for start, name in _WIDE_XML:
        if data.startswith(start):
            return Charset(name, 0, True)
    start = data[:PRESCAN_BYTES]
    declared = _declared_in_xml(start) if is_xml else _prescan(start)
    if declared is None and _is_utf8(data):
        declared = "utf-8"
    return Charset(declared or _prescan(start) or FALLBACK, 0, is_xml)


def charset_of_mark(data: bytes) -> Charset | None:
    """Return the encoding that a byte order mark says; None without one."""
    for bom, name in _BOMS:
        if data.startswith(bom):
            return Charset(name, len(bom), True)
    return None


def said_by_metas(lines: str) -> str | None:
    """Return the encoding of the first meta with a known label.

    `lines`: as the scanner writes them. https://html.spec.whatwg.org/#parsing-main-inhead, "meta".
    """
    return next(filter(None, map(_said_by_meta, lines.split("\n"))), None)


@lru_cache(maxsize=256)
def _said_by_meta(line: str) -> str | None:
    value = line[1:].encode("latin-1", "replace")
    match = _META_CHARSET.search(value) if line.startswith("h") else None
    return _as_declared(value if line.startswith("c") else _label(match))


def _is_utf8(data: bytes) -> bool:
    """Say whether a page is UTF-8 with characters beyond ASCII.

    A last character cut by a limit does not matter. A piece at a time: the text of a large page would take its memory
    again. A piece at a time: the text of a large page would take its memory again.
    """
    decoder = getincrementaldecoder("utf-8")()
    is_ascii = True
    try:
        for start in range(0, len(data), _PIECE_BYTES):
            is_ascii = decoder.decode(data[start : start + _PIECE_BYTES]).isascii() and is_ascii
    except UnicodeDecodeError:
        return False
    return not (is_ascii and decoder.getstate()[0])


def _prescan(data: bytes) -> str | None:
    """Return the encoding that a meta or XML declaration names.

    Pages of a site begin alike, so the result of a start up to the end of the tag with a charset is remembered. If a
    start names an encoding, all of `data` names the same one. A start whose last tag is not whole names none.
    """
    name, at = None, data.lower().find(b"charset")
    if at >= 0:
        name = _known_start(data[: data.find(b">", at) + 1]) or _prescan_metas(data)
    return name or _declared_in_xml(data)


@lru_cache(maxsize=256)
def _known_start(start: bytes) -> str | None:
    return _prescan_metas(start)


def _declared_in_xml(data: bytes) -> str | None:
    match = _XML.match(data.lower()) if data.startswith(b"<?xml") else None
    return _as_declared(match[1]) if match else None


def _prescan_metas(data: bytes) -> str | None:
    """https://html.spec.whatwg.org/#prescan-a-byte-stream-to-determine-its-encoding"""
    offset = 0
    while markup := _MARKUP.search(data, offset):
        comment, meta, declaration = markup.groups()
        offset = markup.end()
        if comment:
            end = data.find(b"-->", markup.start() + 2)
            if end < 0:
                return None
            offset = end + 3
        elif not declaration and not data.startswith(b">", offset):
            values, offset = _read_attributes(data, offset)
            name = _meta_encoding(values) if meta and offset < len(data) else None
            if name is not None:
                return name
    return None


def _read_attributes(data: bytes, offset: int) -> tuple[dict[bytes, bytes], int]:
    """Return a tag's attributes, and the offset of its end.

    The first of each name counts. A cut tag ends at the end of `data`.
    """
    values: dict[bytes, bytes] = {}
    while match := _ATTRIBUTE.match(data, offset):
        offset = match.end()
        end, name, *value = match.groups()
        if end:
            return values, offset - 1
        values.setdefault(name.lower(), next(filter(None, value), b""))
    return values, len(data)


def _meta_encoding(values: dict[bytes, bytes]) -> str | None:
    if b"charset" in values:
        return _as_declared(values[b"charset"])
    if values.get(b"http-equiv", b"").lower() == b"content-type":
        return _as_declared(_label(_META_CHARSET.search(values.get(b"content", b""))))
    return None


def _label(match: re.Match[bytes] | None) -> bytes:
    return next(filter(None, match.groups()), b"") if match else b""


def _as_declared(label: bytes) -> str | None:
    """Return the encoding meant by a label in ASCII.

    An ASCII declaration cannot be in UTF-16, so it means UTF-8 (HTML Standard, prescan, last steps).
    """
    name = encoding_of(label.decode("latin-1"))
    if name in ("utf-16be", "utf-16le"):
        return "utf-8"
    return FALLBACK if name == "x-user-defined" else name
