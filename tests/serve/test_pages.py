"""The screens of the search page, and the API."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

import pytest
from selectolax.lexbor import LexborHTMLParser

from crawl_lib.errors import StorageError
from crawl_lib.search import OpenIndex, SearchOptions, Sites, answer, read_query
from crawl_lib.serve.filters import chips, menus
from crawl_lib.serve.views import render
from tests.index.made import Made, a, page
from tests.serve.made import Client


def links(html: str, of: str = "a") -> dict[str, str]:
    """Addresses by the text of their links."""
    found = LexborHTMLParser(html).css(of)
    return {" ".join(one.text().split()): str(one.attributes["href"]) for one in found}


def asked(address: str) -> dict[str, str]:
    """What a link to results asks."""
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}


def test_without_a_query_there_is_a_box_and_how_many_pages_there_are(client: Client) -> None:
    html = client.get("/").text
    assert "27 pages" in html
    assert LexborHTMLParser(html).css_first("form[role=search] input[name=q]") is not None


def test_a_result_has_all_that_people_ask_of_it(client: Client) -> None:
    html = client.search("lava island")
    tree = LexborHTMLParser(html)
    first = tree.css("ol.results > li")[0]
    assert len(tree.css("ol.results > li")) == 10
    assert [mark.text() for mark in first.css(".snippet mark")] == ["lava", "island"]
    assert [one.attributes["lang"] for one in first.css("bdi[lang]")] == ["en", "en"]
    assert first.css_first("time").attributes["datetime"] == "1970-01-01"
    found = links(str(first.html))
    assert {text.split()[0] for text in found} == {"Volcano", "Cached", "Similar", "More"}
    assert asked(found["More from a.example"])["q"] == "lava island site:a.example"
    [similar] = [address for text, address in found.items() if text.startswith("Similar")]
    assert re.fullmatch(r"similar:http://a\.example/p\d+", asked(similar)["q"])
    assert "25 pages have all words" in html


def test_pages_have_numbers_and_the_last_one_ends(client: Client) -> None:
    numbers = links(client.search("lava", page=2), ".pages a")
    assert set(numbers) == {"Previous", "Page 1", "Page 3", "Next"}
    assert asked(numbers["Page 3"]) == {"q": "lava", "page": "3"}
    last = client.search("lava", page=3)
    assert len(LexborHTMLParser(last).css("ol.results > li")) == 5
    assert "Next" not in links(last)
    assert "No more results" in client.search("lava", page=7)


def test_what_a_page_lacks_and_what_was_meant(client: Client) -> None:
    lacking = LexborHTMLParser(client.search("geyser lava")).css(".missing s")
    assert {one.text() for one in lacking} == {"geyser", "lava"}
    assert "No page has all words" in client.search("geyser lava")
    found = links(client.search("tephrq"), ".note a")
    assert asked(found["tephra"])["q"] == "tephra"
    assert "No page was found" in client.search("nowhere")
    assert "A quotation mark is missing" in client.search('"lava')


def test_broader_is_a_link_and_so_is_the_way_back(client: Client) -> None:
    address = links(client.search("lava"))["Search broader"]
    assert asked(address) == {"q": "lava", "broader": "1"}
    assert asked(links(client.get(address).text)["Search for these words alone"]) == {"q": "lava"}


def test_a_page_that_wants_no_snippet_and_no_copy_is_its_title_alone(client: Client) -> None:
    html = client.search("geyser")
    assert "Geyser" in html
    assert "says little" not in html
    assert not any(text.startswith("Cached") for text in links(html))


def test_with_robots_ignored_such_a_page_is_as_others(own: Made) -> None:
    own.configure(robots="ignore")
    own.update()
    client = Client(own)
    assert "says little" in LexborHTMLParser(client.search("geyser")).text(separator="")
    assert client.get(f"/cached/{client.key('geyser')}").status_code == 200


def test_near_duplicates_are_listed_below_the_best_of_them(client: Client) -> None:
    """The crawl has none, so the template is asked."""
    found = answer(client.service.index, "tephra", Sites({}))
    results = (replace(found.results[0], like=("http://c.example/1", "http://c.example/2")),)
    html = render(
        "results.html",
        query="tephra",
        found=replace(found, results=results),
        wanted=SearchOptions(),
        menus=[],
        chips=[],
    )
    assert "and 2 like it" in html
    assert {"http://c.example/1", "http://c.example/2"} <= set(links(html))


def test_filters_are_links_that_write_the_query() -> None:
    reading = read_query('lava "hot ash" -type:pdf after:2020 site:a.example sort:date')
    found = {menu.name: menu for menu in menus(reading, ("en", "de"), date(2026, 5, 8))}
    rest = 'lava "hot ash" -type:pdf site:a.example'
    assert found["Time"].label == "Since 2020-01-01"
    assert {one.label: one.query for one in found["Time"].choices} == {
        "Any time": f"{rest} sort:date",
        "Past week": f"{rest} after:2026-05-01 sort:date",
        "Past month": f"{rest} after:2026-04-07 sort:date",
        "Past year": f"{rest} after:2025-05-08 sort:date",
        "Since 2020-01-01": f"{rest} after:2020-01-01 sort:date",
    }
    assert [one.label for one in found["Language"].choices] == ["Any language", "English", "German"]
    assert found["Order"].is_used
    assert (found["Order"].choices[0].query, found["Type"].is_used) == (
        f"{rest[:-15]} after:2020-01-01 site:a.example",
        False,
    )
    assert {one.label for one in chips(reading)} == {"-type:pdf", "site:a.example"}
    [site] = [one for one in chips(reading) if one.label == "site:a.example"]
    assert read_query(site.query) == read_query('lava "hot ash" -type:pdf after:2020 sort:date')


def test_each_filter_of_a_page_can_be_followed(client: Client) -> None:
    html = client.search("lava site:a.example")
    answers = client.get_all(address for address in links(html, ".tools a").values())
    assert len(answers) > 10
    assert {answer.status_code for answer in answers} == {200}
    assert asked(links(html, ".chip")["Search without site:a.example \u00d7"]) == {"q": "lava"}


def test_programs_read_results_counts_parts_of_scores_and_suggestions(client: Client) -> None:
    found = client.get("/api/search?q=lava&page=2").json()
    assert (found["total"], found["page"], len(found["results"])) == (25, 2, 10)
    for one in found["results"]:
        parts = one["explanation"]
        by_words = sum(
            share["bm25"] * share["weight"] * share["times"] for share in parts["shares"]
        )
        assert one["score"] == pytest.approx(
            by_words * parts["boost_factor"] * parts["site_factor"], abs=1e-6
        )
    assert client.get("/api/search?q=tephrq").json()["suggestion"] == "tephra"
    same = client.get("/?q=lava&page=2", accept="application/json")
    assert same.json() == found
    assert (
        client.get("/?q=lava", accept="text/html,application/json")
        .headers["content-type"]
        .startswith("text/html")
    )
    error = client.get("/api/search?q=lava&page=0")
    assert (error.status_code, list(error.json())) == (400, ["error"])


def test_browsers_can_search_from_their_bar(client: Client) -> None:
    answer = client.get("/opensearch.xml", host="localhost:1")
    urls = ElementTree.fromstring(answer.content).findall(
        "{http://a9.com/-/spec/opensearch/1.1/}Url"
    )
    assert urls[0].get("template") == "http://localhost:1/?q={searchTerms}"
    assert b"https://" in client.get("/opensearch.xml", x_forwarded_proto="https").content


@pytest.mark.parametrize("page", ["0", "-1", "1.5", "x", "", "\u0663", "9" * 5000, "1 ", "0x1"])
def test_a_page_of_results_that_is_no_number_is_400(client: Client, page: str) -> None:
    for path in ("/", "/api/search"):
        assert client.get(f"{path}?q=lava&page={page}").status_code == 400


def test_health(client: Client) -> None:
    assert client.get("/healthz").json() == {"version": 1, "pages": 27}


def test_an_empty_index_says_what_to_do(tmp_path: Path) -> None:
    made = Made.below(tmp_path / "empty")
    made.crawl(page(a("shy"), "a shy geyser", head="<meta name=robots content=noindex>"))
    made.update()
    client = Client(made)
    assert "krake index update" in client.get("/").text
    assert "No page was found" in client.search("geyser")


@pytest.mark.parametrize("broken", [StorageError("the store is away"), ZeroDivisionError()])
def test_a_look_that_fails_is_said_and_tried_again(
    made: Made, monkeypatch: pytest.MonkeyPatch, broken: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    client, stop, looks = Client(made), Event(), list[int]()
    newest, found = client.service.newest, client.service.index

    def current() -> OpenIndex:
        looks.append(len(looks))
        if len(looks) == 1:
            raise broken
        stop.set()
        return found

    newest._index = None
    monkeypatch.setattr(newest._reader, "current", current)
    monkeypatch.setattr("crawl_lib.serve.newest.INTERVAL_S", 0.0)
    newest._watch(stop)
    assert looks == [0, 1]
    assert "failed" in caplog.text or "the store is away" in caplog.text
    assert client.get("/healthz").status_code == 200


def test_while_no_version_opens_each_page_says_so(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(made)

    def away() -> OpenIndex:
        raise StorageError("http://namenode.inner.example is away")

    monkeypatch.setattr(client.service.newest._reader, "current", away)
    client.service.newest.look()
    for path, status in (("/", 200), ("/?q=lava", 503), ("/healthz", 503)):
        answer = client.get(path)
        assert (answer.status_code, "cannot be opened" in answer.text, "inner" in answer.text) == (
            status,
            True,
            False,
        )


def test_where_files_make_no_sense_the_reader_of_versions_is_asked(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tantivy raises ValueError then, and the reader has an older version answer (tests/search/test_reader.py)."""
    client, asked = Client(made), list[int]()

    def nonsense_once(*arguments: Any) -> Any:
        asked.append(1)
        if len(asked) == 1:
            raise ValueError("Data corrupted")
        return answer(*arguments)

    monkeypatch.setattr("crawl_lib.serve.app.answer", nonsense_once)
    assert "result" in client.search("lava")
    assert len(asked) == 2


def test_before_the_first_index_each_page_says_what_to_do(tmp_path: Path) -> None:
    client = Client(Made.below(tmp_path / "none"))
    assert "krake index update" in client.get("/").text
    for path in ("/?q=lava", "/api/search?q=lava", "/healthz", f"/cached/{'0' * 40}"):
        answer = client.get(path)
        assert (answer.status_code, "krake index update" in answer.text) == (503, True), path
        assert answer.headers["retry-after"]
    assert client.get("/help").status_code == 200
