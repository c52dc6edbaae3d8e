"""SQL text: the files of `sql/keys/`, and keys written into statements.

Hex digits need no quoting, so key lists are put into the text itself: one C call for 5,000 keys.
"""

from __future__ import annotations

from binascii import unhexlify
from collections.abc import Iterable, Sequence
from pathlib import Path

from crawl_lib.errors import DamagedKeysError, KeyStoreError, os_errors

TABLE = "kraakekeys"
NOTE_TABLE = "krakenote"
MAKE = "run `krake keys create`, or `krake fsck --repair` if they were there"
"""What to do where there are no tables."""
SQL_DIRECTORY = Path(__file__).resolve().parents[2] / "sql" / "keys"
LOWEST = "0" * 40
HIGHEST = "f" * 40


def sql_file(name: str) -> list[str]:
    """The statements of `sql/keys/<name>`, comments removed. Raises KeyStoreError if the file is not there."""
    path = SQL_DIRECTORY / name
    with os_errors(path, "install Krake with its folder sql/; it cannot be read", KeyStoreError):
        text = path.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("--")]
    return [part.strip() for part in "\n".join(lines).split(";") if part.strip()]


def hex_list(keys: Sequence[bytes], separator: str) -> str:
    """The keys in lower-case hex with `separator` between them."""
    return b"".join(keys).hex(",", 20).replace(",", separator)


def from_hex(server: str, hashes: Iterable[object]) -> list[bytes]:
    """Keys of hashes that came as ASCII bytes, in hex. Raises DamagedKeysError for something else."""
    try:
        data = unhexlify(b"".join(hashes))  # type: ignore[arg-type]
    except (ValueError, TypeError) as error:
        raise damaged(server, "a hash in it is no SHA-1 in hex") from error
    if len(data) % 20:
        raise damaged(server, "a hash in it has not 40 digits")
    return [data[start : start + 20] for start in range(0, len(data), 20)]


def from_rows(server: str, rows: Sequence[Sequence[object]]) -> list[tuple[bytes, int]]:
    """Keys with their keyinfo (0 where it is NULL) of rows of the two columns. Raises DamagedKeysError."""
    keys, states = from_hex(server, (row[0] for row in rows)), [row[1] or 0 for row in rows]
    if len(keys) != len(rows) or set(map(type, states)) - {int}:
        raise damaged(server, "a hash in it has not 40 digits, or a keyinfo is no number")
    return list(zip(keys, states, strict=True))  # type: ignore[arg-type]


def in_order(server: str, pairs: list[tuple[bytes, int]], low: bytes, high: bytes) -> list[tuple[bytes, int]]:
    """A page of a scan as it is. Raises DamagedKeysError where it is not ascending or not between the two keys."""
    keys = [low, *(key for key, _ in pairs), high]
    if keys != sorted(keys):
        raise damaged(server, "its rows are not in the order of their keys")
    return pairs


def damaged(server: str, problem: str) -> DamagedKeysError:
    """The error for a table that is not what Krake wrote."""
    return DamagedKeysError(f"{server}: the key table is damaged: {problem}: run `krake fsck --repair --only keys`")
