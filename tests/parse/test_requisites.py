"""The requisites of pages, in document order, apart from links."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import Any

import pytest

from crawl_lib.config import ParseConfig
from crawl_lib.parse import ParsedPage, parse_html
from crawl_lib.parse.scan import scan, wanted_kinds
from tests.parse.hostile import MOST_STEPS_A_BYTE
from tests.parse.links import read_links

CONFIG = replace(ParseConfig(), requisites="all", requisite_kinds=ParseConfig.REQUISITE_KINDS)
ALL = {
    "<img src=a alt=t>": ["img a"],
    "<img src=a srcset='b 1x, c 100w,d , e,f 1x(,) ,,g'>": [
        "img a",
        "img b",
        "img c",
        "img d",
        "img e,f",
        "img g",
    ],
    "<img src='' srcset='data:image/png,x 1x, #, b'>": ["img b"],
    "<picture><source srcset='a 1x, b 2x' media='(min-width: 1px)'><source srcset=c><img src=d></picture>": [
        *("source a", "source b", "source c", "img d")
    ],
    "<video src=a poster=b><source src=c><track src=d></video>": [
        "video a",
        "video b",
        "source c",
        "track d",
    ],
    "<audio src=a><source src=b></audio>": ["audio a", "source b"],
    "<link rel='StyleSheet' href=a><link rel='shortcut icon' href=b><link rel=apple-touch-icon href=c>": [
        *("link a", "link b", "link c")
    ],
    "<link rel=preload as=font href=a><link rel=modulepreload href=b><link rel=manifest href=c>": [
        *("link a", "link b", "link c")
    ],
    "<link rel=preload as=image href=a imagesrcset='b 1x, c 2x'>": ["link b", "link c", "link a"],
    "<script src=a></script>": ["script a"],
    "<object data=a></object><embed src=b>": ["object a", "embed b"],
    "<input type=image src=a><input type=text src=b>": ["input a"],
    "<iframe src=a></iframe><frame src=b>": ["iframe a", "frame b"],
    "<style>@import 'a'; @font-face{src:url(b)} c{d:url(&amp;)}</style>": [
        "import a",
        "style b",
        "style &amp;",
    ],
    "<p style='a:url(&quot;b&amp;c&quot;)'><x-y style=a:url(d)>": ["style b&c", "style d"],
    "<svg><image href=a /><image xlink:href=b></image><use href='c#d'/><use href='#e'/></svg>": [
        *("image a", "image b", "use c#d")
    ],
    "<svg><style>a{b:url(c)}<![CDATA[d{e:url(f)}]]></style><style/></svg><p style='g:url(h)'>": [
        *("style c", "style f", "style h")
    ],
    "<svg><style>a{b:url(c)}<g style='d:url(e)'></g>f{g:url(h)}</style>": [
        "style e",
        "style c",
        "style h",
    ],
    "<style>a{b:url(c)}": ["style c"],
    "<template><img src=a><style>b{c:url(d)}</style><p style='e:url(f)'></template>": [],
    "<img src='#a'><img src=' DATA:x'><img src=blob:x><iframe src='#'></iframe>": [],
    "<link rel=next href=a><link rel='alternate stylesheet' href=b><a href=c>": [],
    "<noscript><img src=a></noscript>": ["img a"],
    "<body background=a><td background=b><tr><th background=''><p background=c>": [
        "style a",
        "style b",
    ],
    "<svg><script href=a></script><script xlink:href=b /><feImage href=c /></svg><script href=d></script>": [
        *("script a", "script b", "image c")
    ],
    "<iframe src=a srcdoc='<img src=b><a href=c>x</a><p style=d:url(e)><iframe src=f></iframe>'></iframe><img src=g>": [
        *("img b", "style e", "srcdoc f", "img g")
    ],
    "<iframe srcdoc='<style>@import &quot;a&quot;</style><script src=b>'></iframe><iframe srcdoc></iframe>": [
        *("import a", "script b")
    ],
    "<iframe srcdoc='<title>t</title><base href=/x/><meta name=robots content=none><img src=a alt=&#x20AC;>'>": [
        "img a"
    ],
    "<template><iframe srcdoc='<img src=a>'></iframe></template><frame srcdoc='<img src=b>'>": [],
}


def page_of(html: str, config: ParseConfig = CONFIG) -> ParsedPage:
    return parse_html(html.encode(), url="http://a.test/", header_charset="utf-8", config=config)


def named(page: ParsedPage) -> list[str]:
    return [f"{link.element} {link.href}" for link in read_links(page.requisites)]


@pytest.mark.parametrize("html", ALL)
def test_each_element_names_what_it_needs(html: str) -> None:
    page = page_of(html)
    assert named(page) == ALL[html]
    assert page.requisites_cut == 0


@pytest.mark.parametrize("html", ALL)
def test_unless_asked_for_pages_have_no_requisites_and_the_links_of_before(html: str) -> None:
    page = page_of(html, replace(CONFIG, requisites="none"))
    assert page.requisites == b""
    before = page_of(html, ParseConfig())
    assert page == before


def test_what_is_a_requisite_is_no_link_but_a_frame_is_both() -> None:
    html = "<a href=a></a><img src=b alt=t><iframe src=c></iframe><video src=d></video><link rel=stylesheet href=e>"
    page = page_of(html, replace(CONFIG, requisite_kinds=("image", "frame")))
    links = [f"{link.element} {link.href}" for link in read_links(page.links)]
    assert links == ["a a", "iframe c", "video d", "link e"]
    assert named(page) == ["img b", "iframe c"]
    assert read_links(page.requisites)[0].anchor == "t"


def test_a_srcdoc_says_nothing_of_its_page() -> None:
    """Its base does not count either: its requisites are relative to the page."""
    html = "<iframe srcdoc='<title>t</title><base href=/x/><meta name=robots content=none><p>words<a href=y>'></iframe>"
    page = page_of(html)
    assert page == page_of("<iframe></iframe>")


def test_documents_within_each_other_are_read_three_deep() -> None:
    """A deeper one is counted."""
    html = "<img src=4><iframe srcdoc='x'></iframe>"
    for depth in (3, 2, 1, 0):
        html = f"<img src={depth}><iframe srcdoc='{escape(html)}'></iframe>"
    page = page_of(html)
    assert named(page) == ["img 0", "img 1", "img 2", "img 3"]
    assert page.requisites_cut == 1


def test_the_limit_of_a_page_counts_what_its_documents_need() -> None:
    html = "<img src=a><iframe srcdoc='<img src=b><img src=c>'></iframe><img src=d>"
    page = page_of(html, replace(CONFIG, requisites_per_page=2))
    assert (named(page), page.requisites_cut) == (["img a", "img b"], 2)


@pytest.mark.parametrize(
    "html",
    ["<iframe srcdoc=x>", "<iframe srcdoc='<p>'>", "<body background=x>", "<svg><use href=x>"],
)
def test_many_documents_and_references_cost_no_more_than_their_bytes(html: str) -> None:
    """The work counted in bytes; the time of a page against that of twice the page is not measured."""
    data = html.encode() * 10_000
    steps = scan(
        data, b"", 50_000, 200, wanted_kinds(ParseConfig.REQUISITE_KINDS), max_requisites=200
    ).steps
    assert steps <= MOST_STEPS_A_BYTE * len(data)


KIND_OF: dict[str, str] = {
    "<video src=x poster=y>": "video image",
    "<audio src=x><source src=x><track src=x></audio>": "audio audio audio",
    "<video><source src=x>": "video",
    "<picture><source srcset=x>": "image",
    "<link rel=preload as=script href=x><link rel=preload href=x><link rel=manifest href=x>": "script other other",
    "<style>@import 'x'; @font-face{src:url(x)} a{b:url(x)}</style>": "style font image",
    "<object data=x></object><embed src=x><frame src=x>": "object object frame",
    "<svg><use href=x><feImage href=x /><script href=x />": "image image script",
    "<iframe srcdoc='<iframe src=x></iframe><img src=x>'></iframe>": "frame image",
    "<body background=x>": "image",
}


@pytest.mark.parametrize("html", KIND_OF)
@pytest.mark.parametrize("kind", ParseConfig.REQUISITE_KINDS)
def test_kinds_that_are_not_wanted_are_left_out(html: str, kind: str) -> None:
    page = page_of(html, replace(CONFIG, requisite_kinds=(kind,)))
    assert len(named(page)) == KIND_OF[html].split().count(kind)


def test_requisites_beyond_the_limit_are_counted() -> None:
    html = "<img src=a><p style='b:url(c)'>" * 5 + "<img src=data:x>"
    page = page_of(html, replace(CONFIG, requisites_per_page=3))
    assert (named(page), page.requisites_cut) == (["img a", "style c", "img a"], 7)


def test_a_page_travels_to_another_process_with_its_requisites() -> None:
    page = page_of("<a href=é><img src=日本>")
    assert ParsedPage.from_json(page.to_json()) == page


def test_queries_are_escaped_in_the_charset_of_the_page() -> None:
    html = "<meta charset=koi8-r><img src='?q=я'>".encode("koi8-r")
    page: Any = parse_html(html, url="http://a.test/", header_charset=None, config=CONFIG)
    assert named(page) == ["img ?q=%D1"]
