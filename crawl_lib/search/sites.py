"""Hosts and domains to hide, or to count more or less: `search.sites`."""

from collections.abc import Mapping
from functools import lru_cache

from tantivy import Occur, Query

from crawl_lib.config import SearchConfig
from crawl_lib.errors import ConfigError, UrlError
from crawl_lib.index import sites_of
from crawl_lib.search.clauses import Clauses
from crawl_lib.urls import canonicalize, host_of


class Sites:
    """The config's rules for sites. The entry of a host counts before that of a domain above the host."""

    @classmethod
    def of(cls, config: SearchConfig) -> "Sites":
        """Return the sites of a config.

        Raises ConfigError naming an invalid host.
        """
        factors = {}
        for one in config.sites:
            try:
                factors[host_of(canonicalize(f"http://{one.site}"))] = one.factor
            except UrlError as error:
                raise ConfigError(f"search.sites: {one.site!r} is no host and no domain") from error
        return cls(factors)

    def __init__(self, factors: Mapping[str, float]) -> None:
        """Take factors of scores by canonical host or domain; 0: never shown."""
        self._factors = dict(factors)
        self.factor = lru_cache(1 << 16)(self._factor)

    def _factor(self, host: str) -> float:
        names = (
            (site for site in sites_of(host) if site in self._factors)
            if host and self._factors
            else iter(())
        )
        return self._factors.get(next(names, ""), 1.0)

    def never(self, clauses: Clauses) -> list[Query]:
        """Return queries for hidden pages."""
        hidden = [site for site, factor in self._factors.items() if factor == 0]
        return [self._hidden(clauses, site) for site in hidden]

    def _hidden(self, clauses: Clauses, site: str) -> Query:
        shown = [
            one for one, factor in self._factors.items() if factor and one.endswith(f".{site}")
        ]
        query = clauses.term("site", site)
        if not shown:
            return query
        return Query.boolean_query(
            [(Occur.Must, query), (Occur.MustNot, clauses.any_of("site", shown))]
        )
