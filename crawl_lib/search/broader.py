"""A broader query: words of the best pages are added (pseudo-relevance feedback by RM3).

Abdul-Jaleel et al., UMass at TREC 2004; constants as in Anserini: 10 pages, 10 words, and half of the weight for the
words of the query. Broader queries help long questions and harm queries for a page, so they are never the default.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

from crawl_lib.index import OTHER, FieldKind, without_runs
from crawl_lib.search.clauses import AskedClauses, Clauses, Unit
from crawl_lib.search.opened import OpenIndex
from crawl_lib.search.ranking import Candidate

BEST, ADDED = 10, 10
"""Pages that words are taken of, and words that are added."""
OWN_SHARE = 0.5
"""The weight of the words of the query, of 1."""
MOST_PAGES_SHARE = 0.1
"""A word in more of the pages than this tells too little."""
WORD_CHARS = range(2, 21)
READ_CHARS = 100_000
"""Number of characters of a page's text."""


def broadened(
    index: OpenIndex, clauses: Clauses, asked: Sequence[AskedClauses], best: Sequence[Candidate]
) -> list[AskedClauses]:
    """Return the query plus the best pages' most telling words.

    Words are added in each language of these pages.
    """
    added = {
        group: _best_words(index, group, weights)
        for group, weights in _weights(index, best).items()
    }
    for_all = [one for one in asked if one.language is None]
    of_each = [
        replace(one, language=group, pages=clauses.pages_of(group))
        for one in for_all
        for group in added
    ]
    return [
        replace(
            one,
            units=_merged(
                one.units, clauses, one.language or OTHER, added.get(one.language or OTHER, {})
            ),
        )
        for one in of_each or asked
    ]


def _weights(index: OpenIndex, best: Sequence[Candidate]) -> dict[str, dict[str, float]]:
    """Return all words' weights in the best pages, by language group."""
    found: dict[str, dict[str, float]] = {}
    for one in best:
        page = index.searcher.doc(one.address)
        group = index.fields.group(page.get_first("language"))
        fields = [bytes(page.get_first(name) or b"").decode() for name in ("title", "body")]
        text = " ".join(field[:READ_CHARS] for field in fields)
        counts = Counter(index.fields.analysers.words(group, without_runs(text)))
        weights = found.setdefault(group, defaultdict(float))
        for word, count in counts.items():
            weights[word] += one.base * count / counts.total()
    return found


def _best_words(index: OpenIndex, group: str, weights: Mapping[str, float]) -> dict[str, float]:
    """Return the weights of the most telling words.

    They sum to `1 - OWN_SHARE`.
    """
    field, most = (
        index.fields.name(FieldKind.WORDS, group),
        index.searcher.num_docs * MOST_PAGES_SHARE,
    )
    telling = (
        (word, weight)
        for word, weight in sorted(weights.items(), key=lambda one: (-one[1], one[0]))
        if len(word) in WORD_CHARS
        and word.isalpha()
        and index.searcher.doc_freq(field, word) <= most
    )
    chosen = dict(islice(telling, ADDED))
    total = sum(chosen.values())
    return {word: (1 - OWN_SHARE) * weight / total for word, weight in chosen.items()}


def _merged(
    units: Sequence[Unit], clauses: Clauses, language: str, added: Mapping[str, float]
) -> tuple[Unit, ...]:
    """Merge the units of a query with added words.

    A word in both has both weights.
    """
    total = sum(unit.times for unit in units)
    merged = {unit.words: unit.repeated(OWN_SHARE / total) for unit in units}
    for word, weight in added.items():
        unit = clauses.word(word, language).repeated(weight)
        own = merged.get(unit.words)
        merged[unit.words] = unit if own is None else own.repeated(1 + weight / own.times)
    return tuple(merged.values())
