"""Admission of new URLs to a node's queue, within the limits of hosts, registered domains, and groups of `traps`.

Each host, domain and group has a name that is counted; a group's name begins with the host. A URL may join unless a
rule of `traps` finds all its groups full, or a budget is spent (`Budgets`). Rules of `traps` and budgets of domains
concern links, not seeds; URLs that other nodes handed on join in any case. Every URL that joins is counted, except URLs
of lists: these were counted when they joined first. A full group is counted no further, and a URL counts in at most two
groups of each rule. So a URL costs few rows, however many parts its query has.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from crawl_lib.frontier.directory import NodeDirectory
from crawl_lib.frontier.hostcounts import HostCounts, host_of_line, names_of_domain
from crawl_lib.frontier.outlinks import HANDED_ON_MARK, file_lines, is_listed, some_lines, url_of_line
from crawl_lib.urls import Budgets, Groups, Rejection, Traps, budget_key, pattern_of

_LINES = 50_000
LARGE_PATTERN = 400
"""From so many URLs on the pages of a pattern are compared: see `crawl_lib.worker.patterns`."""
_FIRST_OF_HOST = 100
"""So many URLs of a host are in no pattern: most hosts do not have more, and nothing is to be found out for them."""
_COUNTED_GROUPS = 2
_NAMED = 20
"""The number of hosts and domains that a chunk names; refused URLs of all others are only counted."""


class _Url(NamedTuple):
    """A URL that may join: its groups, and the names under which its host and domain are counted."""

    groups: list[Groups]
    host: bytes
    domain: bytes
    hosts: bytes

    def names(self) -> list[bytes]:
        """Return every name whose count decides."""
        return [self.host, self.domain, self.hosts, *(name for _, _, names in self.groups for name in names)]


class Admission:
    """The counts of an intake under way: the earlier ones, and those of the URLs in `new`, which are noted again.

    `directory`: the node's. `budgets`, `traps`: None: no rules. `refused`: how many URLs budgets refused, by
    `budget_key`; the caller empties it.
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
        """Those of some outlink lines that may join, and how many may not, by `Rejection`."""
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
        urls = [url for url, meta in lines if not is_listed(meta, is_meta=True)]
        hosts = [host_of_line(url) for url in urls]
        counts = Counter(hosts)
        patterns = self._patterns(urls, hosts, counts) if self._traps and self._traps.has_patterns else []
        joined, self._joined = self._joined, None
        if joined is None:  # of an intake that was killed
            judged = self._judged(urls)
            now = self._now(judged.values())
            joined = {url: _note(one, now) for url, one in judged.items()}
        for url in urls:
            counts.update(joined.get(url, ()))
        counts.update(patterns)
        self._counts.note(counts)

    def lines(self) -> Iterable[bytes]:
        """The file `new.hosts` of the intake."""
        return self._counts.noted()

    def _patterns(self, urls: Sequence[bytes], hosts: Sequence[bytes], of_hosts: Counter[bytes]) -> list[bytes]:
        """The patterns of those URLs that are not among the first of their hosts, however they are divided in calls."""
        before = self._counts.get(of_hosts)
        seen = {host: have for host, n in of_hosts.items() if (have := before.get(host, 0)) + n > _FIRST_OF_HOST}
        found = []
        for url, host in zip(urls, hosts, strict=True) if seen else ():
            if host in seen:
                seen[host] += 1
                if seen[host] > _FIRST_OF_HOST:
                    found.append(pattern_of(url, host))
        return found

    def _judged(self, urls: Iterable[bytes]) -> dict[bytes, _Url]:
        """Find the groups and the domain of each URL."""
        traps, found = self._traps, dict[bytes, _Url]()
        for url in urls:
            if url:
                host = host_of_line(url)
                groups = traps.groups(url, host_of_line) if traps else []
                found[url] = _Url(groups, host, *names_of_domain(host))
        return found

    def _now(self, judged: Iterable[_Url]) -> Counter[bytes]:
        """Read the counts of all names of some URLs."""
        return Counter(self._counts.get({name for one in judged for name in one.names()}))

    def _reason(self, line: bytes, one: _Url, counts: Counter[bytes]) -> str | None:
        """Return the name of the rule that rejects an outlink line, None if no rule does."""
        if HANDED_ON_MARK in line:
            return None
        is_seed = line.split(b"\t", 2)[1] == b""
        if not is_seed and (full := _full_groups(one, counts)):
            return str(full[0])
        for rule, name in _spent(one, counts, self._budgets) if self._budgets else ():
            if rule is Rejection.HOST_LIMIT or not is_seed:
                key = budget_key(rule, name)
                if key in self.refused or len(self.refused) < _NAMED:
                    self.refused[key] += 1
                return str(rule)
        return None


def full_for(directory: Path, budgets: Budgets, traps: Traps, url: bytes) -> list[Rejection]:
    """Which rules would keep a URL that a page links to out of a node's queue, as the counts are now.

    Raises StorageError.
    """
    host = host_of_line(url)
    one = _Url(traps.groups(url, host_of_line), host, *names_of_domain(host))
    counts = Counter(HostCounts(directory).get(one.names()))
    return [*_full_groups(one, counts), *(rule for rule, _ in _spent(one, counts, budgets))]


def _full_groups(one: _Url, counts: Counter[bytes]) -> list[Rejection]:
    """List the rules of `traps` whose groups are all full for a URL."""
    return [rule for rule, most, names in one.groups if all(counts[name] >= most for name in names)]


def _spent(one: _Url, counts: Counter[bytes], budgets: Budgets) -> list[tuple[Rejection, str]]:
    """List the budgets that a URL finds spent, each with the name of the host or domain."""
    spent, domain = [], one.domain[1:].decode()
    limits = budgets.of_domain(domain)
    if budgets.of_host is not None and counts[one.host] >= budgets.of_host:
        spent.append((Rejection.HOST_LIMIT, one.host.decode()))
    if limits.max_pages is not None and counts[one.domain] >= limits.max_pages:
        spent.append((Rejection.DOMAIN_PAGES, domain))
    if limits.max_hosts is not None and not counts[one.host] and counts[one.hosts] >= limits.max_hosts:
        spent.append((Rejection.DOMAIN_HOSTS, domain))
    return spent


def _note(one: _Url, counts: Counter[bytes]) -> list[bytes]:
    """Count a URL that joins; returns the names of those groups that count it."""
    counts[one.hosts] += not counts[one.host]
    counts[one.host] += 1
    counts[one.domain] += 1
    groups = []
    for _, most, names in one.groups:
        groups += [name for name in names if counts[name] < most][:_COUNTED_GROUPS]
    counts.update(groups)
    return groups
