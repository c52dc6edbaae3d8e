"""Resolving links on the hot path: the answers of `resolve`, without a parser for plain links."""

import re
from collections.abc import Callable
from hashlib import sha1
from typing import NamedTuple

from crawl_lib.errors import UrlError
from crawl_lib.urls.canonical import DEFAULT_MAX_LENGTH_CHARS, RAW_CHARS_FACTOR, resolve
from crawl_lib.urls.names import host_of
from crawl_lib.urls.rejections import Rejection


class Target(NamedTuple):
    """The target of a link. With a `rejection` (invalid, scheme, too_long) the three other fields are empty."""

    url: str
    """Canonical URL."""
    key: bytes
    """The SHA-1 of the URL, 20 bytes."""
    host: str
    """The host without port."""
    rejection: Rejection | None


_REJECTED = {str(rejection): Target("", b"", "", rejection) for rejection in Rejection}

# Hrefs that only need a part of the base before them: every character is allowed in a canonical URL, and no segment is
# empty or begins with a dot. A property test compares this shortcut with the parser.
_SEGMENTS = r"(?:[\w~-][\w.~-]*/)*(?:[\w~-][\w.~-]*)?(?:\?[\w.~=&;/+-]+)?"
_PLAIN_RELATIVE = re.compile(rf"((?:\.\./)*)({_SEGMENTS})", re.ASCII).fullmatch
_PLAIN_ROOTED = re.compile(rf"/{_SEGMENTS}", re.ASCII).fullmatch
_PLAIN_ABSOLUTE = re.compile(
    rf"(https?://((?!xn--)(?:[a-z0-9-]+\.(?!xn--))+[a-z]+))(?:/{_SEGMENTS})?", re.ASCII
).fullmatch

# Hrefs whose target depends on more than the directory of the base: `http:x` is relative if the base is http, and
# tabs and newlines are taken out anywhere.
_ODD = re.compile(r"https?:(?![/\\])|[^\t\n\r]*[\t\n\r]", re.IGNORECASE).match

_NEVER_FETCHED = ("javascript:", "mailto:", "data:", "tel:")
_C0_AND_SPACE = "".join(map(chr, range(33)))
_MAX_LASTING_CHARS = 4096
"""A longer reference is not remembered."""


class LinkResolver:
    """Resolves the links of page after page. `enter` comes before the links of each page."""

    def __init__(
        self,
        max_length_chars: int = DEFAULT_MAX_LENGTH_CHARS,
        normalize: Callable[[str], str] | None = None,
    ) -> None:
        """Resolve links with canonical URLs up to a length.

        `max_length_chars`: of a canonical URL; `normalize`: gives the normalised URL; None: no change.
        """
        self._normalize = normalize
        self._max_length_chars = max_length_chars
        self._longest_raw_chars = RAW_CHARS_FACTOR * max_length_chars

    def enter(self, base: str) -> None:
        """Begin a page whose base URL (canonical) is `base`."""
        self._base = base
        # The ends of the folders above the page, from the nearest to the root.
        slash = base.partition("?")[0].rfind("/")
        root = base.index("/", 8)
        self._ends = [slash + 1]
        while slash > root:
            slash = base.rfind("/", 0, slash)
            self._ends.append(slash + 1)
        self._origin = base[:root]
        self._host = host_of(base)

    def find(self, text: str) -> tuple[Target, bool]:
        """Resolve a reference.

        Return also whether the answer holds for every page of the folder.

        `text`: with or without its fragment.
        """
        if not text:
            return self._target(self._base, self._host), False
        plain = self._plain(text) if len(text) <= self._longest_raw_chars else None
        lasting = len(text) <= _MAX_LASTING_CHARS
        if plain is not None:
            return plain, lasting
        if (
            len(text) <= self._longest_raw_chars
            and text.startswith(_NEVER_FETCHED)
            and text.partition(":")[2][:1].isalnum()
        ):
            # With `//` behind the colon the reference has a host, and may be invalid.
            return _REJECTED[Rejection.SCHEME], lasting
        stripped = text.strip(_C0_AND_SPACE)
        lasting = lasting and stripped != "" and stripped[0] not in "?#" and _ODD(stripped) is None
        try:
            url = resolve(self._base, text, max_length_chars=self._max_length_chars)
        except UrlError as error:
            return _REJECTED[error.reason], lasting
        return self._target(url, host_of(url)), lasting

    def _plain(self, text: str) -> Target | None:
        """Resolve a plain href without a parser; None for any other href."""
        first = text[:1]
        if first == "/":
            return self._target(self._origin + text, self._host) if _PLAIN_ROOTED(text) else None
        match = None if first == "?" else _PLAIN_RELATIVE(text)
        if match:
            above, rest = match.groups()
            level = min(len(above) // 3, len(self._ends) - 1)
            return self._target(self._base[: self._ends[level]] + rest, self._host)
        match = _PLAIN_ABSOLUTE(text)
        if match:
            return self._target(text if len(text) > match.end(1) else text + "/", match[2])
        return None

    def _target(self, url: str, host: str) -> Target:
        if len(url) > self._max_length_chars:
            return _REJECTED[Rejection.TOO_LONG]
        if self._normalize is not None and (normalized := self._normalize(url)) != url:
            url, host = normalized, host_of(normalized)
        return Target(url, sha1(url.encode("ascii"), usedforsecurity=False).digest(), host, None)
