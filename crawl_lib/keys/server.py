"""One key server: its contract, what it answers, and what servers of SQL have in common.

Keys are written into the statements of `sql/keys/`: hex digits need no quoting, so a key list is put into the text
itself by one C call for 5,000 keys.
"""

from abc import ABC, abstractmethod
from binascii import unhexlify
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from crawl_lib.errors import DamagedKeysError, KeyStoreError, KeyTablesError, os_errors
from crawl_lib.states import KeyState
from crawl_lib.version import sql_directory

TABLE = "kraakekeys"
NOTE_TABLE = "krakenote"
SLOT_TABLE = "kraakeslots"
MAKE = "run `krake keys create`, or `krake fsck --repair` if they were there"
"""What to do where there are no tables."""
MAKE_SLOTS = "run `krake fsck --repair`"
"""What to do where there is no table of turns."""
SQL_DIRECTORY = sql_directory() / "keys"
LOWEST = "0" * 40
HIGHEST = "f" * 40
TABLES_EXIST = "has key tables already; `krake keys create --drop` deletes them first"
STATEMENT_KEYS = 5000
"""The most keys of one statement: measured, more is not faster, and a statement stays below 300 kB."""


@dataclass(frozen=True, slots=True)
class KnownKeys:
    """States of a set of keys in the store: three disjoint sets that together are the keys asked for.

    `known`: at least one replica knows it. `new`: every replica that answers says it does not, and at least one
    answers. `undecided`: no replica answers; the URL waits.
    """

    new: set[bytes] = field(default_factory=set)
    known: set[bytes] = field(default_factory=set)
    undecided: set[bytes] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Claim:
    """Owners of a set of keys: three disjoint sets that together are the keys claimed.

    `ours`: this call added them. `theirs`: they were there before it; only these may be dropped, and only if this
    was the first sending. `unsure`: not known (an answer was lost while it was being committed, or no replica
    answered); the caller keeps those URLs. `unreached`: the part of `unsure` that certainly was not added, because
    no replica answered; it may wait as `undecided` does. `missed`: number of
    keys that a server should hold and did not get, by server; repair fills them.
    """

    ours: set[bytes] = field(default_factory=set)
    theirs: set[bytes] = field(default_factory=set)
    unsure: set[bytes] = field(default_factory=set)
    unreached: set[bytes] = field(default_factory=set)
    missed: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServerCounts:
    """Keys of one server. `by_state`: `queued`, `crawled`, `gone`, and `other` for a foreign keyinfo, if there is any.

    `up`: whether it answered as a key server should; if not, `error` says why and the counts are 0.
    """

    server: str
    total: int = 0
    by_state: dict[str, int] = field(default_factory=dict)
    up: bool = True
    error: str = ""


@dataclass(frozen=True, slots=True)
class PrefixSum:
    """Digest of the keys of one range, one state and one prefix: their number, and the sum of their last 60 bits."""

    count: int
    total: int


@dataclass(frozen=True, slots=True)
class SlotWish:
    """A wish for `slot` (20 bytes): for `hold_ms` from its next turn, if that is at most `ahead_ms` away."""

    slot: bytes
    hold_ms: int
    ahead_ms: int = 0


@dataclass(frozen=True, slots=True)
class SlotEnd:
    """The holder of a slot, which read `next_ms` when it was reserved, gives it back: free in `rest_ms`."""

    slot: bytes
    next_ms: int
    rest_ms: int


class SlotAnswer(NamedTuple):
    """Whether the slot was reserved; when its next turn is free now, and the server's clock, in milliseconds."""

    granted: bool
    next_ms: int
    now_ms: int


class KeyServer(ABC):
    """One server: a table of keys, asked by one statement at a time.

    * Keys are 20 bytes. Every `keys` argument is ascending, without duplicates, at most STATEMENT_KEYS long.
    * It connects at the first request, keeps that one connection, and opens a new one after it was lost. A lost
      statement that may be repeated is repeated once.
    * A write is durable on the server when the method returns, as far as the server's settings say so
      (SQLite: `synchronous=FULL`; InnoDB: `innodb_flush_log_at_trx_commit=1`, its default).
    * Each method is one transaction: after a crash, all of it is there, or nothing.
    * Only KeyServerDownError (no answer) and KeyTablesError (it came back empty) mean "ask another replica". Every
      other KeyStoreError is for the operator, names the server and says what to do. No message holds a password.
    * For one thread at a time, and not across a fork.
    """

    name: str
    """The server as the config names it; as in reports and errors."""
    HASH, NOTE = "hash", "note"
    """The columns as expressions that give ASCII bytes."""
    DIALECT = ".sql"
    """How the names of the files end that each kind of server has its own of."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @abstractmethod
    def _rows(self, statement: str) -> Sequence[Any]:
        """Return the rows of a statement that only reads."""

    @abstractmethod
    def known(self, keys: Sequence[bytes]) -> set[bytes]:
        """Return the keys that are in the table, in any state."""

    @abstractmethod
    def states(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        """Return the keyinfo of known keys; 0 means NULL."""

    @abstractmethod
    def insert(self, keys: Sequence[bytes], state: KeyState) -> None:
        """Add missing keys; raise the others to `state`. Repeatable.

        States only rise.
        """

    @abstractmethod
    def set_state(self, keys: Sequence[bytes], state: KeyState) -> None:
        """Set the state, adding missing keys. Repeatable.

        QUEUED is never set over another state.
        """

    @abstractmethod
    def claim(self, keys: Sequence[bytes]) -> Claim:
        """Add missing keys as QUEUED, and say which were missing.

        Of two writers exactly one is told `ours`. Not repeatable. Raises KeyServerDownError only if nothing was added.
        """

    @abstractmethod
    def delete(self, keys: Sequence[bytes]) -> int:
        """Delete keys; returns how many were there. Repeatable."""

    def counts(self) -> dict[int, int]:
        """Number of keys by keyinfo (0 for NULL)."""
        found: Counter[int] = Counter()
        for state, count in self._by_ranges("counts.sql", LOWEST, HIGHEST, digits=1):
            found[state or 0] += count
        return dict(found)

    def scan(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, int]]:
        """Yield keys from `low` to `high` with keyinfo, ascending.

        Both ends are included; statements have a bounded size.
        """
        while True:
            rows = self._rows(
                f"SELECT {self.HASH}, keyinfo FROM {TABLE} WHERE hash >= '{low.hex()}' AND hash <= '{high.hex()}'"
                f" ORDER BY hash LIMIT {STATEMENT_KEYS}"
            )
            pairs = from_rows(self.name, rows)
            keys = [low, *(key for key, _ in pairs), high]
            if keys != sorted(keys):
                raise damaged(self.name, "its rows are not in the order of their keys")
            yield from pairs
            if len(pairs) < STATEMENT_KEYS or pairs[-1][0] >= high:
                return
            low = (int.from_bytes(pairs[-1][0], "big") + 1).to_bytes(20, "big")

    def problems(self) -> Iterator[str]:
        """Yield the damages in an embedded server's file.

        Other servers check their own files. Raises as `scan`.
        """
        yield from ()

    def read_note(self) -> str | None:
        """Return the small text (`keys.ring`) of the server, or None."""
        try:
            rows = self._rows(f"SELECT {self.NOTE} FROM {NOTE_TABLE}")
        except KeyTablesError:
            return None
        return (rows[0][0] or b"").decode("ascii", "replace") if rows else None

    @abstractmethod
    def write_note(self, text: str) -> None:
        """Replace that text; at most 60,000 bytes of ASCII.

        An older key table gets the table for it.
        """

    @abstractmethod
    def exists(self) -> bool:
        """Say whether there is a key table.

        Raises like any request if the server cannot say.
        """

    @abstractmethod
    def create(self, *, drop: bool = False) -> None:
        """Create the key table; `drop` deletes the old one.

        Raises KeyTablesError for an old one without `drop`.
        """

    @abstractmethod
    def turns(self, wishes: Sequence[SlotWish], ends: Sequence[SlotEnd] = ()) -> list[SlotAnswer]:
        """Give slots back, then reserve others, each by itself.

        Return an answer for each. Repeated after a lost answer, it reserves again, and the first reservation is wasted.
        Raises KeyTablesError where there is no table of turns.
        """

    @abstractmethod
    def has_slots(self) -> bool:
        """Say whether there is a table of turns."""

    @abstractmethod
    def make_slots(self) -> None:
        """Make the table of turns if missing. Repeatable."""

    @abstractmethod
    def close(self) -> None:
        """Give the connection back. The server may be used again."""

    def require_rights(self) -> None:  # noqa: B027 - the embedded server's are those of its file
        """Check the user's rights to the tables, changing nothing.

        Raises KeyAccessError if the user lacks a right of a crawl.
        """

    def ensure(self) -> None:  # noqa: B027 - only the embedded server has something to do
        """Create an embedded server's missing table.

        Other servers need the operator.
        """

    def prefix_sums(self, low: bytes, high: bytes) -> Iterator[tuple[int, dict[int, PrefixSum]]]:
        """Yield digests of a range by first byte, in order.

        From `low` to `high` (inclusive); digests are by keyinfo.
        """
        for prefix, rows in groupby(self.scan(low, high), key=lambda row: row[0][0]):
            sums: dict[int, tuple[int, int]] = {}
            for key, state in rows:
                count, total = sums.get(state, (0, 0))
                sums[state] = (
                    count + 1,
                    total + (int.from_bytes(key[-8:], "big") & 0x0FFFFFFFFFFFFFFF),
                )
            yield prefix, {state: PrefixSum(*found) for state, found in sums.items()}

    def _turns(
        self,
        wishes: Sequence[SlotWish],
        ends: Sequence[SlotEnd],
        *,
        run: Callable[[str], int],
        rows: Callable[[str], Sequence[Any]],
    ) -> list[SlotAnswer]:
        """Do the work of `turns` in the caller's transaction.

        `run`: returns the rows that a statement has changed.
        """
        answers = {}
        for end in sorted(
            ends, key=lambda end: end.slot
        ):  # in one order everywhere: no two wait for each other
            run(self._about(end.slot, "release", next_ms=end.next_ms, rest_ms=end.rest_ms))
        for number, wish in sorted(enumerate(wishes), key=lambda pair: pair[1].slot):
            granted = (
                run(self._about(wish.slot, "reserve", hold_ms=wish.hold_ms, ahead_ms=wish.ahead_ms))
                > 0
            )
            answers[number] = SlotAnswer(granted, *rows(self._about(wish.slot, "turn"))[0])
        return [answers[number] for number in range(len(wishes))]

    def _about(self, slot: bytes, name: str, **numbers: int) -> str:
        """Return a statement from `sql/keys/` for a slot."""
        statement = _statement(f"{name}{self.DIALECT}").replace(":slot", slot.hex())
        for word, number in numbers.items():
            statement = statement.replace(f":{word}", f"{number:d}")
        return statement

    def _by_ranges(self, name: str, low: str, high: str, *, digits: int) -> Iterator[Sequence[Any]]:
        """Yield rows of a query for each key prefix of a range.

        A prefix has `digits` hex digits; the query is a file of `sql/keys/`. A whole table in one statement would
        outlast the time limit when it is large.
        """
        statement = sql_file(name)[0]
        for number in range(int(low[:digits], 16), int(high[:digits], 16) + 1):
            prefix = f"{number:0{digits}x}"
            first, last = max(low, prefix + LOWEST[digits:]), min(high, prefix + HIGHEST[digits:])
            yield from self._rows(statement.replace(LOWEST, first).replace(HIGHEST, last))


def sql_file(name: str, directory: Path = SQL_DIRECTORY) -> list[str]:
    """Return a file's statements from `sql/keys/`, without comments.

    Raises KeyStoreError if there is no file.
    """
    path = directory / name
    with os_errors(path, "install Krake with its folder sql/; it cannot be read", KeyStoreError):
        text = path.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("--")]
    return [part.strip() for part in "\n".join(lines).split(";") if part.strip()]


@cache
def _statement(name: str) -> str:
    return sql_file(name)[0]


def hex_list(keys: Sequence[bytes], separator: str) -> str:
    """Return the keys in lower-case hex with `separator` between them."""
    return b"".join(keys).hex(",", 20).replace(",", separator)


def from_hex(server: str, hashes: Iterable[object]) -> list[bytes]:
    """Return the keys of hashes in hex.

    Raises DamagedKeysError for something else.
    """
    try:
        data = unhexlify(b"".join(hashes))  # type: ignore[arg-type]
    except (ValueError, TypeError) as error:
        raise damaged(server, "a hash in the file is no SHA-1 in hex") from error
    if len(data) % 20:
        raise damaged(server, "a hash in the file has not 40 digits")
    return [data[start : start + 20] for start in range(0, len(data), 20)]


def from_rows(server: str, rows: Sequence[Sequence[object]]) -> list[tuple[bytes, int]]:
    """Return keys with their keyinfo from rows.

    NULL is 0. Raises DamagedKeysError.
    """
    keys, states = from_hex(server, (row[0] for row in rows)), [row[1] or 0 for row in rows]
    if len(keys) != len(rows) or set(map(type, states)) - {int}:
        raise damaged(server, "a hash in the file has not 40 digits, or a keyinfo is no number")
    return list(zip(keys, states, strict=True))  # type: ignore[arg-type]


def damaged(server: str, problem: str) -> DamagedKeysError:
    """Return the error for a table that Krake did not write."""
    return DamagedKeysError(
        f"{server}: the key table is damaged: {problem}: run `krake fsck --repair --only keys`"
    )
