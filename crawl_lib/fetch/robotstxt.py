"""The text of a robots.txt: which paths one crawler may fetch, by RFC 9309, with the misspellings that Google reads.

Strangers write it, and the loop reads it: reading takes time linear in the text, and a question at most `MAX_WORK`
steps. A path whose answer would take more counts as disallowed.

A group begins with its User-agent lines and ends where one follows a rule; no other line ends it (RFC 9309, 2.2.4).
Groups of one name are one (2.2.1). A Crawl-delay, which the RFC does not know, holds for the User-agent lines right
before it: files give one name after the other its delay, without a rule between.
"""

import re
from urllib.parse import quote_from_bytes

from crawl_lib.states import Outcome

MAX_WORK = 1 << 25
"""Steps that a question may take, at most half a nanosecond each: a byte compared is one, a part of a rule 256."""
_PART_WORK = 256

# https://github.com/google/robotstxt/blob/master/robots.cc (ParsedRobotsKey): a name may go on.
_LINE = re.compile(
    rb"(?:\A|[\r\n])[ \t\v\f]*(user[- ]?agent|allow|crawl[- ]?delay"
    rb"|disallow|dissallow|dissalow|disalow|diasllow|disallaw)([^\r\n#]*)",
    re.IGNORECASE,
)
_BOM = b"\xef\xbb\xbf"
_PRODUCT_TOKEN = re.compile(rb"[A-Za-z_-]*")
_SECONDS = re.compile(rb"\d{1,9}(?:\.\d{1,9})?")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
# The apostrophe is reserved, but canonical URLs escape it in queries and not in paths: here it always is.
_ODD_IN_PATH = re.compile(rb"%([0-9A-Fa-f]{2})|%|[^A-Za-z0-9._~:/?#@!&()+,;=%\[\]-]+")
_ODD_IN_PATTERN = re.compile(rb"%([0-9A-Fa-f]{2})|%|[^A-Za-z0-9._~:/?#@!&()+,;=%\[\]*-]+")
_NOT_US, _ALL, _US = range(3)


class Groups:
    """What a text says to the crawler `token`: the rules in their order, whether each allows, and its Crawl-delay.

    Where a group names the crawler, what is said to all (`*`) does not count.
    """

    def __init__(self, body: bytes, token: str) -> None:
        self.rules: list[tuple[bytes, bool]] = []
        self.crawl_delay_s = 0.0
        self._token = token.encode().lower()
        self._level = self._group = self._paced = _NOT_US
        self._ruled = self._delayed = False
        for line in _LINE.finditer(_without_bom(body)):
            value, kind = _value(line), line[1][:1].lower()
            if value is None:
                continue
            if kind == b"u":
                self._agent(value)
            elif kind == b"c":
                self._delay(value)
            else:
                self._ruled = True
                if value and self._group == self._level != _NOT_US:
                    self.rules.append((value, kind == b"a"))

    def _agent(self, name: bytes) -> None:
        if self._ruled:
            self._group = _NOT_US
        if self._ruled or self._delayed:
            self._paced = _NOT_US
        self._ruled = self._delayed = False
        level = self._level_of(name)
        self._group = max(self._group, level)
        self._paced = max(self._paced, level)
        if level > self._level:
            self._level = level
            self.rules = []
            self.crawl_delay_s = 0.0

    def _level_of(self, name: bytes) -> int:
        if name[:1] == b"*":
            return _ALL if len(name) == 1 or name[1:2].isspace() else _NOT_US
        found = _PRODUCT_TOKEN.match(name)
        return _US if found is not None and found[0].lower() == self._token else _NOT_US

    def _delay(self, text: bytes) -> None:
        self._delayed = True
        seconds = _SECONDS.match(text)
        if seconds is not None and self._paced == self._level != _NOT_US:
            self.crawl_delay_s = max(self.crawl_delay_s, float(seconds[0]))


def _without_bom(body: bytes) -> bytes:
    """The text without a byte order mark, even a cut one."""
    for length in (3, 2, 1):
        if body.startswith(_BOM[:length]):
            return body[length:]
    return body


def _value(line: re.Match[bytes]) -> bytes | None:
    """What is behind the colon, or, where it is missing, the second of two words; None if there is neither."""
    _, colon, value = line[2].partition(b":")
    if colon:
        return value.strip()
    words = line[0].split()
    return words[1] if len(words) == 2 and b" " not in line[1] else None


def comparable_path(url: str) -> bytes:
    """The path and query of a canonical URL in the form in which paths and rules are compared (RFC 9309, 2.2.2)."""
    start = url.find("/", 8)
    path = url[start:].encode("ascii", "replace") if start >= 0 else b"/"
    return _ODD_IN_PATH.sub(_escape, path)


def _escape(odd: re.Match[bytes]) -> bytes:
    """Escapes of unreserved characters decoded, others in upper case; octets that are no characters of URLs escaped."""
    if odd[1] is None:
        return quote_from_bytes(odd[0], safe="").encode()
    octet = int(odd[1], 16)
    return bytes((octet,)) if octet in _UNRESERVED else odd[0].upper()


class PathRules:
    """Rules of a group, made ready to be asked. `size_bytes`: about what they take of memory.

    The rule with the most octets decides, Allow where two have as many (RFC 9309, 2.2.2). A rule's rank is twice its
    octets, and one more if it allows, so that the greatest rank decides.
    """

    def __init__(self, rules: list[tuple[bytes, bool]]) -> None:
        self._plain: dict[bytes, int] = {}
        self._exact: dict[bytes, int] = {}
        self._wild: list[tuple[int, int, bool, list[bytes]]] = []
        self.size_bytes = 512
        for pattern, allows in rules:
            self._add(pattern, allows)
            folder, slash, page = pattern.rpartition(b"/")
            if allows and slash and page.startswith(b"index.htm"):  # as Google reads it: the folder's page too
                self._add(folder + b"/$", True)
        self._wild.sort(reverse=True)
        self._lengths = sorted(set(map(len, self._plain)))

    def _add(self, pattern: bytes, allows: bool) -> None:
        ends = pattern.endswith(b"$")
        text = _ODD_IN_PATTERN.sub(_escape, pattern[:-1] if ends else pattern)
        rank = 2 * (len(text) + ends) + allows
        if text.endswith(b"*"):  # a star at the end says nothing, and after it nor does the end
            text, ends = text.rstrip(b"*"), False
        self.size_bytes += len(text) + 150
        if b"*" not in text:
            known = self._exact if ends else self._plain
            known[text] = max(rank, known.get(text, 0))
            return
        head, *rest = text.split(b"*")
        parts = [head, *filter(None, rest)]
        self.size_bytes += 100 * len(parts)
        self._wild.append((rank, max(map(len, parts[1:])), ends, parts))

    def allows(self, path: bytes) -> bool:
        """Whether the rules allow a path of `comparable_path`; not where `MAX_WORK` does not suffice to say so."""
        best = self._exact.get(path, 0)
        for length in self._lengths:
            if length > len(path):
                break
            best = max(best, self._plain.get(path[:length], 0))
        work = MAX_WORK
        for rank, longest, ends, parts in self._wild:
            if rank <= best:
                break
            work -= _PART_WORK
            if path.startswith(parts[0]):
                work -= _PART_WORK * len(parts) + longest * len(path)
                if work >= 0 and _matches(path, parts, ends):
                    best = rank
            if work < 0:
                return False
        return best == 0 or best % 2 == 1


def _matches(path: bytes, parts: list[bytes], ends: bool) -> bool:
    """Whether the parts between stars are in a path one after the other; `ends`: the last one at its end."""
    place = len(parts[0])
    for part in parts[1:-1]:
        place = path.find(part, place)
        if place < 0:
            return False
        place += len(part)
    last = parts[-1]
    return path.endswith(last, place) if ends else path.find(last, place) >= 0


class Rules:
    """Whether URLs of one authority may be fetched, until `expires` (POSIX seconds).

    `token`: our product token. `refusal`: what every URL ends as instead, if nothing may be fetched. `size_bytes`:
    about what the rules take of memory.
    """

    def __init__(self, body: bytes | None, token: str, expires: float) -> None:
        self.expires = expires
        self.refusal: tuple[Outcome, str] | None = None
        self.crawl_delay_s = 0.0
        self.size_bytes = 512
        self._paths: PathRules | None = None
        if body:
            groups = Groups(body, token)
            self.crawl_delay_s = groups.crawl_delay_s
            if groups.rules:
                self._paths = PathRules(groups.rules)
                self.size_bytes += self._paths.size_bytes

    @classmethod
    def refusing(cls, outcome: Outcome, error: str, expires: float) -> "Rules":
        """Rules under which every URL ends as `outcome`."""
        rules = cls(None, "", expires)
        rules.refusal = (outcome, error)
        return rules

    def allows(self, url: str) -> bool:
        """Whether the rules let us fetch `url` (only asked where there is no `refusal`)."""
        if self._paths is None:
            return True
        path = comparable_path(url)
        return path == b"/robots.txt" or self._paths.allows(path)
