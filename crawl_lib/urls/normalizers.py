"""Normalisers of canonical URLs: one function a kind, made of the rules of its step.

A rule file that is wrong is noted in its `RuleText`. What comes out need not be canonical: `chains` makes it so.
"""

import re
from collections.abc import Callable, Sequence

from crawl_lib.urls.names import host_of
from crawl_lib.urls.rulefiles import RuleText
from crawl_lib.urls.traps import without_session

Normalizer = Callable[[str], str]

_SLASHES = re.compile("/{2,}")
_EXTENSION_CHARS = 6


def _basic(_: RuleText) -> Normalizer:
    """Make a normaliser that merges slashes in a row."""

    def merged(url: str) -> str:
        path, mark, query = url.partition("?")
        start = path.index("/", 8)
        return path[:start] + _SLASHES.sub("/", path[start:]) + mark + query

    return merged


def _query(_: RuleText) -> Normalizer:
    """Make a normaliser that sorts the parts of the query."""

    def ordered(url: str) -> str:
        path, mark, query = url.partition("?")
        return path + mark + "&".join(sorted(query.split("&")))

    return ordered


def _session(_: RuleText) -> Normalizer:
    return without_session


def _regex(rules: RuleText) -> Normalizer:
    """Make a normaliser by the rules of a regex-normalize.xml.

    The rules apply in the order of the file.
    """
    steps: Sequence[Normalizer] = list(rules.substitutions())

    def replaced(url: str) -> str:
        for step in steps:
            url = step(url)
        return url

    return replaced


def _hosts(rules: RuleText) -> Normalizer:
    """Make a normaliser that renames hosts.

    A line is `host target`, or `*.domain target` for all hosts below a domain; the shortest domain counts.
    """
    targets: dict[str, str] = {}
    for number, line in rules.lines():
        match line.split():
            case [host, target]:
                below = "*." if host.startswith("*.") else ""
                targets[below + rules.host(number, host.removeprefix("*."))] = rules.host(
                    number, target
                )
            case _:
                rules.wrong(number, f"{line!r} is not a host and the one that it becomes")

    most_labels = max((name.count(".") for name in targets if name.startswith("*.")), default=0)

    def renamed(url: str) -> str:
        host = host_of(url)
        labels = host.rsplit(
            ".", most_labels
        )  # more labels than the longest domain of a rule decide nothing
        names = [host, *("*." + ".".join(labels[at:]) for at in range(len(labels) - 2, 0, -1))]
        target = next((targets[name] for name in names if name in targets), host)
        start = url.index("//") + 2
        return url if target == host else url[:start] + target + url[start + len(host) :]

    return renamed


def _slashes(rules: RuleText) -> Normalizer:
    """Make a normaliser for slashes at the end of paths.

    A line is `host +` or `host -`.
    """
    wanted: dict[str, bool] = {}
    for number, line in rules.lines():
        match line.split():
            case [host, "+" | "-" as sign]:
                wanted[rules.host(number, host)] = sign == "+"
            case _:
                rules.wrong(number, f"{line!r} is not a host, and + or -")

    def slashed(url: str) -> str:
        has_slash = wanted.get(host_of(url))
        start, mark, query = url.partition("?")
        path = start[start.index("/", 8) + 1 :]
        if has_slash is None or not path:
            return url
        if not has_slash:
            start = start.removesuffix("/")
        elif not path.endswith("/") and "." not in path[-_EXTENSION_CHARS:]:
            start += "/"
        return start + mark + query

    return slashed


NORMALIZERS: dict[str, Callable[[RuleText], Normalizer]] = {
    "basic": _basic,
    "regex": _regex,
    "hosts": _hosts,
    "query": _query,
    "session": _session,
    "slashes": _slashes,
}
