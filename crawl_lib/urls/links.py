"""Resolving links on the hot path: the answers of `resolve`, remembered, and without a parser for the plain ones."""

import re
from collections.abc import Callable, Iterable
from hashlib import sha1
from sys import getsizeof
from typing import NamedTuple

from crawl_lib.errors import UrlError
from crawl_lib.urls.canonical import DEFAULT_MAX_LENGTH_CHARS, RAW_CHARS_FACTOR, resolve
from crawl_lib.urls.names import host_of
from crawl_lib.urls.rejections import Rejection


class Target(NamedTuple):
    """Where a link leads. With a `rejection` (invalid, scheme, too_long) the three others are empty."""

    url: str
    """Canonical URL."""
    key: bytes
    """SHA-1 of it, 20 bytes."""
    host: str
    """Its host without port."""
    rejection: Rejection | None


_REJECTED = {str(rejection): Target("", b"", "", rejection) for rejection in Rejection}

# Hrefs that only need to be put behind a part of the base: every character is itself in a canonical URL, and no
# segment is empty or begins with a dot. A property test compares this shortcut with the parser.
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
_MAX_REMEMBERED_CHARS = 4096
_USUAL_BYTES, _TARGET_BYTES, _HREF_BYTES = 512, 300, 100
"""Memory of a target of usual length, of any target besides the text of its URL, of a href besides its text."""


class LinkResolver:
    """Resolves the links of page after page; remembers about `max_remembered` of the last targets, fewer of long ones.

    One object serves one process and is not shared between threads. Two generations of memory: when the young one is
    full, the old one is forgotten and the young one becomes old, so what is used stays. The hrefs that lead to one URL
    share one `Target`: most links of a page have a new spelling (`page.html#place`), and few lead anywhere new.
    """

    def __init__(
        self,
        max_length_chars: int = DEFAULT_MAX_LENGTH_CHARS,
        *,
        max_remembered: int = 1 << 16,
        normalize: Callable[[str], str] | None = None,
    ) -> None:
        """`max_length_chars`: of a canonical URL; `max_remembered`: targets, in memory of 0.5 KB for each, which one
        call may pass; `normalize`: what a canonical URL becomes; None: it stays."""
        self._normalize = normalize
        self._max_length_chars = max_length_chars
        self._longest_raw_chars = RAW_CHARS_FACTOR * max_length_chars
        self._generation_bytes = max_remembered * _USUAL_BYTES // 2
        self._young: dict[str, dict[str, Target]] = {}
        self._old: dict[str, dict[str, Target]] = {}
        self._young_bytes = 0
        self._by_url: dict[str, Target] = {}

    def resolve_many(self, base: str, hrefs: Iterable[str]) -> list[Target]:
        """Return for each of `hrefs`, in order, where it leads from a page whose base URL (canonical) is `base`."""
        self._enter(base)
        directory = base[: self._ends[0]]
        young = self._young.get(directory)
        if young is None:
            young = self._young[directory] = {}
            self._young_bytes += _TARGET_BYTES + len(directory)
        young[""] = self._target(base, self._host)  # of this page, not of the directory
        old = self._old.get(directory, {})
        targets = []
        for href in hrefs:
            target = young.get(href)
            if target is None:
                # Without its fragment: most new spellings lead to a place of a page that is known. A space before the
                # fragment is part of the path; at the end of a href it is not.
                cut = href.find("#")
                text = href if cut < 0 or (cut and href[cut - 1] <= " ") else href[:cut]
                target = young.get(text)
                if target is None:
                    target = old.get(text)
                    lasting = True
                    if target is None:
                        target, lasting = self._find(text)
                    if lasting:
                        young[text] = target
                        self._young_bytes += _HREF_BYTES + getsizeof(text)
            targets.append(target)
        if self._young_bytes >= self._generation_bytes:
            self._old, self._young, self._young_bytes = self._young, {}, 0
            self._by_url = {}
        return targets

    def _enter(self, base: str) -> None:
        """Make ready for the links of one page: where the directories above it end, from the nearest to the root."""
        self._base = base
        path_end = base.find("?")
        slash = base.rfind("/", 0, path_end if path_end >= 0 else len(base))
        root = base.index("/", 8)
        self._ends = [slash + 1]
        while slash > root:
            slash = base.rfind("/", 0, slash)
            self._ends.append(slash + 1)
        self._origin = base[:root]
        self._host = host_of(base)

    def _find(self, text: str) -> tuple[Target, bool]:
        """Resolve a href without its fragment; True with it if the answer holds for every page of the directory."""
        plain = self._plain(text) if len(text) <= self._longest_raw_chars else None
        lasting = len(text) <= _MAX_REMEMBERED_CHARS
        if plain is not None:
            return plain, lasting
        if (
            len(text) <= self._longest_raw_chars
            and text.startswith(_NEVER_FETCHED)
            and text.partition(":")[2][:1].isalnum()
        ):
            # With `//` behind the colon it has a host, and may be invalid.
            return _REJECTED[Rejection.SCHEME], lasting
        stripped = text.strip(_C0_AND_SPACE)
        lasting = lasting and stripped != "" and stripped[0] not in "?#" and _ODD(stripped) is None
        try:
            url = resolve(self._base, text, max_length_chars=self._max_length_chars)
        except UrlError as error:
            return _REJECTED[error.reason], lasting
        return self._target(url, host_of(url)), lasting

    def _plain(self, text: str) -> Target | None:
        """Resolve a href that needs no parser; None if it does."""
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
        target = self._by_url.get(url)
        if target is None:
            if len(url) > self._max_length_chars:
                return _REJECTED[Rejection.TOO_LONG]
            found = url
            if self._normalize is not None and (url := self._normalize(found)) != found:
                host = host_of(url)
            key = sha1(url.encode("ascii"), usedforsecurity=False).digest()
            target = self._by_url[found] = Target(url, key, host, None)
            self._young_bytes += _TARGET_BYTES + len(url)
        return target
