"""What a page says: links, base, metas. Each rule of the issue, and hostile bytes."""

from __future__ import annotations

import gc
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawl_lib.config import ParseConfig
from crawl_lib.parse import ParsedPage, count_links, parse_html
from tests.parse.links import FOLLOWED_RELS, Link, columns, each_link

URL = "http://a.b/dir/page.html"


def page_of(html: str | bytes, **options: object) -> ParsedPage:
    data = html.encode() if isinstance(html, str) else html
    config = ParseConfig(
        **{key: options.pop(key) for key in list(options) if hasattr(ParseConfig, key)}
    )  # type: ignore[arg-type]
    return parse_html(data, url=URL, config=config, **{"header_charset": None, **options})  # type: ignore[arg-type]


def links_of(html: str | bytes, **options: object) -> list[Link]:
    return each_link(page_of(html, **options))


@pytest.mark.parametrize(
    ("html", "href", "element", "followable"),
    [
        ("<a href=x>t</a>", "x", "a", True),
        ("<map><area href=x></map>", "x", "area", True),
        ("<frameset><frame src=x></frameset>", "x", "frame", True),
        ("<iframe src=x></iframe>", "x", "iframe", True),
        ("<meta http-equiv=refresh content='5; url=x'>", "x", "meta", True),
        ("<link rel=stylesheet href=x>", "x", "link", False),
        ("<link href=x>", "x", "link", False),
        ("<img src=x>", "x", "img", False),
        ("<script src=x></script>", "x", "script", False),
        ("<video src=x></video>", "x", "video", False),
        ("<audio src=x></audio>", "x", "audio", False),
        ("<video><source src=x><track></video>", "x", "source", False),
        ("<video><track src=x></video>", "x", "track", False),
        ("<embed src=x>", "x", "embed", False),
        ("<object data=x></object>", "x", "object", False),
        ("<input type=IMAGE src=x>", "x", "input", False),
        ("<noscript><a href=x>t</a></noscript>", "x", "a", True),
        ("<A HREF=' \n x '>t</A>", "x", "a", True),
        ("<a href='x&amp;y'>t</a>", "x&y", "a", True),
    ],
)
def test_elements(html: str, href: str, element: str, followable: bool) -> None:
    (link,) = links_of(html)
    assert (link.href, link.element, link.followable) == (href, element, followable)


@pytest.mark.parametrize(
    "html",
    [
        "<a name=x>t</a>",
        "<img src=''>",
        "<input src=x>",
        "<script>'<a href=x>'</script>",
        "<!-- <a href=x> -->",
        "<textarea><a href=x></textarea>",
        "<svg><use href=x /></svg>",
        "<meta http-equiv=refresh content=5>",
        "<meta http-equiv=refresh content='x'>",
        "<link rel=next href=''>",
    ],
)
def test_what_is_no_link(html: str) -> None:
    assert links_of(html) == []


@pytest.mark.parametrize("rel", sorted(FOLLOWED_RELS))
def test_followed_rels(rel: str) -> None:
    assert [
        link.followable
        for link in links_of(f"<link rel='x {rel.upper()}' href=y><link rel=x{rel} href=y>")
    ] == [
        True,
        False,
    ]


def test_followed_rels_are_those_of_the_issue() -> None:
    expected = (
        "next prev index contents start alternate canonical author copyright help search license"
    )
    assert set(expected.split()) == FOLLOWED_RELS


@pytest.mark.parametrize(
    ("content", "target"),
    [
        ("0;x", "x"),
        ("0; URL=x", "x"),
        ("0,url = 'x y' z", "x y"),
        ('1.5 url="x', "x"),
        (" 0 ; url=x?a;b", "x?a;b"),
        (".5;x", "x"),
        ("0; url=", None),
    ],
)
def test_meta_refresh(content: str, target: str | None) -> None:
    found = links_of(f"<meta http-equiv='Refresh' content='{content.replace(chr(39), '&#39;')}'>")
    assert [link.href for link in found] == ([target] if target else [])


def test_links_stand_in_document_order_one_for_each_occurrence() -> None:
    html = "<link href=1 rel=next><a href=2>x<img src=3></a><a href=2>y</a><iframe src=4></iframe>"
    assert [link.href for link in links_of(html)] == ["1", "2", "3", "2", "4"]


def test_anchor_text_is_collapsed_and_cut() -> None:
    html = (
        "<a href=x> one\n <b>two</b>\t&amp; three </a><img src=y alt=' a  b '><area href=z alt=c>"
    )
    assert [link.anchor for link in links_of(html)] == ["one two & three", "a b", "c"]
    assert [link.anchor for link in links_of(html, max_anchor_chars=3)] == ["one", "a b", "c"]
    assert [link.anchor for link in links_of(html, max_anchor_chars=0)] == ["", "", ""]


@pytest.mark.parametrize(
    ("html", "anchors"),
    [
        ("<a href=1>a<a href=2>b</a>c", ["a", "b"]),
        ("<a href=1>a<a name=x>b</a>", ["a"]),
        ("<a href=1>a", ["a"]),
        ("<div><a href=1>a</div>b", ["a"]),
        ("<a href=1>a<div>b</div>c</a>d", ["abc"]),
        ("<p><a href=1>a</p>b", ["a"]),
        ("<a href=1>a</span>b</a>", ["ab"]),
        ("<table><tr><td><a href=1>a<td>b</table>", ["a"]),
        ("<table><tr><td><a href=1>a</td>b</table>", ["a"]),
        ("<a href=1><table><tr><td>a<td>b</table>c</a>", ["abc"]),
        ("<a href=1>a<script>b</script><!--c--><style>d</style></a>", ["abd"]),
        ("<a href=1>a<template>b<a href=2>c</a></template>d</a>", ["ad"]),
        ("<a href=1>a<svg><title>b</title><text>c</text></svg>d</a>", ["abcd"]),
        ("<a href=1>a<svg><path></a>b", ["a"]),
        ("<a href=1>a\0b</a><a href=2><svg>a\0b</svg></a>", ["ab", "a\ufffdb"]),
        ("<a href=1>a<svg><![CDATA[<b>&amp;]]></svg></a>", ["a<b>&amp;"]),
        ("<a href=1>a<![CDATA[b]]>c</a>", ["ac"]),
        ("<a href=1>a<img src=2 alt=b>c</a>", ["ac", "b"]),
    ],
)
def test_the_text_of_a_link(html: str, anchors: list[str]) -> None:
    assert [link.anchor for link in links_of(html)] == anchors


@pytest.mark.parametrize(
    ("html", "hrefs"),
    [
        ("<!--><a href=x>", "x"),
        ("<!--->y<a href=x>", "x"),
        ("<!-- --!><a href=x>", "x"),
        ("<!-- -- ><a href=x>", ""),
        ("<?php '><a href=x>", "x"),
        ("<script><!--<script></script><a href=y></script><a href=x>", "x"),
        ("<script><!-- </script><a href=x>", "x"),
        ("<textarea></text></textarea ><a href=x>", "x"),
        ("<plaintext></plaintext><a href=x>", ""),
        ("<svg><style><a href=x></style></svg>", "x"),
        ("<svg><div><style><a href=y></style><a href=x>", "x"),
        ("<math><mi><style><a href=y></style><a href=x>", "x"),
        ("<math><annotation-xml encoding=TEXT/html><style><a href=y></style><a href=x>", "x"),
        ("<math><annotation-xml><svg><title><a href=x>", "x"),
        ("<svg/><style><a href=y></style><a href=x>", "x"),
        ("<a href=y href=x", ""),
        ("<a href='x'/>", "x"),
        ("<a/href=x>", "x"),
        ("<A\nHREF\n=\nx\n>", "x"),
        ("<a =href=y href=x>", "x"),
        ("<a href=x href=y>", "x"),
        ("<a <b href=x>", "x"),
    ],
)
def test_what_is_markup(html: str, hrefs: str) -> None:
    assert [link.href for link in links_of(html) if link.element == "a"] == hrefs.split()


def test_the_first_attribute_counts_among_thousands() -> None:
    many = "".join(f" a{number}=1" for number in range(2000))
    (link,) = links_of(f"<a{many} href=x{many} href=y rel=nofollow>t</a>")
    assert (link.href, link.nofollow) == ("x", True)


def test_a_page_comes_whole_through_json() -> None:
    page = page_of(
        "<title>é</title><base href=/d/><a href='x?😀' rel=nofollow>t</a><img src=i>\xff\0"
    )
    assert ParsedPage.from_json(page.to_json()) == page
    assert ParsedPage.from_json(page_of("").to_json().encode()) == page_of("")


def test_rel_and_nofollow() -> None:
    html = (
        "<a href=1 rel='External  NoFollow'>a</a><a href=2 rel=nofollowx>b</a><a href=3 rel>c</a>"
    )
    assert [(link.rel, link.nofollow) for link in links_of(html)] == [
        ("external nofollow", True),
        ("nofollowx", False),
        ("", False),
    ]


@pytest.mark.parametrize(
    ("html", "base"),
    [
        ("", URL),
        ("<base href=/x/><base href=/y/>", "http://a.b/x/"),
        ("<base target=_top><base href=/y/>", "http://a.b/y/"),
        ("<base><base href=/y/>", "http://a.b/y/"),
        ("<base href=''><base href=/y/>", URL),
        ("<base href=sub/>", "http://a.b/dir/sub/"),
        ("<base href='ftp://c/'>", URL),
        ("<base href='http://['>", URL),
        ("<a href=x>t</a><base href=//C.d/?#x>", "http://c.d/"),
    ],
)
def test_base(html: str, base: str) -> None:
    assert page_of(html).base == base


def test_descriptions() -> None:
    page = page_of(
        "<title> A \n title </title><title>second</title><meta name=Description content=' d  e '>"
        "<link rel=canonical href='%7ex#f'><svg><title>s</title></svg>"
    )
    assert page.title == "A title"
    assert page.description == "d e"
    assert page.canonical_url == "http://a.b/dir/~x"
    assert page.meta_robots is None
    empty = page_of("<svg><g><title>s</title></g></svg><link rel=canonical href='mailto:x'>")
    assert (empty.title, empty.description, empty.canonical_url) == (None, None, None)


@pytest.mark.parametrize(
    ("html", "robots", "nofollow"),
    [
        ("<meta name=ROBOTS content='noindex, NOFOLLOW'>", "noindex, NOFOLLOW", True),
        ("<meta name=robots content=none>", "none", True),
        (
            "<meta name=robots content=noindex><meta name=Krake content=nofollow>",
            "noindex, nofollow",
            True,
        ),
        ("<meta name=otherbot content=nofollow>", None, False),
        ("<meta name=robots content='index, follow'>", "index, follow", False),
    ],
)
def test_meta_robots(html: str, robots: str | None, nofollow: bool) -> None:
    page = page_of(html, user_agent="krake")
    assert (page.meta_robots, page.nofollow) == (robots, nofollow)


def test_links_beyond_the_limit_are_counted() -> None:
    page = page_of("<a href=x>t</a>" * 30 + "<img src=y>", max_links_per_page=20)
    assert (count_links(page.links), page.links_cut) == (20, 11)


def test_queries_of_legacy_pages_are_escaped_in_their_charset() -> None:
    html = "<a href='/日?q=日&amp;r=é#日'>日</a>".encode("shift_jis", "xmlcharrefreplace")
    (link,) = links_of(html, header_charset="shift_jis")
    assert link.href == "/日?q=%93%FA&r=%26%23233%3B#日"
    assert link.anchor == "日"
    assert links_of("<a href='?q=日'>x</a>")[0].href == "?q=日"


HOSTILE = {
    "nested div": b"<div>" * 100_000 + b"<a href=x>t</a>",
    "nested li": b"<ul><li>" * 50_000 + b"<a href=x>t</a>",
    "closed by others": b"<div></p>" * 60_000 + b"<a href=x>t</a>",
    "fonts": b"".join(b"<font a%d>" % number for number in range(20_000)) + b"<a href=x>t</a>",
    "attributes": b"<b "
    + b"".join(b"a%d=1 " % number for number in range(50_000))
    + b"><a href=x>t</a>",
    "attributes without spaces": b"<b "
    + b"".join(b"a%d=''" % number for number in range(50_000))
    + b"><a href=x>t</a>",
    "links in links": b"<a href=x><object>" * 9_000 + b"t" * 100_000,
    "huge attribute": b"<a title='" + b"x" * 3_000_000 + b"' href=x>t</a>",
    "NUL": b"\0" * 500_000 + b"<a\0b><a href=x>t</a>",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_markup_is_read_in_seconds_and_keeps_its_links(name: str) -> None:
    start = time.process_time()
    links = links_of(HOSTILE[name])
    assert time.process_time() - start < 5
    assert {link.href for link in links} == {"x"}


PIECES = (
    b"<a href=|<a |href|<base href=|<meta |name=robots|content=|http-equiv=refresh|charset=|>|</a>|'|\"|<svg>|<title>"
    b"|</title>|<!--|-->|<frameset>|<frame src=|<template>|<table>|<select>|<math>|<![CDATA[|\xff\xfe|\xef\xbb\xbf"
    b"|\x00|&#0;|&#xd800;|//|:"
).split(b"|")


fragments = st.lists(st.one_of(st.binary(max_size=8), st.sampled_from(PIECES)), max_size=25).map(
    b"".join
)


@settings(max_examples=700, deadline=None)
@given(
    fragments,
    st.sampled_from([None, "utf-8", "utf-16", "shift_jis", "gb18030", "iso-2022-jp", "x"]),
)
def test_bytes_in_page_out(data: bytes, header_charset: str | None) -> None:
    page = page_of(data, header_charset=header_charset)
    assert page.base.startswith("http")
    for link in each_link(page):
        link.href.encode(), link.anchor.encode()


def test_a_page_that_was_read_leaves_nothing_to_the_garbage_collector() -> None:
    """A cycle would keep the links of thousands of pages until the collector comes."""
    html = (
        "<title>t</title><base href=/d/><meta name=robots "
        "content=all><link rel=next href=n><a href=x>t</a><img src=i>"
    )
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        assert len(links_of(html)) == 3
        gc.collect()
        assert [found for found in gc.garbage if isinstance(found, ParsedPage)] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


@pytest.mark.parametrize(
    ("html", "hrefs", "title"),
    [
        ("<a href='/one'>x</a><a href='/two/arti", ["/one"], None),
        ("<a href=/one>x</a><a href=/two/arti", ["/one"], None),
        ("<a href=/one>x</a><a href=/two rel=nofol", ["/one"], None),
        ("<title>Whole</title><a href=/one>x</a><base href=http://c.d/", ["/one"], "Whole"),
        ("<a href=/one>x</a><title>Hal", ["/one"], None),
        ("<a href=/one>x</a><title>Hal</tit", ["/one"], None),
        ("<a href=/one>x</a><!-- <a href=/two>", ["/one"], None),
        ("<a href=/one>x</a><meta http-equiv=refresh content='0; url=/two", ["/one"], None),
    ],
)
def test_what_broke_off_is_not_there(html: str, hrefs: list[str], title: str | None) -> None:
    page = page_of(html, is_cut=True)
    assert (columns(page.links).hrefs, columns(page.links).anchors, page.title, page.base) == (
        hrefs,
        ["x"],
        title,
        URL,
    )


def test_the_text_of_a_link_that_broke_off_is_not_kept() -> None:
    html = "<a href=1>one</a><a href=2>tw<img src=3>"
    assert columns(page_of(html).links).anchors == ["one", "tw", ""]
    assert columns(page_of(html, is_cut=True).links).anchors == ["one", "", ""]
    assert page_of("<title>Open").title == "Open"


def test_xhtml_with_a_type_of_xml() -> None:
    html = "<title/><script src='s'/><a id='x'/><a href='1'/>t<textarea/><![CDATA[<b>]]><a href='2'><![CDATA[<i>]]></a>"
    page = page_of(html, is_xml=True)
    links = columns(page.links)
    assert (links.hrefs, links.anchors, page.title) == (["s", "1", "2"], ["", "", "<i>"], None)
