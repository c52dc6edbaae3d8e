"""The contract of a key store, and of one key server behind it."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from crawl_lib.states import KeyState

STATEMENT_KEYS = 5000
"""The most keys of one statement: measured, more is not faster, and a statement stays below 300 kB."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the store knows of a set of keys: three disjoint sets that together are the keys asked for.

    `known`: at least one replica knows it. `new`: every replica that answers says it does not, and at least one
    answers. `undecided`: no replica answers; the URL waits.
    """

    new: set[bytes] = field(default_factory=set)
    known: set[bytes] = field(default_factory=set)
    undecided: set[bytes] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class InsertReport:
    """`missed`: number of keys that a server should hold and did not get, by server; repair fills them."""

    missed: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Claim:
    """Whose a set of keys is: three disjoint sets that together are the keys claimed.

    `ours`: this call added them. `theirs`: they stood there before it; only these may be dropped, and only if this
    was the first sending. `unsure`: not known (an answer was lost while it was being committed, or no replica
    answered); the caller keeps those URLs. `unreached`: the part of `unsure` that certainly was not added, because
    no replica answered; it may wait as `undecided` does. `missed`: as in InsertReport.
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

    @abstractmethod
    def known(self, keys: Sequence[bytes]) -> set[bytes]:
        """Those of the keys that are in the table, in whatever state."""

    @abstractmethod
    def states(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        """keyinfo of those of the keys that are in the table; 0 where it is NULL."""

    @abstractmethod
    def insert(self, keys: Sequence[bytes], state: KeyState) -> None:
        """Add the keys that are missing; raise the others to `state` where they are below it. Repeatable."""

    @abstractmethod
    def set_state(self, keys: Sequence[bytes], state: KeyState) -> None:
        """Set the state, adding keys that are missing; QUEUED is never set over another state. Repeatable."""

    @abstractmethod
    def claim(self, keys: Sequence[bytes]) -> Claim:
        """Add the keys that are missing, as QUEUED, and say which were: of two writers exactly one is told `ours`.

        Not repeatable. Raises KeyServerDownError only if nothing was added.
        """

    @abstractmethod
    def delete(self, keys: Sequence[bytes]) -> int:
        """Delete keys; returns how many stood there. Repeatable."""

    @abstractmethod
    def counts(self) -> dict[int, int]:
        """Number of keys by keyinfo (0 for NULL)."""

    @abstractmethod
    def scan(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, int]]:
        """Every key from `low` to `high` (inclusive) with its keyinfo, ascending, in statements of bounded size."""

    def problems(self) -> Iterator[str]:
        """What is damaged in the file of an embedded server; other servers look after their own. Raises as `scan`."""
        yield from ()

    @abstractmethod
    def read_note(self) -> str | None:
        """The small text that the server keeps next to its keys (`keys.ring`), None if it has none."""

    @abstractmethod
    def write_note(self, text: str) -> None:
        """Replace that text; at most 60,000 bytes of ASCII. Makes its table where an older key table has none."""

    @abstractmethod
    def exists(self) -> bool:
        """Whether there is a key table. Raises like any request if the server cannot say."""

    @abstractmethod
    def create(self, *, drop: bool = False) -> None:
        """Create the key table; `drop` deletes the old one. Raises KeyTablesError if there is one, and no `drop`."""

    @abstractmethod
    def close(self) -> None:
        """Give the connection back. The server may be used again."""

    def ensure(self) -> None:  # noqa: B027 - only the embedded server has something to do
        """Create the table where that needs no operator (embedded: the file is not there yet). Else do nothing."""

    def prefix_sums(self, low: bytes, high: bytes) -> dict[tuple[str, int], PrefixSum]:
        """Digests of the range `low` to `high` (inclusive) by (first two hex digits, keyinfo)."""
        found: dict[tuple[str, int], tuple[int, int]] = {}
        for key, state in self.scan(low, high):
            place = (key[:1].hex(), state)
            count, total = found.get(place, (0, 0))
            found[place] = (count + 1, total + (int.from_bytes(key[-8:], "big") & 0x0FFFFFFFFFFFFFFF))
        return {place: PrefixSum(*sums) for place, sums in found.items()}


class KeyStore(ABC):
    """The memory of a crawl: which URLs it has seen, and how far they came.

    * A key is the 20-byte SHA-1 of a canonical URL. Arguments may hold duplicates, in any order, of any length; the
      store sorts them, cuts them by server, and sends statements of at most STATEMENT_KEYS.
    * State only grows: unknown -> QUEUED -> CRAWLED or GONE; CRAWLED and GONE may follow each other, the last write
      wins. Only `forget` makes a key unknown again.
    * **Never-lost beats never-twice.** A server that is down or has no tables is left out and counted (`missed`); a
      request fails with KeyServerDownError only if no replica of some key answers, with KeyTablesError if all of them
      say that they have no tables. A key that only replicas left out know is `new`.
    * Every write except `claim` may be repeated with the same result. After a crash in the middle some servers have
      it and others not: the caller repeats the whole call.
    * Order is the caller's duty: first the URL is durable, then its key is inserted. What returned is durable, so a
      URL noted as taken in keeps its key over a power loss.
    * `claim` is exact between writers that reach the same first answering replica. Where they do not (a server is
      down for one of them), both may own a key: fetched twice, never lost.
    * A server that did not answer is not asked again for some seconds, so a group of calls waits for it once.
    * For one thread at a time, and not across a fork: every process opens its own store.
    """

    @abstractmethod
    def unknown(self, keys: Collection[bytes]) -> Answer:
        """Ask which keys are new. Never raises for servers that are down."""

    @abstractmethod
    def insert(self, keys: Collection[bytes], state: KeyState = KeyState.QUEUED) -> InsertReport:
        """Add keys on all their replicas, the first server first; keys that are there never lose state.

        Raises KeyServerDownError if no replica of some key took it (the others were inserted all the same): run again.
        """

    @abstractmethod
    def claim(self, keys: Collection[bytes]) -> Claim:
        """Add keys as QUEUED where this call is the first to do so: decided by the first replica that answers.

        Keys that any other answering replica knew before are `theirs` too. What is ours is then inserted on the other
        replicas. Never raises for servers that are down.
        """

    @abstractmethod
    def set_state(self, keys: Collection[bytes], state: KeyState) -> InsertReport:
        """Set the state of keys on all their replicas, adding those that are missing. Raises as `insert` does."""

    @abstractmethod
    def forget(self, keys: Collection[bytes]) -> int:
        """Delete keys on every replica; returns how many the store knew.

        Raises KeyServerDownError or KeyTablesError naming a server that cannot do it, before anything is deleted. Run
        it again if a server failed in the middle: until then maintenance may bring the keys back.
        """

    @abstractmethod
    def states(self, keys: Collection[bytes]) -> dict[bytes, KeyState | None]:
        """The highest state that an answering replica has of each key; None if it is unknown.

        Raises KeyServerDownError if no replica of some key answers.
        """

    @abstractmethod
    def counts(self) -> list[ServerCounts]:
        """Keys per server and state, in the order of the config. A server that fails is reported, never raised."""

    @abstractmethod
    def exists(self) -> bool:
        """Whether every server has key tables. Raises KeyServerDownError if one does not answer."""

    @abstractmethod
    def create(self, *, drop: bool = False) -> None:
        """Create the key tables on every server; `drop` deletes the old ones.

        Raises KeyTablesError, before anything is touched, if there are tables, and no `drop`.
        """

    @abstractmethod
    def ensure_tables(self) -> None:
        """Create the tables of embedded servers whose file is not there yet; other servers are left alone."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
