"""Numbers and time spans as people read them."""

from crawl_lib.errors import printable


def duration(seconds: float) -> str:
    """Write a time span such as `1 h 05 min`, in two units at most."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def rounded(value: object) -> str:
    """Write a value of a report: numbers with commas, of fractions one digit."""
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else printable(str(value))


def cell_of(value: object) -> str:
    """Write a value for a table, in one line and without what a terminal would obey."""
    return printable(str(value)) if isinstance(value, float) else rounded(value)
