"""Answers: which pages a query finds, in which order, and what each result says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from crawl_lib.errors import DamagedFileError
from crawl_lib.search import SearchOptions, Sites, Weights, answer, every_page
from tests.search.made import NOW_US, ask, found, opened, page

DAY_US = 86_400_000_000
HOTELS = opened(
    [
        page("en", "The hotels of this city are cheap", title="Cheap hotels"),
        page("de", "Die Hotels dieser Stadt sind billig; die Reise", language="de"),
        page("die", "They die young in old hotels"),
        page("welt", "Donaudampfschifffahrt in der Welt", language="de"),
        page("ja", "東京のホテルです。PythonのAPI", language="ja"),
        page("ja2", "京東は会社です", language="ja", title="会社の案内"),
        page("zh", "我爱北京天安门", language="zh"),
        page("ko", "한국어 텍스트 검색", language="ko"),
        page("th", "ภาษาไทยง่ายมาก", language="th"),
        page("cafe", "a cafe in town"),
        page("accent", "a café in town"),
        page("fr", "un café noir et des résumés", language="fr"),
        page("who", "the who played to be or not to be"),
    ]
)


@pytest.mark.parametrize(
    ("query", "pages"),
    [
        ("hotel", {"en", "de", "die"}),
        ("hotels", {"en", "de", "die"}),
        ("die hotels", {"de", "die"}),  # a stop word in German alone
        ("東京", {"ja"}),
        ("京東", {"ja2"}),
        ("北京", {"zh"}),
        ("東京 hotel OR です", {"ja"}),
        ("ホテル", {"ja"}),
        ("python", {"ja"}),
        ('"API"', {"ja"}),
        ('"東京の"', {"ja"}),
        ("텍스트", {"ko"}),
        ("ไทย", {"th"}),
        ("ทไย", set()),
        ("ง่าย", {"th"}),
        ("Donaudampfschifffahrt", {"welt"}),
        ("donaudampf*", {"welt"}),
        ("dampfschiff", set()),
        ("cafe", {"cafe", "accent", "fr"}),
        ("café", {"cafe", "accent", "fr"}),
        ('"cafe"', {"cafe"}),
        ('"café"', {"accent", "fr"}),
        ('"cafe\u0301"', {"accent", "fr"}),
        ("RESUME", {"fr"}),
        ("to be or not to be", {"who"}),
        ("the who", {"who"}),
        ('"cheap hotels"', {"en"}),
        ('"hotels cheap"', set()),
        ("hotel -cheap", {"de", "die"}),
        ("hotel -die", {"en", "de"}),
        ('hotel -"old hotels"', {"en", "de"}),
        ("hotel -che*", {"de", "die"}),
        ("cheap OR young", {"en", "die"}),
        ("hotels cheap OR young", {"en", "die"}),
        ('"old hotels" OR (billig)', {"die", "de"}),
        ("cheap OR language:ko", {"en", "ko"}),
        ("title:hotel", {"en"}),
        ("title:hotel -cheap", set()),
        ('title:"cheap hotels"', {"en"}),
        ('title:"CHEAP HOTELS" city', {"en"}),
        ('title:"hotels cheap"', set()),
        ('title:"cheap hotel"', set()),
        ('title:"cheap"', {"en"}),
        ('hotels -title:"cheap hotels"', {"de", "die"}),
        ('title:"to the cheap"', set()),
        ("title:会社", {"ja2"}),
        ("title:社会", set()),
        ('title:"会社の"', {"ja2"}),
        ('title:"会社の" OR title:hotels', {"ja2", "en"}),
        ("language:de", {"de", "welt"}),
        ("hotel language:de", {"de"}),
        ("hotel -language:de", {"en", "die"}),
        ("url:welt", {"welt"}),
        ("url:example.org/zh", {"zh"}),
        ("xyzzy", set()),
        ("!!!", set()),
        ("a" * 65, set()),
    ],
)
def test_pages_that_have_all_words(query: str, pages: set[str]) -> None:
    results = ask(HOTELS, query).results
    assert {one.url.rpartition("/")[2] for one in results if not one.missing} == pages


def test_every_page_says_where_the_files_make_no_sense(monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(self: object) -> Iterator[tuple[bytes, str]]:
        yield b"key", "http://a.example/"
        raise ValueError("Data corrupted")

    monkeypatch.setattr("crawl_lib.search.answers._Search.every_page", damaged)
    pages = every_page(HOTELS, "hotel", Sites({}), NOW_US)
    assert next(pages) == (b"key", "http://a.example/")
    with pytest.raises(
        DamagedFileError, match="cannot be read to its end: Data corrupted; `krake index check`"
    ):
        next(pages)


def test_every_page_streams_pages_with_all_words_in_the_order_of_keys() -> None:
    pages = list(every_page(HOTELS, "hotel", Sites({}), NOW_US))
    assert [key for key, _ in pages] == sorted(key for key, _ in pages)
    assert {url.rpartition("/")[2] for _, url in pages} == {"en", "de", "die"}
    assert not list(every_page(HOTELS, "xyzzy", Sites({}), NOW_US))
    assert len(list(every_page(HOTELS, "site:example.org", Sites({}), NOW_US))) == 13
    assert not list(every_page(HOTELS, "", Sites({}), NOW_US))


def test_pages_with_all_words_come_first_and_others_say_what_they_lack() -> None:
    index = opened(
        [
            page("both", "apples and pears " + "filler " * 50),
            page("one", "apples apples apples"),
            page("other", "pears"),
            page("none", "plums"),
        ]
    )
    results = ask(index, "apples pears").results
    assert results[0].url.endswith("/both")
    assert {one.url.rpartition("/")[2]: one.missing for one in results} == {
        "both": (),
        "one": ("pears",),
        "other": ("apples",),
    }
    assert ask(index, "apples pears").total == 1


def test_where_ten_pages_have_all_words_no_other_follows() -> None:
    index = opened(
        [*(page(f"{number}", "apples pears") for number in range(10)), page("less", "apples")]
    )
    assert ask(index, "apples pears").shown == 10
    assert ask(index, "apples pears plums").shown == 11


def test_a_phrase_a_filter_and_a_title_are_never_lacking() -> None:
    index = opened([page("a", "apples and pears"), page("b", "pears", title="plums")])
    assert found(index, '"apples and" plums') == ["a-"]
    assert found(index, "apples title:plums") == ["b-"]
    assert found(index, "apples cherries language:de") == []


def test_missing_words_are_those_of_the_page_s_language() -> None:
    index = opened([page("en", "hotels"), page("de", "Hotels", language="de")])
    missing = {one.language: one.missing for one in ask(index, "die hotels").results}
    assert missing == {"en": ("die",), "de": ()}


def test_site_finds_subdomains_and_names_in_both_forms() -> None:
    index = opened(
        [
            page("http://docs.xn--mller-kva.de/1", "text"),
            page("http://xn--mller-kva.de/2", "text"),
            page("3", "text"),
        ]
    )
    assert set(found(index, "site:müller.de")) == {"1", "2"}
    assert found(index, "text site:docs.xn--mller-kva.de") == ["1"]
    assert set(found(index, "text -site:müller.de")) == {"3"}
    assert set(found(index, "site:docs.müller.de OR site:example.org")) == {"1", "3"}


def test_type_takes_short_names_and_mime_types() -> None:
    index = opened(
        [
            page("h"),
            page("x", mime_type="application/xhtml+xml"),
            page("p", mime_type="application/pdf"),
        ]
    )
    assert set(found(index, "type:html")) == {"h", "x"}
    assert found(index, "type:application/pdf") == found(index, "type:pdf") == ["p"]


def test_dates_are_published_dates_else_those_of_captures() -> None:
    index = opened(
        [
            page("old", "text", captured_us=20 * DAY_US, published_us=1 * DAY_US),
            page("new", "text", captured_us=10 * DAY_US),
        ]
    )
    assert found(index, "before:1970-01-03") == ["old"]
    assert found(index, "after:1970-01-11") == ["new"]
    assert found(index, "before:1970-01-11") == ["old"]
    assert found(index, "text sort:date") == ["new", "old"]
    results = {
        one.url[-3:]: (one.date_us, one.is_published, one.score)
        for one in ask(index, "text sort:date").results
    }
    assert results == {"new": (10 * DAY_US, False, None), "old": (DAY_US, True, None)}


def test_a_word_counts_as_often_as_the_query_has_it() -> None:
    index = opened([page("a", "apples pears"), page("b", "apples pears plums")])
    once, twice = (
        ask(index, query, is_explained=True).results[0].explanation
        for query in ("apples", "apples Apple")
    )
    assert once
    assert twice
    assert twice.score == pytest.approx(2 * once.score)
    assert {share.times for share in twice.shares} == {2}


def test_the_parts_of_a_score_multiply_and_sum_to_it() -> None:
    index = opened(
        [
            page("a", "apples and pears", title="Apples", anchors=("apples",)),
            page("b", "apples pears pears"),
        ],
        boosts={"a": 7.5, "b": 0.3},
    )
    queries = (
        "apples",
        "apples pears plums",
        '"apples and" pears*',
        "title:apples",
        "apples OR plums",
        "site:example.org",
    )
    for query in queries:
        plain = ask(index, query).results
        for one, other in zip(ask(index, query, is_explained=True).results, plain, strict=True):
            parts = one.explanation
            assert parts
            by_words = (
                sum(share.bm25 * share.weight * share.times for share in parts.shares)
                if parts.shares
                else 1
            )
            assert one.score == pytest.approx(
                by_words * parts.boost_factor * parts.site_factor, rel=1e-6, abs=1e-6
            )
            assert one.score == pytest.approx(other.score, rel=1e-6)


def test_boost_title_and_anchors_lift_pages() -> None:
    text = "apples pears plums"
    assert found(opened([page("a", text), page("b", text)], boosts={"a": 1, "b": 4}), "apples") == [
        "b",
        "a",
    ]
    assert found(opened([page("a", text), page("b", text, title="apples")]), "apples") == ["b", "a"]
    assert found(opened([page("a", text), page("b", text, anchors=("apples",))]), "apples") == [
        "b",
        "a",
    ]
    index = opened([page("p1", text), page("p2", text)], boosts={"p1": 1, "p2": 4})
    first, second = ask(index, "apples", weights=Weights(boost=0)).results
    assert first.score == second.score


def test_where_only_filters_are_asked_the_boost_orders_pages() -> None:
    index = opened(
        [page(f"{number}") for number in range(30)],
        boosts={f"{number}": number for number in range(30)},
    )
    assert found(index, "site:example.org") == [f"{number}" for number in range(29, 19, -1)]
    assert found(index, "site:example.org", page=3) == [f"{number}" for number in range(9, -1, -1)]


def test_equal_scores_are_ordered_by_key_however_pages_were_added() -> None:
    pages = [page(f"{number}", "apples") for number in range(4)]
    by_key = [one.url.rpartition("/")[2] for one in sorted(pages, key=lambda one: one.key)]
    for order in (pages, pages[::-1], pages[2:] + pages[:2]):
        assert found(opened(order, commits=2), "apples") == by_key


def test_the_last_candidates_with_equal_scores_are_those_of_least_keys() -> None:
    pages = [page(f"{number}", "apples") for number in range(300)]
    by_key = [one.url for one in sorted(pages, key=lambda one: one.key)]
    for commits in (1, 3):
        index = opened(pages, commits=commits)
        results = [
            one.url for number in range(1, 22) for one in ask(index, "apples", page=number).results
        ]
        assert results == by_key[:200]


def test_near_duplicates_are_folded_below_the_best_of_them() -> None:
    near = {"a": 1, "c": 1, "d": 1}
    index = opened([page(name, "apples") for name in "abcd"], boosts={"c": 9}, near=near)
    answered = ask(index, "apples")
    (first, second) = answered.results
    assert (first.url[-1], {url[-1] for url in first.like}) == ("c", {"a", "d"})
    assert (second.url[-1], second.like) == ("b", ())
    assert (answered.total, answered.shown) == (4, 2)


def test_the_third_page_of_a_host_goes_behind_other_hosts_of_its_result_page() -> None:
    pages = [page(f"http://a.example/{number}", "apples") for number in range(12)]
    pages += [page(f"http://b.example/b{number}", "apples") for number in range(3)]
    boosts = {f"{number}": 50.0 - number for number in range(12)} | {
        "b0": 45.5,
        "b1": 43.5,
        "b2": 42.5,
    }
    index = opened(pages, boosts=boosts)
    assert found(index, "apples") == ["0", "1", "b0", "b1", "2", "3", "4", "5", "6", "7"]
    assert found(index, "apples", page=2) == ["b2", "8", "9", "10", "11"]
    assert found(index, "apples site:a.example OR site:b.example")[:4] == ["0", "1", "2", "3"]


def test_pages_that_ask_for_an_end_are_not_shown_after_it() -> None:
    index = opened(
        [page("a", "apples"), page("b", "apples")], until_us={"a": NOW_US, "b": NOW_US + 1}
    )
    assert found(index, "apples") == ["b"]
    assert [url[-1] for _, url in every_page(index, "apples", Sites({}), NOW_US)] == ["b"]


def test_sites_are_never_shown_or_count_more() -> None:
    pages = [
        page(f"http://{host}/{host[0]}", "apples")
        for host in ("a.x.org", "b.x.org", "x.org", "other.org")
    ]
    index = opened(pages)
    sites = Sites({"x.org": 0, "b.x.org": 3})
    shown = answer(index, "apples", sites, SearchOptions(is_explained=True), NOW_US)
    assert [one.url[-1] for one in shown.results] == ["b", "o"]
    assert [one.explanation.site_factor for one in shown.results if one.explanation] == [3, 1]
    assert shown.total == 2


def test_similar_pages_share_the_telling_words_of_a_page() -> None:
    index = opened(
        [
            page("a", "volcano eruption lava island"),
            page("b", "the volcano and its lava"),
            page("c", "apples and pears"),
            page("d", "apples and plums"),
        ]
    )
    assert found(index, "similar:http://example.org/a") == ["b"]
    assert found(index, "similar:example.org/a island") == ["b-"]
    assert found(index, "similar:example.org/nowhere") == []


def test_a_prefix_stands_for_the_words_of_most_pages() -> None:
    pages = [
        page(f"r{number}", f"aa{chr(97 + number // 26)}{chr(97 + number % 26)}")
        for number in range(60)
    ]
    pages += [page(f"z{number}", "aazz") for number in range(3)]
    index = opened(pages)
    assert ask(index, "aa*").total == 52
    assert {name for name in found(index, "aa*") + found(index, "aazz") if name[0] == "z"} == {
        "z0",
        "z1",
        "z2",
    }


def test_a_page_that_wants_no_snippet_has_none() -> None:
    index = opened([page("a", "apples here", robots=("nosnippet",)), page("b", "some apples")])
    snippets = {one.url[-1]: one.snippet for one in ask(index, "apple").results}
    assert snippets["a"] is None
    assert snippets["b"] is not None
    assert [snippets["b"].text[start:end] for start, end in snippets["b"].marks] == ["apples"]


def test_snippets_mark_words_in_characters_and_in_runs() -> None:
    index = opened(
        [
            page("a", "éé naïve Äpfel " * 3, language="fr"),
            page("j", "これは東京です", language="ja"),
        ]
    )
    (one,) = ask(index, "naive").results
    assert one.snippet
    assert {one.snippet.text[start:end] for start, end in one.snippet.marks} == {"naïve"}
    (one,) = ask(index, "東京").results
    assert one.snippet
    assert "".join(one.snippet.text[start:end] for start, end in one.snippet.marks) == "東京"


@pytest.mark.parametrize(
    ("query", "passage", "language"),
    [
        ("apples pears", "Apples, and a happy pear", "en"),
        ("pear happiness", "apples of happy pears", "en"),
        ("ecole primaire", "L'École des primaires", "fr"),
        ('"hot lava"', "here hot, lava flows", "en"),
        ("volcan*", "volcanic and", "en"),
    ],
)
def test_a_snippet_is_of_the_place_with_most_words_wherever_that_is(
    query: str, passage: str, language: str
) -> None:
    """The first 100,000 characters of a text are looked at."""
    index = opened(
        [
            page(
                "in",
                "apple, " * 200 + "primaire " + "filler " * 13_800 + passage + " end" * 100,
                language=language,
            ),
            page("out", "filler " * 15_000 + passage, language=language),
        ]
    )
    snippets = {one.url.rpartition("/")[2]: one.snippet for one in ask(index, query).results}
    assert (passage in snippets["in"].text, snippets["out"].marks) == (True, ())


def test_pages_of_one_word_of_a_megabyte_and_with_a_long_title() -> None:
    index = opened(
        [
            page("one", "apples"),
            page("big", "filler pears " * 80_000),
            page("t", title="plum " * 2_000),
        ]
    )
    assert found(index, "apples") == ["one"]
    assert found(index, "pears") == ["big"]
    assert found(index, "plums") == ["t"]


def test_any_text_has_an_answer() -> None:
    texts = [
        "",
        "-",
        "OR",
        '"',
        "-apples",
        "-site:example.org",
        "*",
        "similar:",
        "\ud800",
        "a" * 10_000,
        '"" OR ""',
    ]
    texts += [
        "-apples OR pears",
        "pears OR -apples",
        "-similar:example.org/a",
        "site:example.org OR apples",
        "ab* OR cd*",
    ]
    index = opened([page("a", "apples"), page("b", "pears")])
    for text in texts:
        for is_broader in (False, True):
            assert ask(index, text, is_broader=is_broader, is_explained=True).version == 1
    assert found(index, "-apples") == ["b"]
    assert set(found(index, "pears OR -apples")) == {"b"}
    assert len(found(index, "apples OR site:example.org")) == 2


def test_a_result_page_behind_the_last_one_is_empty() -> None:
    assert not ask(HOTELS, "hotel", page=2).results
    assert not ask(HOTELS, "hotel", page=10_000_000).results


def test_language_and_type_of_a_result() -> None:
    (one,) = ask(opened([replace(page("a", "apples"), language=None)]), "apples").results
    assert (one.language, one.mime_type, one.title) == (None, "text/html", "")
