"""Which URLs belong to the crawl: `urls.rules`, then `urls.scope`; refused ports and `urls.max_depth` over all."""

import re
from collections.abc import Callable, Iterable

from crawl_lib.config import RuleConfig, UrlsConfig
from crawl_lib.errors import ConfigError, UrlError
from crawl_lib.urls.canonical import canonicalize
from crawl_lib.urls.names import domain_of, host_of, refused_port
from crawl_lib.urls.rejections import Rejection

ACCEPTED = "accepted"
"""The name of a verdict that no rule gave."""

_Matcher = Callable[[str, str], object]


class UrlFilter:
    """The crawl's filter. Immutable.

    * No URL has a port that browsers refuse, and the depth limit holds for every URL.
    * The first rule that matches decides: `-` rejects, `+` accepts, whatever the scope says.
    * Where no rule matches, the scope decides: the URL's host (scope `hosts`) or registrable domain (`domains`) must
      be that of a host given; with `any` every URL is accepted.

    Rules: `regex` is searched anywhere in the canonical URL; `domain` is the host itself and all below it; `prefix` is
    the beginning of the canonical URL; `suffix` is the end of the URL without its query.
    """

    def __init__(self, config: UrlsConfig, scope_hosts: Iterable[str]) -> None:
        """Compile the rules. `scope_hosts`: unused with scope `any`.

        Raises ConfigError, which names the rule by its index from 0, for a value that cannot work.
        """
        self._rules = [_compile(index, rule) for index, rule in enumerate(config.rules)]
        self._by_domain = config.scope == "domains"
        names = map(domain_of, scope_hosts) if self._by_domain else scope_hosts
        self._scope = None if config.scope == "any" else frozenset(names)
        self._max_depth = config.max_depth

    def verdict(self, url: str, host: str, depth: int) -> tuple[bool, str]:
        """Say whether a canonical URL belongs to the crawl, and by what name.

        `host`: of the URL; `depth`: links from its seed. Accepted: the text of the rule (`+ domain example.org`), or
        "accepted". Rejected: a `Rejection` (port, depth, rule, scope).
        """
        if refused_port(url, host) is not None:
            return False, Rejection.PORT
        if self._max_depth is not None and depth > self._max_depth:
            return False, Rejection.DEPTH
        for accepts, text, matches in self._rules:
            if matches(url, host):
                return (True, text) if accepts else (False, Rejection.RULE)
        if self._scope is None or (domain_of(host) if self._by_domain else host) in self._scope:
            return True, ACCEPTED
        return False, Rejection.SCOPE


def _compile(index: int, rule: RuleConfig) -> tuple[bool, str, _Matcher]:
    where = f"urls.rules[{index}]"
    if not rule.value:
        raise ConfigError(f"{where}: value is empty; it would match every URL")
    return rule.action == "+", f"{rule.action} {rule.kind} {rule.value}", _MATCHERS[rule.kind](where, rule.value)


def _regex(where: str, value: str) -> _Matcher:
    try:
        search = re.compile(value).search
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"{where}: {value!r} is not a regular expression: {error}") from None
    return lambda url, host: search(url)


def _domain(where: str, value: str) -> _Matcher:
    try:
        name = host_of(canonicalize(f"http://{value}/"))
    except UrlError:
        name = ""
    if not name or set("/*@:?#") & set(value):
        raise ConfigError(f"{where}: {value!r} is not the name of a domain, such as example.org")
    below = "." + name
    return lambda url, host: host == name or host.endswith(below)


def _prefix(where: str, value: str) -> _Matcher:
    schemes = ("http://", "https://")
    if not value.startswith(schemes) and not any(scheme.startswith(value) for scheme in schemes):
        raise ConfigError(f"{where}: no URL begins with {value!r}; a prefix begins with http:// or https://")
    return lambda url, host: url.startswith(value)


def _suffix(where: str, value: str) -> _Matcher:
    if "?" in value:
        raise ConfigError(f"{where}: {value!r} is compared without the query; use a regex for queries")
    return lambda url, host: url.partition("?")[0].endswith(value)


_MATCHERS: dict[str, Callable[[str, str], _Matcher]] = {
    "regex": _regex,
    "domain": _domain,
    "prefix": _prefix,
    "suffix": _suffix,
}
