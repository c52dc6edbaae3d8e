"""Snippets: the part of a page's text with most words of a query, and the places of the words.

Tantivy finds the place by cutting a text into words. For ten whole texts this costs more than all other work of an
answer. So a plain search for the beginnings of the query's words comes first. Tantivy gets pieces of the text, the
piece with most beginnings first, and stops where no other piece can have more words.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from unicodedata import normalize

import tantivy
from tantivy import Query, SnippetGenerator

from crawl_lib.index import FieldKind
from crawl_lib.search.clauses import AskedClauses, some_of
from crawl_lib.search.opened import OpenIndex

READ_CHARS = 100_000
"""Number of characters of a page's text to search for a snippet."""
PIECE_CHARS, SNIPPET_CHARS = 1_000, 200
SHARED_FIELDS = ("text_cjk", "text")
_ENDING_CHARS, _START_CHARS = 2, 3
"""Letters at the end of a stem that texts may write otherwise (`happi`, `happy`), and letters that always stay."""
_ACCENTS = re.compile("[\u0300-\u036f]")


@dataclass(frozen=True)
class Snippet:
    """A part of a page's text. `marks`: start and end, in characters, of the words of the query, in their order."""

    text: str
    marks: tuple[tuple[int, int], ...] = ()


class Snippets:
    """Makes the snippets of an answer."""

    def __init__(self, index: OpenIndex, asked: Sequence[AskedClauses]) -> None:
        """Take the clauses of a query."""
        self._index, self._query = index, some_of(asked) if asked else Query.empty_query()
        self._starts: dict[str, set[str]] = {}
        for leaf in (leaf for one in asked for unit in one.units for leaf in unit.leaves):
            self._starts.setdefault(leaf.field, set()).add(_start(leaf.label))
        self._generators: dict[str, SnippetGenerator] = {}

    def of(self, page: tantivy.Document) -> Snippet:
        """Return the snippet of a stored page.

        Without a word of the query, the snippet is the text's beginning.
        """
        text = bytes(page.get_first("body") or b"").decode()[:READ_CHARS]
        own = self._index.fields.name(
            FieldKind.WORDS, self._index.fields.group(page.get_first("language"))
        )
        for field in (own, *SHARED_FIELDS):
            if field in self._starts and (snippet := self._best(field, text)).marks:
                return snippet
        return Snippet(" ".join(text[:SNIPPET_CHARS].split()))

    def _best(self, field: str, text: str) -> Snippet:
        """Return the snippet with most words of the query."""
        starts, best, most = self._starts[field], Snippet(""), 0
        pieces = ((_count(starts, piece), piece) for piece in _pieces(text))
        for seeming, piece in sorted(pieces, key=lambda one: -one[0]):
            if best.marks and seeming <= most:
                break
            found = self._found(field, piece)
            count = _count(starts, " ".join(found.text[start:end] for start, end in found.marks))
            if count > most or not best.marks:
                best, most = found, count
        return best

    def _found(self, field: str, text: str) -> Snippet:
        if field not in self._generators:
            made = SnippetGenerator.create(
                self._index.searcher, self._query, self._index.fields.schema, field
            )
            made.set_max_num_chars(SNIPPET_CHARS)
            self._generators[field] = made
        document = tantivy.Document()
        document.add_text(field, text)
        found = self._generators[field].snippet_from_doc(document)
        return _in_characters(
            found.fragment(), [(mark.start, mark.end) for mark in found.highlighted()]
        )


def _start(label: str) -> str:
    """Return a word's letters in a text's form.

    The form is lower case without accents.
    """
    plain = _plain(label).rstrip("*")
    return plain[: max(_START_CHARS, len(plain) - _ENDING_CHARS)]


def _plain(text: str) -> str:
    lower = text.lower()
    return lower if lower.isascii() else _ACCENTS.sub("", normalize("NFD", lower))


def _count(starts: Collection[str], text: str) -> int:
    """Count the words of a query that a text seems to have."""
    plain = _plain(text)
    return sum(start in plain for start in starts)


def _pieces(text: str) -> Iterator[str]:
    """Cut a text into pieces, at white space where there is some."""
    place = 0
    while place < len(text):
        end = place + PIECE_CHARS
        if end < len(text):
            end = max(text.rfind(" ", place, end), text.rfind("\n", place, end)) + 1 or end
        yield text[place:end]
        place = end


def _in_characters(text: str, marks: Sequence[tuple[int, int]]) -> Snippet:
    """Return a snippet whose marks Tantivy gave in bytes of UTF-8."""
    data = text.encode()

    def chars(place: int) -> int:
        return len(data[:place].decode())

    return Snippet(text, tuple((chars(start), chars(end)) for start, end in marks))
