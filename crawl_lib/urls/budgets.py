"""Budgets: the limits of a host's URLs, and of a registered domain's URLs and hosts.

A server that answers for every name below its domain makes hosts without end, as a trap makes URLs. Domains therefore
have limits too. `crawl_lib.frontier` counts the URLs that join a node's queue, `crawl_lib.crawldb` the rows of the
table.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from crawl_lib.config import UrlsConfig
from crawl_lib.urls.names import host_matches
from crawl_lib.urls.rejections import Rejection

_OPTIONS = {
    Rejection.HOST_LIMIT: "urls.max_pages_per_host",
    Rejection.DOMAIN_PAGES: "urls.max_pages_per_domain",
    Rejection.DOMAIN_HOSTS: "urls.max_hosts_per_domain",
}
"""The option with the limit of each rule."""
_REMEMBERED = 1 << 12


class DomainBudget(NamedTuple):
    """The limits of one domain; None: no limit."""

    max_pages: int | None
    max_hosts: int | None


class Budgets:
    """The limits of a config, with its exceptions (`urls.domains`). Immutable.

    `of_host`: URLs of a host; None: no limit. `of_domain`: returns the limits of a domain, as named by
    `budget_domain_of`.
    """

    def __init__(self, config: UrlsConfig) -> None:
        self.of_host = config.max_pages_per_host
        self._usual = DomainBudget(config.max_pages_per_domain, config.max_hosts_per_domain)
        self._exceptions = config.domains
        self.of_domain: Callable[[str], DomainBudget] = lru_cache(_REMEMBERED)(self._of_domain)

    def _of_domain(self, domain: str) -> DomainBudget:
        usual = self._usual
        for entry in self._exceptions:
            if host_matches(entry.kind, entry.value, domain):
                return DomainBudget(
                    entry.max_pages or usual.max_pages, entry.max_hosts or usual.max_hosts
                )
        return usual

    @staticmethod
    def key(rule: str, name: str) -> str:
        """Return the report name for URLs refused by a budget."""
        return f"{rule} {name}"

    @staticmethod
    def in_words(counts: Mapping[str, int]) -> str:
        """Say which domains and hosts reached a limit, and by which option.

        `counts`: refused URLs by rule and name, as `key` joins them.
        """
        parts = ((*key.partition(" "), count) for key, count in counts.items())
        return "; ".join(
            f"{name} reached {_OPTIONS[Rejection(rule)]} ({count:,} URLs refused)"
            for rule, _, name, count in parts
        )
