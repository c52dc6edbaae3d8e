"""The text profile, by which a page whose text has hardly changed counts as unchanged: that of Nutch.

Words are runs of letters and digits in lower case. Those longer than 2 are counted, and each count is rounded down to a
multiple of a hundredth of the highest (at least 2; 1 where no word is there twice), so that a word more or less changes
nothing, and rare words count not at all in a long text. The signature is the MD5 of `word count` lines, the most
frequent first. https://github.com/apache/nutch, TextProfileSignature, with its defaults.
"""

import re
from collections import Counter
from collections.abc import Mapping
from hashlib import md5

LONGER_THAN = 2
_WORD = re.compile(r"[^\W_]+")


def count_words(text: str) -> Counter[str]:
    """How often each word is in a text."""
    return Counter(word.lower() for word in _WORD.findall(text))


def text_profile(words: Mapping[str, int]) -> bytes | None:
    """The signature of a text with these words; None if none of them counts."""
    counted = {word: count for word, count in words.items() if len(word) > LONGER_THAN}
    if not counted:
        return None
    highest = max(counted.values())
    # As Java rounds: a half upwards.
    step = max(2, (highest + 50) // 100) if highest > 1 else 1
    rounded = [(-(count // step * step), word) for word, count in counted.items() if count >= step]
    lines = "\n".join(f"{word} {-count}" for count, word in sorted(rounded))
    return md5(lines.encode("utf-8", "replace"), usedforsecurity=False).digest()
