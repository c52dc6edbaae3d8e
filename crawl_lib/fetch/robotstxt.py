"""The text of a robots.txt: the paths that a crawler may fetch, by RFC 9309, with the misspellings that Google reads.

Strangers write the text, and the loop reads the text: reading takes time linear in the text, and a question at most
`MAX_WORK` steps. A path whose answer would take more counts as disallowed. A few rules with stars are compared one
after the other. Many rules have an index, and a rule is compared only if the path contains its rarest few octets.

A group begins with its User-agent lines and ends where one follows a rule; no other line ends the group (RFC 9309,
2.2.4). Groups of one name are one (2.2.1). A Crawl-delay, unknown to the RFC, holds for the User-agent lines right
before: files give one name after the other its delay, without a rule between.
"""

import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple
from urllib.parse import quote_from_bytes

from crawl_lib.states import Outcome

MAX_WORK = 1 << 22
"""Steps that a question may take, at most half a nanosecond each: a byte compared is one, a part of a rule 256."""
_PART_WORK = 256
_LITTLE_WORK = 1 << 19
"""A question that takes no more steps is answered without an index of the rules."""
_KEY_BYTES = 8

# https://github.com/google/robotstxt/blob/master/robots.cc (ParsedRobotsKey): a name may go on. A byte order mark, even
# a cut one, is not part of the name.
_LINE = re.compile(
    rb"(?:\A(?:\xef(?:\xbb\xbf?)?)?|[\r\n])[ \t\v\f]*(user[- ]?agent|allow|crawl[- ]?delay"
    rb"|disallow|dissallow|dissalow|disalow|diasllow|disallaw)([^\r\n#]*)",
    re.IGNORECASE,
)
_PRODUCT_TOKEN = re.compile(rb"[A-Za-z_-]*")
_SECONDS = re.compile(rb"\d{1,9}(?:\.\d{1,9})?")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
# The apostrophe is reserved, but canonical URLs escape it in queries and not in paths: here it always is.
_ODD_IN_PATH = re.compile(rb"%([0-9A-Fa-f]{2})|%|[^A-Za-z0-9._~:/?#@!&()+,;=%\[\]-]+")
_ODD_IN_PATTERN = re.compile(rb"%([0-9A-Fa-f]{2})|%|[^A-Za-z0-9._~:/?#@!&()+,;=%\[\]*-]+")
_NOT_US, _ALL, _US = range(3)
_TOO_MUCH_WORK = 2  # the lowest rank that disallows
_END = b"\0"  # behind a path, and behind a rule that has to reach its end: in neither it could be anything else


def said_to(token: bytes, body: bytes) -> tuple[list[tuple[bytes, bool]], float]:
    """Return the rules and Crawl-delay of the crawler `token` (lower case).

    Rules are in order, each with whether it allows. If a group names the crawler, the group for all (`*`) does not
    count.
    """
    rules: list[tuple[bytes, bool]] = []
    crawl_delay_s = 0.0
    level = group = paced = _NOT_US
    ruled = delayed = False
    for line in _LINE.finditer(body):
        value, kind = _value(line), line[1][:1].lower()
        if value is None:
            continue
        if kind == b"u":
            if ruled:
                group = _NOT_US
            if ruled or delayed:
                paced = _NOT_US
            ruled = delayed = False
            named = _level_of(value, token)
            group, paced = max(group, named), max(paced, named)
            if named > level:
                level, rules, crawl_delay_s = named, [], 0.0
        elif kind == b"c":
            delayed = True
            seconds = _SECONDS.match(value)
            if seconds is not None and paced == level != _NOT_US:
                crawl_delay_s = max(crawl_delay_s, float(seconds[0]))
        else:
            ruled = True
            if value and group == level != _NOT_US:
                rules.append((value, kind == b"a"))
    return rules, crawl_delay_s


def _level_of(name: bytes, token: bytes) -> int:
    if name[:1] == b"*":
        return _ALL if len(name) == 1 or name[1:2].isspace() else _NOT_US
    product = _PRODUCT_TOKEN.match(name)
    return _US if product is not None and product[0].lower() == token else _NOT_US


def _value(line: re.Match[bytes]) -> bytes | None:
    """Return the value of a line.

    A missing colon is forgiven between two words. None: the line has no value.
    """
    _, colon, value = line[2].partition(b":")
    if colon:
        return value.strip()
    words = line[0].split()
    return words[1] if len(words) == 2 and b" " not in line[1] else None


def comparable_path(url: str) -> bytes:
    """Return a canonical URL's path and query as rules are compared.

    See RFC 9309, 2.2.2.
    """
    start = url.find("/", 8)
    path = url[start:].encode("ascii", "replace") if start >= 0 else b"/"
    return _ODD_IN_PATH.sub(_escape, path)


def _escape(odd: re.Match[bytes]) -> bytes:
    """Normalize one escape or odd octet.

    Unreserved characters are decoded, other escapes get upper case, and octets that no URL has are escaped.
    """
    if odd[1] is None:
        return quote_from_bytes(odd[0], safe="").encode()
    octet = int(odd[1], 16)
    return bytes((octet,)) if octet in _UNRESERVED else odd[0].upper()


class Rules:
    """Whether URLs of one authority may be fetched, until `expires` (POSIX seconds).

    `body`: of its robots.txt, if it has one; `token`: our product token. `refusal`: what every URL ends as instead, if
    nothing may be fetched. `size_bytes`: about what the rules take of memory.

    The rule with the most octets decides, Allow where two have as many (RFC 9309, 2.2.2). A rule's rank is twice its
    octets, plus 1 for Allow; the greatest rank decides.
    """

    def __init__(
        self,
        body: bytes | None,
        token: str,
        expires: float,
        refusal: tuple[Outcome, str] | None = None,
    ) -> None:
        self.expires = expires
        self.refusal = refusal
        self.size_bytes = 1024
        self._plain: dict[bytes, int] = {}
        self._wild: list[_Wild] = []
        self._wild_bytes = 0
        rules, self.crawl_delay_s = said_to(token.encode().lower(), body or b"")
        for pattern, allows in rules:
            self._add(pattern, allows)
            folder, slash, page = pattern.rpartition(b"/")
            if (
                allows and slash and page.startswith(b"index.htm")
            ):  # as Google reads it: the folder's page too
                self._add(folder + b"/$", True)
        self._wild.sort(reverse=True)
        self._lengths = sorted(set(map(len, self._plain)))

    def _add(self, pattern: bytes, allows: bool) -> None:
        ends = pattern.endswith(b"$")
        text = _ODD_IN_PATTERN.sub(_escape, pattern[:-1] if ends else pattern)
        rank = 2 * (len(text) + ends) + allows
        if text.endswith(b"*"):  # a star at the end says nothing, and after it nor does the end
            text = text.rstrip(b"*")
        elif ends:
            text += _END
        self.size_bytes += len(text) + 150
        head, *rest = text.split(b"*")
        if not rest:
            self._plain[text] = max(rank, self._plain.get(text, 0))
            return
        parts = list(filter(None, rest))
        self.size_bytes += 100 * len(parts) + 200
        self._wild.append(_Wild(rank, max(map(len, parts)), [head, *parts]))
        self._wild_bytes += len(text)

    def allows(self, url: str) -> bool:
        """Return whether the rules allow a canonical URL.

        A URL beyond `MAX_WORK` is not allowed. Only asked where there is no `refusal`.
        """
        rank = self.rank(url)
        return rank == 0 or rank % 2 == 1

    def rank(self, url: str) -> int:
        """Return the rank of the deciding rule for a canonical URL.

        0: no rule matches.
        """
        if not self._plain and not self._wild:
            return 0
        path, best = comparable_path(url) + _END, 0
        if path == b"/robots.txt" + _END:
            return 0
        for length in self._lengths:
            if length > len(path):
                break
            best = max(best, self._plain.get(path[:length], 0))
        return self._rank_of_wild(path, best) if self._wild else best

    def _rank_of_wild(self, path: bytes, best: int) -> int:
        rules: Sequence[_Wild] = self._wild
        work = MAX_WORK
        if len(self._wild) * _PART_WORK + self._wild_bytes * len(path) > _LITTLE_WORK:
            rules = self._index.candidates(path, best)
            work -= _PART_WORK * len(rules)
        for rule in rules:
            if rule.rank <= best or work < 0:
                break
            work -= _PART_WORK
            if path.startswith(rule.parts[0]):
                work -= _PART_WORK * len(rule.parts) + rule.longest * len(path)
                if work >= 0 and _matches(path, rule.parts):
                    best = rule.rank
        return _TOO_MUCH_WORK if work < 0 else best

    @cached_property
    def _index(self) -> "_Index":
        return _Index(self._wild)


class _Wild(NamedTuple):
    """A rule with stars: rank, length of the longest part, and the parts between the stars, in order."""

    rank: int
    longest: int
    parts: list[bytes]


class _Index:
    """Rules with stars by a key: octets of every path that matches the rule.

    A rule may have its key at either end of each part. The key is the rarest among rules.
    """

    def __init__(self, rules: list[_Wild]) -> None:
        keys = [
            {key for part in rule.parts if part for key in (part[:_KEY_BYTES], part[-_KEY_BYTES:])}
            for rule in rules
        ]
        counts = Counter(chain.from_iterable(keys))
        self._rules = rules
        self._places: dict[int, dict[bytes, list[int]]] = {}
        for place, some in enumerate(keys):
            key = min(some, key=lambda one: (counts[one], -len(one)))
            self._places.setdefault(len(key), {}).setdefault(key, []).append(place)

    def candidates(self, path: bytes, best: int) -> list[_Wild]:
        """Return possible rules of a rank above `best`, the greatest first.

        The work allowed limits the number.
        """
        found: list[int] = []
        for length, places in self._places.items():
            keys = {path[start : start + length] for start in range(len(path) - length + 1)}
            for key in keys & places.keys():
                found += places[key]
        rules = [self._rules[place] for place in sorted(found)[: MAX_WORK // _PART_WORK + 1]]
        return [rule for rule in rules if rule.rank > best]


def deciding_line(body: bytes, token: str, url: str) -> str:
    """Return the line that decides whether the crawler may fetch a URL.

    `token`: names the crawler; `url`: canonical. The result is "" if no line decides.
    """
    said, _ = said_to(token.encode().lower(), body)
    lines = [b"%b: %b" % (b"Allow" if allows else b"Disallow", pattern) for pattern, allows in said]
    ranks = [Rules(b"User-agent: *\n%b\n" % line, token, 0.0).rank(url) for line in lines]
    return lines[ranks.index(max(ranks))].decode("utf-8", "backslashreplace") if any(ranks) else ""


def _matches(path: bytes, parts: list[bytes]) -> bool:
    """Return whether a path contains the parts between stars in order.

    The path begins with the first part.
    """
    offset = 0
    for part in parts:
        offset = path.find(part, offset)
        if offset < 0:
            return False
        offset += len(part)
    return True
