"""Answers: the pages of a query in order, with facts for the reader."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import tantivy
from tantivy import DocAddress, FieldType, Occur, Order, Query

from crawl_lib.errors import DamagedFileError
from crawl_lib.search.broader import BEST, broadened
from crawl_lib.search.clauses import Clauses, Leaf, all_of, is_filter, some_of
from crawl_lib.search.opened import OpenIndex
from crawl_lib.search.query import PartKind, QueryReading, read_query
from crawl_lib.search.ranking import (
    CANDIDATES,
    FEW,
    PAGE_SIZE,
    Candidate,
    Weights,
    boost_factor,
    by_score,
    folded,
    rounded,
    uncrowded,
)
from crawl_lib.search.sites import Sites
from crawl_lib.search.snippets import Snippet, Snippets

TIES, UNSCORED = 2_000, 10_000
"""Pages that are looked at where the last candidates have the same score, and where no page has one."""
STREAMED = 10_000
"""Pages that `every_page` asks for at once."""
MOST_LIKE = 10
"""Near duplicates that a result names."""
MAX_ORDER = (1 << 64) - 1
Hit = tuple[float, DocAddress]
Place = tuple[int, int]
"""Segment and document."""


@dataclass(frozen=True)
class Share:
    """A part of a score: `words`, the label of a word or phrase, in a `field`. Its value is
    `bm25 * weight * times`."""

    words: str
    field: str
    bm25: float
    weight: float
    times: float

    @property
    def value(self) -> float:
        """Its part of the score by words."""
        return self.bm25 * self.weight * self.times


@dataclass(frozen=True)
class Explanation:
    """The parts of a score. `shares`: their values sum to `by_words`, which is 1 where a query scores nothing. The
    score is `by_words * boost_factor * site_factor`."""

    shares: tuple[Share, ...]
    by_words: float
    boost: float
    boost_factor: float
    site_factor: float

    @property
    def score(self) -> float:
        """The score that its parts make."""
        return self.by_words * self.boost_factor * self.site_factor


@dataclass(frozen=True)
class Result:
    """A page that answers a query.

    `date_us`: POSIX microseconds; `is_published`: whether the page names that date, else it was captured then. `score`:
    None where pages are ordered by date. `missing`: words that the page lacks. `like`: URLs of near duplicates
    represented by the page. `robots`: as `IndexedPage` has it. `snippet`: None if the page forbids snippets.
    """

    key: bytes
    url: str
    title: str
    language: str | None
    mime_type: str
    date_us: int
    is_published: bool
    score: float | None
    missing: tuple[str, ...] = ()
    like: tuple[str, ...] = ()
    robots: tuple[str, ...] = ()
    snippet: Snippet | None = None
    explanation: Explanation | None = None

    @property
    def date_is(self) -> str:
        """The meaning of the date: "published" or "captured"."""
        return "published" if self.is_published else "captured"


@dataclass(frozen=True)
class SearchAnswer:
    """Answer to a query.

    `reading`: how it was read. `total`: pages with all words, shown or not. `shown`: results on all result pages.
    `suggestion`: the query with words corrected, None where there is nothing to correct. `version`: of the index.
    """

    reading: QueryReading
    total: int
    shown: int
    page: int
    results: tuple[Result, ...]
    suggestion: str | None
    version: int


@dataclass(frozen=True)
class SearchOptions:
    """Options of a search. `page`: of results, from 1. `is_broader`: add words of the best pages."""

    page: int = 1
    is_broader: bool = False
    is_explained: bool = False
    weights: Weights = field(default_factory=Weights)


def answer(
    index: OpenIndex,
    query: str,
    sites: Sites,
    wanted: SearchOptions | None = None,
    now_us: int | None = None,
) -> SearchAnswer:
    """Answer a query.

    Any text has an answer, perhaps empty.

    `now_us`: POSIX microseconds; pages that ask to be found no longer are left out. None: the clock's.
    """
    return _Search(index, _read(index, query), sites, wanted or SearchOptions(), now_us).answer()


def every_page(
    index: OpenIndex, query: str, sites: Sites, now_us: int | None = None
) -> Iterator[tuple[bytes, str]]:
    """Yield the pages with all words of a query.

    Key and URL come in key order. `now_us`: as for `answer`. Raises DamagedFileError, perhaps after some pages, where
    the files of the index make no sense.
    """
    try:
        yield from _Search(index, _read(index, query), sites, SearchOptions(), now_us).every_page()
    except (ValueError, OSError) as error:
        raise DamagedFileError(
            f"version {index.number} of the index cannot be read to its end: {error};"
            " `krake index check` names the file"
        ) from error


def _read(index: OpenIndex, query: str) -> QueryReading:
    return read_query(query, index.fields.analysers.is_stop_word)


def ranked(
    index: OpenIndex,
    query: str,
    sites: Sites,
    wanted: SearchOptions | None = None,
    now_us: int | None = None,
) -> list[Candidate]:
    """Return the ranked pages, before near duplicates are folded.

    Arguments as for `answer`.
    """
    return _Search(
        index, _read(index, query), sites, wanted or SearchOptions(), now_us
    ).candidates()[0]


class _Search:
    """One query on an index."""

    def __init__(
        self,
        index: OpenIndex,
        reading: QueryReading,
        sites: Sites,
        wanted: SearchOptions,
        now_us: int | None,
    ) -> None:
        self._index, self._searcher, self._reading = index, index.searcher, reading
        self._sites, self._wanted = sites, wanted
        self._now_us = time.time_ns() // 1000 if now_us is None else now_us
        self._clauses = Clauses(index.fields, index.searcher, wanted.weights.fields)
        self._asked = self._clauses.asked(reading)
        filters = self._clauses.filters(reading)
        self._filters = replace(filters, never=(*filters.never, *sites.never(self._clauses)))

    def answer(self) -> SearchAnswer:
        """Return the answer with the wanted result page."""
        candidates, total = self.candidates()
        results = folded(candidates)
        start = (self._wanted.page - 1) * PAGE_SIZE
        shown = results[start : start + PAGE_SIZE]
        if (
            not any(part.kind is PartKind.SITE for part in self._reading.parts)
            and not self._reading.by_date
        ):
            shown = uncrowded(shown)
        return SearchAnswer(
            self._reading,
            total,
            len(results),
            self._wanted.page,
            tuple(self._results(shown)),
            self._index.vocabulary.suggestion(self._reading),
            self._index.number,
        )

    def every_page(self) -> Iterator[tuple[bytes, str]]:
        """Yield key and URL of each matching page, by windows."""
        query, last = self._filters.around(self._all()), -1
        while True:
            rest = Query.range_query(
                self._index.fields.schema, "order", FieldType.Unsigned, lower_bound=last + 1
            )
            window = Query.boolean_query([(Occur.Must, query), (Occur.Must, rest)])
            found = self._searcher.search(
                window, STREAMED, count=False, order_by_field="order", order=Order.Asc
            ).hits
            for one in self._ranked(
                [(0.0, address) for _, address in found], has_all=True, is_sorted=False
            ):
                page = self._searcher.doc(one.address)
                yield one.fact.key, _text(page, "url")
            if len(found) < STREAMED or (last := int(found[-1][0])) == MAX_ORDER:
                return

    def _all(self) -> Query:
        """Return the query for pages with all words.

        With filters or an order alone, the query is for all pages.
        """
        if self._asked:
            return all_of(self._asked)
        has_words = any(not is_filter(group) for group in self._reading.groups)
        is_empty = not self._reading.groups and not self._reading.by_date
        return Query.empty_query() if has_words or is_empty else Query.all_query()

    def candidates(self) -> tuple[list[Candidate], int]:
        """Return the best pages, and the number of matches."""
        candidates, total = self._candidates()
        if self._wanted.is_broader and self._asked:
            self._asked = broadened(self._index, self._clauses, self._asked, candidates[:BEST])
            candidates = self._ranked(
                self._top(some_of(self._asked), is_counted=False)[0], has_all=True
            )
        return candidates, total

    def _candidates(self) -> tuple[list[Candidate], int]:
        if not self._asked or self._reading.by_date:
            return self._unscored()
        if not self._wanted.weights.all_words_first:
            hits, total = self._top(some_of(self._asked), is_counted=True)
            return self._ranked(hits, has_all=True), total
        hits, total = self._top(all_of(self._asked), is_counted=True)
        candidates = self._ranked(hits, has_all=True)
        has_phrases = any(len(one.units) > 1 and one.loose for one in self._asked)
        if len(candidates) < FEW and has_phrases:
            there = {_place(address) for _, address in hits}
            best, _ = self._top(some_of(self._asked), is_counted=False)
            more = [hit for hit in best if _place(hit[1]) not in there]
            candidates += self._ranked(more, has_all=False)
        return candidates[:CANDIDATES], total

    def _top(self, query: Query, *, is_counted: bool) -> tuple[list[Hit], int]:
        """Return a query's best hits and its number of matches.

        Of the last ties the least keys count.

        `is_counted`: False gives 0 as the number, and lets Tantivy leave out pages that cannot win. One search returns
        enough hits for ties: a second search for a phrase would take longer.
        """
        found = self._searcher.search(self._filters.around(query), TIES, count=is_counted)
        hits: list[Hit] = found.hits
        if len(hits) > CANDIDATES:
            hits = self._with_ordered_ties(hits)
        return hits[:CANDIDATES], _count(found) if is_counted else 0

    def _with_ordered_ties(self, hits: list[Hit]) -> list[Hit]:
        """Order the hits that tie with the last candidate by their keys."""
        last, next_one = (rounded(score) for score, _ in hits[CANDIDATES - 1 : CANDIDATES + 1])
        if last != next_one:
            return hits
        above = [hit for hit in hits[:CANDIDATES] if rounded(hit[0]) > last]
        tied = [hit for hit in hits[len(above) :] if rounded(hit[0]) == last]
        orders = self._orders([address for _, address in tied])
        ordered = sorted(zip(orders, tied, strict=True), key=lambda one: one[0])
        return above + [hit for _, hit in ordered]

    def _unscored(self) -> tuple[list[Candidate], int]:
        """Return pages by boost or date, and the number of matches."""
        by_date = self._reading.by_date
        name, order = ("date", Order.Desc) if by_date else ("order", Order.Asc)
        found = self._searcher.search(
            self._filters.around(self._all()), UNSCORED, order_by_field=name, order=order
        )
        candidates = self._ranked(
            [(1.0, address) for _, address in found.hits], has_all=True, is_sorted=not by_date
        )
        if by_date:
            dates = {_place(address): int(date) for date, address in found.hits}
            candidates.sort(key=lambda one: (-dates[_place(one.address)], one.fact.key))
        return candidates[:CANDIDATES], _count(found)

    def _ranked(
        self, hits: Sequence[Hit], *, has_all: bool, is_sorted: bool = True
    ) -> list[Candidate]:
        """Return hits with the facts of their pages.

        Pages that may not be shown any more are left out.
        """
        facts = self._index.facts.of(self._orders([address for _, address in hits]))
        weight = self._wanted.weights.boost
        found = [
            Candidate(
                address,
                fact,
                base,
                boost_factor(fact.boost, weight),
                self._sites.factor(fact.host),
                has_all=has_all,
            )
            for (base, address), fact in zip(hits, facts, strict=True)
            if fact.unavailable_after_us > self._now_us
        ]
        return by_score(found) if is_sorted else found

    def _orders(self, addresses: list[DocAddress]) -> list[int]:
        return [int(order or 0) for order in self._searcher.fast_field_values("order", addresses)]

    def _results(self, shown: Sequence[Candidate]) -> Iterator[Result]:
        pages = [self._searcher.doc(one.address) for one in shown]
        snippets = Snippets(self._index, self._asked)
        dates = self._searcher.fast_field_values("date", [one.address for one in shown])
        published = self._searcher.fast_field_values("published", [one.address for one in shown])
        for one, page, date_us, published_us in zip(shown, pages, dates, published, strict=True):
            language, robots = page.get_first("language"), tuple(page.get_all("robots"))
            explanation = self._explanation(one) if self._wanted.is_explained else None
            score = one.score if explanation is None else explanation.score
            yield Result(
                one.fact.key,
                _text(page, "url"),
                _text(page, "title"),
                language,
                str(page.get_first("type")),
                int(date_us or 0),
                published_us is not None,
                None if self._reading.by_date else score,
                () if one.has_all else self._missing(page, one.address),
                tuple(
                    _text(self._searcher.doc(other.address), "url")
                    for other in one.like[:MOST_LIKE]
                ),
                robots,
                None if "nosnippet" in robots else snippets.of(page),
                explanation,
            )

    def _missing(self, page: tantivy.Document, address: DocAddress) -> tuple[str, ...]:
        """Return the words that a page lacks.

        Words of the page's language and of all languages count.
        """
        group = self._index.fields.group(page.get_first("language"))
        units = (
            unit for asked in self._asked if asked.language in (group, None) for unit in asked.units
        )
        return tuple(unit.label for unit in units if self._explained(unit.match, address) is None)

    def _explanation(self, one: Candidate) -> Explanation:
        leaves = {
            (leaf.field, leaf.label): leaf
            for asked in self._asked
            for unit in asked.units
            for leaf in unit.leaves
        }
        shares = tuple(
            share for leaf in leaves.values() if (share := self._share(leaf, one.address))
        )
        by_words = sum(share.value for share in shares) if self._asked else 1.0
        return Explanation(shares, by_words, one.fact.boost, one.boost_factor, one.site_factor)

    def _share(self, leaf: Leaf, address: DocAddress) -> Share | None:
        explained = self._explained(leaf.query, address)
        if explained is None:
            return None
        return Share(
            leaf.label,
            leaf.field,
            float(json.loads(explained.to_json())["value"]),
            leaf.weight,
            leaf.times,
        )

    def _explained(self, query: Query, address: DocAddress) -> tantivy.Explanation | None:
        """Return a query's score of a page; None without a match."""
        try:
            return query.explain(self._searcher, address)
        except ValueError:
            return None


def _count(found: tantivy.SearchResult) -> int:
    return int(found.count)  # type: ignore[attr-defined]  # the wheel's stub lacks it


def _place(address: DocAddress) -> Place:
    return address.segment_ord, address.doc


def _text(page: tantivy.Document, name: str) -> str:
    return bytes(page.get_first(name) or b"").decode()
