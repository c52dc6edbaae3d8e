"""Faults of lines that are not seeds, and their remedies: people save URLs in many ways."""

import re
from collections.abc import Sequence

from crawl_lib.urls import Rejection

LOOKED_AT_LINES = 20
"""The first lines of a file, by which a CSV file is recognised."""
METADATA = "metadata"
"""The refusal of a seed with a field that is not `key=value`. More refusals: `urls.Rejection`, and these:"""
NO_SCHEME, TWO_URLS, CSV, UTF_16, NOT_TEXT = "no_scheme", "two_urls", "csv", "utf_16", "not_text"
WORDS = {
    METADATA: "a field after a tab is not key=value",
    NO_SCHEME: "no http:// or https:// before it",
    TWO_URLS: "two URLs on a line: write one URL a line",
    CSV: "a {} after the URL: is this a CSV? Save one URL a line, with fields key=value after tabs",
    UTF_16: "the text is UTF-16: save the file as UTF-8",
    NOT_TEXT: "the file is no text (an archive, or a document of an office program?): save one URL a line as text",
    Rejection.SCHEME: "the scheme is neither http nor https",
    Rejection.INVALID: "not a URL",
    Rejection.TOO_LONG: "longer than urls.max_length_chars",
}
_SCHEME = re.compile(
    r"[a-z][a-z0-9+.-]*://|(?:https?|ftp|file|mailto|javascript|data|tel):", re.IGNORECASE
)
_SECOND_URL = re.compile(r"\shttps?://", re.IGNORECASE)
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_SEPARATORS = (";", ",")
_MARKS = (
    b"\x1f\x8b",
    b"PK\x03\x04",
    b"BZh",
    b"\xfd7zXZ\0",
    b"\x28\xb5\x2f\xfd",
    b"\xd0\xcf\x11\xe0",
    b"%PDF-",
)
"""The first bytes of gzip, ZIP (also .xlsx and .ods), bzip2, xz, Zstandard, old Office and PDF files."""


def is_utf_16(line: bytes) -> bool:
    """Say whether a file's first line is UTF-16.

    Evidence: a byte order mark, or a zero in every second byte.
    """
    return line.startswith(_UTF_16_MARKS) or (len(line) > 1 and 3 * line.count(b"\0") > len(line))


def is_text(line: bytes) -> bool:
    """Say whether a file's first line may be text."""
    return not line.startswith(_MARKS)


def fault_of(text: str, separator: str, fields: Sequence[str] = ()) -> str | None:
    """Return the fault of a line, or None.

    `text`: the line before its `fields`. `separator`: the file's, if it is a CSV.
    """
    if "\0" in text:
        return Rejection.INVALID
    if separator and separator in text:
        return CSV
    if _SECOND_URL.search(text) or any(_SECOND_URL.match(f" {field.lstrip()}") for field in fields):
        return TWO_URLS
    return None if _SCHEME.match(text) else NO_SCHEME


def csv_separator(lines: Sequence[str]) -> str:
    """Return the column separator of a CSV file's first lines.

    "": the file is a list of URLs.

    `;` and `,` are legal in URLs. So a file is a CSV only with a header line, or if all lines have equally many
    separators, and white space, a quote or a second URL follows a separator.
    """
    lines = [line for line in lines[:LOOKED_AT_LINES] if line and not line.startswith("#")]
    for separator in _SEPARATORS:
        counts = {line.count(separator) for line in lines}
        has_header = (
            len(lines) > 1 and separator in lines[0] and not _SCHEME.match(lines[0].lstrip("\"' "))
        )
        follows = re.compile(rf"{separator}(?:[\s\"']|https?://)", re.IGNORECASE)
        if has_header or (len(counts) == 1 and counts != {0} and any(map(follows.search, lines))):
            return separator
    return ""


def one_url_a_line(text: str) -> str:
    """Put URLs divided by spaces on lines of their own.

    Other lines stay unchanged.
    """
    return "\n".join(
        "\n".join(words) if _are_urls(words) else " ".join(words) for words in _words(text)
    )


def _words(text: str) -> list[list[str]]:
    return [line.split(" ") for line in text.splitlines()]


def _are_urls(words: list[str]) -> bool:
    return all("://" in word for word in words) and not any(
        word.endswith(_SEPARATORS) for word in words[:-1]
    )
