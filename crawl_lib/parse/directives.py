"""Robots directives: what metas and X-Robots-Tag fields forbid to do with a page."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from crawl_lib.parse.dates import written_date

_NONE = "none"
_NOFOLLOW = frozenset({"nofollow", _NONE})
# Directives that hold a colon themselves, so that they are not taken for the name of a crawler.
_WITH_VALUE = frozenset(
    {"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"}
)
_NAME = re.compile(r"[\w.*/-]+", re.ASCII)
_COMMA = re.compile("(?<!mon|tue|wed|thu|fri|sat|sun|day),")
"""A comma between directives. The comma behind the day of the week belongs to a date."""


class Directives(NamedTuple):
    """Uses that the robots directives of a page forbid.

    `unavailable_after`: POSIX seconds from which on the page must not be shown; None without such a time.
    """

    noindex: bool = False
    noarchive: bool = False
    nosnippet: bool = False
    unavailable_after: float | None = None

    @classmethod
    def of(cls, metas: str, values: Iterable[str], *, user_agent: str, now: float) -> "Directives":
        """Return all directives for any crawler and for Krake.

        Args:
            metas: The contents of the metas named robots or as our user agent, joined by commas.
            values: As `x_robots_nofollow` takes them.
            user_agent: Our token.
            now: POSIX seconds, for dates whose year has two digits.

        The earliest valid date of `unavailable_after` counts. `max-snippet:0` is `nosnippet`, `nocache` is `noarchive`.
        Source: https://developers.google.com/search/docs/crawling-indexing/robots-meta-tag
        """
        found = list(_directives(metas))
        for value in values:
            found += _our_directives(value, user_agent.lower())
        names = {name for name, _ in found}
        dates = [
            written_date(argument, now) for name, argument in found if name == "unavailable_after"
        ]
        return cls(
            noindex=not names.isdisjoint({"noindex", _NONE}),
            noarchive=not names.isdisjoint({"noarchive", "nocache"}),
            nosnippet="nosnippet" in names or ("max-snippet", "0") in found,
            unavailable_after=min((date for date in dates if date is not None), default=None),
        )


def says_nofollow(metas: str) -> bool:
    """Say whether robots metas contain nofollow or none."""
    return any(name in _NOFOLLOW for name, _ in _directives(metas))


def x_robots_nofollow(values: Iterable[str], user_agent: str = "") -> bool:
    """Say whether X-Robots-Tag headers forbid to follow the links of an answer.

    `values`: of all fields of that name; `user_agent`: our token. A value may begin with the name of a crawler
    (`otherbot: nofollow`); then it, and what follows it in the same value, counts for that crawler only.
    """
    return any(
        name in _NOFOLLOW
        for value in values
        for name, _ in _our_directives(value, user_agent.lower())
    )


def _directives(text: str) -> Iterator[tuple[str, str]]:
    """Yield a list's directives in lower case, with their values.

    A value follows a colon.
    """
    for part in _COMMA.split(text.lower()):
        yield _directive(part)


def _directive(text: str) -> tuple[str, str]:
    name, _, argument = text.partition(":")
    return name.strip(), argument.strip()


def _our_directives(value: str, user_agent: str) -> Iterator[tuple[str, str]]:
    """Yield the directives of an X-Robots-Tag for us.

    In the form of `_directives`.
    """
    ours = True
    for part in _COMMA.split(value.lower()):
        name, argument = _directive(part)
        if ":" in part and _is_crawler(name, argument):
            ours = name in ("*", user_agent)
            name, argument = _directive(argument)
        if ours:
            yield name, argument


def _is_crawler(name: str, directive: str) -> bool:
    """Say whether `name: directive` names a crawler.

    Pieces of a date, which may hold commas and colons, do not.
    """
    is_name = _NAME.fullmatch(name) is not None and name not in _WITH_VALUE
    return is_name and (not directive or directive[0].isalpha())
