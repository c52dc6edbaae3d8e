"""Numbers and time spans as people read them."""

from crawl_lib.errors import printable


def duration(seconds: float) -> str:
    """Write a time span, such as `1 h 05 min`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def rounded(value: object) -> str:
    """Write a value of a report, with commas or one digit.

    Fractions have one digit.
    """
    if isinstance(value, float):
        return f"{value:,.1f}"
    return (
        f"{value:,}"
        if isinstance(value, int) and not isinstance(value, bool)
        else printable(str(value))
    )


def cell_of(value: object) -> str:
    """Write a value for a table cell, safe for a terminal.

    The value is one line.
    """
    return printable(str(value)) if isinstance(value, float) else rounded(value)
