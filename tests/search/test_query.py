"""The query language: whatever is typed is read somehow, and notes say how."""

from __future__ import annotations

import random

import pytest

from crawl_lib.search import PartKind, QueryPart, read_query

CUT_WORDS = "The query is cut to its first 32 words."


@pytest.mark.parametrize(
    ("typed", "groups"),
    [
        ("a b", [["a"], ["b"]]),
        ("a b OR c", [["a"], ["b", "c"]]),
        ("a OR b OR c d", [["a", "b", "c"], ["d"]]),
        ('"a b" -c d*', [['"a b"'], ["-c"], ["d*"]]),
        ('-"a b" -d* -site:example.org', [['-"a b"'], ["-d*"], ["-site:example.org"]]),
        ("site:Example.ORG", [["site:example.org"]]),
        ("site:müller.de", [["site:xn--mller-kva.de"]]),
        ("site:https://www.example.org/path", [["site:www.example.org"]]),
        ("SITE:*.example.org", [["site:example.org"]]),
        ("type:PDF type:image/png", [["type:pdf"], ["type:image/png"]]),
        ("language:de-AT", [["language:de"]]),
        (
            "before:2020 after:2019-02 after:2019-2-3",
            [["before:2020-01-01"], ["after:2019-02-01"], ["after:2019-02-03"]],
        ),
        ('title:"a b" url:docs/api', [['title:"a b"'], ["url:docs/api"]]),
        ("similar:Example.org/x", [["similar:http://example.org/x"]]),
        ("foo-bar c++ http://a/b", [["foo-bar"], ["c++"], ["http://a/b"]]),
        ('a"b c"d', [["a"], ['"b c"'], ["d"]]),
        ("\u201ca b\u201d", [['"a b"']]),
        ("東京\u3000京都*", [["東京"], ["京都*"]]),
        ("a sort:date", [["a"]]),
        ("", []),
    ],
)
def test_what_is_well_formed_is_read_without_a_note(typed: str, groups: list[list[str]]) -> None:
    reading = read_query(typed)
    assert [[str(part) for part in group] for group in reading.groups] == groups
    assert not reading.notes
    assert reading.by_date == ("sort:date" in typed)


@pytest.mark.parametrize(
    ("typed", "read", "note"),
    [
        ('"open phrase', '"open phrase"', "quotation mark is missing"),
        ("OR a", "OR a", "OR needs a word on both sides"),
        ("a OR", "a OR", "OR needs a word on both sides"),
        ("a OR OR b", "a OR OR b", "OR needs a word on both sides"),
        ("before:2020-02-30", "before:2020-02-30", "has no value that before: knows"),
        ("after:soon", "after:soon", "has no value that after: knows"),
        ("site:[::1", "site:[::1", "has no value that site: knows"),
        ("type:foo", "type:foo", "has no value that type: knows"),
        ("sort:size a", "sort:size a", "has no value that sort: knows"),
        ("a !!! \U0001f600", "a", "has no letter and no digit"),
        ("*", "", "has no letter and no digit"),
    ],
)
def test_what_is_not_well_formed_is_read_as_words(typed: str, read: str, note: str) -> None:
    reading = read_query(typed)
    assert str(reading) == read
    assert any(note in one for one in reading.notes)
    assert all(part.kind in {PartKind.WORD, PartKind.PHRASE} for part in reading.parts)


def test_a_long_query_is_cut() -> None:
    assert len(str(read_query("x" * 501))) == 500
    assert read_query("x" * 501).notes == ("The query is cut to its first 500 characters.",)
    reading = read_query(" ".join(f"w{number}" for number in range(33)))
    assert [part.text for part in reading.parts] == [f"w{number}" for number in range(32)]
    assert reading.notes == (CUT_WORDS,)


def test_repeated_words_and_stop_words_do_not_count() -> None:
    words = [f"w{number}" for number in range(32)]
    assert not read_query(" ".join(words + words)).notes
    assert not read_query(" ".join([*words, "the"]), "the".__eq__).notes
    assert read_query(" ".join([*words, "the"])).notes == (CUT_WORDS,)


def test_words_of_a_phrase_and_letters_of_a_run_count() -> None:
    assert read_query('"' + "a " * 33 + '"').groups == (
        (QueryPart(PartKind.PHRASE, " ".join("a" * 32)),),
    )
    assert read_query("東" * 33).groups == ((QueryPart(PartKind.WORD, "東" * 32),),)


def test_dates_begin_in_utc() -> None:
    (part,) = read_query("after:1970-01-02").parts
    assert part.time_us == 86_400_000_000


def test_any_text_is_read_and_what_was_read_is_read_again_in_the_same_way() -> None:
    pieces = [
        "a",
        "OR",
        '"',
        "-",
        "*",
        ":",
        "site:",
        "before:",
        "2020",
        "東京",
        " ",
        "  ",
        "\x00",
        "\ud800",
        "é",
        "\u0301",
    ]
    pieces += [
        "title:",
        "similar:",
        "http://",
        "x.org",
        "|",
        "(",
        ")",
        "\\",
        "type:",
        "url:",
        "ง่าย",
        "\U0001f600",
        "sort:date",
    ]
    chosen = random.Random(36)
    for _ in range(3_000):
        typed = "".join(chosen.choices(pieces, k=chosen.randint(0, 12)))
        reading = read_query(typed)
        again = read_query(str(reading))
        assert (again.groups, again.by_date) == (reading.groups, reading.by_date), typed
