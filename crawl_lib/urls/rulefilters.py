"""The verdict of a filter file on a canonical URL: one function for each kind; None for an accepted URL.

Each kind is Nutch's, with its syntax: URLs that no line accepts are rejected (with `suffix` the mode line decides).
"""

from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

from crawl_lib.urls.names import domain_of
from crawl_lib.urls.rulefiles import RuleText

FileFilter = Callable[[str, str], str | None]
"""Takes a URL and its host; returns the rejecting rule."""


def _domain(rules: RuleText) -> FileFilter:
    """Make a filter of public suffixes, registered domains and hosts.

    A domain includes all hosts below.
    """
    names = {rules.host(number, line) for number, line in rules.lines()}

    def judge(_: str, host: str) -> str | None:
        domain = domain_of(host)
        return None if names & {host, domain, domain.partition(".")[2]} else rules.name

    return judge


def _prefix(rules: RuleText) -> FileFilter:
    """Make a filter of beginnings of URLs."""
    prefixes: list[str] = []
    for prefix in sorted(line for _, line in rules.lines()):
        if not (
            prefixes and prefix.startswith(prefixes[-1])
        ):  # a shorter prefix covers the longer ones
            prefixes.append(prefix)

    def judge(url: str, _: str) -> str | None:
        at = bisect_right(prefixes, url) - 1
        return None if at >= 0 and url.startswith(prefixes[at]) else rules.name

    return judge


def _suffix(rules: RuleText) -> FileFilter:
    """Make a filter of ends of URLs.

    A line `+` or `-` says whether URLs without a listed suffix are accepted; `I`: ignore case, `P`: compare the path.
    """
    mode, options, suffixes = "", set[str](), list[str]()
    for number, line in rules.lines():
        if line[0] not in "+-":
            suffixes.append(line)
        elif set(line[1:]) <= {"I", "P"}:
            mode, options = line[0], options | set(line[1:])
        else:
            rules.wrong(
                number,
                f"{line!r}: behind + or -, the mode, only I and P may come; a suffix has no sign",
            )
    if not mode:
        rules.wrong(
            1, "no line is + or -, which says whether URLs with other suffixes are accepted"
        )
    ends = tuple(suffix.lower() if "I" in options else suffix for suffix in suffixes)

    def judge(url: str, _: str) -> str | None:
        text = url.partition("?")[0] if "P" in options else url
        matches = (text.lower() if "I" in options else text).endswith(ends)
        return rules.name if matches == (mode == "+") else None

    return judge


class _Expression(NamedTuple):
    """A line of a file of expressions. `host`: the expression is only for URLs of this host or domain, if not ""."""

    number: int
    line: str
    host: str
    search: Callable[[str], object]


def _regex(rules: RuleText) -> FileFilter:
    """Make a filter by the sign of the first matching expression.

    Rules between `> host` and `<` apply to this host.
    """
    found, only = list[_Expression](), ""
    for number, line in rules.lines():
        if line[0] in "<>":
            only = rules.host(number, line[1:].strip()) if line[0] == ">" else ""
        elif line[0] not in "+-":
            rules.wrong(number, f"{line!r} begins with none of + - > < #")
        elif pattern := rules.pattern(number, line[1:]):
            found.append(_Expression(number, line, only, pattern.search))

    def judge(url: str, host: str) -> str | None:
        for number, line, owner, search in found:
            if (not owner or owner in {host, domain_of(host)}) and search(url):
                return None if line[0] == "+" else f"{rules.name}:{number} {line}"
        return rules.name

    return judge


FILE_FILTERS: dict[str, Callable[[RuleText], FileFilter]] = {
    "domain": _domain,
    "prefix": _prefix,
    "suffix": _suffix,
    "regex": _regex,
}
