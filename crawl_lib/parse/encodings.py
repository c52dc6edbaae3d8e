"""The encodings of the Encoding Standard (https://encoding.spec.whatwg.org/): labels, decoders and encoders.

Python's codecs decode, since their tables are nearly those of the standard. The differences are listed here, and
`tests/parse/test_encodings.py` compares the result with digests of the standard's tables. Errors are handled as the
standard says: an ASCII byte behind an incomplete character is kept.
"""

import re
from codecs import (
    IncrementalDecoder,
    charmap_build,
    charmap_decode,
    charmap_encode,
    getincrementaldecoder,
    register_error,
)
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from unicodedata import normalize

# A line for each encoding: name, Python codec, further labels. Indented lines continue the line above.
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
    iso_8859-8:1988 visual
iso-8859-8-i iso8859-8 csiso88598i logical
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
replacement utf-8 csiso2022kr hz-gb-2312 iso-2022-cn iso-2022-cn-ext iso-2022-kr
"""
_ROWS = [row.split() for row in _TABLE.replace("\n    ", " ").strip().splitlines()]
CODECS = {name: codec for name, codec, *_ in _ROWS}
"""The Python codec of each encoding, by the standard's name."""
_LABELS = {label: name for name, _, *labels in _ROWS for label in (name, *labels)}

_REPLACEMENT = "\ufffd"
# Characters of single bytes that Python lacks or has otherwise.
_BYTES = {"koi8-u": {0xAE: "ў", 0xBE: "Ў"}, "windows-1255": {0xCA: "\u05ba"}}

# Characters that Python lacks or has otherwise: the bytes of the first one in hexadecimal, and those that follow it.
_BIG5 = """
877a㡵𡵓𣚞𦀡㻬𥣞㫵竼龗𤅡𨤍𣇪𠪊𣉞䌊蒄龖鐯䤰蘓墖靊鈘秐稲晠権袝瑌篅枂稬剏遆㓦珄𥶹瓆鿇垳䤯呌䄱𣚎堘穲𧭥讏䚮𦺈䆁𥶙箮𢒼鿈𢓁𢓉𢓌鿉蔄𣖻䂴鿊䓡𪷿拁灮鿋
8e69箸 8e6f簆 8e7e糎 8eab緒 8eb4縝 8ecd者 8ed0耨 8f57菁 8f69蒨 8f6e萏 8fcb覦覩 8ffe起 906d都 907a銹
90dc靜 90f1響 91bf鼖 9244蔃 92af兙兛兝兞 92c8鍮 92d1瑹 9447浧 94ca禛 95d9邗 9644靝 96ed瀞 96fc嬨 9b76爁
9b78矗 9b7b纇 9bc6駖 9bde釔 9bec惞 9bf6澶 9c42輶 9c53侻 9c62營 9c68鄄 9c6b鷰 9c77菏 9cbc尐秣 9cd0婧
9d57輋 9d5a筑 9dc4拐 9ea9恢 9eef痹 9efd汊 9f60鬮 9f66鼗 9fcb僭 9fd8弌 a063蠏 a077拎 a0d5瑨 a0df煢 a0e4牐
a145‧ a14e﹑ a1c2¯ a1e3～ a1f2⊕⊙ a241∕﹨ a244￥ a246￠￡ a3c0␀␁␂␃␄␅␆␇␈␉␊␋␌␍␎␏␐␑␒␓␔␕␖␗␘␙␚␛␜␝␞␟␡€ c6cf廴
c6d3无 c6d5癶 c6d7隶 c6de〃仝 fa5f倩 fa66偽 fabd包 fac5卄 fad5卿 fb48嘅 fbb8婷 fbf3幵 fbf9廐 fc4f彘
fc6c悤 fcb9撐 fce2晴 fcf1杞 fdb7沜渝 fdbb港 fdf1煮 fe52猪 fe6f瑜 feaa瓩 fedd砉
"""
_GB18030 = """
a6d9︐︒︑︓︔︕︖ a6ec︗︘ a6f3︙ a8bcḿ fe59龴 fe61龵 fe66龶龷 fe6d龸 fe7e龹 fe90龺 fea0龻
"""
_KANJI = "a1c1～∥ a1dd－ a1f1￠￡ a2cc￢ 8fa2b7～"


def encoding_of(label: str) -> str | None:
    """Return the standard's name for a charset label, or None.

    The name is in lower case.

    `label`: in any case, with or without spaces around it.
    """
    return _LABELS.get(label.strip("\t\n\f\r ").lower())


def decode(data: bytes, name: str) -> bytes:
    """Return text as UTF-8, with U+FFFD for wrong bytes.

    `name`: the standard's name of the encoding.
    """
    if name in _MULTI_BYTE:
        return _MULTI_BYTE[name]().decode(data)
    if name == "iso-2022-jp":
        return _decode_iso_2022_jp(data).encode()
    if name == "replacement":
        return _REPLACEMENT.encode() if data else b""
    if name.startswith("utf-"):
        return data.decode(CODECS[name], "replace").encode()
    return charmap_decode(data, "replace", _characters(name))[0].encode()


@lru_cache(maxsize=64)
def _characters(name: str) -> str:
    """Return the characters of an encoding's 256 bytes.

    U+FFFE marks a byte without a character.
    """
    if name == "x-user-defined":
        return "".join(chr(byte if byte < 0x80 else 0xF700 + byte) for byte in range(256))
    characters = [bytes([byte]).decode(CODECS[name], "replace") for byte in range(256)]
    for byte, character in enumerate(characters):
        if character == _REPLACEMENT:
            characters[byte] = (
                chr(byte) if name.startswith("windows-") and byte < 0xA0 else "\ufffe"
            )
    for byte, character in _BYTES.get(name, {}).items():
        characters[byte] = character
    return "".join(characters)


class _MultiByte:
    """A decoder of characters of one to four bytes, over a codec of Python.

    `unit`: what one error takes, by the standard; `missing`: the characters that the codec lacks; `renamed`: those that
    it has otherwise, from its own to the standard's.
    """

    def __init__(
        self,
        codec: str,
        unit: bytes,
        missing: dict[bytes, str] | None = None,
        renamed: Mapping[str, str] | None = None,
    ) -> None:
        self._codec = codec
        self._unit = re.compile(unit, re.DOTALL)
        self._missing = missing or {}
        self._renamed = renamed or {}
        self._handler = f"krake-{codec}"
        register_error(self._handler, self._on_error)

    def decode(self, data: bytes) -> bytes:
        """Return text as UTF-8."""
        text = self.plain(data)
        if any(character in text for character in self._renamed):
            text = text.translate({ord(old): new for old, new in self._renamed.items()})
        return text.encode()

    def plain(self, data: bytes) -> str:
        """Decode with the codec's own characters where it has some."""
        return data.decode(self._codec, self._handler)

    def decoder(self) -> IncrementalDecoder:
        """Return a decoder of pieces that does what `plain` does."""
        return getincrementaldecoder(self._codec)(self._handler)

    def _on_error(self, error: UnicodeError) -> tuple[str, int]:
        """Return the replacement of an unknown sequence, and its end."""
        if not isinstance(error, UnicodeDecodeError):
            raise error
        pair = error.object[error.start : error.start + 2]
        if pair in self._missing:
            return self._missing[pair], error.start + len(pair)
        match = self._unit.match(error.object, error.start)
        assert match is not None
        return self.character(match[0]), match.end()

    def character(self, sequence: bytes) -> str:
        """Return the character of a sequence that the codec lacks."""
        return self._missing.get(sequence, _REPLACEMENT)


class _Searched(_MultiByte):
    """A decoder over a codec that gives one character to two sequences, where the standard has two.

    `unit`, `missing`: as above; `begun`: a character whose end is missing; `others`: the sequences of the codec that
    are other characters in the standard. They are searched in the bytes, and count where a character begins.
    """

    def __init__(
        self,
        codec: str,
        unit: bytes,
        begun: bytes,
        others: dict[bytes, str],
        missing: dict[bytes, str] | None = None,
    ) -> None:
        super().__init__(codec, unit, missing)
        self._begun = re.compile(begun)
        self._others = others
        self._searched = re.compile(b"|".join(map(re.escape, others)))
        self._hints = "".join(sequence.decode(codec) for sequence in others)

    def decode(self, data: bytes) -> bytes:
        """Return text as UTF-8."""
        text = self.plain(data)
        if not any(character in text for character in self._hints):
            return text.encode()
        decoder = self.decoder()
        pieces, offset = [], 0
        for match in self._searched.finditer(data):
            pieces.append(decoder.decode(data[offset : match.start()]))
            before = decoder.getstate()[0]
            if self._begun.fullmatch(before):
                pieces.append(decoder.decode(match[0]))
            else:
                pieces.append(self.plain(before) + self._others[match[0]])
                decoder.reset()
            offset = match.end()
        # Not `final`: at an error in the last piece Python would drop what follows the error.
        pieces.append(decoder.decode(data[offset:]))
        pieces.append(self.plain(decoder.getstate()[0]))
        return "".join(pieces).encode()


class _EucJp(_Searched):
    """The decoder of EUC-JP. The standard's JIS X 0208 is that of cp932, with the characters of NEC and IBM."""

    def character(self, sequence: bytes) -> str:
        """Return the character of a sequence that the codec lacks."""
        if len(sequence) != 2 or not all(0xA1 <= byte <= 0xFE for byte in sequence):
            return _REPLACEMENT
        lead, trail = divmod((sequence[0] - 0xA1) * 94 + sequence[1] - 0xA1, 188)
        lead += 0x81 if lead < 0x1F else 0xC1
        trail += 0x40 if trail < 0x3F else 0x41
        moved = bytes((lead, trail))
        text = moved.decode("cp932", "replace")
        return text if len(text) == 1 and not "\ue000" <= text <= "\uf8ff" else _REPLACEMENT


def _read_table(text: str) -> dict[bytes, str]:
    table = {}
    for number, characters in re.findall(r"([0-9a-f]+)([^0-9a-f\s]+)", text):
        *before, lead, trail = bytes.fromhex(number)
        for character in characters:
            table[bytes((*before, lead, trail))] = character
            lead, trail = (lead, trail + 1) if trail < 0xFE else (lead + 1, 0x40)
            trail = 0xA1 if trail == 0x7F else trail
    return table


@cache
def _big5() -> _Searched:
    table = _read_table(_BIG5)
    others = {
        sequence: character for sequence, character in table.items() if sequence[0] in b"\xa1\xa2"
    }
    missing = {
        sequence: character for sequence, character in table.items() if sequence not in others
    }
    return _Searched("big5hkscs", _PAIR, rb"[\x81-\xfe]", others, missing)


@cache
def _gb18030() -> _MultiByte:
    renamed = {
        sequence.decode("gb18030"): character
        for sequence, character in _read_table(_GB18030).items()
    }
    renamed |= {"\ue5e5": "\u3000", "\u1e3f": "\ue7c7"}
    four = rb"[\x81-\xfe](?:[0-9](?:[\x81-\xfe](?:[0-9]|\Z)|\Z)|[\x80-\xff])?|."
    return _MultiByte("gb18030", four, {b"\x80": "€"}, renamed)


@cache
def _shift_jis() -> _MultiByte:
    wrong = dict.fromkeys("\uf8f0\uf8f1\uf8f2\uf8f3", _REPLACEMENT)
    return _MultiByte("cp932", rb"[\x81-\x9f\xe0-\xfc][\x80-\xff]?|.", {}, wrong)


@cache
def _euc_jp() -> _Searched:
    unit = rb"\x8f[\xa1-\xfe][\x80-\xff]?|[\x8e\x8f\xa1-\xfe][\x80-\xff]?|."
    return _EucJp("euc_jp", unit, rb"\x8f[\xa1-\xfe]|[\x8e\x8f\xa1-\xfe]", _read_table(_KANJI))


@cache
def _euc_kr() -> _MultiByte:
    return _MultiByte("cp949", _PAIR)


_PAIR = rb"[\x81-\xfe][\x80-\xff]?|."
_MULTI_BYTE: Mapping[str, Callable[[], _MultiByte]] = {
    "gbk": _gb18030,
    "gb18030": _gb18030,
    "big5": _big5,
    "euc-kr": _euc_kr,
    "euc-jp": _euc_jp,
    "shift_jis": _shift_jis,
}
"""Makers of decoders. Each decoder is made at its first use, since few processes need the codecs of Python."""

_ESCAPE = rb"\x1b(?:\(([BJI])|\$([@B]))"
_ISO_2022_JP = re.compile(_ESCAPE + rb"|(\x1b)|[^\x1b]+")
_KANJI_RUN = re.compile(rb"((?:[\x21-\x7e]{2})+)|[\x21-\x7e]?.|[\x21-\x7e]", re.DOTALL)
_NOT_ASCII = re.compile(rb"[\x0e\x0f\x80-\xff]")
_HIGH = bytes(byte | 0x80 for byte in range(256))


def _decode_iso_2022_jp(data: bytes) -> str:
    """https://encoding.spec.whatwg.org/#iso-2022-jp-decoder"""
    pieces: list[str] = []
    read, is_empty = _READERS[b"B"], False
    for match in _ISO_2022_JP.finditer(data):
        single, double, wrong = match.groups()
        if single or double:
            if is_empty:
                pieces.append(_REPLACEMENT)
            read = _read_kanji if double else _READERS[single]
            is_empty = True
        else:
            pieces.append(_REPLACEMENT if wrong else read(match[0]))
            is_empty = False
    return "".join(pieces)


def _read_ascii(run: bytes) -> str:
    return _NOT_ASCII.sub(b"\xff", run).decode("ascii", "replace")


def _read_roman(run: bytes) -> str:
    return _read_ascii(run).replace("\\", "¥").replace("~", "‾")


def _read_katakana(run: bytes) -> str:
    return "".join(chr(0xFF40 + byte) if 0x21 <= byte <= 0x5F else _REPLACEMENT for byte in run)


def _read_kanji(run: bytes) -> str:
    """Decode pairs by the table of EUC-JP.

    A wrong byte takes a first half before it along.
    """
    euc_jp = _euc_jp()
    return "".join(
        euc_jp.decode(match[1].translate(_HIGH)).decode() if match[1] else _REPLACEMENT
        for match in _KANJI_RUN.finditer(run)
    )


_READERS: dict[bytes, Callable[[bytes], str]] = {
    b"B": _read_ascii,
    b"J": _read_roman,
    b"I": _read_katakana,
}


def encode(text: str, name: str) -> bytes:
    """Return text in an encoding, as forms and queries are sent.

    `&#N;` replaces each character that the encoding lacks.

    `name`: the standard's name; UTF-8 is sent for UTF-16 and `replacement` (https://encoding.spec.whatwg.org/#encode).
    """
    if name.startswith("utf-") or name == "replacement":
        return text.encode("utf-8", "replace")
    if name == "iso-2022-jp":
        return _encode_iso_2022_jp(text)
    if name in _MULTI_BYTE:
        return b"".join(
            character.encode() if character.isascii() else _sequence(character, name)
            for character in text
        )
    return charmap_encode(text, "xmlcharrefreplace", charmap_build(_characters(name)))[0]


def _sequence(character: str, name: str) -> bytes:
    sequence = _sequences(name).get(character, b"")
    if not sequence and name.startswith("gb") and character != "\ue5e5":
        known = (
            b"\x81\x35\xf4\x37" if character == "\ue7c7" else character.encode("gb18030", "replace")
        )
        sequence = known if len(known) == 2 or name == "gb18030" else b""
    return sequence or b"&#%d;" % ord(character)


_ALL_LEADS = tuple(range(0x81, 0xFF))
# The encoders leave out what others have too: rows of NEC in Shift_JIS, the part of Hong Kong in Big5.
_LEADS = {
    "shift_jis": (*range(0x81, 0xA0), *range(0xE0, 0xED), *range(0xFA, 0xFD)),
    "big5": tuple(range(0xA1, 0xFF)),
    "euc-jp": (0x8E, *range(0xA1, 0xFF)),
}
_LAST_IN_BIG5 = "═╞╡╪十卅"
_YEN = {"¥": b"\\", "‾": b"~"}
_AS_SENT = {"shift_jis": {**_YEN, "\u2212": b"\x81\x7c"}, "euc-jp": {**_YEN, "\u2212": b"\xa1\xdd"}}


@lru_cache(maxsize=8)
def _sequences(name: str) -> dict[str, bytes]:
    """Return the bytes of each character of one or two bytes.

    The first sequence counts if there are several.
    """
    sequences = (
        [bytes([byte]) for byte in range(0x80, 0x100)] if name in ("gbk", "shift_jis") else []
    )
    sequences += [
        bytes((lead, trail)) for lead in _LEADS.get(name, _ALL_LEADS) for trail in range(0x40, 0xFF)
    ]
    characters = decode(b"\n".join(sequences), name).decode().split("\n")
    found: dict[str, bytes] = {}
    for sequence, character in zip(sequences, characters, strict=True):
        is_one = (
            len(character) == 1
            and character != _REPLACEMENT
            and not "\ue000" <= character <= "\uf8ff"
        )
        if is_one and (character not in found or (name == "big5" and character in _LAST_IN_BIG5)):
            found[character] = sequence
    return found | _AS_SENT.get(name, {})


def _encode_iso_2022_jp(text: str) -> bytes:
    """https://encoding.spec.whatwg.org/#iso-2022-jp-encoder"""
    pieces, state = [], b"(B"
    for character in text:
        wanted, sequence = _in_iso_2022_jp(character, state)
        if wanted != state:
            pieces.append(b"\x1b" + wanted)
            state = wanted
        pieces.append(sequence)
    return b"".join(pieces) + (b"" if state == b"(B" else b"\x1b(B")


def _in_iso_2022_jp(character: str, state: bytes) -> tuple[bytes, bytes]:
    """Return a character's bytes, after the necessary escape sequence."""
    if character in "¥‾":
        return b"(J", b"\\" if character == "¥" else b"~"
    if not character.isascii():
        if "｡" <= character <= "ﾟ":  # those of half the width are sent as the others
            character = {"ﾞ": "゛", "ﾟ": "゜"}.get(character) or normalize("NFKC", character)
        sequence = _sequences("euc-jp").get(character, b"")
        if len(sequence) == 2 and sequence[0] >= 0xA1:
            return b"$B", bytes(byte & 0x7F for byte in sequence)
        return b"(B" if state == b"$B" else state, b"&#%d;" % ord(character)
    is_roman = state == b"(J" and character not in "\\~"
    return state if is_roman else b"(B", character.encode()
