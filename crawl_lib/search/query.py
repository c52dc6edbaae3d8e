"""The query language: whatever a person types is read somehow, and notes say how.

A page must have all parts of a query; parts with `OR` between form a group, of which a page must have a part.
`PartKind` has the operators. Nothing is an error: an operator without a sensible value is a word.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from enum import StrEnum
from unicodedata import normalize

from crawl_lib.errors import UrlError
from crawl_lib.index import find_runs
from crawl_lib.urls import canonicalize, host_of

MAX_CHARS, MAX_WORDS = 500, 32
"""Of a query. A repeated word counts once, and a stop word of a language does not count."""
TYPES = {
    "html": ("text/html", "application/xhtml+xml"),
    "pdf": ("application/pdf",),
    "text": ("text/plain",),
}
"""Short names of `type:`, with the MIME types of each."""
_QUOTES = str.maketrans(dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb\uff02", '"'))
_WORD = re.compile(r"[^\W_]+")
_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?")
_LEXEME = re.compile(
    r"""(?P<minus>-*)                                # taken from the pages
        (?:(?P<name>[A-Za-z]+):(?=\S))?              # an operator, with its value
        (?: "(?P<quoted>[^"]*)(?P<end>"?) | (?P<plain>[^\s"]+) )""",
    re.VERBOSE,
)


class PartKind(StrEnum):
    """Request of a part of a query; each name but the first three is an operator, as in `site:`."""

    WORD = "word"
    PHRASE = "phrase"
    PREFIX = "prefix"
    SITE = "site"
    TITLE = "title"
    URL = "url"
    LANGUAGE = "language"
    TYPE = "type"
    BEFORE = "before"
    AFTER = "after"
    SIMILAR = "similar"
    SORT = "sort"


_WITH_WORDS = {PartKind.WORD, PartKind.PHRASE, PartKind.PREFIX, PartKind.TITLE, PartKind.URL}
_OPERATORS = {
    str(kind): kind
    for kind in PartKind
    if kind not in {PartKind.WORD, PartKind.PHRASE, PartKind.PREFIX}
}


@dataclass(frozen=True)
class QueryPart:
    """A part of a query. `text`: of `SITE` a canonical host, of dates `YYYY-MM-DD`, else as typed, in Unicode's NFC.
    `is_quoted`: of `TITLE`, whether its words are quoted."""

    kind: PartKind
    text: str
    is_excluded: bool = False
    is_quoted: bool = False

    def __str__(self) -> str:
        """Return the part as a query has it."""
        shape = {PartKind.WORD: "{}", PartKind.PHRASE: '"{}"', PartKind.PREFIX: "{}*"}.get(
            self.kind, f"{self.kind}:{{}}"
        )
        text = (
            f'"{self.text}"'
            if self.is_quoted or (self.kind is PartKind.URL and " " in self.text)
            else self.text
        )
        return "-" * self.is_excluded + shape.format(text)

    @property
    def time_us(self) -> int:
        """First moment of `BEFORE`'s or `AFTER`'s day, in POSIX microseconds."""
        return int(datetime.fromisoformat(self.text).replace(tzinfo=UTC).timestamp()) * 1_000_000


Group = tuple[QueryPart, ...]


@dataclass(frozen=True)
class QueryReading:
    """How a query was read. `groups`: a page must have a part of each. `by_date`: newest pages first. `notes`: notes
    on differences from the typed text, in sentences."""

    groups: tuple[Group, ...]
    by_date: bool = False
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return an equal query, without notes."""
        groups = (" OR ".join(map(str, group)) for group in self.groups)
        return " ".join([*groups, *["sort:date"] * self.by_date])

    @property
    def parts(self) -> Iterator[QueryPart]:
        """All parts in their order."""
        return (part for group in self.groups for part in group)


def read_query(text: str, is_stop_word: Callable[[str], bool] = lambda word: False) -> QueryReading:
    """Read a query. Never raises.

    Invalid parts are read as words, and `notes` says so.

    `is_stop_word`: whether a word, in lower case, is too frequent in its language to be looked for.
    """
    return _QueryReader(text, is_stop_word).read()


class _QueryReader:
    """The parts of one query, and the notes on how each is read."""

    def __init__(self, text: str, is_stop_word: Callable[[str], bool]) -> None:
        self._is_stop_word = is_stop_word
        self._seen: set[str] = set()
        self._notes: list[str] = []
        self._by_date = False
        self._count = 0
        clean = normalize("NFC", text.encode("utf-8", "replace").decode()).translate(_QUOTES)
        self._text = "".join(char if char.isprintable() else " " for char in clean)

    def read(self) -> QueryReading:
        groups: list[Group] = []
        is_open, lexemes = False, list(_LEXEME.finditer(self._cut()))
        for number, lexeme in enumerate(lexemes):
            if lexeme[0] == "OR" and groups and not is_open and number + 1 < len(lexemes):
                is_open = True
                continue
            for part in self._limited(self._part(lexeme)):
                groups[-1:] = [(*groups[-1], part)] if is_open else [*groups[-1:], (part,)]
            is_open = False
        return QueryReading(tuple(groups), self._by_date, tuple(dict.fromkeys(self._notes)))

    def _cut(self) -> str:
        """Return the first `MAX_CHARS` characters, without the word that the limit cuts."""
        if len(self._text) <= MAX_CHARS:
            return self._text
        self._note(f"The query is cut to its first {MAX_CHARS} characters.")
        whole, _, part = self._text[: MAX_CHARS + 1].rpartition(" ")
        return whole or part[:MAX_CHARS]

    def _note(self, text: str) -> None:
        self._notes.append(text)

    def _part(self, lexeme: re.Match[str]) -> QueryPart | None:
        """Return the meaning of a lexeme, or None."""
        if lexeme[0] == "OR":
            self._note("OR needs a word on both sides; here it is a word itself.")
        if lexeme["quoted"] is not None and not lexeme["end"]:
            self._note("A quotation mark is missing; the phrase ends where the query ends.")
        value = (lexeme["plain"] if lexeme["quoted"] is None else lexeme["quoted"]).strip()
        is_excluded = bool(lexeme["minus"])
        kind = _OPERATORS.get((lexeme["name"] or "").lower())
        if kind is not None and (part := self._operator(kind, value, is_excluded)):
            is_quoted = kind is PartKind.TITLE and lexeme["quoted"] is not None
            return None if part.kind is PartKind.SORT else replace(part, is_quoted=is_quoted)
        if lexeme["name"] and lexeme["quoted"] is None:
            value = f"{lexeme['name']}:{value}"
        if not _WORD.search(value):
            if value:
                self._note(f"{value} has no letter and no digit, and was left out.")
            return None
        if lexeme["quoted"] is not None:
            return QueryPart(PartKind.PHRASE, value, is_excluded)
        is_prefix = value.endswith("*") and not find_runs(value[-2:])
        return (
            QueryPart(PartKind.PREFIX, value.rstrip("*"), is_excluded)
            if is_prefix
            else QueryPart(PartKind.WORD, value, is_excluded)
        )

    def _operator(self, kind: PartKind, value: str, is_excluded: bool) -> QueryPart | None:
        """Return an operator's part; None, with a note, if invalid."""
        text = _VALUES[kind](value) if kind in _VALUES else value if _WORD.search(value) else None
        if text is None:
            self._note(f"{kind}:{value} has no value that {kind}: knows, and was read as words.")
            return None
        self._by_date |= kind is PartKind.SORT
        return QueryPart(kind, text, is_excluded)

    def _limited(self, part: QueryPart | None) -> Iterator[QueryPart]:
        """Yield a part, cut to the allowed number of words."""
        if part is None:
            return
        if part.kind not in _WITH_WORDS:
            yield part
            return
        end = 0
        for word in _words_of(part.text):
            if not self._is_allowed(word[0].lower(), part):
                self._note(f"The query is cut to its first {MAX_WORDS} words.")
                break
            end = word.end()
        else:
            end = len(part.text)
        if end:
            yield replace(part, text=part.text[:end])

    def _is_allowed(self, word: str, part: QueryPart) -> bool:
        """Count a word of a part, and say whether it fits."""
        is_free = part.kind is PartKind.WORD and not find_runs(word)
        if is_free and (word in self._seen or self._is_stop_word(word)):
            return True
        self._seen.add(word)
        self._count += 1
        return self._count <= MAX_WORDS


def _words_of(text: str) -> Iterator[re.Match[str]]:
    """Yield the places of a text's words.

    In a run each letter is a word.
    """
    for word in _WORD.finditer(text):
        if find_runs(word[0]):
            yield from re.compile(r"\w").finditer(text, word.start(), word.end())
        else:
            yield word


def _host(value: str) -> str | None:
    address = value if "://" in value else f"http://{value.removeprefix('*.').lstrip('.')}"
    try:
        return host_of(canonicalize(address))
    except UrlError:
        return None


def _day(value: str) -> str | None:
    found = _DATE.fullmatch(value)
    if found is None:
        return None
    try:
        year, month, day = (int(one or 1) for one in found.groups())
        return date(year, month, day).isoformat()
    except ValueError:
        return None


def _type(value: str) -> str | None:
    name = value.lower()
    return name if name in TYPES or re.fullmatch(r"[!-~]+/[!-~]+", name) else None


def _language(value: str) -> str | None:
    found = re.fullmatch(r"([A-Za-z]{2,3})(?:[-_][A-Za-z0-9_-]+)?", value)
    return found[1].lower() if found else None


def _url(value: str) -> str | None:
    try:
        return canonicalize(value if "://" in value else f"http://{value}")
    except UrlError:
        return None


_VALUES: Mapping[PartKind, Callable[[str], str | None]] = {
    PartKind.SITE: _host,
    PartKind.LANGUAGE: _language,
    PartKind.TYPE: _type,
    PartKind.BEFORE: _day,
    PartKind.AFTER: _day,
    PartKind.SIMILAR: _url,
    PartKind.SORT: lambda value: value if value == "date" else None,
}
