"""The URLs that belong to the crawl: `urls.rules`, then `urls.scope`; over all, refused ports and limits of depth."""

import math
import re
from collections.abc import Callable, Iterable, Sequence

from crawl_lib.config import RuleConfig, TrapsConfig, UrlsConfig
from crawl_lib.errors import ConfigError
from crawl_lib.urls.chains import Chain, Scope
from crawl_lib.urls.names import budget_domain_of, domain_of, refused_port
from crawl_lib.urls.rejections import Rejection
from crawl_lib.urls.rulefiles import host_name

ACCEPTED = "accepted"
"""The name of a verdict without a rule."""
REQUISITE = "requisite"
"""The name of the verdict on an accepted requisite of a page."""

_SLASHES_BEFORE = len("//")
_Matcher = Callable[[str, str], object]


class UrlFilter:
    """The crawl's filter. Immutable.

    * No URL has a port that browsers refuse, and the limits of depth, of links and of the path, hold for every URL; so
      do the filters of the scope (`chain`, which also has the normalisers: callers ask about normalised URLs).
    * The first matching rule decides: `-` rejects, `+` accepts, whatever the scope says.
    * Without a matching rule the scope decides: the URL's host (scope `hosts`) or registrable domain (`domains`) must
      be that of a given host; with `any` every URL is accepted.

    Rules: `regex` is searched anywhere in the canonical URL; `domain` is the host itself and all below it; `prefix` is
    the beginning of the canonical URL; `suffix` is the end of the URL without its query.
    """

    def __init__(
        self, config: UrlsConfig, scope_hosts: Iterable[str], traps: TrapsConfig | None = None
    ) -> None:
        """Compile the rules.

        `scope_hosts`: unused with scope `any`. `traps`: None for seeds, which are wanted. Seeds have the chain of
        `inject`, all other URLs the chain of `outlink`. Raises ConfigError naming each rule with an unusable value by
        its index from 0, or by file and line.
        """
        self.chain = Chain(config, Scope.OUTLINK if traps else Scope.INJECT)
        self._rules = _compiled(config.rules)
        self._by_domain = config.scope == "domains"
        names = map(domain_of, scope_hosts) if self._by_domain else scope_hosts
        self._scope = None if config.scope == "any" else frozenset(names)
        self._max_depth = config.max_depth
        self._max_segments = traps.max_path_segments if traps else None
        self._few_slashes = (
            math.inf if self._max_segments is None else self._max_segments + _SLASHES_BEFORE
        )

    def verdict(self, url: str, host: str, depth: int) -> tuple[bool, str]:
        """Say whether a canonical URL belongs to the crawl, and why.

        `host`: of the URL; `depth`: links from its seed. Accepted: the text of the rule (`+ domain example.org`), or
        "accepted". Rejected: a `Rejection` (port, depth, path_depth, filter, rule, scope).
        """
        if (limit := self._limit(url, host, depth)) is not None:
            return False, limit
        for accepts, text, matches in self._rules:
            if matches(url, host):
                return (True, text) if accepts else (False, Rejection.RULE)
        if self._scope is None or (domain_of(host) if self._by_domain else host) in self._scope:
            return True, ACCEPTED
        return False, Rejection.SCOPE

    def verdict_on_requisite(self, url: str, host: str, domain: str | None) -> tuple[bool, str]:
        """Say whether a page's requisite may be fetched, and why.

        Depth and scope do not refuse requisites.

        `host`: of the canonical URL; `domain`: the registered domain that the host must have, unless a rule accepts the
        URL; None: any. Accepted: `REQUISITE`. Rejected: port, path_depth, filter, rule, other_site.
        """
        if (limit := self._limit(url, host, 0)) is not None:
            return False, limit
        for accepts, _, matches in self._rules:
            if matches(url, host):
                return (True, REQUISITE) if accepts else (False, Rejection.RULE)
        if domain is not None and budget_domain_of(host) != domain:
            return False, Rejection.OTHER_SITE
        return True, REQUISITE

    def _limit(self, url: str, host: str, depth: int) -> Rejection | None:
        """Return the limit that refuses a URL whatever the rules say."""
        if refused_port(url, host) is not None:
            return Rejection.PORT
        if self._max_depth is not None and depth > self._max_depth:
            return Rejection.DEPTH
        if url.count("/") > self._few_slashes and self._is_deep(url):
            return Rejection.PATH_DEPTH
        return Rejection.FILTER if self.chain.filters and self.chain.rejects(url, host) else None

    def _is_deep(self, url: str) -> bool:
        """Say whether a path has too many segments.

        A final slash begins no segment.
        """
        return url.partition("?")[0].removesuffix("/").count("/") > self._few_slashes

    def first_rule(self, url: str, host: str) -> str:
        """Return the first rule of filters or `urls.rules` that matches.

        The result is "" without a match.
        """
        rejecting = self.chain.rejects(url, host)
        return rejecting or next(
            (text for _, text, matches in self._rules if matches(url, host)), ""
        )


def _compiled(rules: Sequence[RuleConfig]) -> list[tuple[bool, str, _Matcher]]:
    found, problems = [], []
    for index, rule in enumerate(rules):
        try:
            found.append(_compile(index, rule))
        except ConfigError as error:
            problems += error.lines
    if problems:
        raise ConfigError(*problems)
    return found


def _compile(index: int, rule: RuleConfig) -> tuple[bool, str, _Matcher]:
    where = f"urls.rules[{index}]"
    if not rule.value:
        raise ConfigError(f"{where}: value is empty; it would match every URL")
    return (
        rule.action == "+",
        f"{rule.action} {rule.kind} {rule.value}",
        _MATCHERS[rule.kind](where, rule.value),
    )


def _regex(where: str, value: str) -> _Matcher:
    try:
        search = re.compile(value).search
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"{where}: {value!r} is not a regular expression: {error}") from None
    return lambda url, host: search(url)


def _domain(where: str, value: str) -> _Matcher:
    if not (name := host_name(value)):
        raise ConfigError(f"{where}: {value!r} is not the name of a domain, such as example.org")
    below = "." + name
    return lambda url, host: host == name or host.endswith(below)


def _prefix(where: str, value: str) -> _Matcher:
    schemes = ("http://", "https://")
    if not value.startswith(schemes) and not any(scheme.startswith(value) for scheme in schemes):
        raise ConfigError(
            f"{where}: no URL begins with {value!r}; a prefix begins with http:// or https://"
        )
    return lambda url, host: url.startswith(value)


def _suffix(where: str, value: str) -> _Matcher:
    if "?" in value:
        raise ConfigError(
            f"{where}: {value!r} is compared without the query; use a regex for queries"
        )
    return lambda url, host: url.partition("?")[0].endswith(value)


_MATCHERS: dict[str, Callable[[str, str], _Matcher]] = {
    "regex": _regex,
    "domain": _domain,
    "prefix": _prefix,
    "suffix": _suffix,
}
