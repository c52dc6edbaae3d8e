"""Admission of new URLs to a node's queue, within the limits of hosts, registered domains, and groups of `traps`.

Each host, domain and group has a name with a count; a group's name begins with the host. A URL may join unless a rule
of `traps` finds all groups of the URL full, or a budget is spent (`Budgets`). Rules of `traps` and budgets of domains
concern links, not seeds; handed-on URLs join in any case. Every URL that joins is counted, except URLs of lists, which
were counted at their first joining. A full group is counted no further, and a URL counts in at most two groups of each
rule. A URL costs few rows, however many parts its query has.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from crawl_lib.frontier.directory import NodeDirectory
from crawl_lib.frontier.hostcounts import HostCounts, host_of_line, names_of_domain
from crawl_lib.urlfiles import (
    HANDED_ON_MARK,
    file_lines,
    is_listed,
    is_requisite,
    some_lines,
    url_of_line,
)
from crawl_lib.urls import Budgets, DomainBudget, Groups, Rejection, Traps, pattern_of

_LINES = 50_000
LARGE_PATTERN = 400
"""From this number of URLs on, the pages of a pattern are compared: see `crawl_lib.worker.patterns`."""
_FIRST_OF_HOST = 100
"""The number of a host's first URLs without a pattern: most hosts do not have more, and need no comparison.
"""
_COUNTED_GROUPS = 2
_NAMED = 20
"""The number of hosts and domains named for a chunk; refused URLs of all others are only counted."""


class _Site(NamedTuple):
    """A host and its domain: the names for the counts of URLs and hosts, and the limits."""

    host: bytes
    domain: bytes
    hosts: bytes
    max_of_host: int | None
    limits: DomainBudget


class _Url(NamedTuple):
    """A URL before its choice: the groups and the site."""

    groups: list[Groups]
    site: _Site


class Admission:
    """The counts of an intake under way: the earlier counts, and those of the URLs in `new`, which are noted again.

    `directory`: the node's. `budgets`, `traps`: None: no rules. `refused`: how many URLs budgets refused, by
    `Budgets.key`; the caller empties this counter.
    """

    def __init__(self, directory: Path, budgets: Budgets | None, traps: Traps | None) -> None:
        self.refused = Counter[str]()
        self._counts = HostCounts(directory)
        self._budgets, self._traps = budgets, traps
        self._joined: dict[bytes, list[bytes]] | None = None
        self._counts.begin()
        files = NodeDirectory(directory)
        pairs = zip(file_lines(files.new), file_lines(files.new_meta), strict=False)
        for some in some_lines(pairs, _LINES):
            self.count(some)

    def choose(self, lines: Sequence[bytes]) -> tuple[list[bytes], Counter[str]]:
        """Return the outlink lines that may join, and rejections by name.

        The names are those of `Rejection`.
        """
        urls = [b"" if is_listed(line) else url_of_line(line) for line in lines]
        judged = self._judged(urls)
        counts = self._now(judged.values())
        kept, rejected, joined = list[bytes](), Counter[str](), dict[bytes, list[bytes]]()
        for line, url in zip(lines, urls, strict=True):
            one = judged.get(url)
            if one is not None:
                if reason := self._reason(line, one, counts):
                    rejected[reason] += 1
                    continue
                joined[url] = _note(one, counts)
            kept.append(line)
        self._joined = joined
        return kept, rejected

    def count(self, lines: Sequence[tuple[bytes, bytes]]) -> None:
        """Note URLs that have joined, by their lines of data and meta."""
        unlisted = [line for line in lines if not is_listed(line[1], is_meta=True)]
        urls = [url for url, _ in unlisted]
        counts = Counter(map(host_of_line, urls))
        patterns = (
            self._patterns(unlisted, counts) if self._traps and self._traps.has_patterns else []
        )
        joined, self._joined = self._joined, None
        if joined is None:  # after the kill of an intake
            judged = self._judged(urls)
            now = self._now(judged.values())
            joined = {url: _note(one, now) for url, one in judged.items()}
        counts.update(chain.from_iterable(joined.get(url, ()) for url in urls))
        counts.update(patterns)
        self._counts.note(counts)

    def lines(self) -> Iterable[bytes]:
        """Yield the lines of the intake's file `new.hosts`."""
        return self._counts.noted()

    def _patterns(
        self, lines: Sequence[tuple[bytes, bytes]], of_hosts: Counter[bytes]
    ) -> list[bytes]:
        """Return patterns of URLs beyond the first of their hosts.

        The result does not depend on the division into calls. Requisites have no pattern: rules of words are for pages.
        """
        before = self._counts.get(of_hosts)
        seen = {
            host: have
            for host, n in of_hosts.items()
            if (have := before.get(host, 0)) + n > _FIRST_OF_HOST
        }
        found = []
        for url, meta in lines if seen else ():
            if (host := host_of_line(url)) in seen:
                seen[host] += 1
                if seen[host] > _FIRST_OF_HOST and not is_requisite(meta, is_meta=True):
                    found.append(pattern_of(url, host))
        return found

    def _judged(self, urls: Iterable[bytes]) -> dict[bytes, _Url]:
        """Find the groups and the site of each URL."""
        traps, found, sites = self._traps, dict[bytes, _Url](), dict[bytes, _Site]()
        for url in urls:
            if url:
                host = host_of_line(url)
                if (site := sites.get(host)) is None:
                    site = sites[host] = _site_of(host, self._budgets)
                found[url] = _Url(traps.groups(url, host_of_line) if traps else [], site)
        return found

    def _now(self, judged: Collection[_Url]) -> Counter[bytes]:
        """Read the counts of all names of some URLs."""
        return Counter(self._counts.get(_names(judged)))

    def _reason(self, line: bytes, one: _Url, counts: Counter[bytes]) -> str | None:
        """Return the rule that rejects an outlink line, if any."""
        if HANDED_ON_MARK in line:
            return None
        is_seed = line.split(b"\t", 2)[1] == b""
        if one.groups and not is_seed and (full := _full_groups(one, counts)):
            return str(full[0])
        for rule, name in _spent(one.site, counts):
            if rule is Rejection.HOST_LIMIT or not is_seed:
                key = Budgets.key(rule, name)
                if key in self.refused or len(self.refused) < _NAMED:
                    self.refused[key] += 1
                return str(rule)
        return None


def full_for(directory: Path, budgets: Budgets, traps: Traps, url: bytes) -> list[Rejection]:
    """Return the rules that now keep a linked URL out.

    Raises StorageError.
    """
    one = _Url(traps.groups(url, host_of_line), _site_of(host_of_line(url), budgets))
    counts = Counter(HostCounts(directory).get(_names([one])))
    return [*_full_groups(one, counts), *(rule for rule, _ in _spent(one.site, counts))]


def _site_of(host: bytes, budgets: Budgets | None) -> _Site:
    """Find the domain and the limits of a host."""
    domain, hosts = names_of_domain(host)
    if budgets is None:
        return _Site(host, domain, hosts, None, DomainBudget(None, None))
    return _Site(host, domain, hosts, budgets.of_host, budgets.of_domain(domain[1:].decode()))


def _names(judged: Collection[_Url]) -> set[bytes]:
    """Return every name whose count decides."""
    names = {name for one in judged if one.groups for _, _, some in one.groups for name in some}
    for site in {one.site.host: one.site for one in judged}.values():
        names.update((site.host, site.domain, site.hosts))
    return names


def _full_groups(one: _Url, counts: Counter[bytes]) -> list[Rejection]:
    """Return the rules of `traps` whose groups are full for a URL.

    A rule counts if all its groups are full.
    """
    return [rule for rule, most, names in one.groups if all(counts[name] >= most for name in names)]


def _spent(site: _Site, counts: Counter[bytes]) -> list[tuple[Rejection, str]]:
    """Return the spent budgets of a URL's site.

    Each comes with the name of the host or domain.
    """
    host, domain, hosts, of_host, limits = site
    spent = []
    if of_host is not None and counts[host] >= of_host:
        spent.append((Rejection.HOST_LIMIT, host.decode()))
    if limits.max_pages is not None and counts[domain] >= limits.max_pages:
        spent.append((Rejection.DOMAIN_PAGES, domain[1:].decode()))
    if limits.max_hosts is not None and not counts[host] and counts[hosts] >= limits.max_hosts:
        spent.append((Rejection.DOMAIN_HOSTS, domain[1:].decode()))
    return spent


def _note(one: _Url, counts: Counter[bytes]) -> list[bytes]:
    """Count a URL that joins; return the groups that count it."""
    site, groups = one.site, list[bytes]()
    counts[site.hosts] += not counts[site.host]
    counts[site.host] += 1
    counts[site.domain] += 1
    for _, most, names in one.groups:
        groups += [name for name in names if counts[name] < most][:_COUNTED_GROUPS]
    if groups:  # most URLs have no group
        counts.update(groups)
    return groups
