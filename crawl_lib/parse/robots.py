"""What robots metas and X-Robots-Tag say about following links."""

from __future__ import annotations

from collections.abc import Iterable

_NOFOLLOW = frozenset({"nofollow", "none"})
# Directives that hold a colon themselves, so that they are not taken for the name of a crawler.
_WITH_VALUE = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})


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
    for part in value.split(","):
        name, colon, directive = part.partition(":")
        name = name.strip().lower()
        if colon and name not in _WITH_VALUE:
            ours = name == user_agent
            name = directive.strip().lower()
        if ours and name in _NOFOLLOW:
            return True
    return False
