"""robots.txt: requests, redirects, storage, and meaning of answers (RFC 9309, 2.3); `robotstxt` reads the text.

The meaning of an answer: 2xx: its rules; 3xx: followed, at most five hops, then as if there were none; 4xx: no rules,
all is allowed. 5xx, 429, or an answer that broke off: nothing is allowed, and URLs end as `robots_unreachable`. No
answer at all: nothing is allowed either, and URLs end as the failure of their host (`connect_failed`, `timeout`...).
Known earlier rules stay in force instead (2.4), but a busy host (429, 503) is left alone. The body is cut at
`fetch.max_robots_bytes` (2.5), and a line that the limit, or damage of a coding, cuts off does not count.
"""

from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from itertools import takewhile

from crawl_lib.config import FetchConfig
from crawl_lib.errors import UrlError
from crawl_lib.fetch.hosts import Host, Hosts, Job, Site, port_error, row_of_host
from crawl_lib.fetch.hoststore import RobotsRow
from crawl_lib.fetch.robotstxt import Rules
from crawl_lib.fetch.turns import Turns
from crawl_lib.parse import parse_head, robots_text
from crawl_lib.records import Fetched
from crawl_lib.states import ERROR_ANSWERS, Outcome
from crawl_lib.urls import authority_of, budget_domain_of, refused_port, resolve

# https://www.rfc-editor.org/rfc/rfc9309#section-2.3.1.2
MAX_REDIRECTS = 5
UNREACHABLE_TTL_S = 600.0
MAX_RULES_BYTES = 64 << 20
"""Memory for rules. Beyond this number the oldest are dropped, and read again from the store if needed."""
FREE_HOSTS = 20
"""The number of hosts of a domain that a process asks for robots.txt without a rate."""
MIN_TTL_S = 60.0
"""How long an answer is gone by at least, however short `fetch.robots_ttl_s` is: else no page would be asked for."""


class Verdict(StrEnum):
    """The known facts about an authority's robots.txt. A row may also have the `Outcome` of all its URLs."""

    RULES = "rules"
    """It was read."""
    ALLOW = "allow"
    """No robots.txt (4xx, or too many redirects)."""


def rules_of_row(row: RobotsRow, token: str) -> Rules | None:
    """Return the rules of a stored answer.

    None: its verdict is unknown.
    """
    if row.verdict in _READ:
        return Rules(row.body if row.verdict == Verdict.RULES else None, token, row.expires)
    if row.verdict in (Outcome.ROBOTS_UNREACHABLE, *_FAILURES):
        return Rules(None, "", row.expires, (Outcome(row.verdict), row.error))
    return None


def row_of(
    authority: str, fetched: Fetched, hops: int, now: float, config: FetchConfig
) -> RobotsRow:
    """Interpret the last answer for a robots.txt as a row to keep.

    See RFC 9309, 2.3.1.

    `authority`: `scheme://host[:port]` that was asked first; `fetched`: the answer after `hops` redirects; `now`: POSIX
    seconds.
    """
    verdict, error = _verdict(fetched, hops)
    body, ttl_s = b"", config.robots_ttl_s
    if verdict is Verdict.RULES:
        is_cut = fetched.truncated is not None
        body = robots_text(
            fetched.head, fetched.body, is_cut=is_cut, max_bytes=config.max_robots_bytes
        )
    elif verdict is not Verdict.ALLOW:
        ttl_s = min(ttl_s, UNREACHABLE_TTL_S)
    return RobotsRow(authority, verdict.value, body, error, now, now + max(ttl_s, MIN_TTL_S))


_READ = frozenset(Verdict)
_UNAVAILABLE = (ERROR_ANSWERS | {Outcome.REDIRECT}) - {Outcome.SERVER_ERROR}
# Failures before an answer, to robots.txt as to the host's pages.
_FAILURES = (Outcome.CONNECT_FAILED, Outcome.TIMEOUT, Outcome.TOO_SLOW, Outcome.PROTOCOL_ERROR)
# Every URL of the authority would fail in the same way, by name, address or certificate.
_SHARED_ENDS = (Outcome.DNS_FAILED, Outcome.ADDRESS_REFUSED, Outcome.TLS_FAILED)
_TOO_MANY_REQUESTS = 429


def _verdict(fetched: Fetched, hops: int) -> tuple[Verdict | Outcome, str]:
    if fetched.outcome is Outcome.OK:
        if fetched.truncated in (None, "length"):
            return Verdict.RULES, ""
        return Outcome.ROBOTS_UNREACHABLE, f"robots.txt broke off: {fetched.error}"
    if fetched.outcome in _UNAVAILABLE and fetched.status != _TOO_MANY_REQUESTS:
        return Verdict.ALLOW, ""
    if fetched.status:
        return Outcome.ROBOTS_UNREACHABLE, f"robots.txt: status {fetched.status}"
    if fetched.outcome in _FAILURES and hops == 0:
        return fetched.outcome, f"robots.txt: {fetched.error}"
    return (
        Outcome.ROBOTS_UNREACHABLE,
        f"robots.txt: {fetched.url}: {fetched.outcome.value}: {fetched.error}",
    )


class RobotsPace:
    """The rate of requests for the robots.txt of hosts of one registered domain.

    A domain's first `FREE_HOSTS` requests wait for nothing, so a site of a few hosts loses nothing. The others come at
    one in `fetch.host_delay_s`, counted over all processes of the node (`turns`), as if the domain were one host. A
    server with wildcard DNS would else get a request for each name at once.
    """

    def __init__(self, hosts: Hosts, turns: Turns) -> None:
        self._hosts = hosts
        self._turns = turns
        self._asked: Counter[str] = Counter()
        self._last: dict[str, float] = {}
        self._newest: dict[
            str, float
        ] = {}  # when each domain was asked for last, the longest ago first

    def wait_s(self, host: Host) -> float:
        """Return the seconds until a robots.txt may be requested.

        0.0: the request is sent now.
        """
        delay_s, domain, now = (
            self._hosts.config.host_delay_s,
            budget_domain_of(host.name),
            self._hosts.clock(),
        )
        if delay_s and self._asked[domain] >= FREE_HOSTS:
            if host.robots_at is None:
                host.robots_at = self._last[domain] = max(
                    now, self._last.get(domain, now - delay_s) + delay_s
                )
            if host.robots_at > now:
                return host.robots_at - now
            if wait_s := self._turns.reserve(
                f"robots {domain}", delay_s
            ):  # another process has this turn
                host.robots_at = now + wait_s
                self._last[domain] = max(self._last[domain], host.robots_at)
                return wait_s
            host.robots_at = None
        self._asked[domain] += 1
        self._newest.pop(domain, None)
        self._newest[domain] = now
        return 0.0

    def forget(self) -> None:
        """Forget domains that had no request for a long time.

        By now their free hosts would have had turns.
        """
        latest = self._hosts.clock() - FREE_HOSTS * self._hosts.config.host_delay_s
        for domain in list(takewhile(lambda domain: self._newest[domain] < latest, self._newest)):
            del self._newest[domain], self._asked[domain]
            self._last.pop(domain, None)


class RobotsRules:
    """The rules of the authorities of one run: asked for, followed, kept. `report`: gets each answer and failure."""

    def __init__(self, hosts: Hosts, report: Callable[[Fetched], None]) -> None:
        self._hosts = hosts
        self._report = report
        self._kept: dict[Site, int] = {}
        self._kept_bytes = 0

    def rules_of(self, site: Site) -> Rules | None:
        """Return the current rules of a site.

        None: its robots.txt must be requested first (`job`).
        """
        rules = site.rules
        now = self._hosts.wall()
        if rules is not None and rules.expires > now:
            return rules
        row = self._hosts.store.robots(site.authority)
        if row is None or row.expires <= now:
            return None
        rules = rules_of_row(row, self._hosts.config.user_agent)
        if rules is not None:
            self._set(site, rules)
        return rules

    def job(self, host: Host, site: Site) -> Job:
        """Return the request for an authority's robots.txt.

        Pages of the host wait for the answer.
        """
        host.waits_for = site
        return Job(f"{site.authority}/robots.txt", site, None, robots_for=site)

    def forget(self, site: Site) -> None:
        """Drop the rules of a site from memory.

        The store still has these, and is read when needed.
        """
        site.rules = None
        self._kept_bytes -= self._kept.pop(site, 0)

    def answered(self, job: Job, fetched: Fetched) -> None:
        """Handle an answer for robots.txt, or the last failure.

        A redirect is followed; any other answer decides the rules.
        """
        self._report(fetched)
        site = job.robots_for
        assert site is not None
        target = _target(job, fetched) if fetched.outcome is Outcome.REDIRECT else None
        if target is None:
            self._go_by(site, fetched, job.hops)
            return
        # The hop is a request to the target's host, in the turn of this host.
        next_site = self._hosts.site(authority_of(target))
        hop = Job(target, next_site, None, site, job.hops + 1)
        port = refused_port(target, next_site.host)
        if port is not None:
            end = Fetched(
                target, self._hosts.wall(), Outcome.PORT_REFUSED, attempts=0, error=port_error(port)
            )
            self.answered(hop, end)
            return
        self.rules_of(next_site)  # its Crawl-delay, where it is known
        host = self._hosts.host(next_site.host)
        host.urgent.append(hop)
        self._hosts.schedule(host)

    def _go_by(self, site: Site, fetched: Fetched, hops: int) -> None:
        host, store = self._hosts.host(site.host), self._hosts.store
        if hops == 0 and fetched.outcome in _SHARED_ENDS:
            lasts_s = self._hosts.config.dns_ttl_s if self._hosts.is_live else float("inf")
            site.rules = Rules(
                None, "", self._hosts.wall() + lasts_s, (fetched.outcome, fetched.error)
            )
        else:
            new = row_of(site.authority, fetched, hops, self._hosts.wall(), self._hosts.config)
            row, old = new, store.robots(site.authority)
            if old is not None and old.verdict in _READ and new.verdict not in _READ:
                row = old._replace(
                    expires=new.expires
                )  # what was known before stays in force (RFC 9309, 2.4)
            rules = rules_of_row(row, self._hosts.config.user_agent)
            assert rules is not None
            self._set(site, rules)
            store.save_robots(row, row_of_host(host))
        if host.waits_for is site:
            host.waits_for = None
        self._hosts.schedule(host)

    def _set(self, site: Site, rules: Rules) -> None:
        site.rules = rules
        host = self._hosts.host(site.host)
        host.delay_s = max(
            host.delay_s, min(rules.crawl_delay_s, self._hosts.config.max_crawl_delay_s)
        )
        self._kept_bytes += rules.size_bytes - self._kept.pop(site, 0)
        self._kept[site] = rules.size_bytes
        while self._kept_bytes > MAX_RULES_BYTES and len(self._kept) > 1:
            self.forget(next(iter(self._kept)))


def _target(job: Job, fetched: Fetched) -> str | None:
    """Return the target of a redirect of robots.txt.

    None: the redirect is the sixth, or its target is invalid.
    """
    if job.hops >= MAX_REDIRECTS:
        return None
    try:
        return resolve(job.url, parse_head(fetched.head).location or "")
    except UrlError:
        return None
