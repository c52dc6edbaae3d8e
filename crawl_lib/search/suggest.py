"""Did you mean: rare words, corrected by words of the index."""

from dataclasses import dataclass, replace
from functools import lru_cache

import tantivy
from rapidfuzz.distance import OSA
from rapidfuzz.process import extract

from crawl_lib.index import OTHER, Analysers, FieldKind, Fields, without_runs
from crawl_lib.search.query import PartKind, QueryPart, QueryReading

LEAST_PAGES, LEAST_PAGES_OF_FEW, FEW_PAGES = 3, 1, 300
"""Pages of a word without need of correction: of an index, and of one with fewer than `FEW_PAGES`."""
MORE_PAGES = 10
"""Least ratio of pages of a correction to pages of the word."""
LONG_CHARS, LONG_EDITS, SHORT_EDITS = 5, 2, 1
"""Letters that differ, in a word of `LONG_CHARS` or more, and in shorter ones."""
LEAST_CHARS = 3
LETTER_WORDS = 20_000
"""Words with the same first letter that are looked at: those of most pages."""
LETTERS_HELD = 64
"""First letters whose words stay in memory, about 1.5 MB each."""


@dataclass(frozen=True)
class _Known:
    """Words with the same first letter, and how many pages have each."""

    words: list[str]
    pages: list[int]


class Vocabulary:
    """The words of an index, unstemmed; words of a first letter are read on demand."""

    def __init__(self, fields: Fields, searcher: tantivy.Searcher) -> None:
        """Take what is open. `fields`: those that the index was made with."""
        self._fields, self._searcher = fields, searcher
        self._least = LEAST_PAGES if searcher.num_docs >= FEW_PAGES else LEAST_PAGES_OF_FEW
        self._of_letter = lru_cache(LETTERS_HELD)(self._read)

    def suggestion(self, reading: QueryReading) -> str | None:
        """Return the corrected query; None without corrections."""
        groups = tuple(tuple(self._part(part) for part in group) for group in reading.groups)
        return None if groups == reading.groups else str(replace(reading, groups=groups))

    def correction(self, word: str) -> str | None:
        """Return the nearest word with the same first letter.

        Of equally near words, the word of most pages counts.

        `word`: in lower case. None where enough pages have the word, or no word is near.
        """
        pages = self._pages(word)
        if len(word) < LEAST_CHARS or pages >= self._least:
            return None
        known = self._of_letter(word[0])
        most = LONG_EDITS if len(word) >= LONG_CHARS else SHORT_EDITS
        near = extract(word, known.words, scorer=OSA.distance, score_cutoff=most, limit=None)
        found = [(edits, -known.pages[place], one) for one, edits, place in near if one != word]
        better = [one for one in found if -one[1] >= MORE_PAGES * pages]
        return min(better)[2] if better else None

    def _part(self, part: QueryPart) -> QueryPart:
        if part.kind is not PartKind.WORD or part.is_excluded:
            return part
        text = part.text
        for word in self._fields.analysers.words(Analysers.PLAIN, without_runs(text)):
            if correction := self.correction(word):
                text = text.lower().replace(word, correction)
        return replace(part, text=text)

    def _pages(self, word: str) -> int:
        """Return the number of pages with a word, in any language."""
        analysers, name = self._fields.analysers, self._fields.name
        stems = [
            (name(FieldKind.WORDS, one), stem)
            for one in (*self._fields.languages, OTHER)
            for stem in analysers.words(one, word)
        ]
        return max(self._searcher.doc_freq(field, stem) for field, stem in [("text", word), *stems])

    def _read(self, letter: str) -> _Known:
        found = self._searcher.terms_with_prefix("text", letter, limit=LETTER_WORDS)
        known = [(word, pages) for word, pages in found if pages >= self._least and word.isalpha()]
        return _Known([word for word, _ in known], [pages for _, pages in known])
