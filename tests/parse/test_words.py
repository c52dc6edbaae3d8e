"""The digest of a page's words: what is equal to it, and what is not."""

import random

import pytest

from crawl_lib.config import ParseConfig
from crawl_lib.parse import parse_html, words_of

PAGE = b"<title>Lamps</title><p>Over a hundred lamps, \xc3\xa4 and <b>tables</b></p><a href='/x'>more</a>"
SAME = {
    "other white space and marks": b"<title> lamps!</title><p>over  a\n hundred - lamps \xc3\xa4 and tables</p> more",
    "other tags, links, comments": b"<h1>lamps over</h1><!-- n --><a href=/9>a</a> hundred \xc3\xa4 and tables, more",
    "another number of the same links": PAGE + b"<a href='/y'>more</a>" * 20,
    "another order": b"<title>tables</title><p>\xc3\xa4 more lamps and over a hundred",
    "scripts and styles are not shown": PAGE
    + b"<script>var x7</script><style>.x8{}</style><template>x9</template>",
}
OTHER = {
    "one more word": PAGE + b"new",
    "one fewer": PAGE.replace(b"hundred", b""),
    "another number": PAGE.replace(b"hundred", b"101"),
    "no words": b"<p><img src='x.png' alt='lamps'>",
}


@pytest.mark.parametrize("name", SAME)
def test_pages_of_the_same_words_are_equal(name: str) -> None:
    assert words_of(SAME[name], None) == words_of(PAGE, "utf-8")


@pytest.mark.parametrize("name", OTHER)
def test_one_word_makes_another_page(name: str) -> None:
    assert words_of(OTHER[name], None) != words_of(PAGE, None)


def test_a_page_without_words_is_0() -> None:
    assert {words_of(html, None) for html in (b"", b"<img src=x>", b"  <p> - </p> ...")} == {0}


def test_the_page_has_the_digest_that_an_error_has_whose_links_are_not_read() -> None:
    page = parse_html(PAGE, url="http://a.test/", header_charset=None, config=ParseConfig())
    assert page.words == words_of(PAGE, None)
    assert type(page).from_json(page.to_json()).words == page.words


def test_pages_that_differ_in_one_word_of_three_thousand_are_told_apart() -> None:
    """At most one in a thousand is taken for another."""
    words = [random.Random(1).randbytes(4).hex() for _ in range(3000)]
    pages = {
        words_of(" ".join([*words, f"page {number}"]).encode(), None) for number in range(1000)
    }
    assert len(pages) > 990
