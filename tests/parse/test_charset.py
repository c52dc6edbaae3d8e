"""Charset detection in the order of the HTML Standard, and labels as the Encoding Standard means them."""

from __future__ import annotations

import codecs
import time
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_lib.config import ParseConfig
from crawl_lib.parse import charset, encodings, html_to_utf8, parse_html
from crawl_lib.parse import html as html_module
from crawl_lib.parse.charset import _declared_in_xml, _prescan, _prescan_metas, to_utf8
from crawl_lib.parse.encodings import encoding_of
from crawl_lib.parse.scan import scan

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


FILES = sorted(
    (Path(__file__).parents[3] / "shared" / "testdata" / "html" / "encoding").glob("tests*.dat")
)


def test_the_tests_of_html5lib() -> None:
    """Those with a meta beyond the first 1024 bytes are read by the scanner."""
    if not FILES:
        pytest.skip("html5lib's tests are not next to this project")
    count = 0
    for block in b"\n".join(path.read_bytes() for path in FILES).split(b"#data\n")[1:]:
        html, _, encoding = block.partition(b"\n#encoding\n")
        expected = encoding_of(encoding.split(b"\n")[0].decode())
        # Bytes that are no UTF-8 behind it, so that what declares nothing is windows-1252, as there.
        data = html + b"\n\xff\xff\xff\xff"
        if len(html) <= charset.PRESCAN_BYTES:
            assert to_utf8(data, None)[1] == expected, html
        else:
            page = parse_html(data, url="http://a.b/", header_charset=None, config=ParseConfig())
            assert page.charset == expected, html
        count += 1
    assert count > 70


@pytest.mark.parametrize(
    "unit",
    [
        b"<",
        b"<!--",
        b"<a ",
        b"<meta charset",
        b"<meta charset=",
        b"<meta charset='",
        b"<a =",
        b"<?xml ",
        b"charset=",
    ],
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


FAR = b"<html><head><script>" + b"x=1;" * 300 + b"</script>"


@pytest.mark.parametrize(
    ("meta", "name"),
    [
        (b"<meta charset=koi8-r>", "koi8-r"),
        (b"<meta http-equiv=Content-Type content='text/html; charset=koi8-r'>", "koi8-r"),
        (b"<meta charset=nonsense http-equiv=content-type content='a; charset=koi8-r'>", "koi8-r"),
        (b"<meta charset=nonsense><meta charset=koi8-r><meta charset=big5>", "koi8-r"),
        (b"<meta charset=utf-16le>", "utf-8"),
        (b"<meta charset=x-user-defined>", "windows-1252"),
        (b"<meta charset=utf-7>", "windows-1252"),
        (b"<meta charset=hz-gb-2312>", "replacement"),
        (b"<!-- <meta charset=koi8-r> -->", "windows-1252"),
        (b"<script>'<meta charset=koi8-r>'</script>", "windows-1252"),
        (b"<body><p><meta charset=koi8-r>", "koi8-r"),
        (b"<meta name=x content='charset=koi8-r'>", "windows-1252"),
        (b"<meta charset=koi8-r", "windows-1252"),
    ],
)
def test_a_later_meta_changes_the_encoding(meta: bytes, name: str) -> None:
    html = FAR + meta + b"<title>\xc1\xff</title>"
    page = parse_html(html, url="http://a.b/", header_charset=None, config=ParseConfig())
    assert page.charset == name
    for header in ("windows-1251", "no-such-charset"):
        page = parse_html(html, url="http://a.b/", header_charset=header, config=ParseConfig())
        assert page.charset == ("windows-1251" if header == "windows-1251" else name)
    page = parse_html(
        codecs.BOM_UTF8 + html, url="http://a.b/", header_charset=None, config=ParseConfig()
    )
    assert page.charset == "utf-8"


def test_the_first_meta_that_the_scanner_meets_decides() -> None:
    """The prescan knows no scripts, so it takes a meta for one that is none. The page is decoded twice at most."""
    html = (
        b"<script>'<meta charset=big5>'</script>"
        + FAR
        + b"<meta charset=koi8-r><meta charset=big5><title>\xc1"
    )
    assert to_utf8(html, None)[1] == "big5"
    page = parse_html(html, url="http://a.b/", header_charset=None, config=ParseConfig())
    assert (page.charset, page.title) == ("koi8-r", "\u0430")
    assert "\u0430" in html_to_utf8(html, None).decode()


def test_a_page_is_decoded_twice_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    scans = []
    monkeypatch.setattr(
        html_module, "scan", lambda *given, **more: scans.append(given) or scan(*given, **more)
    )
    html = (
        FAR
        + b"\xc1"
        + b"".join(b"<meta charset=%b>" % name for name in (b"koi8-r", b"big5", b"shift_jis") * 20)
    )
    parse_html(html, url="http://a.b/", header_charset=None, config=ParseConfig())
    assert len(scans) == 2


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_utf_16_is_known_by_marks_and_declarations(encoding: str, mark: str) -> None:
    html = f"{mark}<?xml version='1.0'?><html><title>日本</title>".encode(encoding)
    page = parse_html(html, url="http://a.b/", header_charset=None, config=ParseConfig())
    assert (page.charset, page.title) == (encoding.replace("utf-16-", "utf-16"), "日本")


def test_in_xhtml_the_declaration_comes_before_a_meta() -> None:
    html = "<?xml version='1.0' encoding='koi8-r'?><meta charset='big5'/><title>я</title>".encode(
        "koi8-r"
    )
    page = parse_html(
        html, url="http://a.b/", header_charset=None, config=ParseConfig(), is_xml=True
    )
    assert (page.charset, page.title) == ("koi8-r", "я")


@pytest.mark.parametrize("seed", range(20))
def test_a_start_that_is_remembered_says_what_the_whole_text_says(seed: int) -> None:
    rng = Random(seed)
    pieces = [
        b"<meta ",
        b"charset=",
        b"koi8-r",
        b"utf-8",
        b'"',
        b"'",
        b">",
        b"<!--",
        b"-->",
        b"<p ",
        b"<title>",
        b" ",
    ]
    pieces += [
        b"http-equiv=content-type ",
        b'content="x;charset=big5"',
        b"<?xml encoding='koi8-u'?>",
        b"</",
        b"=",
    ]
    for _ in range(1000):
        text = b"".join(rng.choices(pieces, k=rng.randrange(12)))
        assert _prescan(text) == (_prescan_metas(text) or _declared_in_xml(text)), text
