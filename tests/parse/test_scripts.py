"""Pages in ten scripts, in UTF-8 and in the encodings they had before it: titles, texts, queries."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from crawl_lib.config import ParseConfig
from crawl_lib.parse import ParsedPage, parse_html
from crawl_lib.parse.charset import to_utf8
from crawl_lib.parse.encodings import CODECS
from tests.parse import oracle
from tests.parse.links import columns

# Script: title, text of a link, word of a query, and the encodings its pages came in.
SCRIPTS = {
    "chinese": ("中文网站首页", "新闻 与 时事", "搜索", "utf-8 gbk gb18030 utf-16le"),
    "chinese, traditional": ("中文網站首頁", "新聞 與 時事", "搜尋", "utf-8 big5 utf-16be"),
    "japanese": (
        "日本語のページ",
        "ニュース と 表示",
        "検索能",
        "utf-8 shift_jis euc-jp iso-2022-jp",
    ),
    "korean": ("한국어 홈페이지", "뉴스 보기", "검색", "utf-8 euc-kr"),
    "russian": (
        "Русская страница",
        "Новости и события",
        "поиск",
        "utf-8 koi8-r windows-1251 ibm866 iso-8859-5",
    ),
    "greek": ("Ελληνική σελίδα", "Νέα και γεγονότα", "αναζήτηση", "utf-8 windows-1253 iso-8859-7"),
    "hebrew": ("דף בעברית", "חדשות היום", "חיפוש", "utf-8 windows-1255 iso-8859-8"),
    "arabic": ("صفحة عربية", "أخبار اليوم", "بحث", "utf-8 windows-1256 iso-8859-6"),
    "thai": ("หน้าแรกภาษาไทย", "ข่าว วันนี้", "ค้นหา", "utf-8 windows-874"),
    "hindi": ("हिन्दी पृष्ठ", "ताज़ा समाचार", "खोज", "utf-8 utf-16le"),
    "georgian": ("ქართული გვერდი", "ახალი ამბები", "ძიება", "utf-8 utf-16be"),
}
CASES = [(script, encoding) for script, row in SCRIPTS.items() for encoding in row[3].split()]
TEMPLATE = """<!DOCTYPE html><html><head>{meta}<title>{title}</title><meta name="description" content="{text}">
<link rel="alternate" href="/{word}.html"></head><body><script>var x = "{text}";</script><!-- {text} --><ul>
<li><a href="/{word}?q={word}&amp;n=1#{word}">{text}</a><li><a href=?{word} title='{title}>'>
 {text}
 <b>{title}</b></a></ul><img src="{word}.png" alt="{text}"></body></html>"""


def read(script: str, encoding: str, meta: str, header: str | None) -> ParsedPage:
    title, text, word, _ = SCRIPTS[script]
    html = TEMPLATE.format(title=title, text=text, word=word, meta=meta).encode(CODECS[encoding])
    return parse_html(html, url="http://a.b/c/", header_charset=header, config=ParseConfig())


@pytest.mark.parametrize(("script", "encoding"), CASES)
def test_pages_are_read_in_the_encoding_that_their_header_names(script: str, encoding: str) -> None:
    title, text, word, _ = SCRIPTS[script]
    page = read(script, encoding, "", encoding.upper())
    assert (page.charset, page.title, page.description) == (encoding, title, text)
    query = word if encoding.startswith("utf-") else quote(word.encode(CODECS[encoding]), safe="")
    assert columns(page.links).hrefs == [
        f"/{word}.html",
        f"/{word}?q={query}&n=1#{word}",
        f"?{query}",
        f"{word}.png",
    ]
    assert columns(page.links).anchors == ["", text, f"{text} {title}", text]


@pytest.mark.parametrize(
    ("script", "encoding"), [case for case in CASES if not case[1].startswith("utf-16")]
)
def test_and_in_that_which_their_meta_names(script: str, encoding: str) -> None:
    of_header = read(script, encoding, "", encoding)
    assert read(script, encoding, f"<meta charset={encoding}>", None) == of_header
    old = f'<meta http-equiv="Content-Type" content="text/html; charset={encoding}">'
    assert read(script, encoding, old, None) == of_header


@pytest.mark.parametrize(("script", "encoding"), CASES)
def test_a_tree_says_the_same(script: str, encoding: str) -> None:
    title, text, word, _ = SCRIPTS[script]
    html = TEMPLATE.format(title=title, text=text, word=word, meta="").encode(CODECS[encoding])
    seen = oracle.read(to_utf8(html, encoding)[0])
    page = read(script, encoding, "", encoding)
    assert (seen.title, seen.description) == (page.title, page.description)
    assert [(element, anchor) for element, _, anchor, _ in seen.links] == list(
        zip(columns(page.links).elements, columns(page.links).anchors, strict=True)
    )


@pytest.mark.parametrize("script", SCRIPTS)
def test_without_a_declaration_utf8_is_found(script: str) -> None:
    assert read(script, "utf-8", "", None) == read(script, "utf-8", "", "utf-8")
