"""The key store over many servers: each key on the server of its interval and on the next ones in the ring.

A call is cut into chunks (one statement's worth of sorted keys of one interval) and carried out in rounds: in round i
every chunk is sent to its i-th replica. Within a round the servers work at the same time (`lanes`), each for its
chunks one after the other; rounds follow each other. Answers are put together in the order of the chunks by the
calling thread, so which server was faster changes nothing.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from crawl_lib.config import Config, KeyStorageConfig
from crawl_lib.errors import DamagedKeysError, KeyServerDownError, KeyStoreError, KeyTablesError
from crawl_lib.keys.intervals import ring, split, state_of
from crawl_lib.keys.lanes import Lanes
from crawl_lib.keys.ring import Ring, RingNote, look_at, names_of, other_crawl, ring_problem
from crawl_lib.keys.server import STATEMENT_KEYS, Claim, KeyServer, KnownKeys, ServerCounts
from crawl_lib.keys.sqlite import SqliteKeyServer
from crawl_lib.states import KeyState

_T = TypeVar("_T")
_Request = Callable[[KeyServer, Sequence[bytes]], _T]
DOWN_S = 30.0
CONNECTIONS = 8
LOOK_S = 20.0
"""A store that looked at the servers' notes looks again after this time: a reshard may have begun meanwhile."""
_LEFT_OUT = (KeyServerDownError, KeyTablesError)
"""Errors that leave a replica out while another replica answers: it is away, or it came back empty."""


@dataclass(slots=True)
class _Chunk:
    """One statement's worth of ascending keys, and the places of the servers that hold them, the first server first.

    `errors`: of the replicas that were left out, so far, by place.
    """

    places: list[int]
    keys: Sequence[bytes]
    errors: dict[int, KeyStoreError] = field(default_factory=dict)

    @property
    def unanswered(self) -> bool:
        """Whether every replica was left out."""
        return len(self.errors) == len(self.places)


class ShardedKeyStore(AbstractContextManager["ShardedKeyStore"]):
    """The memory of a crawl: which URLs it has seen, and how far they came; over `servers`, in the config's order.

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
    * `claim` is exact between writers that reach the same first answering replica. If a server is down for one writer
      only, both writers may own a key: its URL is fetched twice, never lost.
    * A server that did not answer is not asked again for some seconds, so a group of calls waits for it once.
    * For one thread at a time, and not across a fork: every process opens its own store.

    `replication`: servers that hold each key, from 1 to their number (else ConfigError). `connections`: servers that
    are asked at the same time, a connection each, and the most connections that are held. `first`: place of the
    server that is asked first, the caller's own. `down_s`: seconds for which a server that did not answer is left
    alone. `crawl`: the name of the crawl whose keys they are, None for any. `clock`: monotonic seconds. `rings`: for
    each interval the places of the servers that hold it, its first server first.
    """

    def __init__(
        self,
        servers: Sequence[KeyServer],
        replication: int = 1,
        *,
        connections: int = CONNECTIONS,
        first: int = 0,
        down_s: float = DOWN_S,
        crawl: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.servers = list(servers)
        self.crawl = crawl
        self.replication = replication
        self.rings = [ring(index, len(servers), replication) for index in range(len(servers))]
        self._down: dict[int, tuple[float, str]] = {}
        self._down_s = down_s
        self._clock = clock
        self._next_look_s: float | None = None
        self._lanes = Lanes(
            len(servers),
            connections,
            first=first,
            release=lambda place: self.servers[place].close(),
        )

    def unknown(self, keys: Collection[bytes]) -> KnownKeys:
        """Ask which keys are new. Never raises for servers that are down."""
        self._look_again()
        answer = KnownKeys()
        chunks = self._chunks(keys)
        for step in range(self.replication):
            for chunk, found in self._round(chunks, step, lambda server, keys: server.known(keys)):
                answer.known.update(found)
                chunk.keys = [key for key in chunk.keys if key not in found]
        for chunk in chunks:
            (answer.undecided if chunk.unanswered else answer.new).update(chunk.keys)
        _raise_if_no_tables(chunks)
        return answer

    def insert(self, keys: Collection[bytes], state: KeyState = KeyState.QUEUED) -> dict[str, int]:
        """Add keys on all replicas; known keys never lose state.

        The first server comes first. Returns how many keys a server should hold and did not get, by server; a repair
        fills them. Raises KeyServerDownError if no replica of some key took it (the others were inserted all the same):
        run again.
        """
        return self._write(keys, lambda server, chunk: server.insert(chunk, state))

    def set_state(self, keys: Collection[bytes], state: KeyState) -> dict[str, int]:
        """Set the state of keys on all replicas, adding missing ones.

        Raises as `insert` does.
        """
        return self._write(keys, lambda server, chunk: server.set_state(chunk, state))

    def _write(self, keys: Collection[bytes], write: _Request[None]) -> dict[str, int]:
        self._look_again()
        chunks = self._chunks(keys)
        for step in range(self.replication):
            self._round(chunks, step, write)
        _raise_if_no_tables(chunks)
        lost = {
            str(error): None
            for chunk in chunks
            if chunk.unanswered
            for error in chunk.errors.values()
        }
        if lost:
            raise KeyServerDownError(
                f"no key server answers for some keys; down: {'; '.join(lost)}: run again when one is back"
            )
        return self._missed(chunks)

    def _missed(self, chunks: Sequence[_Chunk]) -> dict[str, int]:
        """Return the number of keys that each server missed."""
        missed: Counter[str] = Counter()
        for chunk in chunks:
            missed.update({self.servers[place].name: len(chunk.keys) for place in chunk.errors})
        return dict(+missed)

    def claim(self, keys: Collection[bytes]) -> Claim:
        """Claim keys as QUEUED; the first answering replica decides.

        Keys that any other answering replica knew before are `theirs` too. What is ours is then inserted on the other
        replicas. Never raises for servers that are down. Reading before, never after, the decision keeps URLs: two
        writers that were decided by different replicas would drop each other's if they looked at the other replica
        afterwards.
        """
        self._look_again()
        claim = Claim()
        left = keys
        if self.replication > 1:
            before = self.unknown(keys)
            claim.theirs.update(before.known)
            left = before.new | before.undecided
        waiting = chunks = self._chunks(left)
        decided: list[_Chunk] = []
        for step in range(self.replication):
            self._round(decided, step, lambda server, keys: server.insert(keys, KeyState.QUEUED))
            for chunk, answer in self._round(
                waiting, step, lambda server, keys: server.claim(keys)
            ):
                claim.ours.update(answer.ours)
                claim.theirs.update(answer.theirs)
                claim.unsure.update(answer.unsure)
                chunk.keys = sorted(answer.ours | answer.unsure)
                decided.append(chunk)
            waiting = [chunk for chunk in waiting if len(chunk.errors) > step]
        for chunk in waiting:
            claim.unsure.update(chunk.keys)
            claim.unreached.update(chunk.keys)
        claim.missed.update(self._missed(decided))
        _raise_if_no_tables(chunks)
        return claim

    def forget(self, keys: Collection[bytes]) -> int:
        """Delete keys on every replica; returns how many the store knew.

        Raises KeyServerDownError or KeyTablesError naming a server that cannot do it, before anything is deleted. Run
        it again if a server failed in the middle: until then maintenance may bring the keys back.
        """
        chunks = self._chunks(keys)
        self._down.clear()
        known: set[bytes] = set()
        for step in range(self.replication):
            for _, found in self._round(chunks, step, lambda server, keys: server.known(keys)):
                known |= found
        _raise_if_left_out(chunks)
        for step in range(self.replication):
            self._round(chunks, step, lambda server, keys: server.delete(keys))
        _raise_if_left_out(chunks)
        return len(known)

    def states(self, keys: Collection[bytes]) -> dict[bytes, KeyState | None]:
        """Return each key's highest state on the answering replicas.

        None: the key is unknown. Raises KeyServerDownError if no replica of some key answers.
        """
        found: dict[bytes, KeyState] = {}
        chunks = self._chunks(keys)
        for step in range(self.replication):
            for _, states in self._round(chunks, step, lambda server, keys: server.states(keys)):
                for key, state in states.items():
                    found[key] = max(state_of(state), found.get(key, KeyState.QUEUED))
        _raise_if_left_out([chunk for chunk in chunks if chunk.unanswered])
        return {key: found.get(key) for key in keys}

    def counts(self) -> list[ServerCounts]:
        """Return the number of keys per server and state.

        In the order of the config. A server that fails is reported, never raised.
        """
        answers = self._ask_all(lambda server: counts_of(server.name, server.counts()))
        return [
            ServerCounts(server.name, up=False, error=str(answer))
            if isinstance(answer, KeyStoreError)
            else answer
            for server, answer in zip(self.servers, answers, strict=True)
        ]

    def exists(self) -> bool:
        """Say whether every server has key tables.

        Raises KeyServerDownError if one does not answer.
        """
        return all(self._have_tables())

    def answers(self) -> list[bool | KeyStoreError]:
        """Return each server's answer, or its error.

        The answer says whether there are tables.
        """
        return self._ask_all(lambda server: server.exists())

    def _have_tables(self) -> list[bool]:
        """Say whether each server has tables, damaged ones too.

        Raises KeyServerDownError if one does not answer.
        """
        # Every server is asked: one that is down must not hide behind one that has no tables.
        answers = self.answers()
        for answer in answers:
            if isinstance(answer, KeyStoreError) and not isinstance(answer, DamagedKeysError):
                raise answer
        return [answer is not False for answer in answers]

    def create(self, *, drop: bool = False) -> list[str]:
        """Create missing key tables; `drop` deletes the old ones first.

        For a set-up that may be run again, and for a server that came back with an empty disk (a repair then fills it).
        Returns the names of the servers that got tables. Raises KeyServerDownError, before anything is touched, if one
        does not answer.
        """
        places = [
            place for place, has_tables in enumerate(self._have_tables()) if drop or not has_tables
        ]
        self._lanes.run(
            places, lambda place: self._ask(place, lambda server: server.create(drop=drop))
        )
        return [self.servers[place].name for place in places]

    def require_ring(self, *, write: bool = True) -> None:
        """Check that the tables belong to these servers in order.

        Missing notes are written (`ring`). The servers are asked at the same time, within the limit on connections.
        From then on a request looks again, if the last look is older than `LOOK_S`. Without `write`, for dry runs,
        nothing is written, and this is the only look. Raises KeyTablesError if the tables were filled for other
        servers, or for another crawl, or while `krake keys reshard` is under way, and KeyStoreError.
        """
        notes = self._notes(KeyServerDownError)
        if problem := self._problem(notes):
            raise KeyTablesError(problem)
        if write:
            ring = next((note.ring for note in notes.values() if note and note.ring), None)
            ring = replace(
                ring or Ring(0, names_of(self.servers), self.replication), crawl=self.crawl
            )
            nameless = [
                place
                for place, note in notes.items()
                if note and note.ring and note.ring.crawl is None
            ]
            missing = [place for place, note in notes.items() if note is None] + (
                nameless if self.crawl else []
            )
            self._lanes.run(
                missing,
                lambda place: self.servers[place].write_note(RingNote(ring, place).to_text()),
            )
            self._next_look_s = self._clock() + LOOK_S

    def _look_again(self) -> None:
        if self._next_look_s is not None and self._clock() >= self._next_look_s:
            self.require_ring()

    def ring_problem(self) -> str | None:
        """Say why the config does not fit the tables, or None.

        The servers are asked in the same way. Writes nothing.
        """
        return self._problem(self._notes(KeyStoreError))

    def other_crawls(self) -> list[str]:
        """Return a sentence for each server of another crawl.

        Writes nothing.
        """
        notes = self._notes(KeyStoreError).items()
        return [
            found
            for place, note in notes
            if (found := other_crawl(self.servers[place], note, self.crawl))
        ]

    def _problem(self, notes: dict[int, RingNote | None]) -> str | None:
        others = (
            other_crawl(self.servers[place], note, self.crawl) for place, note in notes.items()
        )
        return next(filter(None, others), None) or ring_problem(
            self.servers, self.replication, notes
        )

    def _notes(self, left_out: type[KeyStoreError]) -> dict[int, RingNote | None]:
        """Return the notes of servers with tables, by place.

        Servers that fail with an error of `left_out` are left out.
        """
        notes: dict[int, RingNote | None] = {}
        for place, answer in enumerate(self._ask_all(look_at, again=False)):
            if not isinstance(answer, KeyStoreError):
                notes.update({place: answer[1]} if answer[0] else {})
            elif not isinstance(answer, left_out):
                raise answer
        return notes

    def close(self) -> None:
        """Close all connections."""
        self._lanes.close()
        for server in self.servers:
            server.close()

    def __exit__(self, *error: object) -> None:
        self.close()

    def _chunks(self, keys: Collection[bytes]) -> list[_Chunk]:
        ordered = sorted(keys if isinstance(keys, set | frozenset) else dict.fromkeys(keys))
        return [
            _Chunk(self.rings[first], part[start : start + STATEMENT_KEYS])
            for first, part in enumerate(split(ordered, len(self.servers)))
            for start in range(0, len(part), STATEMENT_KEYS)
        ]

    def _round(
        self, chunks: Sequence[_Chunk], step: int, request: _Request[_T]
    ) -> list[tuple[_Chunk, _T]]:
        """Send each chunk to its replica number `step`.

        Return the answered chunks, with answers. Where the replica was left out, the chunk notes the error. Other
        errors are raised, at the end of the round.
        """
        lanes: dict[int, list[_Chunk]] = {}
        for chunk in chunks:
            if chunk.keys:
                lanes.setdefault(chunk.places[step], []).append(chunk)

        def lane(place: int) -> list[_T | KeyStoreError]:
            return [self._try(_LEFT_OUT, place, request, chunk.keys) for chunk in lanes[place]]

        answered: list[tuple[_Chunk, _T]] = []
        for place, answers in self._lanes.run(sorted(lanes), lane).items():
            for chunk, answer in zip(lanes[place], answers, strict=True):
                if isinstance(answer, KeyStoreError):
                    chunk.errors[place] = answer
                else:
                    answered.append((chunk, answer))
        return answered

    def _ask_all(
        self, request: Callable[[KeyServer], _T], *, again: bool = True
    ) -> list[_T | KeyStoreError]:
        """Return each server's answer, or its error.

        `again`: also of a server that was down.
        """
        if again:
            self._down.clear()
        places = range(len(self.servers))
        answers = self._lanes.run(places, lambda place: self._try((KeyStoreError,), place, request))
        return list(answers.values())

    def _try(
        self,
        left_out: tuple[type[KeyStoreError], ...],
        place: int,
        request: Callable[..., _T],
        *keys: Sequence[bytes],
    ) -> _T | KeyStoreError:
        """Return a server's answer, or the error that excludes it."""
        try:
            return self._ask(place, request, *keys)
        except left_out as error:
            return error

    def _ask(self, place: int, request: Callable[..., _T], *keys: Sequence[bytes]) -> _T:
        """Ask the server at `place`.

        Raises at once if it did not answer a moment ago.
        """
        until_s, problem = self._down.get(place, (self._clock(), ""))
        if self._clock() < until_s:
            raise KeyServerDownError(problem)
        try:
            return request(self.servers[place], *keys)
        except KeyServerDownError as error:
            self._down[place] = (self._clock() + self._down_s, str(error))
            raise


def _raise_if_no_tables(chunks: Sequence[_Chunk]) -> None:
    """Raise KeyTablesError if all replicas of keys lack tables.

    Waiting would not help.
    """
    for chunk in chunks:
        if chunk.unanswered and all(
            isinstance(error, KeyTablesError) for error in chunk.errors.values()
        ):
            raise KeyTablesError("; ".join(map(str, chunk.errors.values())))


def _raise_if_left_out(chunks: Sequence[_Chunk]) -> None:
    """Raise the first error of a replica that was left out."""
    for error in (error for chunk in chunks for error in chunk.errors.values()):
        raise error


def counts_of(server: str, by_keyinfo: Counter[int] | dict[int, int]) -> ServerCounts:
    """Return a server's counts from its numbers by keyinfo."""
    by_state = {state.name.lower(): by_keyinfo.get(state, 0) for state in KeyState}
    if other := sum(by_keyinfo.values()) - sum(by_state.values()):
        by_state["other"] = other
    return ServerCounts(server, sum(by_state.values()), by_state)


def open_key_store(
    config: KeyStorageConfig,
    password: str | None = None,
    *,
    first: int = 0,
    crawl: str | None = None,
    kind: type[ShardedKeyStore] = ShardedKeyStore,
) -> ShardedKeyStore:
    """Return the store that `key_storage` describes.

    Connects to nothing before the first request.

    `password`: of `config.user` on MySQL servers, None for none; it appears in no message or repr. `first`: the place
    of the server that is asked first. `crawl`: `crawl.name`, None for tools that any crawl's keys will do. `kind`: of
    store. Raises ConfigError for a server name or a replication that cannot be.
    """

    def server(name: str) -> KeyServer:
        if config.is_sqlite(name):
            return SqliteKeyServer(name, timeout_s=config.timeout_s)
        # Here, since PyMySQL and what it needs cost each process that has no MySQL server 60 ms at its start.
        from crawl_lib.keys.mysql import MySqlKeyServer  # noqa: PLC0415

        return MySqlKeyServer(
            name,
            database=config.database,
            user=config.user,
            password=password,
            timeout_s=config.timeout_s,
            tls=config.tls,
            ca_file=config.ca_file,
        )

    servers = [server(name) for name in config.servers]
    return kind(
        servers, config.replication, connections=config.connections, first=first, crawl=crawl
    )


def own_server(config: Config, node: str) -> int:
    """Return the place of a node's own key server.

    The node asks this server first. It is the server whose host is the node's name; else, where there are as many
    servers as nodes, the one at the node's place in `servers`; else the first. Which it is changes no result: with a
    server on each node the nodes begin at different servers, and not all at the first one.
    """
    names = config.key_storage.servers
    hosts = [name.rpartition(":")[0] or name for name in names]
    if node in hosts:
        return hosts.index(node)
    if node in config.servers and len(names) == len(config.servers):
        return config.servers.index(node)
    return 0
