"""Which of the URLs that are new to a node join its queue: so many of a host, and of each group of `traps`.

What is counted is a name: a host, or a group, whose name begins with its host. A URL may join unless all groups of one
of its rules are full. The rules of `traps` are for what was found, not for seeds; URLs of other nodes are queued in any
case. All that joins is counted, but what a list asked for: that was counted when it joined first.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from crawl_lib.frontier.directory import NodeDirectory
from crawl_lib.frontier.hostcounts import HostCounts, host_of_line
from crawl_lib.frontier.outlinks import HANDED_ON_MARK, file_lines, is_listed, some_lines, url_of_line
from crawl_lib.urls import Groups, Rejection, Traps, pattern_of

_LINES = 50_000
LARGE_PATTERN = 400
"""From so many URLs on the pages of a pattern are compared: see `crawl_lib.worker.patterns`."""
_FIRST_OF_HOST = 100
"""So many URLs of a host are in no pattern: most hosts do not have more, and nothing is to be found out for them."""


class Admission:
    """The counts of an intake under way: those of before, and of the URLs in `new`, whose part of them is noted again.

    `directory`: the node's. `max_pages_per_host`: None: no limit. `traps`: None: no rules.
    """

    def __init__(self, directory: Path, max_pages_per_host: int | None, traps: Traps | None) -> None:
        self._counts = HostCounts(directory)
        self._max_of_host, self._traps = max_pages_per_host, traps
        self._known: dict[bytes, list[Groups]] | None = None
        self._counts.begin()
        files = NodeDirectory(directory)
        pairs = zip(file_lines(files.new), file_lines(files.new_meta), strict=False)
        for some in some_lines(pairs, _LINES):
            self.count(some)

    def choose(self, lines: Sequence[bytes]) -> tuple[list[bytes], Counter[str]]:
        """Those of some outlink lines that may join, and how many may not, by `Rejection`."""
        urls = [b"" if is_listed(line) else url_of_line(line) for line in lines]
        known = self._known = self._found(urls)
        most = self._max_of_host
        judged = [[*known.get(url, ()), *_of_host(url, most)] if url else [] for url in urls]
        counts = Counter(self._counts.get({name for rules in judged for name in _names(rules)}))
        kept: list[bytes] = []
        rejected: Counter[str] = Counter()
        for line, rules in zip(lines, judged, strict=True):
            if rules and (reason := _reason(line, rules, counts)):
                rejected[reason] += 1
                continue
            if rules:
                counts.update(_names(rules))
            kept.append(line)
        return kept, rejected

    def count(self, lines: Sequence[tuple[bytes, bytes]]) -> None:
        """Note URLs that have joined, by their lines of data and meta."""
        urls = [url for url, meta in lines if not is_listed(meta, is_meta=True)]
        hosts = [host_of_line(url) for url in urls]
        counts = Counter(hosts)
        patterns = self._patterns(urls, hosts, counts) if self._traps and self._traps.has_patterns else []
        known, self._known = self._found(urls) if self._known is None else self._known, None
        for url in urls if known else ():  # most are in no group
            counts.update(_names(known.get(url, ())))
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

    def _found(self, urls: Iterable[bytes]) -> dict[bytes, list[Groups]]:
        """Those URLs that are in groups, with these; found once for `choose` and the `count` after it."""
        traps = self._traps
        return {url: groups for url in urls if url and (groups := traps.groups(url, host_of_line))} if traps else {}


def full_for(directory: Path, max_pages_per_host: int | None, traps: Traps, url: bytes) -> list[Rejection]:
    """Which rules would keep a URL that a page links to out of a node's queue, as the counts are now.

    Raises StorageError.
    """
    rules = [*traps.groups(url, host_of_line), *_of_host(url, max_pages_per_host)]
    counts = Counter(HostCounts(directory).get(_names(rules)))
    return [rule for rule, most, names in rules if all(counts[name] >= most for name in names)]


def _of_host(url: bytes, most: int | None) -> list[Groups]:
    return [] if most is None else [(Rejection.HOST_LIMIT, most, [host_of_line(url)])]


def _names(rules: Collection[Groups]) -> list[bytes]:
    return [name for _, _, names in rules for name in names]


def _reason(line: bytes, rules: Collection[Groups], counts: Counter[bytes]) -> str | None:
    """Which rule rejects an outlink line."""
    if HANDED_ON_MARK in line:
        return None
    is_seed = line.split(b"\t", 2)[1] == b""
    for rule, most, names in rules:
        if (rule is Rejection.HOST_LIMIT or not is_seed) and all(counts[name] >= most for name in names):
            return str(rule)
    return None
