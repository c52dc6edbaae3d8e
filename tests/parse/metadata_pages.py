"""Pages with metadata, and what a person reads out of each, written from the standards alone.

ogp.me, Twitter's cards, schema.org with JSON-LD and microdata, the HTML Standard, RFC 3339, BCP 47. A page names all of
its fields: a field that a page does not name has no value. `docs/metadata.md` gives the names of sources.
"""

# ruff: noqa: E501, RUF001

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

NOW = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
URL = "https://news.example/2026/story.html"


class MetadataPage(NamedTuple):
    """A page as a server sends it. `expected`: by the field's name, its value and its source.

    The value of an image has a URL, a width and a height. `charset`: of the header Content-Type.
    """

    name: str
    data: bytes
    expected: dict[str, tuple[object, str]]
    charset: str | None = None
    url: str = URL


PAGES: list[MetadataPage] = []


def page(
    name: str,
    html: str,
    expected: dict[str, tuple[object, str]],
    *,
    encoding: str = "utf-8",
    charset: str | None = None,
    url: str = URL,
) -> None:
    """Add a page, written in `encoding`."""
    PAGES.append(MetadataPage(name, html.encode(encoding), expected, charset, url))


def json_ld(text: str, kind: str = "application/ld+json") -> str:
    """Put JSON-LD into its element."""
    return f'<script type="{kind}">{text}</script>'


# Scripts and charsets: Latin, Cyrillic, Greek, Arabic, Hebrew, Han, Kana, Hangul, Thai, Devanagari, Armenian, Georgian,
# Tamil, Ethiopic.

page(
    "japanese shift_jis, said by a header",
    "<html lang=ja><title>東京の天気</title><meta property=og:title content='東京は晴れ'>"
    "<meta property=og:site_name content='天気ニュース'><meta property=og:description content='明日は雨でしょう。'>",
    {
        "title": ("東京は晴れ", "og:title"),
        "description": ("明日は雨でしょう。", "og:description"),
        "site": ("天気ニュース", "og:site_name"),
        "language": ("ja", "html lang"),
    },
    encoding="shift_jis",
    charset="Shift_JIS",
)
page(
    "japanese euc-jp, said by a meta",
    "<html lang=ja-JP><meta charset=euc-jp><title>ひらがなとカタカナ</title><meta name=author content='山田 太郎'>",
    {
        "title": ("ひらがなとカタカナ", "html title"),
        "author": ("山田 太郎", "author"),
        "language": ("ja-JP", "html lang"),
    },
    encoding="euc-jp",
)
page(
    "japanese iso-2022-jp",
    "<meta http-equiv=Content-Type content='text/html; charset=iso-2022-jp'><title>日本語</title>"
    "<meta name=description content='説明です'>",
    {"title": ("日本語", "html title"), "description": ("説明です", "description")},
    encoding="iso-2022-jp",
)
page(
    "russian windows-1251",
    "<html lang=ru><head><meta charset=windows-1251><title>Новости дня</title>"
    "<meta property='og:title' content='Главная новость'><meta name=author content='Иван Петров'>"
    + json_ld(
        '{"@type":"NewsArticle","headline":"Не это","datePublished":"2026-03-01T09:30:00+03:00"}'
    ),
    {
        "title": ("Главная новость", "og:title"),
        "author": ("Иван Петров", "author"),
        "published": ("2026-03-01T09:30:00+03:00", "json-ld datePublished"),
        "type": ("NewsArticle", "json-ld @type"),
        "language": ("ru", "html lang"),
    },
    encoding="cp1251",
)
page(
    "ukrainian koi8-u by a header",
    "<html lang=uk-UA><title>Київ</title><meta name=description content='Їжак і ґанок'>",
    {
        "title": ("Київ", "html title"),
        "description": ("Їжак і ґанок", "description"),
        "language": ("uk-UA", "html lang"),
    },
    encoding="koi8-u",
    charset="koi8-u",
)
page(
    "greek iso-8859-7",
    "<html lang=el><meta charset=iso-8859-7><title>Καλημέρα</title><meta name=twitter:title content='Ειδήσεις'>",
    {"title": ("Ειδήσεις", "twitter:title"), "language": ("el", "html lang")},
    encoding="iso-8859-7",
)
page(
    "arabic windows-1256",
    "<html dir=rtl lang=ar-EG><meta charset=windows-1256><title>أخبار اليوم</title>"
    "<meta property=og:description content='وصف الصفحة'><meta property=og:locale content=ar_SA>",
    {
        "title": ("أخبار اليوم", "html title"),
        "description": ("وصف الصفحة", "og:description"),
        "language": ("ar-EG", "html lang"),
    },
    encoding="cp1256",
)
page(
    "hebrew windows-1255, with an older code of the language",
    "<html lang=iw><meta charset=windows-1255><title>שלום עולם</title>",
    {"title": ("שלום עולם", "html title"), "language": ("he", "html lang")},
    encoding="cp1255",
)
page(
    "simplified chinese gbk",
    "<html lang=zh-cmn-Hans-CN><meta charset=gbk><title>头条新闻</title><meta property=og:site_name content=新闻网>",
    {
        "title": ("头条新闻", "html title"),
        "site": ("新闻网", "og:site_name"),
        "language": ("zh-cmn-Hans-CN", "html lang"),
    },
    encoding="gbk",
)
page(
    "simplified chinese gb18030 by a header",
    "<title>简体中文</title><meta name=author content='王小明'><meta itemprop=inLanguage content=zh-Hans>",
    {
        "title": ("简体中文", "html title"),
        "author": ("王小明", "author"),
        "language": ("zh-Hans", "itemprop inLanguage"),
    },
    encoding="gb18030",
    charset="gb18030",
)
page(
    "traditional chinese big5",
    "<html lang=ZH-hant-tw><meta charset=big5><title>繁體中文</title><meta property=og:title content='臺灣新聞'>",
    {"title": ("臺灣新聞", "og:title"), "language": ("zh-Hant-TW", "html lang")},
    encoding="big5",
)
page(
    "korean euc-kr",
    "<html lang=ko><meta charset=euc-kr><title>한국어 뉴스</title><meta property=article:author content='김철수'>",
    {
        "title": ("한국어 뉴스", "html title"),
        "author": ("김철수", "article:author"),
        "language": ("ko", "html lang"),
    },
    encoding="euc-kr",
)
page(
    "thai windows-874",
    "<html lang=th><meta charset=tis-620><title>ข่าววันนี้</title><meta name=description content='คำอธิบาย'>",
    {
        "title": ("ข่าววันนี้", "html title"),
        "description": ("คำอธิบาย", "description"),
        "language": ("th", "html lang"),
    },
    encoding="tis-620",
)
page(
    "polish iso-8859-2",
    "<html lang=pl><meta charset=iso-8859-2><title>Żółw i źdźbło</title><meta name=dc.creator content='Łucja Ś.'>",
    {
        "title": ("Żółw i źdźbło", "html title"),
        "author": ("Łucja Ś.", "dc.creator"),
        "language": ("pl", "html lang"),
    },
    encoding="iso-8859-2",
)
page(
    "french windows-1252 without a declaration",
    "<html lang=fr><title>L\u2019été à la plage</title><meta name=description content='Cœur \u2013 déjà vu'>",
    {
        "title": ("L\u2019été à la plage", "html title"),
        "description": ("Cœur \u2013 déjà vu", "description"),
        "language": ("fr", "html lang"),
    },
    encoding="cp1252",
)
page(
    "hindi utf-16 with a mark",
    "\ufeff<html lang=hi><title>आज का समाचार</title><meta property=og:title content='मुख्य समाचार'>",
    {"title": ("मुख्य समाचार", "og:title"), "language": ("hi", "html lang")},
    encoding="utf-16-le",
)
page(
    "tamil utf-8",
    "<html lang=ta-IN><meta charset=utf-8><title>செய்திகள்</title>"
    + json_ld('{"@type":"Article","author":{"@type":"Person","name":"முருகன்"}}'),
    {
        "title": ("செய்திகள்", "html title"),
        "author": ("முருகன்", "json-ld author"),
        "type": ("Article", "json-ld @type"),
        "language": ("ta-IN", "html lang"),
    },
)
page(
    "georgian, armenian and ethiopic in escapes of JSON",
    "<title>x</title>"
    + json_ld(
        r'{"@type":"BlogPosting","headline":"\u10d0\u10d1\u10d2","description":"\u0531\u0532",'
        r'"author":"\u12a0\u1260","inLanguage":"ka"}'
    ),
    {
        "title": ("აბგ", "json-ld headline"),
        "description": ("ԱԲ", "json-ld description"),
        "author": ("አበ", "json-ld author"),
        "type": ("BlogPosting", "json-ld @type"),
        "language": ("ka", "json-ld inLanguage"),
    },
)
page(
    "pairs of surrogates in JSON, and a lone one",
    json_ld(r'{"@type":"Article","headline":"\ud83d\ude00 ok","description":"a\ud800b"}'),
    {
        "title": ("\U0001f600 ok", "json-ld headline"),
        "description": ("a\ufffdb", "json-ld description"),
        "type": ("Article", "json-ld @type"),
    },
)

# Open Graph (https://ogp.me).

page(
    "the four required properties, and the optional ones",
    "<html prefix='og: https://ogp.me/ns#'><head><title>The Rock (1996)</title>"
    "<meta property='og:title' content='The Rock'><meta property='og:type' content='video.movie'>"
    "<meta property='og:url' content='https://www.movies.example/title/tt0117500/'>"
    "<meta property='og:image' content='https://cdn.movies.example/images/rock.jpg'>"
    "<meta property='og:description' content='Sean Connery found fame.'>"
    "<meta property='og:determiner' content='the'><meta property='og:locale' content='en_GB'>"
    "<meta property='og:locale:alternate' content='fr_FR'><meta property='og:site_name' content='Movies'>",
    {
        "title": ("The Rock", "og:title"),
        "description": ("Sean Connery found fame.", "og:description"),
        "image": (("https://cdn.movies.example/images/rock.jpg", None, None), "og:image"),
        "type": ("video.movie", "og:type"),
        "site": ("Movies", "og:site_name"),
        "language": ("en-GB", "og:locale"),
        "canonical_url": ("https://www.movies.example/title/tt0117500/", "og:url"),
    },
)
page(
    "structured properties of an image",
    "<meta property='og:image' content='http://img.example/ogp.jpg'>"
    "<meta property='og:image:secure_url' content='https://secure.img.example/ogp.jpg'>"
    "<meta property='og:image:type' content='image/jpeg'><meta property='og:image:width' content='400'>"
    "<meta property='og:image:height' content='300'><meta property='og:image:alt' content='A shiny red apple'>",
    {"image": (("https://secure.img.example/ogp.jpg", 400, 300), "og:image")},
)
page(
    "arrays of images: the size is that of the second",
    "<meta property=og:image content=https://a.example/rock.jpg><meta property=og:image content=https://a.example/2.jpg>"
    "<meta property=og:image:width content=300><meta property=og:image:height content=200>",
    {"image": (("https://a.example/rock.jpg", None, None), "og:image")},
)
page(
    "a first image that is invalid",
    "<meta property=og:image content='ftp://a.example/1.jpg'><meta property=og:image:width content=1>"
    "<meta property=og:image content='/2.jpg'><meta property=og:image:width content=640>"
    "<meta property=og:image:height content='480'>",
    {"image": (("https://news.example/2.jpg", 640, 480), "og:image")},
)
page(
    "sizes that are none",
    "<meta property=og:image content='/a.png'><meta property=og:image:width content='100%'>"
    "<meta property=og:image:height content='-5'>",
    {"image": (("https://news.example/a.png", None, None), "og:image")},
)
page(
    "og:image:url in place of og:image",
    "<meta property=og:image:url content=//cdn.example/x.webp><meta property=og:image:width content=10>",
    {"image": (("https://cdn.example/x.webp", 10, None), "og:image")},
)
page(
    "an article",
    "<meta property=og:type content=article><meta property=article:published_time content=2026-01-02>"
    "<meta property=article:modified_time content='2026-01-03T04:05:06Z'>"
    "<meta property=article:author content='Ann Bee'><meta property=article:author content='Cy Dee'>"
    "<meta property=article:section content=Technology>",
    {
        "type": ("article", "og:type"),
        "author": ("Ann Bee, Cy Dee", "article:author"),
        "published": ("2026-01-02", "article:published_time"),
        "modified": ("2026-01-03T04:05:06+00:00", "article:modified_time"),
    },
)
page(
    "an author that is a profile's address",
    "<meta property=article:author content='https://social.example/ann'><meta name=author content='Ann Bee'>",
    {"author": ("Ann Bee", "author")},
)
page(
    "one meta for two vocabularies",
    "<meta name=twitter:title property=og:title content='Both'>"
    "<meta property='og:description twitter:description' itemprop=description content='All three'>",
    {"title": ("Both", "og:title"), "description": ("All three", "og:description")},
)
page(
    "the first of equal properties counts, an empty one does not",
    "<meta property=og:title content=' \n '><meta property=og:title content=First><meta property=og:title content=No>",
    {"title": ("First", "og:title")},
)
page(
    "upper case and references",
    "<META NAME='OG:TITLE' CONTENT='Fish &amp; Chips &#8211; &lt;b&gt;'><Meta Property=OG:Type Content=Website>",
    {"title": ("Fish & Chips \u2013 <b>", "og:title"), "type": ("Website", "og:type")},
)

# Twitter's cards.

page(
    "a card with a large image",
    "<title>T</title><meta name=twitter:card content=summary_large_image><meta name=twitter:site content=@nytimes>"
    "<meta name=twitter:creator content=@ann><meta name=twitter:title content='Parade of Fans'>"
    "<meta name=twitter:description content='NEWARK - The guest list'>"
    "<meta name=twitter:image content='http://graphics8.example/a.jpg'>",
    {
        "title": ("Parade of Fans", "twitter:title"),
        "description": ("NEWARK - The guest list", "twitter:description"),
        "image": (("http://graphics8.example/a.jpg", None, None), "twitter:image"),
    },
)
page(
    "the older names of a card, and Open Graph before it",
    "<meta name=twitter:image:src content=/t.png><meta name=twitter:image:width content=50>"
    "<meta name=twitter:image:height content=60><meta name=twitter:title content=No><meta property=og:title content=Yes>",
    {
        "title": ("Yes", "og:title"),
        "image": (("https://news.example/t.png", 50, 60), "twitter:image"),
    },
)

# JSON-LD with terms of schema.org.

page(
    "an article as search engines document it",
    "<html lang=en><head><title>Title of a News Article</title>"
    + json_ld(
        '{"@context":"https://schema.org","@type":"NewsArticle","headline":"Title of a News Article!",'
        '"image":["https://a.example/1x1/photo.jpg","https://a.example/4x3/photo.jpg"],'
        '"datePublished":"2024-01-05T08:00:00+08:00","dateModified":"2024-02-05T09:20:00+08:00",'
        '"author":[{"@type":"Person","name":"Jane Doe","url":"https://a.example/jane"},'
        '{"@type":"Person","name":"John Doe"}],"publisher":{"@type":"Organization","name":"The Times"}}'
    ),
    {
        "title": ("Title of a News Article!", "json-ld headline"),
        "image": (("https://a.example/1x1/photo.jpg", None, None), "json-ld image"),
        "author": ("Jane Doe, John Doe", "json-ld author"),
        "published": ("2024-01-05T08:00:00+08:00", "json-ld datePublished"),
        "modified": ("2024-02-05T09:20:00+08:00", "json-ld dateModified"),
        "site": ("The Times", "json-ld publisher"),
        "type": ("NewsArticle", "json-ld @type"),
        "language": ("en", "html lang"),
    },
)
page(
    "a graph whose things name each other by id",
    json_ld(
        '{"@context":"https://schema.org","@graph":[{"@type":"Article","@id":"#a","headline":"By id",'
        '"author":{"@id":"#p"},"image":{"@id":"#i"},"isPartOf":{"@id":"#w"}},{"@type":"WebPage","@id":"#w","name":"W"},'
        '{"@type":"ImageObject","@id":"#i","url":"/img/i.jpg","width":1200,"height":"630"},'
        '{"@type":"WebSite","@id":"#s","name":"Blog"},{"@type":"Person","@id":"#p","name":"Pat"}]}'
    ),
    {
        "title": ("By id", "json-ld headline"),
        "image": (("https://news.example/img/i.jpg", 1200, 630), "json-ld image"),
        "author": ("Pat", "json-ld author"),
        "site": ("Blog", "json-ld WebSite"),
        "type": ("Article", "json-ld @type"),
    },
)
page(
    "an article counts before the page that has it",
    json_ld(
        '[{"@type":"WebPage","name":"Page"},{"@type":["Thing","https://schema.org/BlogPosting"],"headline":"Post"}]'
    ),
    {"title": ("Post", "json-ld headline"), "type": ("BlogPosting", "json-ld @type")},
)
page(
    "a page with a main entity",
    json_ld(
        '{"@type":"WebPage","mainEntity":{"@type":"Article","headline":"Inner","datePublished":"2025-05-05",'
        '"image":{"@type":"ImageObject","contentUrl":"//c.example/p.gif","width":{"@type":"QuantitativeValue",'
        '"value":320},"height":"240px"}}}'
    ),
    {
        "title": ("Inner", "json-ld headline"),
        "image": (("https://c.example/p.gif", 320, 240), "json-ld image"),
        "published": ("2025-05-05", "json-ld datePublished"),
        "type": ("Article", "json-ld @type"),
    },
)
page(
    "a video",
    json_ld(
        '{"@type":"VideoObject","name":"Clip","description":"A  clip\\nof two lines","uploadDate":"2026-02-02T10:00:00",'
        '"thumbnailUrl":["https://v.example/t.jpg"]}'
    ),
    {
        "title": ("Clip", "json-ld name"),
        "description": ("A clip of two lines", "json-ld description"),
        "image": (("https://v.example/t.jpg", None, None), "json-ld thumbnailUrl"),
        "published": ("2026-02-02T10:00:00", "json-ld uploadDate"),
        "type": ("VideoObject", "json-ld @type"),
    },
)
page(
    "values with a language",
    json_ld(
        '{"@type":"Article","headline":[{"@value":"Titel","@language":"de"}],"inLanguage":{"@type":"Language",'
        '"alternateName":"de"},"description":{"@value":"Text"}}'
    ),
    {
        "title": ("Titel", "json-ld headline"),
        "description": ("Text", "json-ld description"),
        "type": ("Article", "json-ld @type"),
        "language": ("de", "json-ld inLanguage"),
    },
)
page(
    "a comment of HTML around it",
    json_ld('\n<!--\n{"@type":"Article","headline":"Commented"}\n-->\n'),
    {"title": ("Commented", "json-ld headline"), "type": ("Article", "json-ld @type")},
)
page(
    "CDATA in comments of a script around it",
    json_ld('/* <![CDATA[ */ {"@type":"Article","headline":"Sections"} /* ]]> */'),
    {"title": ("Sections", "json-ld headline"), "type": ("Article", "json-ld @type")},
)
page(
    "a comment before it",
    json_ld('<!-- made by a plugin --> {"@type":"Article","headline":"Behind"};'),
    {"title": ("Behind", "json-ld headline"), "type": ("Article", "json-ld @type")},
)
page(
    "a type with parameters",
    json_ld(
        '{"@type":"Article","headline":"Profile"}',
        "application/ld+json; profile=http://www.w3.org/ns/json-ld#expanded",
    ),
    {"title": ("Profile", "json-ld headline"), "type": ("Article", "json-ld @type")},
)
page(
    "what is no JSON, no JSON-LD, or no thing that is the page",
    "<title>Title</title>"
    + json_ld('{"@type":"Article","headline":"x",}')
    + json_ld('{"@type":"Article","headline":"y"}', "application/json")
    + json_ld(
        '{"@type":"Organization","name":"Corp","description":"No","image":"https://a.example/logo.png"}'
    )
    + json_ld('{"@type":"BreadcrumbList","itemListElement":[{"@type":"ListItem","name":"Home"}]}'),
    {"title": ("Title", "html title")},
)
page(
    "JSON-LD where the text of a script has a tag",
    json_ld('{"@type":"Article","headline":"<title>a</title> &amp; b"}') + "<title>Real</title>",
    {
        "title": ("<title>a</title> &amp; b", "json-ld headline"),
        "type": ("Article", "json-ld @type"),
    },
)
page(
    "a product",
    json_ld(
        '{"@type":"Product","name":"Anvil","description":"Sleek","image":["https://a.example/anvil.jpg"],'
        '"url":"https://shop.example/anvil","brand":{"@type":"Brand","name":"ACME"}}'
    ),
    {
        "title": ("Anvil", "json-ld name"),
        "description": ("Sleek", "json-ld description"),
        "image": (("https://a.example/anvil.jpg", None, None), "json-ld image"),
        "canonical_url": ("https://shop.example/anvil", "json-ld url"),
        "type": ("Product", "json-ld @type"),
    },
)

# Microdata (https://html.spec.whatwg.org/#microdata).

page(
    "metas of microdata",
    "<title>Md</title><div itemscope itemtype=https://schema.org/Article><meta itemprop=headline content='Head'>"
    "<meta itemprop='description' content='Desc'><meta itemprop=author content='Au Thor'>"
    "<meta itemprop=datePublished content=2026-05-06T07:08Z><meta itemprop=dateModified content=2026-05-07>"
    "<meta itemprop=image content=md.png></div>",
    {
        "title": ("Head", "itemprop headline"),
        "description": ("Desc", "itemprop description"),
        "image": (("https://news.example/2026/md.png", None, None), "itemprop image"),
        "author": ("Au Thor", "itemprop author"),
        "published": ("2026-05-06T07:08:00+00:00", "itemprop datePublished"),
        "modified": ("2026-05-07", "itemprop dateModified"),
    },
)
page(
    "links of microdata, and times",
    "<title>Md</title><link itemprop=image href=https://m.example/i.png><time itemprop=dateModified datetime=2026-06-02>"
    "</time><time itemprop=datePublished datetime='2026-06-01 12:30+02:00'>June</time>",
    {
        "title": ("Md", "html title"),
        "image": (("https://m.example/i.png", None, None), "itemprop image"),
        "published": ("2026-06-01T12:30:00+02:00", "time datePublished"),
        "modified": ("2026-06-02", "time dateModified"),
    },
)

# HTML: titles, metas, links, languages, dates.

page(
    "metas of HTML",
    "<title>\n  Plain \t title </title><meta name=description content='What it is'><meta name=author content='A. N. Other'>"
    "<meta name=application-name content='App'><meta name=generator content=hand><meta http-equiv=content-language content=nl-be>",
    {
        "title": ("Plain title", "html title"),
        "description": ("What it is", "description"),
        "author": ("A. N. Other", "author"),
        "site": ("App", "application-name"),
        "language": ("nl-BE", "content-language"),
    },
)
page(
    "links of HTML",
    "<title>L</title><link rel='shortcut icon' href=/favicon.ico><link rel=apple-touch-icon href=/touch.png sizes=180x180>"
    "<link rel=mask-icon href=/mask.svg><link rel=canonical href='/2026/story?a=1'><link rel=image_src href=/src.jpg>"
    "<link rel=alternate type=text/xml+oembed href='/oembed?format=xml&amp;url=x'>"
    "<link rel=alternate type=application/json+oembed href='/oembed?format=json&amp;url=x' title=T>"
    "<link rel=alternate type=application/rss+xml href=/feed>",
    {
        "title": ("L", "html title"),
        "image": (("https://news.example/src.jpg", None, None), "link image_src"),
        "icon": ("https://news.example/favicon.ico", "link icon"),
        "canonical_url": ("https://news.example/2026/story?a=1", "link canonical"),
        "oembed": ("https://news.example/oembed?format=json&url=x", "link application/json+oembed"),
    },
)
page(
    "a touch icon and oEmbed in XML alone",
    "<link rel=apple-touch-icon href=touch.png><link rel='alternate' type='text/xml+oembed' href=//o.example/x>",
    {
        "icon": ("https://news.example/2026/touch.png", "link apple-touch-icon"),
        "oembed": ("https://o.example/x", "link text/xml+oembed"),
    },
)
page(
    "a base, and URLs in their canonical form",
    "<base href='HTTP://Static.Example:80/dir/'><meta property=og:image content='a/../b%7Ec.png#x'><link rel=icon href=?i>",
    {
        "image": (("http://static.example/dir/b~c.png", None, None), "og:image"),
        "icon": ("http://static.example/dir/?i", "link icon"),
    },
)
page(
    "URLs that are none of the web",
    "<meta property=og:image content='data:image/png;base64,AAAA'><meta property=og:url content='app://x'>"
    "<link rel=icon href='javascript:1'><link rel=alternate type=application/json+oembed href='file:///etc/passwd'>"
    "<meta name=twitter:image content='http://'><title>None</title>",
    {"title": ("None", "html title")},
)
page(
    "what is not shown or no meta of the page",
    "<!-- <meta property=og:title content=no> --><template><meta property=og:title content=no></template>"
    "<script>'<meta property=og:title content=no>'</script><noscript></noscript><svg><title>no</title></svg>"
    "<textarea><title>no</title></textarea><title>Yes</title>",
    {"title": ("Yes", "html title")},
)
page(
    "language tags in their canonical case",
    "<html lang='SR-LATN-rs-EKAVSK'><title>x</title>",
    {"title": ("x", "html title"), "language": ("sr-Latn-RS-ekavsk", "html lang")},
)
page(
    "a language tag with an extension and a private part",
    "<html lang=de-DE-u-co-phonebk-x-Private>",
    {"language": ("de-DE-u-co-phonebk-x-private", "html lang")},
)
page(
    "language tags that are malformed",
    "<html lang='english'><meta http-equiv=content-language content='en, fr'><meta property=og:locale content=es_419>",
    {"language": ("es-419", "og:locale")},
)
page(
    "codes of three letters",
    "<html lang=deu-CH><meta property=og:locale content=fr_FR>",
    {"language": ("de-CH", "html lang")},
)
page(
    "dates of RFC 3339 with fractions and offsets",
    "<meta property=article:published_time content='2026-03-29T01:02:03.250-09:30'>"
    "<meta property=og:updated_time content='2026-03-30t01:02:03z'>",
    {
        "published": ("2026-03-29T01:02:03.250000-09:30", "article:published_time"),
        "modified": ("2026-03-30T01:02:03+00:00", "og:updated_time"),
    },
)
page(
    "dates that are impossible",
    "<meta property=article:published_time content=2026-02-29><meta property=article:modified_time content=2026-13-01>"
    "<meta itemprop=datePublished content='2026-04-31T00:00:00Z'><meta name=date content='2026-01-01T25:00:00Z'>"
    "<meta name=dc.date.issued content=2024-02-29>",
    {"published": ("2024-02-29", "dc.date.issued")},
)
page(
    "dates of the basic format and of mail",
    "<meta name=dc.date content=20260304T050607Z><meta name=last-modified content='Wed, 04 Mar 2026 05:06:07 +0100'>",
    {
        "published": ("2026-03-04T05:06:07+00:00", "dc.date"),
        "modified": ("2026-03-04T05:06:07+01:00", "last-modified"),
    },
)
page(
    "a month alone",
    "<meta name=dcterms.issued content=2025-07><meta name=dcterms.modified content=2025>",
    {"published": ("2025-07", "dcterms.issued"), "modified": ("2025", "dcterms.modified")},
)
page(
    "a date in the future and one that no clock ever had",
    "<meta property=article:published_time content=2199-01-01><meta property=article:modified_time content=1970-01-01>"
    "<time pubdate datetime=2026-08-09T10:11>9 August</time>",
    {"published": ("2026-08-09T10:11:00", "time pubdate")},
)
page(
    "a page with nothing",
    "<!doctype html><html><head></head><body><p>Text</p></body></html>",
    {},
)
page(
    "metadata in the body, in tags that never end properly",
    "<body><p><meta property=og:title content=Body><div><link rel=canonical href=/c>"
    + json_ld('{"@type":"Report","author":["One",{"name":"Two"},{"@type":"Person"}]}')
    + "<meta property=og:description content='unclosed",
    {
        "title": ("Body", "og:title"),
        "author": ("One, Two", "json-ld author"),
        "canonical_url": ("https://news.example/c", "link canonical"),
        "type": ("Report", "json-ld @type"),
    },
)
