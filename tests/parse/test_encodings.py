"""The decoders and encoders are those of the Encoding Standard: digests of its tables, and its treatment of errors."""

from __future__ import annotations

from hashlib import sha256

import pytest

from crawl_lib.parse.encodings import CODECS, decode, encode, encoding_of

# SHA-256 of what an independent implementation of the standard (encoding_rs 0.8.44) makes of `_all_of`.
DIGESTS = """
big5 eb37b683bc3b8d41726804692ab804a2
euc-jp 2e0456abf5efdd158d4ad431497a59ec
euc-kr 42e8e5e2b5646caf377265b61c233311
gb18030 df9b19d109957fca3aced10e9709ce34
gbk 0dfd53ac1e4673295b78e4bbd58de129
ibm866 5a856a1cc72f92ffbb8ce0162a6bfdeb
iso-2022-jp 5e5bb4d34f71e8ccc98fa9b04319749e
iso-8859-10 34e36339240c8d8b8d806076f2a2520a
iso-8859-13 3bac58e9cc8e52cd4df446e0d7daf8d4
iso-8859-14 ec2339ae801d510724002c02aa6408fd
iso-8859-15 e3f0667fe89309a7a28ff1aedf7c57ee
iso-8859-16 c68ff962b68531cb6405f331efa26baf
iso-8859-2 5e9a0811bf08daf58df287360cbdaf47
iso-8859-3 6555258335579b899c0c622ba0528f4e
iso-8859-4 08e4e0f402fac5883b8573a2cd95f808
iso-8859-5 df3e28bbb226e1cd358fb027479c723d
iso-8859-6 ac5e5b97608b416e246b69f432529465
iso-8859-7 9f68204513e94f00597667930e375d4e
iso-8859-8 16b842dbf1779d836c12a72869186956
iso-8859-8-i 16b842dbf1779d836c12a72869186956
koi8-r e18c51434de748aab4b8f2f9992422dd
koi8-u 09ca3df06fe07cf28f82ffec077644e5
macintosh a6af4ef8837ca7fcfc64bb66b0a02b65
shift_jis 06eef6314f687274837044e5789087cd
utf-16be 34d0333eba2291d0f0b52d044ebdc49a
utf-16le f4cf8ed761dd5473c9bd6e5aae27b238
windows-1250 697d3e9c20631e29a0560863a139067b
windows-1251 046cabf3dd731926e96942c89b8f4acc
windows-1252 b45da48fcc29fa511892fc703434d75b
windows-1253 b86ba26ea99fb62200b6c15a1043ea9a
windows-1254 233441a35d0b7823beb38db16454a8c2
windows-1255 63cacbae4c945413fcd9af375b392813
windows-1256 8f0f0e8f96c6e90cc01fe554a051f617
windows-1257 a2e34bb97e73154aa1bc2268e55c271d
windows-1258 7ab8842d941a6717aacec13ab4318947
windows-874 328a1a499919669ed62ec06063b0dfe3
x-mac-cyrillic b84eb464bfafed2870415356e89e5338
x-user-defined 87337a75680cce3d8274db1fbbc95a93
to:big5 89c7877ab8d71944c304f4dc33c24862
to:euc-jp d945a61e880eba240535dbf3a5c21127
to:euc-kr 647aa9eddadf537e656824461b8c1901
to:gb18030 a01934975398dfde4072bfd2df8d3e58
to:gbk b3bacea5eec75e71e7b87fe26d29bdda
to:ibm866 ba0d02967f8fa59aa1c6b1539c51adab
to:iso-2022-jp efe88b79a489704db4739763a80f06da
to:iso-8859-10 090b70288f18beff0b73eabf625d5845
to:iso-8859-13 a44607045b789ff888813ba3615eebf6
to:iso-8859-14 97a16bcfcd60f80bf10d19b1b7ac8855
to:iso-8859-15 18fd7812722e5dc35bd10368eea04562
to:iso-8859-16 cf36b6a48db8b9cb327a771be745f09f
to:iso-8859-2 05c720c07a4abd153f3530c6a8dc4678
to:iso-8859-3 b980d6fc4750667659c7d57ecc995fd9
to:iso-8859-4 ed13d2f326100ae000ba55fbebacd02d
to:iso-8859-5 d4e4e2ff93227ecb7b6f9c284add4acc
to:iso-8859-6 e6b87f1b01dd39d2783b3a73702fb1f8
to:iso-8859-7 16205b8baa5d67c977a4d4c36ce02af6
to:iso-8859-8 97896cd98a9ae2757c4ca300425b24e9
to:iso-8859-8-i 97896cd98a9ae2757c4ca300425b24e9
to:koi8-r 818ca6a134ff795cd2f1c8662c9b32d6
to:koi8-u d598f392aa9581a7714a7ff2aefec783
to:macintosh bd3dbbfd36bc0042ae3d0bf2e3a44fd2
to:shift_jis f46ae2df8f259f634cc111e15a564ebc
to:utf-16be d0b1caa774fd75ac84b5aca0ce4ec179
to:utf-16le d0b1caa774fd75ac84b5aca0ce4ec179
to:windows-1250 bc6fdc0f27dc8114277378ab5b66075d
to:windows-1251 258c6a2fc8c4a91fdd6313b33c743c1e
to:windows-1252 47cd9befb01f0ca4a273f9177969bbf3
to:windows-1253 78b0ce83f2460e5d40bdd9a166c9e48b
to:windows-1254 1e4f86529bf5a29f9f290ab1d334813f
to:windows-1255 ee993bf0ad2aeab769b4b540b724837f
to:windows-1256 7f1450e0ab4fc87cdb9104763a8e0cfa
to:windows-1257 7f8c7f77b0b5b3f242a073a205074f67
to:windows-1258 389eae1514b3535ce06b067ceefd511d
to:windows-874 a084abd79d55e9d0b7d84735b1ffaf9e
to:x-mac-cyrillic 129c9085589a0d937e346bd266286edf
to:x-user-defined 33c51e2ec6436244d7e6044235b3c349
"""
DIGEST = dict(line.split() for line in DIGESTS.strip().splitlines())


def _all_of(name: str) -> list[bytes]:
    """All bytes and all pairs of bytes, each before a line end; of some encodings the longer sequences too."""
    if name not in MULTI_BYTE:
        return [bytes([byte]) for byte in range(256)]
    sequences = [bytes((lead, trail)) for lead in range(256) for trail in range(256)]
    if name == "euc-jp":
        sequences += [
            bytes((0x8F, lead, trail)) for lead in range(0x80, 256) for trail in range(0x80, 256)
        ]
    if name == "iso-2022-jp":
        return [
            bytes([0x1B, *b"$B", lead, trail, 0x1B, *b"(B"])
            for lead in range(256)
            for trail in range(256)
        ]
    if name == "gb18030":
        leads, thirds = (*range(0x81, 0x85), 0x90, 0xE3), range(0x81, 0xFF)
        digits = range(0x30, 0x3A)
        sequences += [
            bytes((a, b, c, d)) for a in leads for b in digits for c in thirds for d in digits
        ]
    return sequences


MULTI_BYTE = (
    "gbk",
    "gb18030",
    "big5",
    "euc-jp",
    "iso-2022-jp",
    "shift_jis",
    "euc-kr",
    "utf-16le",
    "utf-16be",
)
LINE_END = {"utf-16le": b"\n\0", "utf-16be": b"\0\n"}


@pytest.mark.parametrize("name", sorted(set(CODECS) - {"utf-8", "replacement"}))
def test_the_tables_are_those_of_the_standard(name: str) -> None:
    text = decode(
        b"".join(sequence + LINE_END.get(name, b"\n") for sequence in _all_of(name)), name
    )
    assert sha256(text).hexdigest()[:32] == DIGEST[name]


@pytest.mark.parametrize("name", sorted(set(CODECS) - {"utf-8", "replacement"}))
def test_the_encoders_are_those_of_the_standard(name: str) -> None:
    characters = map(chr, (*range(0x20, 0xD800), *range(0xE000, 0x10000), *range(0x20000, 0x20800)))
    assert (
        sha256(b"\n".join(encode(character, name) for character in characters)).hexdigest()[:32]
        == DIGEST[f"to:{name}"]
    )


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("shift_jis", b"\x81<a>", "\ufffd<a>"),
        ("shift_jis", b"\x81\xff<", "\ufffd<"),
        ("shift_jis", b"\xa0\xfd\x80\x5c", "\ufffd\ufffd\x80\\"),
        ("euc-jp", b"\xa4<\xa4\xa2", "\ufffd<あ"),
        ("euc-jp", b"\x8f\xa2\xb7~\x8f\xa2<", "～~\ufffd<"),
        ("euc-jp", b"\xa4\x8f\xa2\xa4", "\ufffd△"),
        ("euc-jp", b"\xad\xa1\xa1\xc1", "①～"),
        ("big5", b"\xa4<\xa4\xa4", "\ufffd<中"),
        ("big5", b"\xa2A\xa1\xa2A\x88b", "∕﹜A\u00ca\u0304"),
        ("big5", b"\x9cB\xff\x80", "輶\ufffd\ufffd"),
        ("euc-kr", b"\xb0<\xb0\xa1", "\ufffd<가"),
        ("gbk", b"\x80\xd6<\xd6\xd0", "€\ufffd<中"),
        ("gb18030", b"\x810\x81<\x84\x31\xa4\x37", "\ufffd0\ufffd<\ufffd"),
        ("gb18030", b"\x81\x35\xf4\x37\xa8\xbc\xa6\xd9\xa3\xa0", "\ue7c7ḿ︐\u3000"),
        ("gb18030", b"\x90\x30\x81\x30\xff\x81", "\U00010000\ufffd\ufffd"),
        ("iso-2022-jp", b"\x1b$B$\x1b(B<a>", "\ufffd<a>"),
        ("iso-2022-jp", b"\x1b$B\x1b(Ba\x1bZ\x0e\x80", "\ufffda\ufffdZ\ufffd\ufffd"),
        ("iso-2022-jp", b"\x1b(J\\~\x1b(I1\x1b$@0!", "¥‾ｱ亜"),
        ("windows-1252", b"\x81\x8d\x80", "\x81\x8d€"),
        ("windows-1253", b"\xaa\x81", "\ufffd\x81"),
        ("windows-1255", b"\xca\xd9", "\u05ba\ufffd"),
        ("koi8-u", b"\xae\xbe", "ўЎ"),
        ("x-user-defined", b"a\x80\xff", "a\uf780\uf7ff"),
        ("replacement", b"<a href=x>", "\ufffd"),
        ("replacement", b"", ""),
        ("utf-16le", b"a\0\x00\xd8b\0\x00", "a\ufffdb\ufffd"),
    ],
)
def test_a_wrong_byte_does_not_take_its_neighbours(name: str, data: bytes, text: str) -> None:
    assert decode(data, name).decode() == text


@pytest.mark.parametrize(
    ("name", "text", "data"),
    [
        ("euc-jp", "¢～", b"&#162;\xa1\xc1"),
        ("shift_jis", "¥髙ⅰ", b"\\\xfb\xfc\xfa\x40"),
        ("big5", "／嘅", b"\xa1\xfe\xfbH"),
        ("gbk", "€\U00020000", b"\x80&#131072;"),
        ("gb18030", "€\U00020000\ue5e5", b"\xa2\xe3\x95\x32\x82\x36&#58853;"),
        ("iso-2022-jp", "a日ｱé", b"a\x1b$BF|%\x22\x1b(B&#233;"),
        ("windows-1252", "é日", b"\xe9&#26085;"),
        ("replacement", "é", b"\xc3\xa9"),
    ],
)
def test_what_is_sent(name: str, text: str, data: bytes) -> None:
    assert encode(text, name) == data


def test_all_labels() -> None:
    assert (
        encoding_of("hz-gb-2312")
        == encoding_of("ISO-2022-KR")
        == encoding_of("csiso2022kr")
        == "replacement"
    )
    assert encoding_of("visual") == "iso-8859-8"
    assert encoding_of("logical") == "iso-8859-8-i"
