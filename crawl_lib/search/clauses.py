"""Clauses of a query to an index: queries of Tantivy, built once for each language.

Each language has stop words, stems and fields of its own, so a query is read once for each language (`AskedClauses`). A
requirement of a page becomes a `Unit`: a word in the fields of the language, or a phrase, prefix or run in fields that
all languages share. A unit has `Leaf` queries, of which scores are made and explained.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import tantivy
from tantivy import FieldType, Occur, Query

from crawl_lib.index import (
    OTHER,
    Analysers,
    FieldKind,
    Fields,
    find_runs,
    spaced,
    without_runs,
)
from crawl_lib.search.query import TYPES, Group, PartKind, QueryPart, QueryReading
from crawl_lib.urls import key_of

PREFIX_WORDS = 50
"""The words for a prefix: the words of most pages."""
WEIGHTS: Mapping[str, float] = {
    FieldKind.WORDS: 1.0,
    FieldKind.TITLE: 0.25,
    FieldKind.ANCHORS: 0.25,
}
"""Weight of a word in each kind of field of a language."""
SIMILAR_CHARS = 100_000
"""Of a page that others are compared with."""
Clause = tuple[Occur, Query]


@dataclass(frozen=True)
class Leaf:
    """A query whose score is a part of a page's. `label`: the word or words; `weight`: of its field; `times`: how often
    the query has it."""

    label: str
    field: str
    query: Query
    weight: float = 1.0
    times: float = 1.0

    @property
    def scored(self) -> Query:
        """The query with its weight."""
        factor = self.weight * self.times
        return self.query if factor == 1 else Query.boost_query(self.query, factor)


@dataclass(frozen=True)
class Unit:
    """Something that a page must have: the first of `leaves`, or `found` if not None.

    `may_lack`: a page without the unit may follow the pages with all units. `varies`: it differs from language to
    language. `is_of_language`: no page of another language has it.
    """

    label: str
    leaves: tuple[Leaf, ...] = ()
    found: Query | None = None
    may_lack: bool = False
    varies: bool = False
    is_of_language: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """Words of the unit in the index's form, as identification."""
        return tuple(f"{leaf.field} {leaf.label}" for leaf in self.leaves) or (self.label,)

    @property
    def times(self) -> float:
        """How often the query has it."""
        return self.leaves[0].times if self.leaves else 1.0

    def repeated(self, times: float) -> "Unit":
        """Return the unit as in a query that repeats the unit."""
        return replace(
            self, leaves=tuple(replace(leaf, times=leaf.times * times) for leaf in self.leaves)
        )

    @property
    def match(self) -> Query:
        """The query for pages with the unit."""
        return self.leaves[0].query if self.found is None else self.found

    def required(self) -> list[Clause]:
        """Return the clauses of a query whose pages must have it."""
        if self.found is None:
            return [(Occur.Must, self.leaves[0].scored), *_should(self.leaves[1:])]
        return [(Occur.Must, unscored(self.found)), *_should(self.leaves)]

    def wished(self) -> list[Clause]:
        """Return the clauses of a query whose pages may have it."""
        return (
            _should(self.leaves)
            if self.leaves or self.found is None
            else [(Occur.Should, unscored(self.found))]
        )


@dataclass(frozen=True)
class AskedClauses:
    """Clauses of a query for the pages of a language; None: of all pages. `pages`: a query for the pages of the
    language, None where the units find no others."""

    units: tuple[Unit, ...]
    language: str | None = None
    pages: Query | None = None

    def all(self) -> Query:
        """Return the query for pages that have all units."""
        return _joined([clause for unit in self.units for clause in unit.required()], self.pages)

    @property
    def loose(self) -> list[Clause]:
        """The clauses of units that a page may lack."""
        return [clause for unit in self.units if unit.may_lack for clause in unit.wished()]

    @property
    def strict(self) -> list[Clause]:
        """The clauses of units that every page must have."""
        return [clause for unit in self.units if not unit.may_lack for clause in unit.required()]

    def some(self) -> Query:
        """Return the query for pages with all required units.

        Without required units, any other unit is enough.
        """
        if self.strict:
            return _joined([*self.strict, *self.loose], self.pages)
        return _joined([(Occur.Must, Query.boolean_query(self.loose))], self.pages)


def all_of(asked: Sequence[AskedClauses]) -> Query:
    """Return the query for pages that match everything asked."""
    return _either([one.all() for one in asked])


def some_of(asked: Sequence[AskedClauses]) -> Query:
    """Return the query for pages that match a part.

    Where nothing else is asked, words of all languages are clauses of one query: Tantivy then leaves out pages that
    cannot win.
    """
    if all(one.pages is None and not one.strict for one in asked):
        return Query.boolean_query([clause for one in asked for clause in one.loose])
    return _either([one.some() for one in asked])


@dataclass(frozen=True)
class Filters:
    """Queries around an answer: all pages match all of `must` and none of `never`."""

    must: tuple[Query, ...] = ()
    never: tuple[Query, ...] = ()

    def around(self, query: Query) -> Query:
        """Return the query for a query's passing pages."""
        if not self.must and not self.never:
            return query
        must = [(Occur.Must, unscored(one)) for one in self.must]
        return Query.boolean_query(
            [(Occur.Must, query), *must, *((Occur.MustNot, one) for one in self.never)]
        )


class Clauses:
    """Builds the clauses of a query for an open index."""

    def __init__(
        self, fields: Fields, searcher: tantivy.Searcher, weights: Mapping[str, float] = WEIGHTS
    ) -> None:
        """Take an open index.

        `fields`: the index's own; `weights`: of the kinds of fields.
        """
        self._fields, self._searcher, self._weights = fields, searcher, weights
        self._schema = fields.schema
        self._languages = (*fields.languages, OTHER)
        self._alike = lru_cache(None)(self._pages_like)

    def asked(self, reading: QueryReading) -> list[AskedClauses]:
        """Return the reading's demands by language.

        If languages make no difference, all share one query. The list is empty where the query has filters alone, or
        no word that an index could have.
        """
        groups = [group for group in reading.groups if not is_filter(group)]
        found = {language: self._of_language(groups, language) for language in self._languages}
        if not any(unit.varies for unit in found[OTHER]):
            return [AskedClauses(tuple(found[OTHER]))] if found[OTHER] else []
        return [
            AskedClauses(
                tuple(units),
                language,
                None if all(unit.is_of_language for unit in units) else self.pages_of(language),
            )
            for language, units in found.items()
            if units
        ]

    def filters(self, reading: QueryReading) -> Filters:
        """Return the reading's filters and exclusions, which have no score."""
        groups = [group for group in reading.groups if is_filter(group)]
        must = [
            _either(list(map(self._filter, group))) for group in groups if not _is_taken_away(group)
        ]
        never = [
            self._taken_away(part) for group in groups if _is_taken_away(group) for part in group
        ]
        return Filters(tuple(must), tuple(never))

    def term(self, field: str, word: str) -> Query:
        """Return the query for a word of a field."""
        return Query.term_query(self._schema, field, word)

    def any_of(self, field: str, words: Sequence[str]) -> Query:
        """Return the query for pages with any word in a field."""
        return Query.term_set_query(self._schema, field, list(words))

    def word(self, word: str, language: str, typed: str = "") -> Unit:
        """Return an analysed word in the fields of its language.

        `typed`: the text in the query.
        """
        names = [
            (self._fields.name(kind, language), weight)
            for kind, weight in self._weights.items()
            if weight
        ]
        leaves = tuple(Leaf(word, name, self.term(name, word), weight) for name, weight in names)
        return Unit(typed or word, leaves, may_lack=True, varies=True, is_of_language=True)

    def pages_of(self, language: str) -> Query:
        """Return the query for all pages of a language.

        `OTHER` means all languages without fields of their own.
        """
        if language == OTHER:
            return _without([self.any_of("language", self._fields.languages)])
        return self.term("language", language)

    def _of_language(self, groups: Sequence[Group], language: str) -> list[Unit]:
        units = [unit for group in groups for unit in self._units(group, language)]
        if not units:
            units = [unit for group in groups for part in group for unit in self._unremoved(part)]
        times = Counter(unit.words for unit in units)
        return [
            unit.repeated(times[unit.words])
            for unit in {unit.words: unit for unit in units}.values()
        ]

    def _units(self, group: Group, language: str) -> list[Unit]:
        """Return the units of a group in a language.

        Parts with OR between them are one unit.
        """
        if len(group) == 1:
            return list(self._of_part(group[0], language))
        choices = [choice for part in group if (choice := self._choice(part, language))]
        return [_one_of(" OR ".join(map(str, group)), choices)] if choices else []

    def _choice(self, part: QueryPart, language: str) -> list[Unit]:
        if part.kind not in _WITH_UNITS:
            return [Unit(str(part), found=self._filter(part))]
        units = list(self._of_part(part, language))
        if units and part.is_excluded:
            is_varied = any(unit.varies for unit in units)
            return [
                Unit(str(part), found=_without([unit.match for unit in units]), varies=is_varied)
            ]
        return units

    def _of_part(self, part: QueryPart, language: str) -> Iterator[Unit]:
        if part.kind is PartKind.WORD:
            for run in find_runs(part.text):
                yield replace(self._sequence(run, "text_cjk", Analysers.LETTERS), may_lack=True)
            for typed in self._fields.analysers.words(Analysers.PLAIN, without_runs(part.text)):
                for word in self._fields.analysers.words(language, typed):
                    yield self.word(word, language, typed=typed)
        elif part.kind is PartKind.TITLE:
            yield from self._title(part, language)
        elif part.kind is PartKind.PREFIX:
            yield from self._prefix(part)
        elif part.kind is PartKind.SIMILAR:
            yield self._alike(part.text)
        else:
            yield from self._phrase(part, "address" if part.kind is PartKind.URL else "text")

    def _unremoved(self, part: QueryPart) -> Iterator[Unit]:
        """Yield the words of a part with stop words only.

        The words have the form of texts.
        """
        for word in self._fields.analysers.words(Analysers.PLAIN, part.text):
            yield Unit(word, (Leaf(word, "text", self.term("text", word)),), may_lack=True)

    def _title(self, part: QueryPart, language: str) -> Iterator[Unit]:
        for sequence in [part.text] if part.is_quoted else find_runs(part.text):
            yield self._sequence(
                spaced(sequence), "title_text", Analysers.PLAIN, f"title:{sequence}"
            )
        if part.is_quoted:
            return
        name = self._fields.name(FieldKind.TITLE, language)
        for word in self._fields.analysers.words(language, without_runs(part.text)):
            label = f"title:{word}"
            yield Unit(
                label, (Leaf(label, name, self.term(name, word)),), varies=True, is_of_language=True
            )

    def _phrase(self, part: QueryPart, field: str) -> Iterator[Unit]:
        text = part.text
        if field == "text":
            yield from (
                self._sequence(run, "text_cjk", Analysers.LETTERS) for run in find_runs(text)
            )
            text = without_runs(text)
        if self._fields.analysers.words(Analysers.PLAIN, text):
            yield self._sequence(text, field, Analysers.PLAIN)

    def _sequence(self, text: str, field: str, analyser: str, label: str = "") -> Unit:
        """Return a unit of consecutive words.

        `label`: the words themselves if not given.
        """
        label, placed = label or text.strip(), self._fields.analysers.placed(analyser, text)
        if not placed:
            return Unit(label, found=Query.empty_query())
        first = placed[0][0]
        words: list[str | tuple[int, str]] = [(position - first, word) for position, word in placed]
        query = (
            Query.phrase_query(self._schema, field, words)
            if len(words) > 1
            else self.term(field, placed[0][1])
        )
        return Unit(label, (Leaf(label, field, query),))

    def _prefix(self, part: QueryPart) -> Iterator[Unit]:
        *before, start = self._fields.analysers.words(Analysers.PLAIN, part.text) or [""]
        if before:
            yield self._sequence(" ".join(before), "text", Analysers.PLAIN)
        label = f"{start}*"
        words = self._searcher.terms_with_prefix("text", start, limit=PREFIX_WORDS) if start else []
        if not words:
            yield Unit(label, found=Query.empty_query(), may_lack=True)
            return
        query = Query.disjunction_max_query([self.term("text", word) for word, _ in words])
        yield Unit(label, (Leaf(label, "text", query),), may_lack=True)

    def _pages_like(self, url: str) -> Unit:
        """Return pages similar to a page, without that page.

        The page's most telling words decide.
        """
        label, itself = f"similar:{url}", self.term("key", key_of(url).hex())
        hits = self._searcher.search(itself, 1).hits
        if not hits:
            return Unit(label, found=Query.empty_query())
        page = self._searcher.doc(hits[0][1])
        field = self._fields.name(FieldKind.WORDS, self._fields.group(page.get_first("language")))
        texts = [page.get_first(name).decode()[:SIMILAR_CHARS] for name in ("title", "body")]  # type: ignore[union-attr]
        query = Query.more_like_this_document_fields_query(
            self._schema, {field: texts}, min_doc_frequency=2, min_term_frequency=1
        )
        found = Query.boolean_query([(Occur.Must, query), (Occur.MustNot, itself)])
        return Unit(label, (Leaf(label, field, query),), found)

    def _taken_away(self, part: QueryPart) -> Query:
        """Return the query for excluded pages, in any language."""
        if part.kind not in _WITH_UNITS:
            return self._plain_filter(part)
        found = [
            [unit.match for unit in self._of_part(part, language)] for language in self._languages
        ]
        return _either([_all(queries) for queries in found if queries])

    def _filter(self, part: QueryPart) -> Query:
        query = self._plain_filter(part)
        return _without([query]) if part.is_excluded else query

    def _plain_filter(self, part: QueryPart) -> Query:
        if part.kind is PartKind.TYPE:
            return self.any_of("type", TYPES.get(part.text, (part.text,)))
        if part.kind is PartKind.BEFORE:
            return Query.range_query(
                self._schema, "date", FieldType.Integer, upper_bound=part.time_us - 1
            )
        if part.kind is PartKind.AFTER:
            return Query.range_query(
                self._schema, "date", FieldType.Integer, lower_bound=part.time_us
            )
        return self.term(str(part.kind), part.text)


_WITH_UNITS = {
    PartKind.WORD,
    PartKind.PHRASE,
    PartKind.PREFIX,
    PartKind.TITLE,
    PartKind.URL,
    PartKind.SIMILAR,
}


def unscored(query: Query) -> Query:
    """Return a query for the same pages, without a score."""
    return Query.const_score_query(query, 0.0)


def is_filter(group: Group) -> bool:
    """Say whether a group adds nothing to scores."""
    return _is_taken_away(group) or all(part.kind not in _WITH_UNITS for part in group)


def _is_taken_away(group: Group) -> bool:
    return len(group) == 1 and group[0].is_excluded


def _one_of(label: str, choices: Sequence[Sequence[Unit]]) -> Unit:
    """Return a unit that any of some choices fulfils.

    A page needs all units of one choice.
    """
    units = [unit for choice in choices for unit in choice]
    leaves = {(leaf.field, leaf.label): leaf for unit in units for leaf in unit.leaves}
    return Unit(
        label,
        tuple(leaves.values()),
        _either([_all([unit.match for unit in choice]) for choice in choices]),
        may_lack=all(unit.may_lack for unit in units),
        varies=any(unit.varies for unit in units),
        is_of_language=all(any(unit.is_of_language for unit in choice) for choice in choices),
    )


def _should(leaves: Iterable[Leaf]) -> list[Clause]:
    return [(Occur.Should, leaf.scored) for leaf in leaves]


def _joined(clauses: Sequence[Clause], pages: Query | None) -> Query:
    filters = [] if pages is None else [(Occur.Must, unscored(pages))]
    return Query.boolean_query([*clauses, *filters])


def _either(queries: Sequence[Query]) -> Query:
    return (
        queries[0]
        if len(queries) == 1
        else Query.boolean_query([(Occur.Should, query) for query in queries])
    )


def _all(queries: Sequence[Query]) -> Query:
    return (
        queries[0]
        if len(queries) == 1
        else Query.boolean_query([(Occur.Must, query) for query in queries])
    )


def _without(queries: Sequence[Query]) -> Query:
    """Return the query for pages without all matches of some queries."""
    return Query.boolean_query([(Occur.Must, Query.all_query()), (Occur.MustNot, _all(queries))])
