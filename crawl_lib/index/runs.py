"""Runs of scripts without spaces between words: Chinese, Japanese, Thai and similar ones.

A tokenizer needs a dictionary to find the words of such a run. The index instead keeps each letter of a run as a word
with its position, so a run of a query is found as a phrase. Korean has spaces, and so its words are found as usual.
"""

import re

_HAN = "\u2e80-\u2fd5\u3005-\u3007\u3021-\u3029\u3031-\u303c\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_RARE_HAN = "\U00020000-\U000323af"
_KANA = "\u3041-\u3096\u3099-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f\U0001aff0-\U0001b16f"
_BOPOMOFO = "\u3105-\u312f\u31a0-\u31bf"
_THAI_AND_LAO = "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u0edc-\u0edf"
_MYANMAR_AND_KHMER = "\u1000-\u103f\u1050-\u108f\u1780-\u17d3\u17d7\u17dc\u17dd\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa7f"
_RUN = re.compile(f"[{_HAN}{_RARE_HAN}{_KANA}{_BOPOMOFO}{_THAI_AND_LAO}{_MYANMAR_AND_KHMER}]+")
LETTER = r"[\p{L}\p{N}]\p{M}*"
"""A letter of a run with its marks, as a regular expression of Rust."""


def find_runs(text: str) -> list[str]:
    """Return the runs of a text, in its order."""
    return _RUN.findall(text)


def without_runs(text: str) -> str:
    """Replace each run by a space.

    Words of other scripts that touch a run are then separate.
    """
    return _RUN.sub(" ", text)


def spaced(text: str) -> str:
    """Put spaces between the letters of runs and around the runs."""
    return _RUN.sub(lambda run: f" {' '.join(run[0])} ", text)
