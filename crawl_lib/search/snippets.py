"""Snippets: the place of a page's text that has most words of a query, and where the words are."""

from collections.abc import Sequence
from dataclasses import dataclass

import tantivy
from tantivy import Query, SnippetGenerator

from crawl_lib.index.fields import WORDS
from crawl_lib.search.clauses import Asked, some_of
from crawl_lib.search.opened import OpenIndex

READ_CHARS = 100_000
"""Of a page's text that a snippet is looked for in."""
SNIPPET_CHARS = 200
SHARED_FIELDS = ("text_cjk", "text")


@dataclass(frozen=True)
class Snippet:
    """A part of a page's text. `marks`: start and end, in characters, of the words of the query, in their order."""

    text: str
    marks: tuple[tuple[int, int], ...] = ()


class Snippets:
    """Makes the snippets of an answer."""

    def __init__(self, index: OpenIndex, asked: Sequence[Asked]) -> None:
        """Take what was asked of an index."""
        self._index, self._query = index, some_of(asked) if asked else Query.empty_query()
        self._fields = {leaf.field for one in asked for unit in one.units for leaf in unit.leaves}
        self._generators: dict[str, SnippetGenerator] = {}

    def of(self, page: tantivy.Document) -> Snippet:
        """Return the snippet of a page as it is stored; the text's beginning where it has no word of the query."""
        text = bytes(page.get_first("body") or b"").decode()[:READ_CHARS]
        own = self._index.fields.name(WORDS, self._index.fields.group(page.get_first("language")))
        for field in (own, *SHARED_FIELDS):
            if field in self._fields and (snippet := self._found(field, text)).marks:
                return snippet
        return Snippet(" ".join(text[:SNIPPET_CHARS].split()))

    def _found(self, field: str, text: str) -> Snippet:
        if field not in self._generators:
            made = SnippetGenerator.create(self._index.searcher, self._query, self._index.fields.schema, field)
            made.set_max_num_chars(SNIPPET_CHARS)
            self._generators[field] = made
        document = tantivy.Document()
        document.add_text(field, text)
        found = self._generators[field].snippet_from_doc(document)
        return _in_characters(found.fragment(), [(mark.start, mark.end) for mark in found.highlighted()])


def _in_characters(text: str, marks: Sequence[tuple[int, int]]) -> Snippet:
    """Return a snippet whose marks Tantivy gave in bytes of UTF-8."""
    data = text.encode()
    places = (tuple(len(data[:place].decode()) for place in mark) for mark in marks)
    return Snippet(text, tuple((start, end) for start, end in places))
