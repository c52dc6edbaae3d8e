"""An evaluator of queries in plain Python: pages are read one by one, and nothing is left out early.

BM25 as Tantivy has it: k1 1.2, b 0.75; a field's length is one of 256 numbers, of which the table below is the rule
(`fieldnorm/code.rs`: numbers to 40 as they are, then eight steps for each doubling).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log, log2
from urllib.parse import unquote, urlsplit

from crawl_lib.index import OTHER, Analysers, IndexedPage

K1, B = 1.2, 0.75
ALL = 10
"""Pages with all words after which no other follow."""


def _lengths() -> list[int]:
    lengths, step = list(range(41)), 2
    while len(lengths) < 256:
        for _ in range(8):
            lengths.append(lengths[-1] + step)
        step *= 2
    return lengths[:256]


LENGTHS = _lengths()


@dataclass(frozen=True)
class Field:
    """A field of all pages: its words, by page; where no word is, there is a gap."""

    texts: Mapping[int, Sequence[str]]
    count: int

    @cached_property
    def counts(self) -> dict[int, Counter[str]]:
        return {page: Counter(words) for page, words in self.texts.items()}

    @cached_property
    def pages(self) -> Counter[str]:
        return Counter(word for counts in self.counts.values() for word in counts)

    @cached_property
    def mean_length(self) -> float:
        return sum(self.lengths.values()) / self.count

    @cached_property
    def lengths(self) -> dict[int, int]:
        return {page: sum(map(bool, words)) for page, words in self.texts.items()}

    def idf(self, word: str) -> float:
        return log(1 + (self.count - self.pages[word] + 0.5) / (self.pages[word] + 0.5))

    def bm25(self, page: int, often: int, idf: float) -> float:
        length = LENGTHS[bisect_right(LENGTHS, self.lengths[page]) - 1]
        return (
            idf * (K1 + 1) * often / (often + K1 * (1 - B + B * length / self.mean_length))
            if often
            else 0.0
        )

    def score(self, page: int, word: str) -> float:
        often = self.counts[page][word] if page in self.counts else 0
        return self.bm25(page, often, self.idf(word)) if often else 0.0

    def phrase(self, page: int, words: Sequence[str]) -> float:
        text = self.texts[page]
        often = sum(
            list(text[start : start + len(words)]) == list(words) for start in range(len(text))
        )
        return self.bm25(page, often, sum(map(self.idf, words)))


class Brute:
    """The pages of an index, and what queries of words, phrases and minus find in them."""

    def __init__(
        self, pages: Sequence[IndexedPage], boosts: Mapping[str, float], languages: Sequence[str]
    ) -> None:
        self.pages, self.boosts, self.languages = pages, boosts, languages
        self.analysers = Analysers(languages)
        self.fields: dict[tuple[str, str], Field] = {}
        for language in (*languages, OTHER):
            own = {n: page for n, page in enumerate(pages) if self.group(page) == language}
            for kind in ("words", "title", "anchors"):
                texts = {
                    n: self.words(language, " ".join(_texts(page)[kind])) for n, page in own.items()
                }
                self.fields[kind, language] = Field(texts, len(pages))
        # Tantivy leaves a gap between text and title.
        plain = {
            n: [
                *self.words(Analysers.PLAIN, page.text),
                "",
                *self.words(Analysers.PLAIN, page.title),
            ]
            for n, page in enumerate(pages)
        }
        self.text = Field(plain, len(pages))

    def group(self, page: IndexedPage) -> str:
        return page.language if page.language in self.languages else OTHER

    def words(self, analyser: str, text: str) -> list[str]:
        return self.analysers.words(analyser, text)

    def answer(
        self, words: Sequence[str], phrases: Sequence[str], minus: Sequence[str]
    ) -> dict[str, tuple[float, bool]]:
        """Score and whether it has all words, of each page that a query finds, by URL."""
        found: dict[str, tuple[float, bool]] = {}
        some: dict[str, tuple[float, bool]] = {}
        for number, page in enumerate(self.pages):
            language = self.group(page)
            scores = [
                self.text.phrase(number, self.words(Analysers.PLAIN, phrase)) for phrase in phrases
            ]
            kept = [stem for word in words for stem in self.words(language, word)]
            taken = [stem for word in minus for stem in self.words(language, word)]
            if not all(scores) or any(
                self.fields["words", language].score(number, stem) for stem in taken
            ):
                continue
            shares = [self._word(number, language, stem) for stem in kept]
            if not kept and not phrases:
                shares = [self.text.score(number, word.lower()) for word in words]
            factor = 1 + 0.2 * log2(1 + self.boosts.get(page.url.rpartition("/")[2], 1.0))
            score = (sum(scores) + sum(shares)) * factor
            if all(shares):
                found[page.url] = score, True
            elif any(shares) or phrases:
                some[page.url] = score, False
        return found if len(found) >= ALL else {**some, **found}

    def _word(self, page: int, language: str, stem: str) -> float:
        score = self.fields["words", language].score(page, stem)
        return score + 0.25 * sum(
            self.fields[kind, language].score(page, stem) for kind in ("title", "anchors")
        )


def _texts(page: IndexedPage) -> dict[str, list[str]]:
    path = unquote(urlsplit(page.url).path)
    words = [page.title] * 3 + [page.headings] * 2 + [*page.anchors, path, page.text]
    return {"words": words, "title": [page.title], "anchors": list(page.anchors)}
