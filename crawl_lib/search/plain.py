"""Answers for programs."""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from crawl_lib.search.answers import Result, SearchAnswer

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(time_us: int) -> datetime:
    """Return POSIX microseconds as a time in UTC."""
    return _EPOCH + timedelta(microseconds=time_us)


def as_json(found: SearchAnswer) -> dict[str, Any]:
    """Return an answer with values that JSON has."""
    return {
        "query": str(found.reading),
        "notes": list(found.reading.notes),
        "total": found.total,
        "shown": found.shown,
        "page": found.page,
        "suggestion": found.suggestion,
        "version": found.version,
        "results": [_result(one) for one in found.results],
    }


def _result(one: Result) -> dict[str, Any]:
    result = {
        "key": one.key.hex(),
        "url": one.url,
        "title": one.title,
        "language": one.language,
        "type": one.mime_type,
        "date": time_of(one.date_us).isoformat(timespec="seconds"),
        "date_is": one.date_is,
        "score": one.score,
        "missing": list(one.missing),
        "like": list(one.like),
        "snippet": one.snippet.text if one.snippet else None,
        "marks": [list(mark) for mark in one.snippet.marks] if one.snippet else [],
    }
    return result if one.explanation is None else {**result, "explanation": asdict(one.explanation)}
