"""What robots metas and X-Robots-Tag say about following links."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NOFOLLOW = frozenset({"nofollow", "none"})
# Directives that hold a colon themselves, so that they are not taken for the name of a crawler.
_WITH_VALUE = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})
_NAME = re.compile(r"[\w.*/-]+", re.ASCII)


def says_nofollow(directives: str) -> bool:
    """Say whether a list of directives ("noindex, nofollow") forbids to follow links: nofollow or none."""
    return any(word.strip().lower() in _NOFOLLOW for word in directives.split(","))


def x_robots_nofollow(values: Iterable[str], user_agent: str = "") -> bool:
    """Say whether X-Robots-Tag headers forbid to follow the links of an answer.

    `values`: of all fields of that name; `user_agent`: our token. A value may begin with the name of a crawler
    (`otherbot: nofollow`); then it, and what follows it in the same value, counts for that crawler only.
    """
    return any(_applies(value, user_agent.lower()) for value in values)


def _applies(value: str, user_agent: str) -> bool:
    ours = True
    for part in value.lower().split(","):
        name, colon, directive = (text.strip() for text in part.partition(":"))
        if colon and _is_crawler(name, directive):
            ours = name in ("*", user_agent)
            name = directive
        if ours and name in _NOFOLLOW:
            return True
    return False


def _is_crawler(name: str, directive: str) -> bool:
    """Say whether `name: directive` names a crawler. Pieces of a date, which may hold commas and colons, do not."""
    is_name = _NAME.fullmatch(name) is not None and name not in _WITH_VALUE
    return is_name and (not directive or directive[0].isalpha())
