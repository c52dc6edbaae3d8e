"""Normalisers and filters by scope: the changes and verdicts at each moment of a URL's life, before `urls.rules`.

A normalised URL is canonical, and normalising it again changes nothing: the chain repeats until nothing changes. Rules
in a circle give the smallest URL of the circle; without an end within `MAX_PASSES`, the URL stays unchanged. A step
that raises, or gives an invalid URL, is left out for this URL, and counted by its name.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TypeVar

from crawl_lib.config import ChainsConfig, StepConfig, UrlsConfig
from crawl_lib.errors import ConfigError
from crawl_lib.urls.canonical import canonicalize
from crawl_lib.urls.names import host_of
from crawl_lib.urls.normalizers import NORMALIZERS, Normalizer
from crawl_lib.urls.rulefiles import RuleText
from crawl_lib.urls.rulefilters import FILE_FILTERS, FileFilter

MAX_PASSES = 16
_BECOMES = "normalizers: "
_WITHOUT_RULES = frozenset({"basic", "query", "session"})
_Kind = TypeVar("_Kind")


class Scope(StrEnum):
    """The moment of a look at a URL; a scope outside of the config has the chain of `default`."""

    INJECT = "inject"
    """A seed."""
    FETCH = "fetch"
    """A URL of a take, before its fetch."""
    OUTLINK = "outlink"
    """A target of a page, a sitemap or a redirect."""
    CRAWLDB = "crawldb"
    """A row of the CrawlDb."""
    LINKDB = "linkdb"
    """Both ends of a link, for the LinkDb."""
    INDEX = "index"
    """A page for the index."""


class Chain:
    """Normalisers and filters of a scope, applied to canonical URLs.

    `filters`: by their names; `errors`: how often a step raised, by name.
    """

    def __init__(self, config: UrlsConfig, scope: Scope) -> None:
        """Compile the chain of a scope.

        Raises ConfigError: a line for each invalid rule, with file and line.
        """
        self.errors: Counter[str] = Counter()
        self._max_length_chars = config.max_length_chars
        self._normalizers: Sequence[tuple[str, Normalizer]] = _steps(
            NORMALIZERS, *_of(config, "normalizers", scope)
        )
        self.filters: Sequence[tuple[str, FileFilter]] = _steps(
            FILE_FILTERS, *_of(config, "filters", scope)
        )

    @property
    def normalizes(self) -> bool:
        """Whether the chain has normalisers."""
        return bool(self._normalizers)

    @property
    def is_empty(self) -> bool:
        """Whether the chain changes and rejects nothing."""
        return not self._normalizers and not self.filters

    def normalize(self, url: str) -> str:
        """Return the normalised form of a canonical URL."""
        passed = [url]
        for _ in range(MAX_PASSES if self._normalizers else 0):
            result = self._pass(passed[-1])
            if result in passed:
                return min(passed[passed.index(result) :])
            passed.append(result)
        self.errors.update(["normalizers: no end"] if self._normalizers else ())
        return url

    def _pass(self, url: str) -> str:
        for name, step in self._normalizers:
            try:
                result = step(url)
                url = (
                    url
                    if result == url
                    else canonicalize(result, max_length_chars=self._max_length_chars)
                )
            except Exception:
                self.errors[f"normalizers: {name}"] += 1
        return url

    def rejects(self, url: str, host: str) -> str | None:
        """Return the filter rule that rejects a canonical URL, else None.

        Such as `regex-urlfilter.txt:3 -[?*!@=]`.
        """
        for name, step in self.filters:
            try:
                if rule := step(url, host):
                    return rule
            except Exception:
                self.errors[f"filters: {name}"] += 1
        return None

    def objection(self, url: str) -> str:
        """Return the reason against visiting a URL, "" if none.

        The reason is the normalised URL, or the rejecting rule.
        """
        if (target := self.normalize(url)) != url:
            return f"{_BECOMES}{target}"
        rule = self.rejects(url, host_of(url))
        return f"filters: {rule}" if rule else ""


def target_of_error(error: str) -> str:
    """Return the normalised URL in an objection; "" for a filter's."""
    return error.removeprefix(_BECOMES) if error.startswith(_BECOMES) else ""


def require_chains(config: UrlsConfig) -> None:
    """Raise ConfigError with all mistakes in the chains of all scopes.

    Each line comes once.
    """
    lines: dict[str, None] = {}
    for scope in Scope:
        try:
            Chain(config, scope)
        except ConfigError as error:
            lines |= dict.fromkeys(error.lines)
    if lines:
        raise ConfigError(*lines)


def _of(config: UrlsConfig, option: str, scope: Scope) -> tuple[str, Sequence[StepConfig]]:
    """Return the name and the steps of a chain."""
    chains: ChainsConfig = getattr(config, option)
    own: Sequence[StepConfig] | None = getattr(chains, scope)
    return (
        (f"urls.{option}.{scope}", own)
        if own is not None
        else (f"urls.{option}.default", chains.default)
    )


def _steps(
    kinds: dict[str, Callable[[RuleText], _Kind]], name: str, steps: Sequence[StepConfig]
) -> list[tuple[str, _Kind]]:
    made, problems = [], list[str]()
    for index, step in enumerate(steps):
        rules = RuleText(step, f"{name}[{index}]")
        if problem := _kind_problem(f"{name}[{index}]", step, kinds):
            problems.append(problem)
        else:
            made.append((rules.name, kinds[step.kind](rules)))
            problems += rules.problems
    if problems:
        raise ConfigError(*problems)
    return made


def _kind_problem(
    where: str, step: StepConfig, kinds: dict[str, Callable[[RuleText], _Kind]]
) -> str:
    if step.kind not in kinds:
        return f"{where}.kind: must be one of {', '.join(kinds)}, not {step.kind!r}"
    if (step.rules is None) != (step.kind in _WITHOUT_RULES):
        return f"{where}.file: {step.kind} {'has no rules' if step.rules is not None else 'needs one (or rules)'}"
    if step.rules is not None and not any(RuleText(step, where).lines()):
        return f"{where}: {step.file or 'rules'}: holds no rule"
    return ""
