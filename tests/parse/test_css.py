"""The URLs that style sheets name, by the tokens of CSS Syntax Level 3."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from crawl_lib.config import ParseConfig
from crawl_lib.parse import parse_html
from crawl_lib.parse.css import parse_css
from crawl_lib.parse.scan import scan_css, wanted_kinds
from tests.parse import plain_css
from tests.parse.driver import Driver
from tests.parse.links import columns

CONFIG = replace(ParseConfig(), requisites="all")


def urls(
    sheet: str | bytes, header_charset: str | None = None, config: ParseConfig = CONFIG
) -> list[str]:
    data = sheet.encode() if isinstance(sheet, str) else sheet
    page = parse_css(data, url="http://a.test/s.css", header_charset=header_charset, config=config)
    assert page.links == b""
    return columns(page.requisites).hrefs


@pytest.mark.parametrize(
    ("sheet", "expected"),
    [
        ("a{b:url(x)}", ["x"]),
        ("a{b:url( 'x y' ) , URL(\t\"z\"\n)}", ["x y", "z"]),
        ("a{b:u\\72 l(im\\61 ge\\.png)}", ["image.png"]),
        ("a{b:url(a\\29 b)}", ["a)b"]),
        ("a{b:url('a\\\nb\\22')}", ['ab"']),
        ("/*url(a)*/a{b:url(/*c*/)}/**/", ["/*c*/"]),
        ("a{b:'url(c)'; d:url(e)}", ["e"]),
        ("a{b:url(bad\"x) url(c'd) url(e f) url(g(h) url(good)}", ["good"]),
        ("a{b:'bad\nurl(good)}", ["good"]),
        ("a{b:#url(c) 1url(d) 1.5e3url(e) -url(f) xurl(g) url(h)}", ["h"]),
        ("<!--url(a)-->url(b)", ["a", "b"]),
        ("a{b:url(#f) url() url( ) url(data:,x) url(BLOB:x)}", []),
        ("a{b:url(c", ["c"]),
        ("a{b:url(c\\", ["c\ufffd"]),
        ("a{b:url('c", ["c"]),
        ("a{b:url(\\0)url(\\d800)url(\\110000)}", ["\ufffd"] * 3),
        (
            "@import 'a'; @import url(b) layer(url(no)) print; @IMPORT \"c\" supports(d:url(no));",
            ["a", "b", "c"],
        ),
        ("@import/**/'a'/**/;'b'", ["a"]),
        ("@namespace x url(no); @namespace 'no'; a{b:url(c)}", ["c"]),
        ("@font-face{src:local('no'),url(f)format('woff2')}", ["f"]),
        ("a{b:image-set('c' 1x type('image/png'), url(d) 2x); content:'no'}", ["c", "d"]),
        ("a{b:-webkit-image-set(url('c') 1x}d{content:'no'}", ["c"]),
    ],
)
def test_urls_are_found_by_tokens(sheet: str, expected: list[str]) -> None:
    assert urls(sheet) == expected


def test_the_place_says_the_kind() -> None:
    sheet = "@import 'style'; @font-face{a:b{c:d}src:url(font)} a{b:url(image)} @font-face{src:url(font)}"
    for kind in ("style", "font", "image"):
        found = urls(sheet, config=replace(CONFIG, requisite_kinds=(kind,)))
        assert set(found) == {kind}


def test_the_charset_is_of_the_mark_then_the_header_then_the_rule() -> None:
    rule = '@charset "windows-1252";'
    assert urls(f"\ufeff{rule}url(é)".encode(), "windows-1252") == ["é"]
    for mark in ("utf-16-le", "utf-16-be"):
        assert urls(f"\ufeff{rule}url(é)".encode(mark), "utf-8") == ["é"]
    assert urls("url(é)".encode("utf-16-le"), "utf-16le") == ["é"]
    assert urls(f"{rule}url(é)".encode(), "utf-8") == ["é"]
    assert urls(f"{rule}url(é)".encode("latin-1")) == ["é"]
    assert urls('@charset "utf-16";url(é)'.encode()) == ["é"]
    assert urls(f" {rule}url(é)".encode()) == ["é"]
    assert urls(b"url(\xe9)") == ["\ufffd"]


def test_a_sheet_has_at_most_so_many_requisites() -> None:
    sheet = b"url(a)" * 10
    page = parse_css(
        sheet,
        url="http://a.test/",
        header_charset=None,
        config=replace(CONFIG, requisites_per_page=3),
    )
    assert (columns(page.requisites).hrefs, page.requisites_cut) == (["a"] * 3, 7)


def test_what_is_open_where_a_sheet_was_cut_does_not_count() -> None:
    for end in ("url(b", "url(b ", "url('b", "@import 'b", "image-set('b"):
        data = f"url(a);{end}".encode()
        cut = parse_css(data, url="http://a.test/", header_charset=None, config=CONFIG, is_cut=True)
        assert columns(cut.requisites).hrefs == ["a"]
        assert urls(data) == ["a", "b"]
    for ends, is_cut, expected in (("", True, []), ("", False, ["b"]), ("</style>", True, ["b"])):
        html = f"<style>url(b{ends}".encode()
        page = parse_html(
            html, url="http://a.test/", header_charset=None, config=CONFIG, is_cut=is_cut
        )
        assert columns(page.requisites).hrefs == expected


def test_sheets_drawn_by_seed_are_read_as_by_a_plain_reader_under_sanitizers(
    driver: Driver,
) -> None:
    plain_css.check(driver, range(3000))


def test_every_cut_of_a_sheet_is_read(driver: Driver) -> None:
    sheet = "@import 'a\\61';@font-face{src:url( \"é\" )}a{b:url(\\62 c)/**/-->image-set('d')1.5e+3x<!--}".encode()
    cuts = [sheet[:length] for length in range(len(sheet) + 1)]
    assert all(
        answer.status == 0 for answer in driver.css(cuts, wanted_kinds(["style", "font", "image"]))
    )


PIECES = [
    "/*",
    "/* *",
    "'",
    "'\\\n",
    "url(",
    "url( ",
    'url("',
    "\\",
    "\\61 ",
    "@",
    "@import",
    "(",
    "{",
    "-",
    "<!-",
    "1e",
    "é",
]


@pytest.mark.parametrize("piece", PIECES)
def test_time_is_linear(piece: str) -> None:
    def cost(count: int) -> float:
        sheet, start = piece.encode() * count, time.process_time()
        scan_css(sheet, wanted_kinds(["style", "font", "image"]), 100)
        return time.process_time() - start

    few, many = (min(cost(count) for _ in range(3)) for count in (20_000, 160_000))
    assert many < 32 * few + 0.002
