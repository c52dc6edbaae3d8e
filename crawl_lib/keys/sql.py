"""SQL text: the files of `sql/keys/`, and keys written into statements.

Hex digits need no quoting, so key lists are put into the text itself: one C call for 5,000 keys.
"""

from __future__ import annotations

from binascii import unhexlify
from collections.abc import Iterable, Sequence
from pathlib import Path

from crawl_lib.errors import KeyStoreError, os_errors

TABLE = "kraakekeys"
NOTE_TABLE = "krakenote"
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


def from_hex(hashes: Iterable[bytes]) -> list[bytes]:
    """Keys of hashes that came as ASCII bytes of 40 digits each."""
    data = unhexlify(b"".join(hashes))
    return [data[start : start + 20] for start in range(0, len(data), 20)]
