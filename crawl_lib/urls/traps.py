"""Patterns of endless URLs: rules of the section `traps`, which look at nothing but the URL.

A server that answers every request can be crawled for ever. Such URLs are alike, so each rule puts them into
**groups**, and only a number of URLs of a group are queued: `crawl_lib.frontier` counts these. A rule rejects a URL if
all groups of the URL are full.

| rule | applies to | a group |
|---|---|---|
| `session_id` | URLs with a session id | URLs that differ in session ids only |
| `repeated_segment` | paths with a repeated segment | paths of the same segments, in any order and number |
| `calendar` | a date at the end of the path, or in the query | URLs that differ in dates only |
| `query_explosion` | queries with several parts | queries of a path with a common part: a group for each part |

The last rule tells `?topic=812&page=3`, where `topic=812` is new, from the combinations of six filters. In a query with
more than 8 parts the 8 longest of the first 32 count, since many queries share short parts. Most URLs are in no group,
and the test takes 1 us. Strangers choose these texts, so each rule takes time linear in the URL's bytes.

`pattern_of` is for the rule `similar`, which looks at pages: `crawl_lib.worker.patterns`.
"""

import re
from collections.abc import Callable
from functools import cache, lru_cache
from hashlib import blake2b

from crawl_lib.config import TrapsConfig
from crawl_lib.urls.rejections import Rejection

Groups = tuple[Rejection, int, list[bytes]]
"""A rule, the most URLs of one of its groups, and the names of the URL's groups."""

PATTERN_MARK = b"/~"
"""The text after the host in names of patterns, but not in names of groups."""
_BEFORE_PATH = 3
_MOST_PARTS, _MOST_READ = 8, 32
_MOST_SEARCHED = 512
"""The searched bytes of a URL, and of its query, for session ids and dates: few honest URLs are longer."""
_LONG_PATTERN_BYTES = 512
# A search tries each byte as a beginning. The look-behind refuses all but the first byte of a segment at once.
_WITH_DIGIT = re.compile(rb"(?<![^/?&])[^/?&\d]*+\d[^/?&]*+")
_PARTS = re.compile(rb"[&;]")
_ASKED = re.compile(rb"(?<![^&;])([^&;=]*+)=")
_DIGIT = re.compile(rb"\d")
_NUMBERS = re.compile(
    rb"\d+|(?<=[-/_.])(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*", re.IGNORECASE
)

_SESSION = (
    # The look-ahead passes over a part without a value at once: strangers send many of them.
    rb"(?i)(?<=[;?&/])(?=\(|[\w-]*+=[^;?&/])(?:"
    rb"((?:jsessionid|phpsessid|aspsessionid\w*|cfid|cftoken)=)[^;?&/]+"
    # The atomic group takes the last such word of a name: otherwise the engine would read the rest for each word.
    rb"|((?>\w*sess(?:ion)?[_-]?id)\w*+=(?=[^;?&/]*\d)(?=[^;?&/]*[a-z]))[^;?&/]{8,}"
    # Names with other uses too: one long word without a mark between two parts.
    rb"|((?:\w*sess(?:ion)?|\w{0,4}sid|zenid|s)=(?=[a-z]*\d)(?=\d*[a-z]))[0-9a-z]{16,}(?![^;?&/])"
    rb"|\((?:[a-z]\([0-9a-z]{20,}\))+\)(?=/))"  # ASP.NET: /(S(...))/
)
_REMOVED = re.compile(rb"[;&]\0|(?<=\?)(?:\0[&;]?)+|/\0(?=/)|\0")
"""The rest of a session id, and the mark between the rest and its neighbour."""

_YEAR, _DAY, _DASH = rb"(?:19|2[01])\d\d", rb"(?:3[01]|[12]\d|0?[1-9])", rb"[-/_.]"
_MONTH = rb"(?:1[0-2]|0?[1-9]|(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*)"
_DATE = b"(?:%b)" % b"|".join(
    (
        _YEAR + _DASH + _MONTH + b"(?:%b%b)?" % (_DASH, _DAY),
        b"(?:%b%b)?" % (_DAY, _DASH) + _MONTH + _DASH + _YEAR,
        _YEAR + rb"(?:1[0-2]|0[1-9])(?:3[01]|[12]\d|0[1-9])",
        _YEAR + rb"-?[Ww]\d\d",
    )
)
_PATH_DATE = (
    rb"(?:[-/_.=]" + _DATE + rb"|/(?i:calendar|date|day|month|week|year)s?/\d+)(?=/?$|\.\w{3,5}$)"
)
_MOST_OF_DATE = len("/calendars/20310512.shtml/")
_QUERY_DATE = (
    rb"(?i)(?<=[?&;])(?=[\w.%-]*+=[0-9a-z])(?:"
    rb"(?:[\w.%-]*[_.-])?(?:start|end|from|to|event|cal)?(?:date|day|month|mon|year|week)=\d[^&;]*"
    rb"|(?:[\w.%-]*[_.-])?(?:time(?:stamp)?|ts)=\d{9,}"
    rb"|y=" + _YEAR + b"|m=" + _MONTH + b"|d=" + _DAY + rb"|[\w.%-]+=" + _DATE + rb")(?=[&;T]|$)"
)


@cache
def _compiled(expression: bytes) -> re.Pattern[bytes]:
    """Compile a regular expression at its first use.

    The large ones take 8 ms, and most commands need none.
    """
    return re.compile(expression)


class Traps:
    """The rules with their limits. Immutable."""

    def __init__(self, config: TrapsConfig) -> None:
        """Take the limits of a config.

        A limit of None turns its rule off.
        """
        self._limits = (
            (Rejection.REPEATED_SEGMENT, config.max_repeated, _repeated),
            (Rejection.CALENDAR, config.max_dates, _dated),
            (Rejection.QUERY_EXPLOSION, config.max_combined, _combined),
        )
        self._max_sessions = config.max_sessions
        self.has_patterns = config.max_similar is not None

    def groups(self, url: bytes, host_of: Callable[[bytes], bytes]) -> list[Groups]:
        """Return the trap groups of a canonical URL, by rule.

        The names begin with the URL's host (`host_of`) and a slash.
        """
        segments = url.split(b"/")
        may_have_id = b"=" in url or b"))/" in url
        if (
            len(set(segments)) == len(segments)
            and not may_have_id
            and b"?" not in url
            and not _path_date(url)
        ):
            return []  # most URLs
        found, host = [], host_of(url)
        without_id = (
            _compiled(_SESSION).sub(rb"\1\2\3", url[:_MOST_SEARCHED]) + url[_MOST_SEARCHED:]
            if may_have_id
            else url
        )
        if without_id != url:
            found.append((Rejection.SESSION_ID, self._max_sessions, [without_id]))
            url = without_id
        path, _, query = url.partition(b"?")
        found += [(rule, most, of(url, path, query)) for rule, most, of in self._limits]
        return [
            (rule, most, [_name(rule, host, alike) for alike in urls])
            for rule, most, urls in found
            if urls and most is not None
        ]


def without_session(url: str) -> str:
    """Return a URL without session ids and their names.

    Only the `?` of an emptied query may stay.
    """
    if "=" not in url and "))/" not in url:
        return url
    return _REMOVED.sub(b"", _compiled(_SESSION).sub(b"\0", url.encode())).decode()


def _name(rule: Rejection, host: bytes, alike: bytes) -> bytes:
    digest = blake2b(b"%b %b" % (rule.encode(), alike), digest_size=8).hexdigest()
    return b"%b/%b" % (host, digest.encode())


def _repeated(_: bytes, path: bytes, query: bytes) -> list[bytes]:
    segments = path.split(b"/")
    del segments[:_BEFORE_PATH]
    different = set(segments)
    return [] if len(different) == len(segments) else [b"/".join(sorted(different))]


def _path_date(path: bytes) -> re.Match[bytes] | None:
    start = max(0, len(path) - _MOST_OF_DATE)
    return _compiled(_PATH_DATE).search(path, start) if _DIGIT.search(path, start) else None


def _dated(url: bytes, path: bytes, query: bytes) -> list[bytes]:
    alike, rest = path, url[len(path) :]
    if date := _path_date(path):
        alike = path[: date.start()] + _without_numbers(date) + path[date.end() :]
    if query and _DIGIT.search(query):
        rest = (
            _compiled(_QUERY_DATE).sub(_without_numbers, rest[:_MOST_SEARCHED])
            + rest[_MOST_SEARCHED:]
        )
    alike += rest
    return [] if alike == url else [alike]


def _without_numbers(match: re.Match[bytes]) -> bytes:
    return _NUMBERS.sub(b"#", match[0])


def _combined(_: bytes, path: bytes, query: bytes) -> list[bytes]:
    if b"&" not in query and b";" not in query:
        return []
    # The parts behind the first 32 are left out unread: a stranger may send a thousand.
    parts = sorted(set(_PARTS.split(query, _MOST_READ)[:_MOST_READ]))
    if len(parts) > _MOST_PARTS:
        parts = sorted(sorted(parts, key=len)[-_MOST_PARTS:])
    return [b"%b?%b" % (path, part) for part in parts] if len(parts) > 1 else []


def pattern_of(url: bytes, host: bytes) -> bytes:
    """Return the pattern that a canonical URL shares with others.

    The pattern is the folder of the path, with all segments with a digit made alike; with a query, the path and the
    names of the query's parts. A pattern begins with the host, as names of groups do.
    """
    path, _, query = url.partition(b"?")
    if query:
        path += b"?" + b"&".join(sorted(_asked(query)))
    else:
        path = path.rstrip(b"/").rpartition(b"/")[0]
    name = _pattern_name if len(path) <= _LONG_PATTERN_BYTES else _pattern_name.__wrapped__
    return name(path, host)


@lru_cache(maxsize=4096)
def _pattern_name(path: bytes, host: bytes) -> bytes:
    return _name(Rejection.SIMILAR, host, _WITH_DIGIT.sub(b"#", path)).replace(
        b"/", PATTERN_MARK, 1
    )


def _asked(query: bytes) -> set[bytes]:
    """Return the names of a query's parts.

    A part without `=` has an empty name.
    """
    names = _ASKED.findall(query)
    has_all = len(names) > query.count(b"&") + query.count(b";")
    return {*names} if has_all else {*names, b""}
