"""The links of pages as rows of `links`, and the memory of where references lead: `parse/native/rows.c`.

A page costs three calls. Between the calls the memory asks about new references and new URLs only: of 61 links on an
ordinary page 4 are new.
"""

import ctypes
import os
import weakref
from struct import Struct
from typing import NamedTuple

from crawl_lib.parse import native_library
from crawl_lib.segment import LinkBlock
from crawl_lib.urls import Rejection, Target

REMEMBERED_BYTES = 64 << 20
"""Memory for references, URLs and verdicts: for about 200,000 URLs of usual length."""
SAYS_NOFOLLOW, FOLLOWS_ALL, NO_HOP, IS_SIMILAR, REQUISITES, IS_REQUISITE = 1, 2, 4, 8, 16, 32
"""The flags of a page in `rows.h`: they bar links."""
_BARS = (
    "",
    Rejection.ELEMENT,
    Rejection.NOFOLLOW,
    Rejection.REDIRECT_LIMIT,
    Rejection.SIMILAR,
    Rejection.ON_REQUISITE,
)
"""The rules of `enum krake_bar`."""
_ASK, _RULE = Struct("@IIIIP20s4x"), Struct("@P4xI")
_NO_REFERENCE = -1


class Ask(NamedTuple):
    """A question of the memory.

    Attributes:
        link: The place on the page of the first link in question.
        number: The number of the reference or of the target, for the answer.
        is_hop: Whether the link is a meta refresh, a sitemap of an index, or a link to the same place.
        text: A reference without its fragment, or a canonical URL.
        key: The key of the URL.

    """

    link: int
    number: int
    is_hop: bool
    text: str
    key: bytes


class LinkRows:
    """The memory of links. Beyond `most_bytes` everything is forgotten. Raises MemoryError."""

    def __init__(self, most_bytes: int = REMEMBERED_BYTES) -> None:
        self._native = native_library()
        self._rows = self._native.krake_rows_new(most_bytes, int.from_bytes(os.urandom(8)))
        if self._rows is None:
            raise MemoryError
        weakref.finalize(self, self._native.krake_rows_free, self._rows)
        self._rules: dict[str, int] = {}
        self._names: list[bytes] = []
        self._links = b""
        for rule in _BARS:
            self._rule(rule)

    def look(self, links: bytes, base: str, how: int) -> list[Ask]:
        """Begin a page; return the references to learn.

        `links`: as in `Page.links`; reading ends at an incomplete link. `base`: the base URL of the page, canonical.
        `how`: a sum of flags, such as `SAYS_NOFOLLOW`.
        """
        folder = base.partition("?")[0].rpartition("/")[0].encode() + b"/"
        self._links = links  # C reads these bytes until the rows are written
        return self._asked(
            self._native.krake_rows_look(self._rows, links, len(links), folder, len(folder), how)
        )

    def learn(self, number: int, target: Target, lasts: bool) -> int:
        """Learn where a reference leads; return the number of the target.

        `lasts`: references on all pages of the folder lead there.
        """
        rule = 0 if target.rejection is None else self._rule(target.rejection)
        url = target.url.encode()
        return _checked(
            self._native.krake_rows_learn(
                self._rows, number, url, len(url), target.key, rule, lasts
            )
        )

    def target(self, target: Target) -> int:
        """Return the number of a redirect's target.

        Call this between two pages only.
        """
        self.look(b"", target.url, 0)
        return self.learn(_NO_REFERENCE, target, lasts=False)

    def unjudged(self, position: int) -> list[Ask]:
        """Return the URLs to judge, after all references were learnt.

        `position`: of the page in its batch. URLs handed on from later positions are judged again.
        """
        return self._asked(self._native.krake_rows_unjudged(self._rows, position))

    def judge(self, number: int, followed: bool, rule: str, lasts: bool) -> None:
        """Learn whether a URL is followed, and by which rule.

        `lasts`: the verdict holds on later pages, whatever their depth.
        """
        self._native.krake_rows_judge(self._rows, number, followed, self._rule(rule), lasts)

    def send(self, number: int, position: int) -> bool:
        """Note a target as handed on.

        Returns False if an earlier position, or the same, handed it on already.
        """
        return bool(self._native.krake_rows_send(self._rows, number, position))

    def write(self, block: LinkBlock, source: bytes) -> int:
        """Add the page's rows to a block; return its size in bytes.

        `source`: key of the page.
        """
        return _checked(self._native.krake_rows_write(self._rows, ctypes.byref(block), source))

    def rejected(self) -> dict[str, int]:
        """Count the last page's rejected links by rule.

        Links to invalid URLs count, without a row.
        """
        rules = ctypes.string_at(
            self._native.krake_rows_rules(self._rows), _RULE.size * len(self._rules)
        )
        return {
            name: count
            for name, (_, count) in zip(self._rules, _RULE.iter_unpack(rules), strict=True)
            if count
        }

    def _asked(self, count: int) -> list[Ask]:
        if not _checked(count):
            return []
        asks = ctypes.string_at(self._native.krake_rows_asks(self._rows), _ASK.size * count)
        return [
            Ask(link, number, bool(is_hop), ctypes.string_at(text, length).decode(), key)
            for link, number, length, is_hop, text, key in _ASK.iter_unpack(asks)
        ]

    def _rule(self, name: str) -> int:
        number = self._rules.get(name)
        if number is None:
            text = name.encode()
            self._names.append(text)  # C keeps a pointer
            number = self._rules[str(name)] = _checked(
                self._native.krake_rows_rule(self._rows, text, len(text))
            )
        return number


def _checked(number: int) -> int:
    if number < 0:
        raise MemoryError
    return number
