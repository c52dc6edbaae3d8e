"""Text of strangers in what is served: markup stays text. What a browser does with it is a test of `tests/cluster`."""

from __future__ import annotations

import json
import random
from urllib.parse import quote, quote_from_bytes, urlencode

import pytest
from selectolax.lexbor import LexborHTMLParser

from crawl_lib.serve.cached import _harmless
from tests.index.made import Made
from tests.serve.hostile import BIDI, hostile, queries
from tests.serve.made import Client

EVIL = "http://evil.example"
OURS = {
    "script": 0,
    "img": 0,
    "iframe": 0,
    "svg": 1,
    "style": 1,
    "form": 1,
    "input": 1,
    "button": 1,
    "base": 0,
    "object": 0,
}
"""How many of these elements a page of results has."""
COMMENTS = (
    *("<!--", "-->", "--!>", "<!-->", "<!--->", "<!doctype html>"),
    *("<base href=//evil.example>", "<LiNk/rel=x>", "<link rel=x>"),
)
MARKUP = (
    *(
        "-",
        ">",
        "<",
        "!",
        " ",
        "\v",
        "\0",
        "'",
        '"',
        "<![CDATA[",
        "]]>",
        "<?xml ?>",
        "<html>",
        "<head>",
    ),
    *("<title>", "</title>", "<style>", "</style>", "<script>"),
    *(
        "<svg>",
        "</svg>",
        "<math>",
        "<mtext>",
        "<desc>",
        "<template>",
        "<noscript>",
        "<select>",
        "<table>",
        "<a x='",
    ),
    *("<frameset>", "<frame\fsrc=x>", "<iframe src=x>", "</iframe>"),
)


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Client:
    """80 pages, with each attack twice."""
    made = Made.below(tmp_path_factory.mktemp("hostile"))
    made.crawl(*hostile(EVIL, 80, seed=1))
    made.update()
    return Client(made)


def test_markup_of_strangers_is_text_in_results(crawled: Client) -> None:
    found = crawled.get("/api/search?q=lava").json()
    assert found["shown"] > 50
    for number in range(1, found["shown"] // 10 + 2):
        html = crawled.search("lava", page=number)
        tree = LexborHTMLParser(html)
        assert {name: len(tree.css(name)) for name in OURS} == OURS
        assert not set(BIDI) & set(html), "each is a sign"
        assert "\x01" not in html
        for one in tree.css("*"):
            assert not any(name.startswith("on") or name == "style" for name in one.attributes)
            for name in {"href", "src", "action"} & one.attributes.keys():
                value = one.attributes[name]
                assert value.startswith(("/", "http://host-", "#", "data:image/svg+xml,")), value


def test_the_api_is_json_of_ascii(crawled: Client) -> None:
    answer = crawled.get("/api/search?q=lava")
    assert answer.headers["content-type"] == "application/json"
    assert answer.content.isascii()
    assert all(
        set(one) >= {"url", "title", "snippet"} for one in json.loads(answer.content)["results"]
    )


def test_each_copy_has_the_policy(crawled: Client) -> None:
    found = [
        crawled.get(f"/api/search?q=lava&page={number}").json()["results"] for number in range(1, 9)
    ]
    keys = [one["key"] for results in found for one in results]
    answers = crawled.get_all(f"/cached/{key}/page" for key in keys)
    copies = [answer for answer in answers if answer.status_code == 200]
    assert len(copies) > 50
    for answer in copies:
        assert answer.headers["content-security-policy"].startswith("sandbox allow-popups")
        assert not any(tag in answer.text.lower() for tag in ("<link", "<iframe", "<frame "))


def test_a_parser_finds_our_base_first_and_no_element_that_connects_in_any_markup() -> None:
    """Comments, raw text and foreign elements are read by a parser otherwise than by a pattern."""
    chance = random.Random(4)
    for number in range(10_000):
        html = "".join(
            chance.choices((COMMENTS, COMMENTS + MARKUP)[number % 2], k=chance.randrange(1, 12))
        )
        tree = LexborHTMLParser(_harmless(html.encode(), "http://a.example/").decode())
        assert tree.css_first("base").attributes["href"] == "http://a.example/", html
        assert not tree.css("link, iframe, frame"), html


def test_generated_queries_are_all_answered(client: Client) -> None:
    """10,000 of these are asked in `tests/cluster`."""
    paths = [
        f"{chosen}?{urlencode({'q': query}, errors='replace')}"
        for query in queries(30, seed=2)
        for chosen in ("/", "/api/search")
    ]
    assert {answer.status_code for answer in client.get_all(paths)} == {200}


def test_bytes_that_are_no_text_are_answered(client: Client) -> None:
    chance = random.Random(3)
    texts = [quote_from_bytes(chance.randbytes(chance.randrange(1, 60))) for _ in range(30)]
    texts += ["%", "%zz", "%00", quote("a" * 8000), "&q=lava", "q=lava;page=2", "[]", "%ff" * 400]
    answers = client.get_all([f"/?q={text}" for text in texts])
    assert {answer.status_code for answer in answers} == {200}
