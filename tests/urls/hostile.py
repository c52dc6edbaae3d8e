"""URLs that a stranger made up, by seed: escapes, parts, lengths, alphabets, depth, sub-domains; and ordinary ones."""

from __future__ import annotations

import random
import string
from itertools import count

_ALPHABETS = (
    "a",
    "ab",
    string.ascii_lowercase,
    string.ascii_lowercase + string.digits,
    string.digits,
    "._-%25",
    "sessid",
    "date2031-05",
    "S(a1)",
    "%3A%2F",
)
_WORDS = (
    *(
        "sess",
        "session_id",
        "jsessionid=",
        "sid=",
        "s=",
        "zenid=",
        "(S(",
        "))",
        "date=",
        "month=",
        "2031-05-12",
        "may",
    ),
    *("time=123456789", "y=2031", "calendar", "page", "0", "a1", "=", "-", "_", ".", "%3B", "~"),
)


def _piece(choose: random.Random, length: int, marks: str) -> str:
    """Return a text of about so many characters, of an alphabet or of words that rules look for."""
    if choose.random() < 0.5:
        alphabet = choose.choice(_ALPHABETS)
        return "".join(choose.choices(alphabet, k=length))
    found = ""
    while len(found) < length:
        found += choose.choice(_WORDS) + choose.choice(("", "", marks))
    return found[:length]


class Habit:
    """How one stranger makes URLs; no two are the same."""

    def __init__(self, seed: int) -> None:
        self._choose = choose = random.Random(seed)
        self._numbers = count()
        self._mark = choose.choice(("/", "&", ";", "&", ""))
        self._part = choose.choice((1, 2, 5, 20, 300, 100_000))
        self._has_query = choose.random() < 0.6
        self._repeats = choose.random() < 0.3
        self._labels = choose.choice((0, 0, 1, 5))

    def url(self, length: int) -> str:
        """Return a URL of about `length` characters."""
        choose = self._choose
        labels = "".join(f"{choose.randrange(10**6):x}." for _ in range(self._labels))
        begin = f"http://{labels}farm.test/" + ("list?" if self._has_query else "")
        last = f"{self._mark or '/'}{next(self._numbers):x}"
        parts, left = list[str](), length
        while left > 0:
            parts.append(
                parts[0]
                if self._repeats and parts
                else _piece(choose, min(self._part, left), self._mark)
            )
            left -= len(parts[-1]) + 1
        return begin + (self._mark or "/").join(parts) + last


def ordinary(seed: int, number: int) -> list[str]:
    """Return URLs of a forum and of a shop, as their software makes them."""
    choose = random.Random(seed)
    makers = (
        lambda n: f"/viewtopic.php?f={n % 30}&t={n}&start={choose.choice((0, 15, 30))}",
        lambda n: f"/threads/some-words-of-a-title-{n % 9}.{n}/page-{choose.randrange(1, 9)}",
        lambda n: f"/member.php?action=profile&uid={n}",
        lambda n: f"/product/{choose.choice(('blue', 'red'))}-shoe-{n}?color=red&size={n % 9 + 36}",
        lambda n: f"/index.php?route=product/product&path=20_{n % 27}&product_id={n}",
        lambda n: f"/catalog/category/view/s/shoes/id/{n}/?p={choose.randrange(1, 9)}",
        lambda n: f"/2024/0{n % 9 + 1}/{n % 28 + 1}/a-story-of-the-day-{n}.html",
    )
    return [f"http://www.shop{n % 20}.test{makers[n % len(makers)](n)}" for n in range(number)]
