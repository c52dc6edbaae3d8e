"""The fields of the index: which words a page has, and in which fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import tantivy

from crawl_lib.index import (
    LANGUAGES,
    Analysers,
    Fields,
    IndexedPage,
    find_runs,
    order_of,
    pages_with_keys,
    sites_of,
    spaced,
    without_runs,
)
from crawl_lib.urls import key_of

URL = "https://docs.example.co.uk/Guide/caf%C3%A9-menu?q=hidden"
PAGE = IndexedPage(
    key_of(URL), URL, "Running cats. 東京", 5, "Résumé", "Heads", ("the anchor",), "en"
)
FIELDS = Fields(("en", "de"))


def searcher(*pages: IndexedPage) -> tantivy.Searcher:
    index = tantivy.Index(FIELDS.schema)
    FIELDS.analysers.register(index)
    writer = index.writer(15_000_000, 1)
    for page in pages:
        writer.add_document(FIELDS.document(page))
    writer.commit()
    index.reload()
    return index.searcher()


def words(field: str, *pages: IndexedPage) -> set[str]:
    return {word for word, _ in searcher(*(pages or (PAGE,))).terms_with_prefix(field, "")}


def test_words_of_a_language_are_stems_without_accents_and_stop_words() -> None:
    assert words("words_en") == {"resum", "head", "anchor", "guid", "cafe", "menu", "run", "cat"}
    assert words("title_en") == {"resum"}
    assert words("anchors_en") == {"anchor"}
    assert not words("words") | words("words_de")


def test_words_of_other_languages_keep_their_endings_and_stop_words() -> None:
    page = replace(PAGE, language="sv")
    assert words("words", page) >= {"running", "the", "resume"}
    assert words("title_other", page) == {"resume"}
    assert not words("words_en", page)


def test_words_as_written_are_in_one_field_for_all_languages() -> None:
    assert words("text") == {"running", "cats", "résumé"}


def test_title_counts_three_times_headings_twice_and_an_anchor_ten_times_at_most() -> None:
    found = searcher(
        replace(PAGE, title="alpha", headings="beta", text="gamma", anchors=("delta",) * 500)
    )
    address = found.search(tantivy.Query.all_query()).hits[0][1]

    def times(word: str) -> float:
        query = tantivy.Query.term_query(FIELDS.schema, "words_en", word)
        (freq,) = [
            line
            for line in query.explain(found, address).to_json().split("{")
            if "freq, occ" in line
        ]
        return float(freq.split('"value":')[1].split(",")[0])

    assert [times(word) for word in ("alpha", "beta", "gamma", "delta")] == [3, 2, 1, 10]


def test_a_word_of_more_than_64_bytes_is_left_out() -> None:
    page = replace(PAGE, text=f"{'a' * 64} {'b' * 65} {'й' * 32} {'я' * 33}")
    assert words("text", page) == {"a" * 64, "й" * 32, "résumé"}


def test_letters_of_runs_are_words_and_other_scripts_stand_alone() -> None:
    page = replace(PAGE, text="PythonのAPIです", title="", headings="", anchors=())
    assert words("text_cjk", page) == {"の", "で", "す"}
    assert words("text", page) == {"python", "api"}


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("plain words", []),
        ("東京タワー2020と京都", ["東京タワー", "と京都"]),
        ("ภาษาไทย ง่าย", ["ภาษาไทย", "ง่าย"]),
        ("한국어 텍스트", []),
        ("ﾃｽﾄ 々〇", ["ﾃｽﾄ", "々〇"]),
        ("𠮷野家", ["𠮷野家"]),
        ("។ ខ្មែរ, ລາວ, မြန်မာ, ㄅㄆ", ["ខ្មែរ", "ລາວ", "မြန်မာ", "ㄅㄆ"]),
    ],
)
def test_runs(text: str, runs: Sequence[str]) -> None:
    assert find_runs(text) == runs
    assert not find_runs(without_runs(text))
    assert spaced(text).split() or not text


def test_a_thai_letter_keeps_its_marks() -> None:
    assert Analysers(()).words("letters", "ง่ายที่") == ["ง่", "า", "ย", "ที่"]


def test_no_phrase_goes_from_one_run_to_the_next() -> None:
    found = searcher(replace(PAGE, text="東京 都市"))

    def count(*letters: str) -> int:
        query = tantivy.Query.phrase_query(FIELDS.schema, "text_cjk", list(letters))
        return len(found.search(query).hits)

    assert (count("東", "京"), count("京", "都"), count("京", "東")) == (1, 0, 0)


def test_letters_with_a_combining_accent_are_one_word() -> None:
    assert words("text", replace(PAGE, text="cafe\u0301", title="")) == {"café"}


def test_sites_go_up_to_the_registered_domain() -> None:
    assert sites_of("a.docs.example.co.uk") == [
        "a.docs.example.co.uk",
        "docs.example.co.uk",
        "example.co.uk",
    ]
    assert sites_of("localhost") == ["localhost"]
    assert sites_of("127.0.0.1") == ["127.0.0.1"]
    assert sites_of("[::1]") == ["[::1]"]
    assert sites_of("a.wiki.internal") == ["a.wiki.internal", "wiki.internal"]


def test_what_a_result_shows_is_stored_as_it_was() -> None:
    found = searcher(replace(PAGE, robots=("nosnippet",)))
    address = found.search(tantivy.Query.all_query()).hits[0][1]
    shown = found.doc(address).to_dict()
    assert {name: value[0] for name, value in shown.items()} == {
        "url": URL.encode(),
        "title": "Résumé".encode(),
        "body": "Running cats. 東京".encode(),
        "key": PAGE.key.hex(),
        "language": "en",
        "type": "text/html",
        "robots": "nosnippet",
    }
    assert found.fast_field_values("order", [address]) == [order_of(PAGE.key)]
    assert found.fast_field_values("published", [address]) == [None]
    assert found.fast_field_values("date", [address]) == [5]


def test_pages_are_read_back_from_their_documents() -> None:
    """In Unicode's form NFC, and with each anchor ten times at most."""
    one = replace(
        PAGE,
        anchors=("b", "a", "b"),
        published_us=7,
        robots=("nosnippet",),
        mime_type="application/pdf",
    )
    other = IndexedPage(
        key_of("http://a.example/"), "http://a.example/", "cafe\u0301", 3, anchors=("x",) * 20
    )
    found = searcher(one, other, replace(PAGE, key=bytes(20)))
    keys = [one.key, b"?" * 20, other.key]
    pages = {page.key: page for page in pages_with_keys(found, FIELDS.schema, keys)}
    assert pages == {
        one.key: replace(one, anchors=("b", "b", "a")),
        other.key: replace(other, text="café", anchors=("x",) * 10),
    }


def test_every_language_has_a_stemmer_and_stop_words() -> None:
    Fields(tuple(LANGUAGES))


def test_accents_make_no_difference_in_any_language() -> None:
    analysers = Analysers(tuple(LANGUAGES))
    for language in ("en", "de", "fr", "es", "it", "pt"):
        for word, bare in (("café", "cafe"), ("résumé", "resume"), ("naïve", "naive")):
            assert analysers.words(language, word) == analysers.words(language, bare), (
                language,
                word,
            )
