"""Did you mean: nine of ten words with one edit are corrected first."""

from __future__ import annotations

import random
import string

import pytest

from crawl_lib.search import OpenIndex
from tests.search.judged import documents
from tests.search.made import ask, found, opened, page


def test_words_that_no_page_has_are_corrected_in_their_place() -> None:
    index = opened(
        [page(f"{number}", "the volcano and its lava") for number in range(12)]
        + [page("x", "volcanic")]
    )
    assert ask(index, 'volcnao "and its" -lavva lavva site:example.org').suggestion == (
        'volcano "and its" -lavva lava site:example.org'
    )
    for known in ("volcano", "volcanoes", "Lava", "its", "volc*", "2020", "xyzzy", ""):
        assert ask(index, known).suggestion is None, known


def test_of_equally_near_words_that_of_most_pages_is_proposed() -> None:
    index = opened([page("a", "mast"), page("b", "most"), page("c", "most")])
    assert ask(index, "mest").suggestion == "most"


def test_a_word_that_few_pages_have_is_corrected_by_a_much_more_frequent_one_alone() -> None:
    pages = [page(f"p{number}", "volcano filler") for number in range(320)]
    index = opened(
        [
            *pages,
            page("a", "volcamo"),
            page("b", "fillet"),
            *(page(f"q{n}", "fillets") for n in range(8)),
        ]
    )
    assert ask(index, "volcamo").suggestion == "volcano"
    assert ask(index, "fillet").suggestion is None


def test_a_query_without_an_answer_has_a_suggestion_with_one() -> None:
    index = opened([page("a", "Ärzte und Äpfel", language="de")])
    assert found(index, "äpfal") == []
    assert ask(index, "äpfal").suggestion == "äpfel"


@pytest.fixture(scope="module")
def cisi() -> OpenIndex:
    return opened(documents())


def test_of_400_words_with_one_edit_nine_of_ten_are_corrected_first(cisi: OpenIndex) -> None:
    chosen = random.Random(400)
    frequent = cisi.searcher.terms_with_prefix("text", "", limit=4_000)
    words = [word for word, pages in frequent if pages >= 3 and len(word) >= 4 and word.isalpha()]
    right = 0
    for word in chosen.sample(words, 400):
        edited = word
        while edited == word:
            edited = _edited(word, chosen)
        right += cisi.vocabulary.correction(edited) == word
    assert right >= 360


def _edited(word: str, chosen: random.Random) -> str:
    """A word with a letter left out, put in, changed, or changed with its neighbour; the first letter stays."""
    place, letter = chosen.randrange(1, len(word)), chosen.choice(string.ascii_lowercase)
    kinds = [
        word[:place] + word[place + 1 :],
        word[:place] + letter + word[place:],
        word[:place] + letter + word[place + 1 :],
    ]
    if place + 1 < len(word):
        kinds.append(word[:place] + word[place + 1] + word[place] + word[place + 2 :])
    return chosen.choice(kinds)
