"""HTTP dates: the three forms of RFC 9110, 5.6.7, all in UTC, and the zones that some servers write; dates of pages."""

import re
from datetime import UTC, date, datetime, timedelta, timezone
from typing import NamedTuple

_DATE = re.compile(
    r"(?:[a-z]{3,9}(?:,[ ]*|[ ]+))?"
    r"(?:(?P<day>\d{1,2})[ -](?P<month>[a-z]{3})[ -](?P<year>\d{4}|\d{2})"
    r"|(?P<asc_month>[a-z]{3})[ ]+(?P<asc_day>\d{1,2}))"
    r"[ ]+(?P<hour>\d{1,2}):(?P<minute>\d{2}):(?P<second>\d{2})"
    r"(?:[ ]+(?P<asc_year>\d{4}))?[ ]*(?:GMT|UTC?|Z|(?P<sign>[+-])(?P<hours>\d{2})(?P<minutes>\d{2}))?",
    re.IGNORECASE | re.ASCII,
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_YEARS_AHEAD = 50
_MAX_CHARS = 64
_ISO_ENDS = {4: "-01-01", 7: "-01"}
"""By the length of a date that ends with its year or month (W3C-DTF): what makes it a day."""
_ZONES = {"EST": 5, "EDT": 4, "CST": 6, "CDT": 5, "MST": 7, "MDT": 6, "PST": 8, "PDT": 7}
"""Hours behind UTC (RFC 5322, 4.3)."""
_NAMED_ZONE = re.compile(rf" +({'|'.join(_ZONES)}|GMT|UTC)$")


def http_date(text: str, now: float) -> float | None:
    """Return the POSIX seconds of an HTTP date, or None.

    `now`: POSIX seconds, for dates whose year has two digits. Such a date lies at most 50 years ahead (RFC 9110,
    5.6.7). A date without a zone is in UTC; a numeric zone is respected. A leap second counts as the second before.
    """
    at = _http_moment(text, now)
    return None if at is None else at.timestamp()


def _http_moment(text: str, now: float) -> datetime | None:
    """Return an HTTP date in its own zone."""
    found = _DATE.fullmatch(text.strip())
    if found is None:
        return None
    part = found.groupdict()
    year, month = part["year"] or part["asc_year"], (part["month"] or part["asc_month"]).lower()
    if year is None or (part["year"] and part["asc_year"]) or month not in _MONTHS:
        return None
    clock = (
        int(part["hour"]),
        int(part["minute"]),
        min(int(part["second"]), 59 + (part["second"] > "60")),
    )
    day = _MONTHS.index(month) + 1, int(part["day"] or part["asc_day"]), *clock
    ahead = timedelta(hours=int(part["hours"] or 0), minutes=int(part["minutes"] or 0))
    ahead = -ahead if part["sign"] == "-" else ahead
    try:
        return (_whole_year(year, now, day) - ahead).astimezone(timezone(ahead))
    except (ValueError, OverflowError):
        return None


def _whole_year(year: str, now: float, rest: tuple[int, ...]) -> datetime:
    """Return the date, with a century for a two-digit `year`.

    `rest`: from the month to the second.
    """
    if len(year) == 4:
        return datetime(int(year), *rest, tzinfo=UTC)  # type: ignore[misc, arg-type]
    today = datetime.fromtimestamp(now, UTC)
    latest = today.year + _YEARS_AHEAD
    number = latest - (latest - int(year)) % 100
    at = datetime(number, *rest, tzinfo=UTC)  # type: ignore[misc, arg-type]
    if number == latest and at.timetuple()[1:6] > today.timetuple()[1:6]:
        return datetime(number - 100, *rest, tzinfo=UTC)  # type: ignore[misc, arg-type]
    return at


class WrittenDate(NamedTuple):
    """A date of a page. `seconds`: POSIX seconds; `iso`: the date by ISO 8601, as exact as the page has it."""

    seconds: float
    iso: str


def written_date(text: str, now: float) -> float | None:
    """Return the POSIX seconds of a date, or None.

    `read_date` reads the date.
    """
    found = read_date(text, now)
    return None if found is None else found.seconds


def read_date(text: str, now: float) -> WrittenDate | None:
    """Read a date on a page, or None if `text` has no date.

    ISO 8601, also a year or a month alone, and what `http_date` reads, also without a time of day or with a zone of
    North America. A date without a zone is in UTC. `now`: as `http_date` has it. At most 64 characters are read.
    """
    text = text.strip().upper()
    if len(text) > _MAX_CHARS:
        return None
    text = _NAMED_ZONE.sub(lambda zone: f" -{_ZONES.get(zone[1], 0):02d}00", text)
    found = _iso_date(text)
    if found is not None:
        return found
    has_time = ":" in text
    at = _http_moment(text if has_time else f"{text} 00:00:00", now)
    return (
        None
        if at is None
        else WrittenDate(at.timestamp(), at.isoformat() if has_time else at.date().isoformat())
    )


def _iso_date(text: str) -> WrittenDate | None:
    text = text.replace(" +", "+").replace(" -", "-").replace("/", "-")
    end = _ISO_ENDS.get(len(text), "")
    text += end
    try:
        at = datetime.fromisoformat(text)
        seconds = (at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
    iso = at.date().isoformat().removesuffix(end) if _is_day(text) else at.isoformat()
    return WrittenDate(seconds, iso)


def _is_day(text: str) -> bool:
    """Say whether a date has no time of day."""
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True
