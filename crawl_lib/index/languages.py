"""The languages with stems in the index, and the analysers of all fields.

An analyser cuts a text into words of letters and digits. Words of more than 64 bytes are left out.
"""

from collections.abc import Mapping, Sequence

import tantivy

from crawl_lib.index.runs import LETTER

LANGUAGES: Mapping[str, str] = {
    "da": "danish",
    "de": "german",
    "en": "english",
    "es": "spanish",
    "fi": "finnish",
    "fr": "french",
    "hu": "hungarian",
    "it": "italian",
    "nl": "dutch",
    "no": "norwegian",
    "pt": "portuguese",
    "ru": "russian",
    "sv": "swedish",
}
"""Languages with a stemmer and a list of stop words, by code of ISO 639-1, with Tantivy's names."""
OTHER = "other"
"""All languages without fields in the index."""
MAX_WORD_BYTES = 64


class Analysers:
    """The analysers of an index, by name: one for each of its languages and `OTHER`, and those of all languages."""

    PLAIN, LETTERS, RAW = "plain", "letters", "raw"
    """The same for every language: words as written but in lower case, letters of runs, whole values (Tantivy's)."""

    def __init__(self, languages: Sequence[str]) -> None:
        """Make the analysers. `languages`: codes in `LANGUAGES`."""
        self.languages = tuple(languages)
        self._by_name = {language: _stems(LANGUAGES[language]) for language in languages}
        self._by_name[OTHER] = _words(tantivy.Filter.ascii_fold())
        self._by_name[self.PLAIN] = _words()
        self._by_name[self.LETTERS] = tantivy.TextAnalyzerBuilder(
            tantivy.Tokenizer.regex(LETTER)
        ).build()

    def register(self, index: tantivy.Index) -> None:
        """Register the analysers: Tantivy's files have only their names."""
        for name, analyser in self._by_name.items():
            index.register_tokenizer(name, analyser)

    def words(self, name: str, text: str) -> list[str]:
        """Return the words that an analyser makes of a text."""
        return self._by_name[name].analyze(text)

    def is_stop_word(self, word: str) -> bool:
        """Say whether one of the languages leaves a word out."""
        return any(not self.words(language, word) for language in self.languages)

    def placed(self, name: str, text: str) -> list[tuple[int, str]]:
        """Return a text's words with their positions.

        An omitted word leaves a gap.
        """
        return [
            (token.position, token.text) for token in self._by_name[name].pre_tokenize(text).tokens
        ]


def _words(*filters: tantivy.Filter) -> tantivy.TextAnalyzer:
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    # Tantivy keeps only words below its limit.
    for one in (
        tantivy.Filter.remove_long(MAX_WORD_BYTES + 1),
        tantivy.Filter.lowercase(),
        *filters,
    ):
        builder = builder.filter(one)
    return builder.build()


def _stems(language: str) -> tantivy.TextAnalyzer:
    """Return the analyser of a language.

    Words are stemmed twice: before and after the removal of accents. The first time the stemmer needs the language's
    own spelling of endings; the second time makes `résumé` and `resume` one word.
    """
    stemmer, fold = tantivy.Filter.stemmer(language), tantivy.Filter.ascii_fold()
    return _words(tantivy.Filter.stopword(language), stemmer, fold, stemmer)
