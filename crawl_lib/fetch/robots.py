"""robots.txt: from what came to whether a URL may be fetched (RFC 9309, 2.3); `robotstxt` reads the text itself.

What an answer means: 2xx: its rules; 3xx: followed by `desk`, at most five hops, then as if there were none; 4xx: no
rules, all is allowed. 5xx, 429, or an answer that broke off: nothing is allowed, and URLs end as `robots_unreachable`.
No answer at all: nothing is allowed either, and URLs end as what failed (`connect_failed`, `timeout`...), since it is
their own host that failed. Where rules from before are known they stay in force instead (2.4). The body is cut at
`fetch.max_robots_bytes` (2.5).
"""

from __future__ import annotations

from enum import StrEnum

from crawl_lib.config import FetchConfig
from crawl_lib.fetch.hoststore import RobotsRow
from crawl_lib.fetch.robotstxt import Groups, PathRules, comparable_path
from crawl_lib.parse import decode_content
from crawl_lib.records import Fetched
from crawl_lib.states import Outcome

# https://www.rfc-editor.org/rfc/rfc9309#section-2.3.1.2
MAX_REDIRECTS = 5
UNREACHABLE_TTL_S = 600.0
MIN_TTL_S = 60.0
"""How long an answer is gone by at least, however short `fetch.robots_ttl_s` is: else no page would be asked for."""


class Verdict(StrEnum):
    """What is known of an authority's robots.txt. A row may also have the `Outcome` that the request failed with."""

    RULES = "rules"
    """It was read."""
    ALLOW = "allow"
    """There is none (4xx, or too many redirects)."""
    UNREACHABLE = "unreachable"
    """It was answered, and could not be read: assume complete disallow."""


class Rules:
    """Whether URLs of one authority may be fetched, until `expires` (POSIX seconds).

    `token`: our product token. `refusal`: what every URL ends as instead, if nothing may be fetched. `size_bytes`:
    about what the rules take of memory.
    """

    __slots__ = ("_paths", "crawl_delay_s", "expires", "refusal", "size_bytes")

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
    def refusing(cls, outcome: Outcome, error: str, expires: float) -> Rules:
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


def rules_of_row(row: RobotsRow, token: str) -> Rules | None:
    """The rules that a stored answer means; None if its verdict is none that we know."""
    if row.verdict in (Verdict.RULES, Verdict.ALLOW):
        return Rules(row.body if row.verdict == Verdict.RULES else None, token, row.expires)
    if row.verdict == Verdict.UNREACHABLE:
        return Rules.refusing(Outcome.ROBOTS_UNREACHABLE, row.error, row.expires)
    if row.verdict in _FAILURES:
        return Rules.refusing(Outcome(row.verdict), row.error, row.expires)
    return None


def row_of(authority: str, fetched: Fetched, hops: int, now: float, config: FetchConfig) -> RobotsRow:
    """What the last answer of a robots.txt means (RFC 9309, 2.3.1), to be kept.

    `authority`: `scheme://host[:port]` that was asked first; `fetched`: the answer after `hops` redirects; `now`:
    POSIX seconds.
    """
    verdict, error = _verdict(fetched, hops)
    body, ttl_s = b"", config.robots_ttl_s
    if verdict is Verdict.RULES:
        body = decode_content(fetched.head, fetched.body, max_bytes=config.max_robots_bytes).data
    elif verdict is not Verdict.ALLOW:
        ttl_s = min(ttl_s, UNREACHABLE_TTL_S)
    return RobotsRow(authority, verdict.value, body, error, now, now + max(ttl_s, MIN_TTL_S))


_UNAVAILABLE = (Outcome.GONE, Outcome.CLIENT_ERROR, Outcome.REDIRECT, Outcome.UNEXPECTED_STATUS)
# What happens before an answer, to robots.txt as it would to the host's pages.
_FAILURES = (Outcome.CONNECT_FAILED, Outcome.TIMEOUT, Outcome.PROTOCOL_ERROR)
_TOO_MANY_REQUESTS = 429


def _verdict(fetched: Fetched, hops: int) -> tuple[Verdict | Outcome, str]:
    if fetched.outcome is Outcome.OK:
        if fetched.truncated in (None, "length"):
            return Verdict.RULES, ""
        return Verdict.UNREACHABLE, f"robots.txt broke off: {fetched.error}"
    if fetched.outcome in _UNAVAILABLE and fetched.status != _TOO_MANY_REQUESTS:
        return Verdict.ALLOW, ""
    if fetched.status:
        return Verdict.UNREACHABLE, f"robots.txt: status {fetched.status}"
    if fetched.outcome in _FAILURES and hops == 0:
        return fetched.outcome, f"robots.txt: {fetched.error}"
    return Verdict.UNREACHABLE, f"robots.txt: {fetched.url}: {fetched.outcome.value}: {fetched.error}"


def kept_instead(old: RobotsRow | None, new: RobotsRow) -> RobotsRow:
    """The row to go by: `new`, or what was known before if robots.txt cannot be had now (RFC 9309, 2.4)."""
    read = (Verdict.RULES, Verdict.ALLOW)
    if old is None or new.verdict in read or old.verdict not in read:
        return new
    return RobotsRow(old.authority, old.verdict, old.body, old.error, old.fetched, new.expires)
