"""The table `krakepages` on one server: its rows, and the questions to a server.

The table is the store of documents, the decider and the queue of the service at once. A row moves so: a submission
makes the row due; a document ends the wait; a later submission makes the row due again once the document is too
old. A row whose URL was redirected waits for the target instead, and ends with the target's document.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha1
from typing import Any, NamedTuple

from crawl_lib.errors import DamagedKeysError, KeyTablesError
from crawl_lib.keys import sql_file
from crawl_lib.realtime.protocol import Rate
from crawl_lib.urls import budget_domain_of, key_of
from crawl_lib.version import sql_directory

TABLE_VERSION = 1
PARTS = 256
ALL_PARTS = range(PARTS)
MAX_DATA_BYTES = 64 << 10
"""The most bytes of a document."""
EVENT_LIMIT_S = 1.0
"""The most seconds for a statement with documents; MariaDB ends the statement then."""
LOOK_BACK_MS = 5000
"""A reader of events reads so far back again: by then, each statement with an earlier time has ended."""
STATEMENT_DOCUMENTS = 50
"""Documents of one statement. 50 documents of 64 KB are 6.4 MB of SQL; a server takes 16 MB at least."""
REPEATS_MS = 86_400_000
"""How long a repeated submission is known by its name."""
HOSTS_MS = 30 * 86_400_000
"""How long a host is known after the last news of it, as by a fetcher itself."""
_NEVER_MS = 1 << 45
_WRITES = 5


@dataclass(frozen=True, slots=True)
class Wish:
    """A submission of a URL. `part`: of the URL's host. `request`: URL and policy, as JSON.

    `shares`: how many times the URL was shared; 0 for the target of a redirect. `max_age_ms`: an older document is
    fetched again; None: the row's `again_ms` alone decides. `repeat`: names the submission; the share of a repeated
    submission counts once. Empty: the submission has no name.
    """

    key: bytes
    part: int
    request: bytes
    shares: int = 1
    max_age_ms: int | None = None
    repeat: bytes = b""


class Row(NamedTuple):
    """The row of a URL; times are milliseconds of the server's clock.

    `due_ms`: None without work to do; before `fetched_ms` while only the picture of the document is missing.
    `fetched_ms`: 0 without a document. `tries`: fetchers killed by the URL. `waits_for`: the key of the redirect's
    target. `data`: the document, None in a row without documents.
    """

    key: bytes
    due_ms: int | None
    fetched_ms: int
    again_ms: int
    shared_ms: int
    tries: int
    shares: int
    waits_for: bytes | None
    request: bytes
    data: bytes | None

    @property
    def is_due(self) -> bool:
        """Whether the URL is to be fetched."""
        return self.due_ms is not None and self.due_ms >= self.fetched_ms

    @property
    def is_open(self) -> bool:
        """Whether the URL is due, or waits for a redirect's target."""
        return self.is_due or self.waits_for is not None


@dataclass(frozen=True, slots=True)
class Finished:
    """A document to write. `again_ms`: milliseconds from now on until a submission makes the row due again.

    `epoch`: of the writer; rows of a higher epoch stay unchanged. `made_ms`: above 0 for a document that is handed on
    to a row whose part may have another owner. The document was written into its own row at that time, and rows with a
    younger document stay unchanged, whatever their epochs. `stays_due`: another document follows, with the picture;
    after a kill before that document, the URL is fetched again.
    """

    key: bytes
    data: bytes
    again_ms: int
    epoch: int
    made_ms: int = 0
    stays_due: bool = False


@dataclass(frozen=True, slots=True)
class Followed:
    """A redirect to write: the row waits for `target`. `request`: the row's request, with the hop."""

    key: bytes
    target: bytes
    request: bytes
    epoch: int


class Mark(NamedTuple):
    """A place in the order of times and keys; rows after the place come next."""

    time_ms: int = 0
    key: bytes = b""


class Swept(NamedTuple):
    """How many rows a sweep looked at and deleted, and the mark of the next sweep."""

    looked: int
    deleted: int
    mark: Mark


class DueRows(NamedTuple):
    """How many rows are due, and the age of the oldest, in milliseconds."""

    due: int
    age_ms: int


def part_of(host: str) -> int:
    """Return the part of a host, 0 to 255.

    All hosts of a registrable domain have one part.
    """
    return sha1(budget_domain_of(host).encode()).digest()[0]


class PageServer(ABC):
    """One server with the table, over a single connection; for a single thread at a time.

    * Each method is a transaction, and durable after the return.
    * Each method may be repeated; a repeated submission without a name counts its share again.
    * KeyServerDownError: the server does not answer. Every other KeyStoreError is for the operator.
    """

    name: str
    NOW: str
    """This server's clock in milliseconds, as SQL."""
    SUFFIX = ".sql"
    """Ends the names of files with statements for this kind of server only."""
    IS_FILE = False
    """Whether the table is in a file of this machine: no read waits for another program."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock

    @abstractmethod
    def ensure(self) -> None:
        """Create the table if missing.

        Raises KeyTablesError for a table of another version.
        """

    @abstractmethod
    def exists(self) -> bool:
        """Say whether the table is there. Raises KeyServerDownError."""

    @abstractmethod
    def next_epoch(self) -> int:
        """Return an epoch above all epochs of this server.

        One transaction reserves the epoch for one writer.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the connection. The next call opens another one."""

    @abstractmethod
    def _changed(self, statement: str) -> int:
        """Run a repeatable statement; return the number of changed rows."""

    @abstractmethod
    def _selected(self, statement: str) -> Sequence[Any]:
        """Return the rows of a statement."""

    @abstractmethod
    def _submit(self, wishes: Sequence[Wish], counted: str) -> None:
        """Write submissions of different keys, in ascending order.

        `counted`: another statement for the same transaction; "" for none.
        """

    @abstractmethod
    def _finish(self, documents: Sequence[Finished]) -> None:
        """Write documents of different keys, in ascending order.

        They are written in a single statement or under a single lock.
        """

    def problem(self) -> str:
        """Return why the table cannot be used, "" if it can.

        Raises KeyServerDownError.
        """
        try:
            self._require_version()
        except (KeyTablesError, DamagedKeysError) as error:
            return str(error)
        return ""

    def submit(self, wishes: Sequence[Wish]) -> dict[bytes, Row]:
        """Submit URLs, and return their rows without documents.

        Wishes for one key are one wish, with all shares.
        """
        together: dict[bytes, Wish] = {}
        names = sorted({wish.repeat for wish in wishes if wish.repeat})
        known = (
            {
                bytes(name)
                for (name,) in self._selected(self._text("repeats.sql", keys=_list(names)))
            }
            if names
            else ()
        )
        for given in wishes:
            wish = replace(given, shares=0) if given.repeat in known else given
            together[wish.key] = _both(together[wish.key], wish) if wish.key in together else wish
        rows = ",".join(f"({_blob(name)},{self.NOW})" for name in names)
        self._submit(_in_order(together), self._text("counted.sql", rows=rows) if names else "")
        return self.states([*together])

    def finish(self, documents: Sequence[Finished]) -> None:
        """Write documents, after which rows wait for nothing.

        A row is due no more, unless it is to stay due. The statement's time is the time of the events. Readers of
        events may have passed the time of a slow statement; then the documents are written again, with a later time.
        """
        ordered = _in_order({document.key: document for document in documents})
        for _ in range(_WRITES):
            began_s = self._clock()
            self._finish(ordered)
            if (self._clock() - began_s) * 1000 < LOOK_BACK_MS - 1000:
                return

    def follow(self, hops: Sequence[Followed]) -> None:
        """Let rows wait for the targets of their redirects, in one statement.

        The caller submits the targets afterwards.
        """
        ordered = _in_order({hop.key: hop for hop in hops})

        def cases(value: Callable[[Followed], object]) -> str:
            return " ".join(f"WHEN {_blob(hop.key)} THEN {value(hop)}" for hop in ordered)

        words = {
            "keys": _list([hop.key for hop in ordered]),
            "targets": cases(lambda hop: _blob(hop.target)),
            "requests": cases(lambda hop: _blob(hop.request)),
            "epochs": cases(lambda hop: hop.epoch),
        }
        self._changed(self._text("follow.sql", **words))

    def tried(self, keys: Sequence[bytes]) -> None:
        """Count the death of a fetcher for these URLs."""
        if keys:
            self._changed(self._text("tried.sql", keys=_list(keys)))

    def read(self, keys: Sequence[bytes]) -> dict[bytes, Row]:
        """Return the rows of known keys, with documents."""
        return self._found("read.sql", keys=_list(keys)) if keys else {}

    def states(self, keys: Sequence[bytes]) -> dict[bytes, Row]:
        """Return the rows of known keys, without documents."""
        return self._found("states.sql", keys=_list(keys)) if keys else {}

    def due(self, after: Mark, limit: int, parts: Collection[int] = ALL_PARTS) -> list[Mark]:
        """Return the marks of due rows, the oldest first, from a mark on."""
        words = {"parts": _numbers(parts), "limit": limit, **_marked(after)}
        rows = self._selected(self._text("due.sql", **words))
        return [Mark(due_ms, bytes(key)) for due_ms, key in rows]

    def waiting(
        self, target: bytes, key: bytes, limit: int, parts: Collection[int] = ALL_PARTS
    ) -> list[Row]:
        """Return waiting rows of parts by target and key.

        They begin at the given target and key.
        """
        words = {
            "target": _blob(target),
            "after_key": _blob(key),
            "parts": _numbers(parts),
        }
        return list(self._found("waiting.sql", limit=limit, **words).values())

    def written_ms(self, keys: Sequence[bytes]) -> dict[tuple[bytes, int], int]:
        """Return when the current documents were written, by key and epoch."""
        rows = self._selected(self._text("written.sql", keys=_list(keys))) if keys else ()
        return {(bytes(key), epoch): written_ms for key, epoch, written_ms in rows}

    def hosts(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return fetchers' knowledge of hosts, as JSON, by authorities' keys."""
        rows = self._selected(self._text("hosts.sql", keys=_list(keys))) if keys else ()
        return {bytes(key): bytes(data) for key, data in rows}

    def put_hosts(self, rows: Mapping[str, bytes]) -> None:
        """Write what fetchers know of hosts, by authority."""
        values = (
            f"({_blob(key_of(name))},{_blob(name.encode())},{self.NOW},{_blob(rows[name])})"
            for name in rows
        )
        self._changed(self._text("hosts_put.sql", rows=",".join(values)))

    def rates(self) -> tuple[Rate, ...]:
        """Return the rates that operators have set; of the first key server."""
        return tuple(
            Rate(
                domain=bytes(domain).decode(),
                delay_s=None if delay is None else delay / 1000,
                connections=connections,
                is_blocked=bool(blocked),
            )
            for domain, delay, connections, blocked in self._selected(self._text("rates.sql"))
        )

    def set_rate(self, rate: Rate) -> None:
        """Set the rate of a domain.

        A rate that changes nothing is forgotten.
        """
        domain = _blob(rate.domain.encode())
        if rate == Rate(domain=rate.domain):
            self._changed(self._text("rate_drop.sql", domain=domain))
            return
        delay = "NULL" if rate.delay_s is None else round(1000 * rate.delay_s)
        connections = rate.connections or "NULL"
        words = {"delay": delay, "connections": connections, "blocked": int(rate.is_blocked)}
        self._changed(self._text("rate_put.sql", domain=domain, **words))

    def queues(self) -> dict[str, int]:
        """Count the due rows of each authority. Not on SQLite."""
        rows = self._selected(self._text("queues.sql", parts=_numbers(ALL_PARTS)))
        return {bytes(authority).decode(errors="replace"): int(count) for authority, count in rows}

    def waiters(self, targets: Sequence[bytes]) -> list[Row]:
        """Return the rows waiting for any of these targets."""
        return list(self._found("waiters.sql", keys=_list(targets)).values()) if targets else []

    def events(self, after: Mark, limit: int) -> list[Mark]:
        """Return the times and keys of documents, ascending, from a mark on."""
        rows = self._selected(self._text("events.sql", limit=limit, **_marked(after)))
        return [Mark(time_ms, bytes(key)) for time_ms, key in rows]

    def sweep(self, after: Mark, keep_ms: int, limit: int) -> Swept:
        """Look at some rows, and delete those unused for long.

        A row without use was neither shared nor fetched. The look begins after a mark.
        """
        self._changed(self._text("sweep_repeats.sql", keep_ms=REPEATS_MS))
        self._changed(self._text("sweep_hosts.sql", keep_ms=HOSTS_MS))
        marks = self.events(after, limit)
        deleted = 0
        if marks:
            deleted = self._changed(
                self._text("sweep.sql", keys=_list([mark.key for mark in marks]), keep_ms=keep_ms)
            )
        return Swept(len(marks), deleted, marks[-1] if marks else Mark())

    def delete(self, keys: Sequence[bytes]) -> int:
        """Delete rows; return how many there were."""
        return self._changed(self._text("delete.sql", keys=_list(keys))) if keys else 0

    def forget(self, keys: Sequence[bytes]) -> int:
        """Delete those of these rows that wait for nothing; return how many."""
        return self._changed(self._text("forget.sql", keys=_list(keys))) if keys else 0

    def rows_after(self, key: bytes, limit: int) -> list[Row]:
        """Return rows with documents by key, after a key."""
        return list(self._found("rows.sql", after_key=_blob(key), limit=limit).values())

    def put(self, rows: Sequence[tuple[int, Row]]) -> None:
        """Write whole rows, each with its part.

        They replace rows with these keys. No service may work meanwhile.
        """
        for start in range(0, len(rows), STATEMENT_DOCUMENTS):
            some = ",".join(
                _values(part, row) for part, row in rows[start : start + STATEMENT_DOCUMENTS]
            )
            self._changed(self._text("put.sql", rows=some))

    def queue(self, parts: Sequence[int] = ALL_PARTS) -> DueRows:
        """Count the due rows."""
        ((due, oldest_ms, now_ms),) = self._selected(
            self._text("counts.sql", parts=_numbers(parts))
        )
        return DueRows(due, max(0, now_ms - oldest_ms))

    def now_ms(self) -> int:
        """Return the time by this server's clock."""
        ((now_ms,),) = self._selected(f"SELECT {self.NOW}")
        return int(now_ms)

    def _require_version(self) -> None:
        rows = self._selected("SELECT version FROM krakepagesversion")
        found = rows[0][0] if rows else None
        if found != TABLE_VERSION:
            raise KeyTablesError(
                f"{self.name}: krakepages has version {found}, and this Krake reads {TABLE_VERSION}: drop the tables"
                " krakepages and krakepagesversion, and run `krake realtime fill`, which fills new ones from segments"
            )

    def _found(self, name: str, **words: object) -> dict[bytes, Row]:
        return rows_of(self._selected(self._text(name, **words)))

    def run(self, name: str, **words: object) -> None:
        """Run the repeatable statements of a file of `sql/realtime/`.

        Values take the place of words.
        """
        for statement in statements_of(name):
            self._changed(_filled(statement, {"now": self.NOW, **words}))

    def ask(self, name: str, **words: object) -> Sequence[Any]:
        """Return the rows of the statement of a file of `sql/realtime/`."""
        return self._selected(self._text(name, **words))

    def _text(self, name: str, **words: object) -> str:
        """Return the statement of a file with values for words.

        The file is in `sql/realtime/`.
        """
        return _filled(statement_of(name), {"now": self.NOW, **words})


def rows_of(selected: Iterable[Any]) -> dict[bytes, Row]:
    """Return the rows of a statement, by key."""
    found = {}
    for key, due, fetched, again, shared, tries, shares, waits, request, data in selected:
        waits_for = None if waits is None else bytes(waits)
        found[bytes(key)] = Row(
            bytes(key), due, fetched, again, shared, tries, shares, waits_for, bytes(request), data
        )
    return found


def lacks_table(name: str) -> KeyTablesError:
    """Return the error for a server without the table."""
    return KeyTablesError(
        f"{name}: has no table krakepages: `krake serve realtime` makes it, `krake realtime fill` fills a lost one"
    )


def _filled(statement: str, words: Mapping[str, object]) -> str:
    for word in sorted(words, key=len, reverse=True):
        statement = statement.replace(f":{word}", str(words[word]))
    return statement


@cache
def statement_of(name: str) -> str:
    """Return the only statement of a file of `sql/realtime/`."""
    return statements_of(name)[0]


def statements_of(name: str) -> list[str]:
    """Return the statements of a file of `sql/realtime/`."""
    return sql_file(name, sql_directory() / "realtime")


def max_age_ms(wish: Wish) -> int:
    """Return the age beyond which a document is too old."""
    return _NEVER_MS if wish.max_age_ms is None else wish.max_age_ms


def _both(one: Wish, other: Wish) -> Wish:
    age_ms = min(max_age_ms(one), max_age_ms(other))
    return Wish(
        one.key,
        one.part,
        one.request,
        one.shares + other.shares,
        None if age_ms == _NEVER_MS else age_ms,
    )


def _in_order(by_key: Mapping[bytes, Any]) -> list[Any]:
    """Return the values by ascending keys.

    Writers with an equal order of locks never deadlock.
    """
    return [by_key[key] for key in sorted(by_key)]


def _marked(mark: Mark) -> dict[str, object]:
    return {"after_ms": mark.time_ms, "after_key": _blob(mark.key)}


def _blob(data: bytes) -> str:
    return f"x'{data.hex()}'"


def _numbers(parts: Collection[int]) -> str:
    """Return parts for an IN; no row has the part -1, and MySQL takes no empty list."""
    return ",".join(map(str, parts)) or "-1"


def _list(keys: Sequence[bytes]) -> str:
    return ",".join(map(_blob, keys))


def _values(part: int, row: Row) -> str:
    """Return a row as SQL values, in the order of `put.sql`."""
    numbers = (part, row.due_ms, row.fetched_ms, row.again_ms, row.shared_ms, row.tries, row.shares)
    blobs = (row.waits_for, row.request, row.data)
    texts = [_blob(row.key), *("NULL" if number is None else str(number) for number in numbers)]
    return f"({','.join([*texts, *('NULL' if blob is None else _blob(blob) for blob in blobs)])})"
