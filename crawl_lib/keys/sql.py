"""What key servers of SQL have in common: the files of `sql/keys/`, keys written into statements, rows read back.

Hex digits need no quoting, so key lists are put into the text itself: one C call for 5,000 keys.
"""

from abc import abstractmethod
from binascii import unhexlify
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from crawl_lib.errors import DamagedKeysError, KeyStoreError, KeyTablesError, os_errors
from crawl_lib.keys.keystore import STATEMENT_KEYS, KeyServer

TABLE = "kraakekeys"
NOTE_TABLE = "krakenote"
MAKE = "run `krake keys create`, or `krake fsck --repair` if they were there"
"""What to do where there are no tables."""
SQL_DIRECTORY = Path(__file__).resolve().parents[2] / "sql" / "keys"
LOWEST = "0" * 40
HIGHEST = "f" * 40
TABLES_EXIST = "has key tables already; `krake keys create --drop` deletes them first"


class SqlKeyServer(KeyServer):
    """A server that is asked in SQL. `HASH`, `NOTE`: the columns as expressions that give ASCII bytes."""

    HASH, NOTE = "hash", "note"

    @abstractmethod
    def _rows(self, statement: str) -> Sequence[Any]:
        """The rows of a statement that only reads."""

    def counts(self) -> dict[int, int]:
        found: Counter[int] = Counter()
        for state, count in self._by_ranges("counts.sql", LOWEST, HIGHEST, digits=1):
            found[state or 0] += count
        return dict(found)

    def scan(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, int]]:
        while True:
            rows = self._rows(
                f"SELECT {self.HASH}, keyinfo FROM {TABLE} WHERE hash >= '{low.hex()}' AND hash <= '{high.hex()}'"
                f" ORDER BY hash LIMIT {STATEMENT_KEYS}"
            )
            pairs = in_order(self.name, from_rows(self.name, rows), low, high)
            yield from pairs
            if len(pairs) < STATEMENT_KEYS or pairs[-1][0] >= high:
                return
            low = (int.from_bytes(pairs[-1][0], "big") + 1).to_bytes(20, "big")

    def read_note(self) -> str | None:
        try:
            rows = self._rows(f"SELECT {self.NOTE} FROM {NOTE_TABLE}")
        except KeyTablesError:
            return None
        return (rows[0][0] or b"").decode("ascii", "replace") if rows else None

    def _by_ranges(self, name: str, low: str, high: str, *, digits: int) -> Iterator[Sequence[Any]]:
        """Rows of a file of `sql/keys/`, asked for each prefix of so many hex digits from `low` to `high`.

        A whole table in one statement would outlast the time limit when it is large.
        """
        statement = sql_file(name)[0]
        for number in range(int(low[:digits], 16), int(high[:digits], 16) + 1):
            prefix = f"{number:0{digits}x}"
            first, last = max(low, prefix + LOWEST[digits:]), min(high, prefix + HIGHEST[digits:])
            yield from self._rows(statement.replace(LOWEST, first).replace(HIGHEST, last))


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
