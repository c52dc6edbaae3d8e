"""The order of results: scores with boosts, near duplicates folded, hosts that do not crowd a result page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import log2

from tantivy import DocAddress

from crawl_lib.search.clauses import WEIGHTS
from crawl_lib.search.facts import PageFact

CANDIDATES = 200
"""Pages that are ranked: the best by words. No answer has more results."""
PAGE_SIZE = 10
FEW = 10
"""If fewer pages have all words, pages with some of the words follow."""
MOST_OF_A_HOST = 2
"""Results of a host on a result page before results of other hosts."""
DIGITS = 5
"""Of a score that order pages. Tantivy adds 32-bit numbers, in an order that differs from one index to the next."""


@dataclass(frozen=True)
class Weights:
    """What ranks pages. `fields`: what a word counts in each kind of field of a language. `boost`: how much a page's
    boost counts. `all_words_first`: whether pages with some of the words follow pages with all words."""

    fields: dict[str, float] = field(default_factory=lambda: dict(WEIGHTS))
    boost: float = 0.2
    all_words_first: bool = True


@dataclass(frozen=True)
class Candidate:
    """A page that may be shown. `base`: its score by words; `boost_factor`, `site_factor`: factor of this score;
    `has_all`: whether it has all words; `like`: near duplicates represented by the page."""

    address: DocAddress
    fact: PageFact
    base: float
    boost_factor: float
    site_factor: float
    has_all: bool
    like: tuple["Candidate", ...] = ()

    @property
    def score(self) -> float:
        """The score that orders pages."""
        return self.base * self.boost_factor * self.site_factor


def boost_factor(boost: float, weight: float) -> float:
    """Return a score's factor by a page's boost.

    The factor is `1 + weight * log2(1 + boost)`; a mean page gets `1 + weight`.
    """
    return 1 + weight * log2(1 + max(boost, 0))


def rounded(score: float) -> float:
    """Return a score with as many digits as may order pages."""
    return float(f"{score:.{DIGITS}g}")


def by_score(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return candidates by falling score; equal scores by key."""
    return sorted(candidates, key=lambda one: (-rounded(one.score), one.fact.key))


def folded(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Fold each group of near duplicates into its best candidate.

    The others are its `like`.
    """
    groups: dict[object, list[Candidate]] = {}
    for one in candidates:
        groups.setdefault(one.fact.key if one.fact.near is None else one.fact.near, []).append(one)
    return [
        replace(first, like=tuple(others)) if others else first
        for first, *others in groups.values()
    ]


def uncrowded(results: Sequence[Candidate]) -> list[Candidate]:
    """Move the third and later results of a host back.

    They follow the results of other hosts.
    """
    seen: dict[str, int] = {}
    front: list[Candidate] = []
    behind: list[Candidate] = []
    for one in results:
        seen[one.fact.host] = seen.get(one.fact.host, 0) + 1
        (behind if seen[one.fact.host] > MOST_OF_A_HOST else front).append(one)
    return list(chain(front, behind))
