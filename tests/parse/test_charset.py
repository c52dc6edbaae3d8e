"""Charset detection in the order of the HTML Standard, and labels as the Encoding Standard means them."""

from __future__ import annotations

import codecs
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_lib.parse import charset, encodings
from crawl_lib.parse.charset import to_utf8
from crawl_lib.parse.encodings import encoding_of

E = "é".encode
META = b'<meta charset="%b">'


@pytest.mark.parametrize(
    ("data", "header", "name", "text"),
    [
        (b"\xef\xbb\xbf" + E(), "koi8-r", "utf-8", "é"),
        (b"\xff\xfe" + E("utf-16-le"), "utf-8", "utf-16le", "é"),
        (b"\xfe\xff" + E("utf-16-be"), None, "utf-16be", "é"),
        (META % b"koi8-r" + b"\xc1", "windows-1251", "windows-1251", "Б"),
        (META % b"koi8-r" + b"\xc1", None, "koi8-r", "\u0430"),
        (META % b"koi8-r" + b"\xc1", "no-such-charset", "koi8-r", "\u0430"),
        (b"\xe9", "ISO-8859-1", "windows-1252", "é"),
        (b"\x80", "latin1", "windows-1252", "€"),
        (b"\xfd", "iso-8859-9", "windows-1254", "\u0131"),
        (E("shift_jis", "ignore") + "日".encode("shift_jis"), "x-sjis", "shift_jis", "日"),
        ("日".encode("gbk"), "gb2312", "gbk", "日"),
        ("日".encode("euc-kr", "ignore") + "한".encode("euc-kr"), "ks_c_5601-1987", "euc-kr", "한"),
        (E(), None, "utf-8", "é"),
        (b"\xe9", None, "windows-1252", "é"),
        (b"x" * 50 + E() + E()[:1], None, "utf-8", "é"),
        (b'<?xml version="1.0" encoding="koi8-r"?>\xc1', None, "koi8-r", "\u0430"),
    ],
)
def test_order(data: bytes, header: str | None, name: str, text: str) -> None:
    decoded, found = to_utf8(data, header)
    assert found == name
    assert text in decoded.decode("utf-8", "ignore")
    assert not decoded.startswith(codecs.BOM_UTF8)


@pytest.mark.parametrize(
    ("html", "name"),
    [
        (b"<META CHARSET=KOI8-R>", "koi8-r"),
        (b"<meta name=x charset = 'koi8-r'>", "koi8-r"),
        (b'<meta http-equiv="Content-Type" content="text/html; charset=koi8-r">', "koi8-r"),
        (b'<meta content="text/html; charset=koi8-r" http-equiv=content-type>', "koi8-r"),
        (b'<meta content="text/html; charset=koi8-r">', "utf-8"),
        (b"<!-- <meta charset=koi8-r> -->", "utf-8"),
        (b'<a title="<meta charset=koi8-r>">', "utf-8"),
        (b"<meta charset=utf-16>", "utf-8"),
        (b"<meta charset=x-user-defined>\xe9", "windows-1252"),
        (b"<meta charset=utf-7>", "utf-8"),
        (b"<meta charset=nonsense><meta charset=koi8-r>", "koi8-r"),
        (b'<meta http-equiv="Content-Type<meta charset="koi8-r">', "utf-8"),
        (b"<meta charset=koi8-r", "utf-8"),
        (b"<meta charset='koi8-r>", "utf-8"),
        (b"<meta <meta charset=koi8-r>", "koi8-r"),
        (b"<!--><meta charset=koi8-r>", "koi8-r"),
        (b"<!x <meta charset=koi8-r>", "utf-8"),
        (b"<metax charset=koi8-r>", "utf-8"),
        (b" " * 1020 + b"<meta charset=koi8-r>", "utf-8"),
        (b" " * 1000 + b"<meta charset=koi8-r>", "koi8-r"),
    ],
)
def test_prescan(html: bytes, name: str) -> None:
    assert to_utf8(html, None)[1] == name


FILES = sorted((Path(__file__).parents[3] / "shared" / "testdata" / "html" / "encoding").glob("tests*.dat"))


def test_the_tests_of_html5lib() -> None:
    """A meta beyond the first 1024 bytes, for which a browser begins again, is not looked for."""
    if not FILES:
        pytest.skip("html5lib's tests are not next to this project")
    count = 0
    for block in b"\n".join(path.read_bytes() for path in FILES).split(b"#data\n")[1:]:
        html, _, encoding = block.partition(b"\n#encoding\n")
        expected = encoding_of(encoding.split(b"\n")[0].decode())
        # Bytes that are no UTF-8 behind it, so that what declares nothing is windows-1252, as there.
        if len(html) <= charset.PRESCAN_BYTES:
            assert to_utf8(html + b"\n\xff\xff\xff\xff", None)[1] == expected, html
            count += 1
    assert count > 70


@pytest.mark.parametrize(
    "unit",
    [b"<", b"<!--", b"<a ", b"<meta charset", b"<meta charset=", b"<meta charset='", b"<a =", b"<?xml ", b"charset="],
)
def test_the_prescan_looks_at_the_first_bytes_only_and_once(unit: bytes) -> None:
    start = time.process_time()
    for _ in range(20):
        to_utf8(b"charset" + unit * 200_000, None)
    assert time.process_time() - start < 2


def test_every_label_has_a_codec() -> None:
    assert len(encodings._LABELS) > 210
    for name in set(encodings._LABELS.values()):
        assert codecs.lookup(encodings.CODECS[name])
    assert encoding_of(" UTF8\n") == "utf-8"
    assert encoding_of("utf-7") is None


@given(st.binary(), st.sampled_from([None, "utf-8", *sorted(encodings.CODECS)]))
def test_never_raises(data: bytes, header: str | None) -> None:
    for prefix in (b"", b"<meta charset", b"<?xml encoding='"):
        text, name = to_utf8(prefix + data, header)
        assert name in encodings.CODECS
        if name != "utf-8":
            text.decode()
