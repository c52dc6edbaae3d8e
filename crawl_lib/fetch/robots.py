"""robots.txt: from what came to whether a URL may be fetched (RFC 9309), on protego.

protego takes a group for ours if its name stands anywhere in our token; RFC 9309 (2.2.1) asks for the product token
itself. So `as_text` writes the names of groups anew before protego reads them.

What an answer means (RFC 9309, 2.3.1): 2xx: its rules; 3xx: followed by `loop`, at most five hops, then as if there
were none; 4xx: no rules, all is allowed; 5xx, no answer, or an answer that broke off: nothing is allowed, unless
rules from before are known, which then stay in force (2.4). The body is cut at `fetch.max_robots_bytes` (2.5).
"""

from __future__ import annotations

import re
from enum import StrEnum

from protego import Protego

from crawl_lib.fetch.hosts import RobotsRow
from crawl_lib.parse import decode_content
from crawl_lib.records import Fetched
from crawl_lib.states import Outcome

# https://www.rfc-editor.org/rfc/rfc9309#section-2.3.1.2
MAX_REDIRECTS = 5
UNREACHABLE_TTL_S = 600.0


_LINE_END = re.compile(r"\r\n|\r|\n")
# What str.splitlines also takes for line ends, and RFC 9309 does not.
_OTHER_ENDS = dict.fromkeys(map(ord, "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), " ")
_AGENT = re.compile(r"\s*user[- ]?agent\s*:?\s*([^#]*)", re.IGNORECASE)
_PRODUCT_TOKEN = re.compile(r"[A-Za-z_-]+")


class Verdict(StrEnum):
    """What is known of an authority's robots.txt."""

    RULES = "rules"
    """It was read."""
    ALLOW = "allow"
    """There is none (4xx, or too many redirects)."""
    UNREACHABLE = "unreachable"
    """It could not be read: assume complete disallow."""


class Rules:
    """Whether URLs of one authority may be fetched, until `expires` (POSIX seconds).

    `token`: our product token. `refusal`: what every URL ends as instead, if nothing may be fetched.
    """

    __slots__ = ("_protego", "_token", "crawl_delay_s", "expires", "refusal")

    def __init__(self, body: bytes | None, token: str, expires: float) -> None:
        self.expires = expires
        self.refusal: tuple[Outcome, str] | None = None
        self._token = token
        self._protego: Protego | None = None
        self.crawl_delay_s = 0.0
        if body is not None:
            parsed = Protego.parse(as_text(body, token))
            self.crawl_delay_s = parsed.crawl_delay(token) or 0.0
            if b"allow" in body.lower():
                self._protego = parsed

    @classmethod
    def refusing(cls, outcome: Outcome, error: str, expires: float) -> Rules:
        """Rules under which every URL ends as `outcome`."""
        rules = cls(None, "", expires)
        rules.refusal = (outcome, error)
        return rules

    def allows(self, url: str) -> bool:
        """Whether the rules let us fetch `url` (only asked where there is no `refusal`)."""
        return self._protego is None or bool(self._protego.can_fetch(url, self._token))


def as_text(body: bytes, token: str) -> str:
    """The text of a robots.txt for protego, to be asked with `token`.

    UTF-8 (RFC 9309, 2.2), other bytes replaced; a BOM, even a cut one, dropped; groups that are not ours renamed.
    """
    for mark in (b"\xef\xbb\xbf", b"\xef\xbb", b"\xef"):
        if body.startswith(mark):
            body = body[len(mark) :]
            break
    text = body.decode("utf-8", "replace").translate(_OTHER_ENDS)
    return "\n".join(_renamed(line, token) for line in _LINE_END.split(text))


def _renamed(line: str, token: str) -> str:
    found = _AGENT.match(line)
    if found is None:
        return line
    name = found[1].strip()
    if not name or name.split()[0] == "*":
        return f"user-agent: {name[:1]}"
    product = _PRODUCT_TOKEN.match(name)
    ours = product is not None and product[0].lower() == token.lower()
    return f"user-agent: {token if ours else '!'}"


def rules_of_row(row: RobotsRow, token: str) -> Rules:
    """The rules that a stored answer stands for."""
    if row.verdict == Verdict.UNREACHABLE:
        return Rules.refusing(Outcome.ROBOTS_UNREACHABLE, row.error, row.expires)
    return Rules(row.body if row.verdict == Verdict.RULES else None, token, row.expires)


def row_of(authority: str, fetched: Fetched, now: float, ttl_s: float, max_bytes: int) -> RobotsRow:
    """What the last answer of a robots.txt means (RFC 9309, 2.3.1), to be kept.

    `authority`: `scheme://host[:port]` that was asked first; `fetched`: the answer after its redirects; `now`: POSIX
    seconds; `ttl_s`: how long it holds; `max_bytes`: what is read of it.
    """
    verdict, error = _verdict(fetched)
    body = b""
    if verdict is Verdict.RULES:
        body = decode_content(fetched.head, fetched.body, max_bytes=max_bytes).data
    if verdict is Verdict.UNREACHABLE:
        ttl_s = min(ttl_s, UNREACHABLE_TTL_S)
    return RobotsRow(authority, verdict.value, body, error, now, now + ttl_s)


def _verdict(fetched: Fetched) -> tuple[Verdict, str]:
    if fetched.outcome is Outcome.OK:
        if fetched.truncated in (None, "length"):
            return Verdict.RULES, ""
        return Verdict.UNREACHABLE, f"robots.txt broke off: {fetched.error}"
    if fetched.outcome in (Outcome.GONE, Outcome.CLIENT_ERROR, Outcome.REDIRECT, Outcome.UNEXPECTED_STATUS):
        return Verdict.ALLOW, ""
    reason = f"status {fetched.status}" if fetched.status else f"{fetched.outcome.value}: {fetched.error}"
    return Verdict.UNREACHABLE, f"robots.txt: {reason}"


def kept_instead(old: RobotsRow | None, new: RobotsRow) -> RobotsRow:
    """The row to go by: `new`, or what was known before if robots.txt cannot be reached now (RFC 9309, 2.4)."""
    if old is None or new.verdict != Verdict.UNREACHABLE or old.verdict == Verdict.UNREACHABLE:
        return new
    return RobotsRow(old.authority, old.verdict, old.body, old.error, old.fetched, new.expires)
