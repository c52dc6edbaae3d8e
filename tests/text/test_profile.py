"""The text profile: Nutch's, by hand and by properties."""

from __future__ import annotations

from collections import Counter
from hashlib import md5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_lib.text import count_words, text_profile

BY_HAND = [
    # No word twice: each counts, in the order of the words.
    ("The quick brown fox", "brown 1\nfox 1\nquick 1\nthe 1"),
    # One word twice: counts are multiples of 2, and words that are there once count not.
    ("one two two six", "two 2"),
    # An odd count is rounded down.
    ("two two two six six", "six 2\ntwo 2"),
    # The most frequent first, whatever their letters.
    ("aaa zzz zzz aaa zzz zzz", "zzz 4\naaa 2"),
    # Words of up to two characters count not; what is no letter or digit ends a word, a low line too.
    ("it is 42 a.bcd e_fgh 2024-11-23 don't", "2024 1\nbcd 1\ndon 1\nfgh 1"),
    # Case does not count.
    ("Fox FOX fox ÄPFEL äpfel", "fox 2\näpfel 2"),
    # A hundredth of the highest count, a half upwards: 250 gives 3, 249 gives 2.
    ("abc " * 250 + "def " * 5, "abc 249\ndef 3"),
    ("abc " * 249 + "def " * 5, "abc 248\ndef 4"),
    # Of 1,000 the step is 10: words that are there less often count not.
    ("abc " * 1000 + "def " * 19 + "ghi " * 9, "abc 1000\ndef 10"),
]


def profile(text: str) -> bytes | None:
    return text_profile(count_words(text))


@pytest.mark.parametrize(("text", "lines"), BY_HAND)
def test_examples_by_hand(text: str, lines: str) -> None:
    assert profile(text) == md5(lines.encode()).digest()


def test_a_known_digest() -> None:
    """`printf 'brown 1\\nfox 1\\nquick 1\\nthe 1' | md5sum`."""
    assert (profile("The quick brown fox") or b"").hex() == "1c52d3e5c126a433f453349928992f62"


@pytest.mark.parametrize("text", ["", " \n", "a bc", "?!", "__", "e_f"])
def test_a_text_without_words_that_count_has_no_profile(text: str) -> None:
    assert profile(text) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("東京タワー", ["東京", "京タ", "タワ", "ワー"]),
        ("字", ["字"]),
        ("東京とTokyo 2026", ["東京", "京と", "tokyo", "2026"]),
        ("漢字、かな", ["漢字", "かな"]),
        ("ภาษาไทย", ["ภา", "าษ", "ษา", "าไ", "ไท", "ทย"]),
        ("𠀀𠀁𠀂", ["𠀀𠀁", "𠀁𠀂"]),
        ("한국어 말", ["한국어", "말"]),  # Korean has spaces
        ("Русский text", ["русский", "text"]),
    ],
)
def test_scripts_without_spaces_are_cut_into_bigrams(text: str, words: list[str]) -> None:
    assert count_words(text) == dict.fromkeys(words, 1)


def test_bigrams_count_in_the_profile_though_they_are_short() -> None:
    lines = "\n".join(sorted(["東京 1", "京タ 1", "タワ 1", "ワー 1"]))
    assert profile("東京タワー ab") == md5(lines.encode()).digest()


def test_one_character_more_or_less_changes_nothing_in_a_long_chinese_text() -> None:
    text = "東京タワー。" * 200
    assert profile(text + "新") == profile(text)


WORDS = st.text(st.sampled_from("abcxyzäß19д 𐐨._-'"), max_size=8)
TEXTS = st.lists(WORDS, max_size=60).map(" ".join)


def as_the_notes_say(text: str) -> bytes | None:
    """The same as Nutch does it, a character at a time."""
    words: Counter[str] = Counter()
    word = ""
    for character in f"{text} ":
        if character.isalnum():
            word += character.lower()
        else:
            words[word] += len(word) > 2
            word = ""
    if not words.total():
        return None
    highest = max(words.values())
    step = int(highest / 100 + 0.5)
    if step < 2:
        step = 1 if highest == 1 else 2
    kept = [
        (count - count % step, word) for word, count in words.items() if count >= step and count
    ]
    kept.sort(key=lambda one: one[1])
    kept.sort(key=lambda one: one[0], reverse=True)
    return md5("\n".join(f"{word} {count}" for count, word in kept).encode()).digest()


@given(TEXTS)
def test_it_is_what_the_notes_say(text: str) -> None:
    assert profile(text) == as_the_notes_say(text)


@given(
    st.dictionaries(
        st.sampled_from(["alpha", "beta", "gamma", "delta"]), st.integers(1, 2000), min_size=1
    )
)
def test_it_is_what_the_notes_say_for_long_texts(counts: dict[str, int]) -> None:
    assert text_profile(counts) == as_the_notes_say(
        " ".join(f"{word} " * count for word, count in counts.items())
    )


@given(st.lists(WORDS, max_size=30), st.randoms(use_true_random=False))
def test_the_order_of_words_and_their_case_change_nothing(words: list[str], random: object) -> None:
    shuffled = [word.upper() if "ß" not in word else word for word in words]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert profile(" ".join(shuffled)) == profile(" ".join(words))


@given(TEXTS, st.sampled_from(["ab", "x", "19", "-"]))
def test_short_words_change_nothing(text: str, more: str) -> None:
    assert profile(f"{text} {more}") == profile(text)


@given(st.integers(1, 1000))
def test_one_word_more_or_less_changes_nothing_where_a_text_repeats_others(times: int) -> None:
    text = "abc " * (2 * times) + "def " * (2 * times)
    assert profile(f"{text} unique") == profile(text)
