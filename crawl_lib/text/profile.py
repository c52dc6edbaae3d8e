"""The text profile of Nutch: a page counts as unchanged if its text has hardly changed.

Words are runs of letters and digits in lower case. Words of 3 characters or more count. Each count is rounded down to a
multiple of a step: a hundredth of the highest count, at least 2 (1 if no word occurs twice). One word more or less
therefore changes nothing, and rare words do not count in a long text. The signature is the MD5 of `word count` lines,
the most frequent first. https://github.com/apache/nutch, TextProfileSignature, with its defaults.

Chinese, Japanese, Thai, Lao, Khmer and Burmese put no spaces between words. A run of their letters becomes its pairs of
neighbours (bigrams), and each bigram counts. Nutch counts such a run as one word.
"""

import re
from collections import Counter
from collections.abc import Mapping
from hashlib import md5
from itertools import pairwise

LONGER_THAN = 2
MAX_WORD_BYTES = 64
"""Longest word, in bytes of UTF-8. Longer words are encoded data, addresses and keys."""
_SPACELESS = (
    "\u0e01-\u0e3a\u0e40-\u0e4e"  # Thai
    "\u0e81-\u0ece\u0edc-\u0edf"  # Lao
    "\u1000-\u103f\u1050-\u108f\ua9e0-\ua9ef\uaa60-\uaa7f"  # Burmese
    "\u1780-\u17d3"  # Khmer
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Hiragana, Katakana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Han
)
"""The letters of scripts without spaces, with their marks (Unicode's Scripts.txt)."""
_WORD = re.compile(r"[^\W_]+")
_WORD_OR_RUN = re.compile(rf"[{_SPACELESS}]+|[^\W_{_SPACELESS}]+")
_IS_SPACELESS = re.compile(f"[{_SPACELESS}]")


def count_words(text: str) -> Counter[str]:
    """Count words in lower case, and bigrams of unspaced scripts."""
    if text.isascii() or not _IS_SPACELESS.search(text):
        return Counter(word.lower() for word in _WORD.findall(text))
    found: Counter[str] = Counter()
    for run in _WORD_OR_RUN.findall(text):
        found.update(_bigrams(run) if _IS_SPACELESS.match(run) else [run.lower()])
    return found


def is_long_word(word: str) -> bool:
    """Say whether a word has more than `MAX_WORD_BYTES` in UTF-8."""
    return len(word) > MAX_WORD_BYTES or len(word.encode("utf-8", "replace")) > MAX_WORD_BYTES


def _bigrams(run: str) -> list[str]:
    return [one + other for one, other in pairwise(run)] or [run]


def text_profile(words: Mapping[str, int]) -> bytes | None:
    """Return the signature of a text's words; None without countable words."""
    counted = {
        word: n for word, n in words.items() if len(word) > LONGER_THAN or _IS_SPACELESS.match(word)
    }
    if not counted:
        return None
    highest = max(counted.values())
    # As Java rounds: a half upwards.
    step = max(2, (highest + 50) // 100) if highest > 1 else 1
    rounded = [(-(count // step * step), word) for word, count in counted.items() if count >= step]
    lines = "\n".join(f"{word} {-count}" for count, word in sorted(rounded))
    return md5(lines.encode("utf-8", "replace"), usedforsecurity=False).digest()
