"""The charset of a page, found in the order of the HTML Standard, and the page's text.

Order (https://html.spec.whatwg.org/#determining-the-character-encoding): byte order mark, the header's charset, a meta
(or an XML declaration) within the first 1024 bytes; else UTF-8 where the bytes are UTF-8, and windows-1252 where not.
Labels mean what the Encoding Standard (https://encoding.spec.whatwg.org/#names-and-labels) says, not what Python says:
a page that calls itself iso-8859-1 is windows-1252.
"""

import re
from codecs import getincrementaldecoder

PRESCAN_BYTES = 1024
FALLBACK = "windows-1252"
_PIECE_BYTES = 1 << 20

# A line for each encoding: name, Python codec, further labels; indented lines go on with the one above. Labels that the
# standard maps to `replacement` (iso-2022-kr, hz-gb-2312...) are left out, and so are those that could hide markup
# (utf-7): they count as no label.
_TABLE = """
utf-8 utf-8 unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf8 x-unicode20utf8
ibm866 cp866 866 cp866 csibm866
iso-8859-2 iso8859-2 csisolatin2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 iso_8859-2:1987 l2 latin2
iso-8859-3 iso8859-3 csisolatin3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 iso_8859-3:1988 l3 latin3
iso-8859-4 iso8859-4 csisolatin4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 iso_8859-4:1988 l4 latin4
iso-8859-5 iso8859-5 csisolatincyrillic cyrillic iso-ir-144 iso8859-5 iso88595 iso_8859-5 iso_8859-5:1988
iso-8859-6 iso8859-6 arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6-e iso-8859-6-i
    iso-ir-127 iso8859-6 iso88596 iso_8859-6 iso_8859-6:1987
iso-8859-7 iso8859-7 csisolatingreek ecma-118 elot_928 greek greek8 iso-ir-126 iso8859-7 iso88597 iso_8859-7
    iso_8859-7:1987 sun_eu_greek
iso-8859-8 iso8859-8 csiso88598e csisolatinhebrew hebrew iso-8859-8-e iso-ir-138 iso8859-8 iso88598 iso_8859-8
    iso_8859-8:1988 visual csiso88598i iso-8859-8-i logical
iso-8859-10 iso8859-10 csisolatin6 iso-ir-157 iso8859-10 iso885910 l6 latin6
iso-8859-13 iso8859-13 iso8859-13 iso885913
iso-8859-14 iso8859-14 iso8859-14 iso885914
iso-8859-15 iso8859-15 csisolatin9 iso8859-15 iso885915 iso_8859-15 l9
iso-8859-16 iso8859-16
koi8-r koi8-r cskoi8r koi koi8 koi8_r
koi8-u koi8-u koi8-ru
macintosh mac-roman csmacintosh mac x-mac-roman
windows-874 cp874 dos-874 iso-8859-11 iso8859-11 iso885911 tis-620
windows-1250 cp1250 cp1250 x-cp1250
windows-1251 cp1251 cp1251 x-cp1251
windows-1252 cp1252 ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1
    iso88591 iso_8859-1 iso_8859-1:1987 l1 latin1 us-ascii x-cp1252
windows-1253 cp1253 cp1253 x-cp1253
windows-1254 cp1254 cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 iso_8859-9:1989 l5
    latin5 x-cp1254
windows-1255 cp1255 cp1255 x-cp1255
windows-1256 cp1256 cp1256 x-cp1256
windows-1257 cp1257 cp1257 x-cp1257
windows-1258 cp1258 cp1258 x-cp1258
x-mac-cyrillic mac-cyrillic x-mac-ukrainian
gbk gb18030 chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 iso-ir-58 x-gbk
gb18030 gb18030
big5 big5hkscs big5-hkscs cn-big5 csbig5 x-x-big5
euc-jp euc-jp cseucpkdfmtjapanese x-euc-jp
iso-2022-jp iso2022-jp csiso2022jp
shift_jis cp932 csshiftjis ms932 ms_kanji shift-jis sjis windows-31j x-sjis
euc-kr cp949 cseuckr csksc56011987 iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 windows-949
utf-16be utf-16-be unicodefffe
utf-16le utf-16-le csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16
x-user-defined latin-1
"""
_ROWS = [row.split() for row in _TABLE.replace("\n    ", " ").strip().splitlines()]
CODECS = {name: codec for name, codec, *_ in _ROWS}
"""Python's codec of each encoding, by the standard's name."""
_LABELS = {label: name for name, _, *labels in _ROWS for label in (name, *labels)}

_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xfe\xff", "utf-16be"), (b"\xff\xfe", "utf-16le"))
_XML = re.compile(rb"""<\?xml[\t\n\f\r ][^>]*?encoding[\t\n\f\r ]*=[\t\n\f\r ]*["']([^"'>]*)["']""")
# What the prescan looks for: a comment, a meta, another tag up to its name's end, or a declaration as a whole.
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
    rb"""charset[\t\n\f\r ]*=[\t\n\f\r ]*(?:"([^"]*)"|'([^']*)'|([^\t\n\f\r ;"']+))""", re.IGNORECASE
)


def encoding_of(label: str) -> str | None:
    """Return the standard's name for a charset label (any case, spaces around it), in lower case; None if unknown."""
    return _LABELS.get(label.strip("\t\n\f\r ").lower())


def to_utf8(data: bytes, header_charset: str | None) -> tuple[bytes, str]:
    """Return a page's text as UTF-8 without a byte order mark, and the name of the encoding it was in.

    `header_charset`: the charset of its Content-Type. What cannot be decoded becomes U+FFFD, except in a page that says
    it is UTF-8: its bytes are returned as they are, for the HTML parser to replace what is wrong.
    """
    name, mark_bytes = charset_of(data, header_charset)
    if mark_bytes:
        data = data[mark_bytes:]
    if name == "utf-8":
        return data, name
    return data.decode(CODECS[name], "replace").encode("utf-8", "replace"), name


def charset_of(data: bytes, header_charset: str | None) -> tuple[str, int]:
    """Return the name of the encoding that `to_utf8` reads a page with, and the length of its byte order mark."""
    for bom, name in _BOMS:
        if data.startswith(bom):
            return name, len(bom)
    declared = (encoding_of(header_charset) if header_charset else None) or _prescan(data[:PRESCAN_BYTES])
    if declared is not None:
        return declared, 0
    return "utf-8" if _is_utf8(data) else FALLBACK, 0


def _is_utf8(data: bytes) -> bool:
    """Whether it decodes, but for a character that a limit cut at its end, in a page that has others beyond ASCII.

    A piece at a time: the text of a large page would take its memory again.
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
    """Return the encoding that a meta or an XML declaration in `data` names."""
    lowered = data.lower()
    name = _prescan_metas(data) if b"charset" in lowered else None
    if name is None and lowered.startswith(b"<?xml"):
        match = _XML.match(lowered)
        name = _as_declared(match[1]) if match else None
    return name


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
    """The attributes of a tag, the first of each name, and where it ends: at the end of `data` if it is cut."""
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
        match = _META_CHARSET.search(values.get(b"content", b""))
        return _as_declared(match[1] or match[2] or match[3] or b"") if match else None
    return None


def _as_declared(label: bytes) -> str | None:
    """An ASCII declaration cannot be in UTF-16, so it means UTF-8 (HTML Standard, prescan, last steps)."""
    name = encoding_of(label.decode("latin-1"))
    if name in ("utf-16be", "utf-16le"):
        return "utf-8"
    return FALLBACK if name == "x-user-defined" else name
