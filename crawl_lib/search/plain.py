"""Answers for programs."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from crawl_lib.dataclass import dataclass
from crawl_lib.search.answers import Explanation, Result, SearchAnswer

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class PlainResult:
    """A result for programs. `key`: in hex; `date`: ISO 8601; `marks`: start and end of words of the snippet."""

    key: str
    url: str
    title: str
    language: str | None
    type: str
    date: str
    date_is: str
    score: float | None
    missing: Sequence[str]
    like: Sequence[str]
    snippet: str | None
    marks: Sequence[tuple[int, int]]


@dataclass(frozen=True)
class ExplainedResult(PlainResult):
    """A result with the parts of its score."""

    explanation: Explanation


@dataclass(frozen=True)
class PlainAnswer:
    """An answer for programs. The fields are those of `SearchAnswer`; `query` and `notes` are of its reading."""

    query: str
    notes: Sequence[str]
    total: int
    shown: int
    page: int
    suggestion: str | None
    version: int
    results: list[PlainResult]


def time_of(time_us: int) -> datetime:
    """Return POSIX microseconds as a time in UTC."""
    return _EPOCH + timedelta(microseconds=time_us)


def as_json(found: SearchAnswer) -> PlainAnswer:
    """Return an answer with values that JSON has."""
    return PlainAnswer(
        query=str(found.reading),
        notes=found.reading.notes,
        total=found.total,
        shown=found.shown,
        page=found.page,
        suggestion=found.suggestion,
        version=found.version,
        results=[_result(one) for one in found.results],
    )


def _result(one: Result) -> PlainResult:
    result = PlainResult(
        key=one.key.hex(),
        url=one.url,
        title=one.title,
        language=one.language,
        type=one.mime_type,
        date=time_of(one.date_us).isoformat(timespec="seconds"),
        date_is=one.date_is,
        score=one.score,
        missing=one.missing,
        like=one.like,
        snippet=one.snippet.text if one.snippet else None,
        marks=one.snippet.marks if one.snippet else (),
    )
    if one.explanation is None:
        return result
    return ExplainedResult(**vars(result), explanation=one.explanation)
