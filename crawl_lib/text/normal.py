"""Unicode's normal form NFC, in which a letter and its accents are one character where Unicode has one."""

import re
from functools import cache
from unicodedata import combining, normalize

_FIRST_MARK, _PAST_MARKS = 0x300, 0x1F000
_MAX_MARKS = 30
_JOINER = "\N{COMBINING GRAPHEME JOINER}"


def nfc(text: str) -> str:
    """Return a text in NFC, in linear time.

    Python sorts the marks behind a letter in quadratic time. A joiner after each 30 marks avoids this, as in Unicode's
    Stream-Safe Text Format (https://www.unicode.org/reports/tr15/#Stream_Safe_Text_Format).
    """
    if text.isascii():
        return text
    return normalize("NFC", _many_marks().sub(rf"\1{_JOINER}", text))


@cache
def _many_marks() -> re.Pattern[str]:
    """Return the pattern of 30 marks that another mark follows."""
    marks = "".join(chr(code) for code in range(_FIRST_MARK, _PAST_MARKS) if combining(chr(code)))
    return re.compile(f"([{marks}]{{{_MAX_MARKS}}})(?=[{marks}])")
