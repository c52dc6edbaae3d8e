"""Sitemaps, feeds and robots.txt: every form of them, nothing else, and hostile ones in bounded work."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys

import pytest

from crawl_lib.config import ParseConfig
from crawl_lib.parse import ParsedPage, count_links, robots_sitemaps
from crawl_lib.parse.sitemap import may_be_sitemap, parse_sitemap
from tests.parse.links import columns, each_link

URL = "http://a.test/sitemap.xml"
NS = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'


def read(data: bytes | str, charset: str | None = None, **options: int) -> ParsedPage | None:
    """The page, None if the content does not begin as a sitemap."""
    given = data.encode() if isinstance(data, str) else data
    page = parse_sitemap(
        given, url=URL, header_charset=charset, config=ParseConfig(**options), max_bytes=1 << 20
    )
    return page if may_be_sitemap(given) else None


def found(data: bytes | str, **options: int) -> list[tuple[str, str]]:
    page = read(data, **options)
    assert page is not None
    return list(zip(columns(page.links).elements, columns(page.links).hrefs, strict=True))


URLSET = f"""<?xml version="1.0" encoding="UTF-8"?>
<!-- made by a <loc>machine</loc> -->
<urlset {NS} xmlns:image="http://www.google.com/schemas/sitemap-image/1.1">
  <url><loc> http://a.test/1?x=1&amp;y=2 </loc><lastmod>2005-01-01</lastmod>
    <image:image><image:loc>http://a.test/i.png</image:loc></image:image></url>
  <url><loc><![CDATA[http://a.test/2?x=1&y=2]]></loc></url>
  <!-- <url><loc>http://a.test/hidden</loc></url> -->
  <url><loc/><loc></loc><loc>http://a.test/&#252;</loc></url>
</urlset>"""
PAGES = [
    ("loc", "http://a.test/1?x=1&y=2"),
    ("loc", "http://a.test/2?x=1&y=2"),
    ("loc", "http://a.test/ü"),
]


def test_a_sitemap() -> None:
    assert found(URLSET) == PAGES
    page = read(URLSET)
    assert page is not None
    assert (
        page.base,
        page.charset,
        page.title,
        page.nofollow,
        set(columns(page.links).followable),
    ) == (
        *(URL, "utf-8", None, False),
        {True},
    )


def test_with_a_prefix_only_what_has_it_counts() -> None:
    text = f"<s:urlset {NS.replace('xmlns', 'xmlns:s')}><s:url><s:loc>http://a.test/1</s:loc><loc>no</loc></s:url>"
    assert found(text) == [("loc", "http://a.test/1")]


@pytest.mark.parametrize("encoding", ["utf-16", "iso-8859-1", "utf-8-sig"])
def test_in_other_charsets(encoding: str) -> None:
    text = URLSET.replace(
        'encoding="UTF-8"', f'encoding="{encoding.removesuffix("-sig")}"'
    ).replace("&#252;", "ü")
    assert found(text.encode(encoding)) == PAGES


def test_in_gzip_and_no_more_of_it_than_the_limit() -> None:
    assert found(gzip.compress(URLSET.encode())) == PAGES
    many = "".join(f"<url><loc>http://a.test/{number:020}</loc></url>" for number in range(40_000))
    assert 10_000 < len(found(gzip.compress(f"<urlset>{many}</urlset>".encode()))) < 25_000


def test_an_index() -> None:
    text = (
        f"<sitemapindex {NS}><sitemap><loc>http://a.test/s1.xml.gz</loc></sitemap></sitemapindex>"
    )
    assert found(text) == [("sitemap", "http://a.test/s1.xml.gz")]


def test_a_text() -> None:
    assert found("http://a.test/1\r\nHTTPS://a.test/2\n\n") == [
        ("loc", "http://a.test/1"),
        ("loc", "HTTPS://a.test/2"),
    ]
    assert found(b"\xef\xbb\xbfhttp://a.test/1") == [("loc", "http://a.test/1")]
    assert found("http://a.test/1 is a page\n") == []


def test_rss_of_both_kinds() -> None:
    text = """<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel><link>http://a.test/</link>
    <atom:link href="http://a.test/feed" rel="self"/>
    <item><title>&lt;link></title><description><![CDATA[<link>http://a.test/no</link>]]></description>
    <link>http://a.test/1</link><guid>http://a.test/guid</guid></item></channel></rss>"""
    assert found(text) == [("item", f"http://a.test/{path}") for path in ("", "1", "guid")]
    text = '<rdf:RDF xmlns="http://purl.org/rss/1.0/"><channel/><item><link>http://a.test/1</link></item></rdf:RDF>'
    assert found(text) == [("item", "http://a.test/1")]


def test_atom() -> None:
    text = """<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom"><link rel='self' href='/feed'/>
    <link rel="next" href="/feed?page=2"/><entry><link href="1?a&amp;b" /><link rel="Alternate" href="2"></link>
    <link rel="enclosure" href="a.mp3"/><linked href="no"/><content src="no"/></entry></feed>"""
    page = read(text)
    assert page is not None
    assert [(link.href, link.rel, link.followable) for link in each_link(page)] == [
        ("/feed", "self", False),
        ("/feed?page=2", "next", True),
        ("1?a&b", "alternate", True),
        ("2", "alternate", True),
        ("a.mp3", "enclosure", False),
    ]
    assert set(columns(page.links).elements) == {"entry"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html><loc>http://a.test/</loc></html>",
        b"<?xml version='1.0'?><svg><link>http://a.test/</link></svg>",
        b"<!DOCTYPE urlset [<!ENTITY a 'aaaa'>]><urlset><loc>http://a.test/&a;</loc></urlset>",
        b"A text about http://a.test/",
        gzip.compress(b"no sitemap" * 100, mtime=0),
        b"\x1f\x8bdamaged",
    ],
)
def test_what_is_none(data: bytes) -> None:
    assert read(data) is None


def test_links_beyond_the_limit_are_counted() -> None:
    page = read("<urlset>" + "<loc>http://a.test/</loc>" * 10, max_links_per_page=4)
    assert page is not None
    assert (count_links(page.links), page.links_cut) == (4, 6)


def test_what_robots_txt_names() -> None:
    body = (
        b"\xef\xbb\xbfSitemap: http://a.test/1.xml\r\nuser-agent: "
        b"*\rdisallow: /\n  SITE-MAP :/2.xml # mine\nsitemap:\n"
    )
    found = robots_sitemaps(body + b"Not a sitemap: x\nsitemaps: y\n#sitemap: z\n")
    assert columns(found).hrefs == ["http://a.test/1.xml", "/2.xml"]


HOSTILE = [
    "<!--",
    "<!-- a -->",
    "<!a>",
    "<loc>",
    "<loc><![CDATA[",
    "<![CDATA[",
    "<loc ",
    "<link ",
    "<link a=",
    "&#1;",
    " ",
    "<",
]


MORE_HOSTILE = [
    "<url>",
    "<loc>a<!--",
    "<loc>]]>",
    '<link "',
    "<link '\"",
    "<loc><![CDATA[a]]>",
    "<guid>http://a</guid>",
    "<item>",
    "&amp;",
    "</a>",
    "<a xml:base='x/'>",
]


@pytest.mark.parametrize(
    "root", ["", "<urlset>", "<rss>", "<feed>", "<feed><link ", "<feed xml:base='/a/'>"]
)
def test_hostile_markup_is_read_in_work_that_grows_with_its_bytes(root: str) -> None:
    """Half a megabyte of each; were it quadratic, the child would need hours."""
    code = f"""
from tests.parse.test_sitemap import read
for piece in {json.dumps([*HOSTILE, *MORE_HOSTILE, "a", "<a:", "http://a "])}:
    read({root!r} + piece * (500_000 // len(piece)))
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_what_a_sitemap_says_of_its_pages_is_their_rel() -> None:
    text = """<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
    <url><loc>/a</loc><lastmod>2026-11-01</lastmod><changefreq>Daily</changefreq><priority>0.8</priority></url>
    <url><lastmod><![CDATA[2026-11-01T01:00:00+01:00]]></lastmod><loc>/b</loc></url>
    <url><loc>/c</loc><lastmod>soon</lastmod><changefreq>never</changefreq><priority>1.1</priority></url>
    <url><loc>/d</loc><loc>/e</loc><priority>1.0</priority></url>
    <url><lastmod>0001-01-01</lastmod><loc>/f</loc></url>
    <url><lastmod>2026</lastmod><loc>/g</loc></url><url><lastmod>2026-11</lastmod><loc>/h</loc></url></urlset>"""
    page = read(text)
    assert page is not None
    assert dict(zip(columns(page.links).hrefs, columns(page.links).rels, strict=True)) == {
        "/a": "lastmod=1793491200 every_s=86400 priority=0.8",
        "/b": "lastmod=1793491200",
        "/c": "",
        "/d": "",
        "/e": "priority=1.0",
        "/f": "",
        "/g": "lastmod=1767225600",
        "/h": "lastmod=1793491200",
    }


def test_octets_of_a_sitemap_in_robots_txt_are_escaped_as_they_are() -> None:
    found = robots_sitemaps(b"Sitemap: /caf\xe9\nSitemap: /caf\xc3\xa9?\xff")
    assert columns(found).hrefs == ["/caf%E9", "/caf%C3%A9?%FF"]


def cut(data: bytes | str) -> list[str]:
    """What a text says whose end is missing."""
    given = data.encode() if isinstance(data, str) else data
    page = parse_sitemap(
        given, url=URL, header_charset=None, config=ParseConfig(), max_bytes=1 << 20, is_cut=True
    )
    return columns(page.links).hrefs


ONE, PIECE = "http://a.test/one", "http://a.test/two/arti"


@pytest.mark.parametrize(
    "text",
    [
        f"<urlset><url><loc>{ONE}</loc></url><url><loc>{PIECE}",
        f"<urlset><url><loc>{ONE}</loc></url><url><loc>{PIECE}</loc><lastmod>20",
        f"<urlset><url><loc>{ONE}</loc></url><url><loc>{PIECE}</loc></ur",
        f"<urlset><url><loc>{ONE}</loc></url><url><loc><![CDATA[{PIECE}",
        f"<urlset><url><loc>{ONE}</loc></url><url><loc><![CDATA[{PIECE}]]",
        f"<s:urlset><s:url><s:loc>{ONE}</s:loc></s:url><s:url><s:loc>{PIECE}</s:loc>",
        f"<sitemapindex><sitemap><loc>{ONE}</loc></sitemap><sitemap><loc>{PIECE}</loc>",
        f"<rss><item><link>{ONE}</link></item><item><link>{PIECE}",
        f"<rss><item><link>{ONE}</link></item><item><link>{PIECE}</link><guid>{PIECE}</guid><ti",
        f"<rdf:RDF><item rdf:about='x'><link>{ONE}</link></item><item rdf:about='y'><link>{PIECE}</link>",
        f"<feed><entry><link href='{ONE}'/></entry><entry><link href='{PIECE}'/><title>",
        f"<feed><entry><link href='{ONE}'/></entry><entry><link href='{PIECE}",
        f"<a:feed><a:entry><a:link href='{ONE}'/></a:entry><a:entry><a:link href='{PIECE}'/>",
        f"{ONE}\n{PIECE}",
        f"{ONE}\r\n{PIECE}\u00e9",
        *[f"{ONE}\n{'https://'[:count]}" for count in range(9)],
    ],
)
def test_what_broke_off_is_no_entry(text: str) -> None:
    assert cut(text) == [ONE]
    assert cut(text.encode("utf-16")) == [ONE]


def test_what_a_damaged_gzip_broke_off_is_no_entry() -> None:
    lines = "".join(f"http://a.test/{number:050}\n" for number in range(2_000))
    page = read(gzip.compress(lines.encode())[:-400])
    assert page is not None
    assert 0 < count_links(page.links) < 2_000
    assert {len(href) for href in columns(page.links).hrefs} == {len("http://a.test/") + 50}


def test_what_is_whole_keeps_its_last_line() -> None:
    assert found(f"{ONE}\n{PIECE}") == [("loc", ONE), ("loc", PIECE)]
    assert cut(f"{ONE}\n{PIECE}\n") == [ONE, PIECE]
    assert cut(f"<urlset><url><loc>{ONE}</loc></url><url><loc>{PIECE}</loc></url>") == [ONE, PIECE]
    assert cut(f"<feed><link rel='next' href='{ONE}'/><id>") == [ONE]
    assert found(f"<urlset><url><loc>{ONE}</loc></url><url><loc>{PIECE}") == [("loc", ONE)]


@pytest.mark.parametrize(
    ("inside", "href"),
    [
        ("<![CDATA[/p?a[]=1&b=2]]>", "/p?a[]=1&b=2"),
        ("<![CDATA[/p]a]]b]>c]]>", "/p]a]]b]>c"),
        ("/<![CDATA[q?a=1&b=2]]>&amp;c<![CDATA[&amp;]]>", "/q?a=1&b=2&c&amp;"),
        ("\n <![CDATA[ /whole ]]>\n", "/whole"),
        ("/a<!-- <loc>/no</loc> -->b", "/ab"),
        ("/?a=1&amp;copy=2&lt=3&lt;&gt;&quot;&apos;", "/?a=1&copy=2&lt=3<>\"'"),
        ("/?x&copy;&eacute;&nbsp;", "/?x&copy;&eacute;&nbsp;"),
        ("/?x=1&copy=2&amp", "/?x=1&copy=2&amp"),
        ("/&#252;&#xFC;&#000000000252;&#x80;&#xD800;&#0;", "/üüü\x80\ufffd\ufffd"),
        ("/&#XFC;&#99999999;", "/&#XFC;&#99999999;"),
    ],
)
def test_texts_are_those_of_xml(inside: str, href: str) -> None:
    assert found(f"<urlset><url><loc>{inside}</loc></url></urlset>") == [("loc", href)]
    if "<" not in inside and '"' not in href:
        assert found(f'<feed><link href="{inside}"/></feed>') == [("entry", href)]


def test_a_guid_is_a_link_unless_it_says_otherwise() -> None:
    text = """<rss><channel><item><guid>http://a.test/1</guid></item>
    <item><guid isPermaLink="true">http://a.test/2</guid><link>http://a.test/2</link></item>
    <item><link>http://a.test/3</link><guid isPermaLink="false">http://a.test/no</guid></item>
    <item><link>http://a.test/4</link><guid isPermaLink='true'><![CDATA[http://a.test/5?a&b]]></guid></item>
    <item><guid>tag:a.test,2026:6</guid></item><item><guid isPermaLink="true">/7</guid></item></channel></rss>"""
    hrefs = [href for _, href in found(text)]
    assert hrefs == [f"http://a.test/{path}" for path in ("1", "2", "3", "4", "5?a&b")]


@pytest.mark.parametrize(
    ("text", "hrefs"),
    [
        ("<feed xml:base='/o/'><entry><link href='p1'/></entry></feed>", ["http://a.test/o/p1"]),
        (
            "<feed xml:base='http://b.test/o/'><entry xml:base='deep/'><link href='p2'/></entry><link href='p3'/>",
            ["http://b.test/o/deep/p2", "http://b.test/o/p3"],
        ),
        (
            "<feed><entry><link xml:base='x/' href='a'/><link href='b'/></entry></feed>",
            ["http://a.test/x/a", "b"],
        ),
        (
            "<feed><entry><content xml:base='/no/'><p><link href='c'/></p></content><link href='d'/></entry></feed>",
            ["http://a.test/no/c", "d"],
        ),
        (
            "<rss xml:base='/r/'><item><link>1</link></item><item xml:base='s/'><link>2</link></item></rss>",
            ["http://a.test/r/1", "http://a.test/r/s/2"],
        ),
        ("<urlset xml:base='/u/'><url><loc>1</loc></url></urlset>", ["http://a.test/u/1"]),
        (
            "<feed xml:base='mailto:x'><link href='a'/><link href='ftp://x/'/></feed>",
            ["a", "ftp://x/"],
        ),
        (
            "<feed xml:base='/b/'><!-- <x xml:base='/c/'> --><link href='a'/></x></y></z><link href='b'/></feed>",
            ["http://a.test/b/a", "b"],
        ),
    ],
)
def test_xml_base(text: str, hrefs: list[str]) -> None:
    assert [href for _, href in found(text)] == hrefs


def test_bases_without_end_cost_what_they_weigh() -> None:
    page = read("<feed>" + "<a xml:base='x/'>" * 20_000 + "<link href='p'/>")
    assert page is not None
    assert len(columns(page.links).hrefs[0]) < 1000


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_known_by_its_declaration(encoding: str) -> None:
    text = f"<?xml version='1.0' encoding='UTF-16'?><urlset><url><loc>{ONE}/ü</loc></url></urlset>"
    assert found(text.encode(encoding)) == [("loc", f"{ONE}/ü")]


def test_in_xml_the_declaration_counts_and_no_meta() -> None:
    text = "<?xml version='1.0' encoding='koi8-r'?><rss><item><a>&lt;</a><link>/я</link><![CDATA[<meta charset=big5>]]>"
    assert found(text.encode("koi8-r")) == [("item", "/я")]
    assert found(text.replace(" encoding='koi8-r'", "")) == [("item", "/я")]
