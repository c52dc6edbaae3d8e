"""What a page says of itself: headings, language, the date of publication; forged and hostile pages."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

import pytest

from crawl_lib.parse import Facts, language_of_tag
from crawl_lib.parse.facts import MAX_HEADING_BYTES

NOW = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
MARCH = datetime(2019, 3, 5, tzinfo=UTC).timestamp()


def facts(html: str, *, is_xml: bool = False) -> Facts:
    return Facts.of(html.encode(), user_agent="Krake", now=NOW, is_xml=is_xml)


def linked(data: object) -> str:
    return f'<script type="application/ld+json">{json.dumps(data)}</script>'


def test_headings_are_the_texts_of_h1_to_h3_in_their_order() -> None:
    page = "<h2>A <b>b</b>\n c</h2><h1>D<br>e &amp; f</h1><p>x</p><h4>no</h4>"
    page += "<h3><a href=/>G</a><div>h</div></h3>y<h3></h3>"
    assert facts(page).headings == "A b c\nD e & f\nG h"


def test_what_is_not_shown_is_no_heading() -> None:
    page = "<template><h1>no</h1></template><h1>a<!--x--><script>no</script><style>no</style></h1><!--<h1>no</h1>-->"
    assert facts(page).headings == "a"


@pytest.mark.parametrize("character", ["a", "ä", "字", "😀"])
def test_headings_are_cut_at_four_kilobytes_of_utf8(character: str) -> None:
    found = facts(f"<h1>{character * 6000}</h1><h2>more</h2>").headings
    assert MAX_HEADING_BYTES - 4 < len(found.encode()) <= MAX_HEADING_BYTES
    assert set(found) == {character}


def test_a_heading_that_never_ends_is_cut_too() -> None:
    assert len(facts("<h1>" + "word " * 10_000).headings) <= MAX_HEADING_BYTES


def test_robots_metas_are_those_for_all_and_for_us() -> None:
    metas = "<meta name=robots content=noindex><meta name=KRAKE content=nosnippet><meta name=other content=none>"
    assert facts(metas).robots == "noindex, nosnippet"


@pytest.mark.parametrize(
    ("tag", "language"),
    [
        ("de", "de"),
        (" DE-at ", "de"),
        ("zh_Hant_TW", "zh"),
        ("eng", "en"),
        ("ger", "de"),
        ("gsw-CH", "gsw"),
        ("jp", None),
        ("und", None),
        ("x-klingon", None),
        ("english", None),
        ("de;q=1", None),
        ("", None),
        ("de" + "-a1" * 30, None),
    ],
)
def test_a_language_tag_names_a_language_of_iso_639(tag: str, language: str | None) -> None:
    assert language_of_tag(tag) == language


@pytest.mark.parametrize(
    ("html", "language"),
    [
        ("<html lang=de>", "de"),
        ("<html xml:lang=de>", "de"),
        ('<html lang=""><meta http-equiv=content-language content=fr>', "fr"),
        ("<html lang=nonsense><meta http-equiv=content-language content=fr>", "fr"),
        ("<body lang=de>", None),
        ("<html lang=de><html lang=fr>", "de"),
    ],
)
def test_the_language_is_that_of_the_html_element_else_of_a_meta(
    html: str, language: str | None
) -> None:
    assert facts(html).language == language


DATE = "2019-03-05"
ARTICLE = {"@type": "NewsArticle", "datePublished": DATE}
FORGED = {"@type": "Article", "datePublished": "2031-01-01"}


@pytest.mark.parametrize(
    "html",
    [
        linked(ARTICLE),
        linked([{"@type": "Organization"}, ARTICLE]),
        linked(
            {
                "@graph": [
                    {"@type": "WebSite"},
                    {"@type": ["Thing", "http://schema.org/BlogPosting"]} | {"datePublished": DATE},
                ]
            }
        ),
        linked({"@type": "WebPage", "mainEntity": ARTICLE}),
        linked({"@type": "VideoObject", "uploadDate": "2019-03-05T00:00:00Z"}),
        linked({"@type": "Article", "datePublished": [{"@value": DATE}]}),
        f"<script type='application/ld+json'><!-- {json.dumps(ARTICLE)} --></script>",
        f"<script type=' Application/LD+json '>//<![CDATA[\n{json.dumps(ARTICLE)}\n//]]></script>",
        linked(ARTICLE | {"headline": "a b"}).replace("a b", "a\nb"),
        linked({"@type": "Article", "datePublished": "yesterday"}) + linked(ARTICLE),
        '<script type="application/ld+json">{broken</script>' + linked(ARTICLE),
        f'<meta property="article:published_time" content="{DATE}T01:00:00+01:00">',
        f'<meta name=DC.date.issued content="{DATE}">',
        f'<meta itemprop=datePublished content="{DATE}">',
        '<meta name=date content="Tue, 05 Mar 2019 00:00:00 GMT">',
        '<meta name=date content="5 Mar 2019">',
        '<meta name=date content="2019/03/05">',
        f"<time datetime={DATE}>",
        f"<time datetime=2018-01-01>a</time><time itemprop=datePublished datetime={DATE}>",
        f"<time datetime=2018-01-01>a</time><time pubdate datetime={DATE}>",
        linked(ARTICLE) + "<meta name=date content=2018-01-01><time datetime=2018-01-02>",
        "<meta name=date content=2019-03-05><time datetime=2018-01-02>",
        linked(FORGED) + f"<meta name=date content={DATE}>",
        "<meta name=date content=1970-01-01>" + f"<time datetime={DATE}>",
        "<meta name=date content=0001-01-01T00:00:00Z>" + f"<time datetime={DATE}>",
        "<meta name=date content=2019-02-30>" + f"<time datetime={DATE}>",
    ],
)
def test_a_page_was_published_on_its_first_valid_date(html: str) -> None:
    assert facts(html).published == MARCH


@pytest.mark.parametrize(
    "html",
    [
        "",
        linked({"@type": "Organization", "datePublished": DATE}),
        linked({"datePublished": DATE}),
        linked({"@type": "Article", "datePublished": 20190305}),
        linked("2019-03-05"),
        f"<script>{json.dumps(ARTICLE)}</script>",
        "<meta name=modified content=2019-03-05>",
        "<meta name=date content=99999999999999999999>",
        "<meta name=date content='2019-03-05T00:00:00" + "0" * 60 + "'>",
        "<meta name=date content=9999-12-31>",
        "<meta name=date content='0001-01-01T00:00:00+14:00'>",
        "<meta name=date content='2019-03-05\ud800'>".encode("utf-8", "surrogatepass").decode(
            "utf-8", "replace"
        ),
        '<script type="application/ld+json">{"@type": "Article", "datePublished": "\\ud800"}</script>',
        f"<template><time datetime={DATE}></template>",
        linked(FORGED),
    ],
)
def test_other_dates_count_for_nothing(html: str) -> None:
    assert facts(html).published is None


def test_a_page_of_now_may_be_a_day_ahead() -> None:
    assert facts("<meta name=date content=2026-11-02>").published == NOW + 86_400
    assert facts("<meta name=date content=2026-11-03>").published is None


HOSTILE = {
    "deep JSON": ('<script type="application/ld+json">', '{"@graph":[', "</script>"),
    "wide JSON": ('<script type="application/ld+json">[', "[[1]],", "1]</script>"),
    "digits": ('<script type="application/ld+json">', "9", "</script>"),
    "slashes": ('<script type="application/ld+json">', "//", "</script>"),
    "open JSON": ("", '<script type="application/ld+json">[', ""),
    "blocks": ("", linked(FORGED), ""),
    "metas": ("", "<meta name=date content=x>", ""),
    "robots": ("", "<meta name=robots content=noindex>", ""),
    "huge meta": ("<meta name=date content='", "x ", "'>"),
    "huge name": ("<meta name='", "&amp;", "' content=x>"),
    "headings": ("", "<h1><div>", ""),
    "empty headings": ("", "<h1></h1>", ""),
    "times": ("", "<time datetime=2031-01-01>", ""),
    "languages": ("<html lang='", "de-", "'>"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_pages_take_linear_time(case: str) -> None:
    start, piece, end = HOSTILE[case]

    def spent(size: int) -> float:
        html = (start + piece * (size // len(piece)) + end).encode()
        before = time.process_time()
        Facts.of(html, user_agent="krake", now=NOW)
        return time.process_time() - before

    assert min(spent(400_000) for _ in range(3)) < 12 * max(
        0.002, min(spent(100_000) for _ in range(3))
    )


def test_facts_are_found_in_xhtml_and_nul_is_no_end() -> None:
    page = '<html xml:lang="de"><script src="x"/><script type="application/ld+json">{"a":\0 1}</script><h1>a</h1>'
    found = facts(page, is_xml=True)
    assert (found.language, found.headings, found.published) == ("de", "a", None)
