"""The key store over many servers: each key on the server of its interval and on the next ones in the ring.

A call is cut into chunks (one statement's worth of sorted keys of one interval) and carried out in rounds: in round i
every chunk is sent to its i-th replica. Within a round the servers work at the same time (`lanes`), each for its
chunks one after the other; rounds follow each other. Answers are put together in the order of the chunks by the
calling thread, so which server was faster changes nothing.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from crawl_lib.config import Config, KeyStorageConfig, is_sqlite_server
from crawl_lib.errors import DamagedKeysError, KeyServerDownError, KeyStoreError, KeyTablesError
from crawl_lib.keys.intervals import ring, split, state_of
from crawl_lib.keys.keystore import STATEMENT_KEYS, Answer, Claim, InsertReport, KeyServer, KeyStore, ServerCounts
from crawl_lib.keys.lanes import Lanes
from crawl_lib.keys.ring import RingNote, look_at, missing_notes, ring_problem
from crawl_lib.keys.sqlite import SqliteKeyServer
from crawl_lib.states import KeyState

_T = TypeVar("_T")
_P = ParamSpec("_P")
_Request = Callable[[KeyServer, Sequence[bytes]], _T]
DOWN_S = 30.0
CONNECTIONS = 8
LOOK_S = 20.0
"""A store that looked at the servers' notes looks again after this time: a reshard may have begun meanwhile."""
_LEFT_OUT = (KeyServerDownError, KeyTablesError)
"""What makes a replica be left out, as long as another one answers: it is away, or it came back empty."""


@dataclass(slots=True)
class _Chunk:
    """One statement's worth of ascending keys, and the places of the servers that hold them, the first server first.

    `errors`: of the replicas that were left out, so far.
    """

    places: list[int]
    keys: Sequence[bytes]
    errors: list[KeyStoreError] = field(default_factory=list)

    @property
    def unanswered(self) -> bool:
        """Whether every replica was left out."""
        return len(self.errors) == len(self.places)


class ShardedKeyStore(KeyStore):
    """A KeyStore over `servers`, in the order of the config.

    `replication`: servers that hold each key, from 1 to their number (else ConfigError). `connections`: servers that
    are asked at the same time, a connection each, and the most connections that are held. `first`: place of the
    server that is asked first, the caller's own. `down_s`: seconds for which a server that did not answer is left
    alone. `clock`: monotonic seconds.
    """

    def __init__(
        self,
        servers: Sequence[KeyServer],
        replication: int = 1,
        *,
        connections: int = CONNECTIONS,
        first: int = 0,
        down_s: float = DOWN_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.servers = list(servers)
        self.replication = replication
        self._rings = [ring(index, len(servers), replication) for index in range(len(servers))]
        self._down: dict[int, tuple[float, str]] = {}
        self._down_s = down_s
        self._clock = clock
        self._next_look_s: float | None = None
        self._lanes = Lanes(len(servers), connections, first=first, release=lambda place: self.servers[place].close())

    def places(self, first: int) -> list[int]:
        """The places of the servers that hold the interval `first`, the first server first."""
        return self._rings[first]

    def unknown(self, keys: Collection[bytes]) -> Answer:
        self._look_again()
        answer = Answer()
        chunks = list(self._chunks(keys))
        for step in range(self.replication):
            for chunk, found in self._round(chunks, step, lambda server, keys: server.known(keys)):
                answer.known.update(found)
                chunk.keys = [key for key in chunk.keys if key not in found]
        for chunk in chunks:
            (answer.undecided if chunk.unanswered else answer.new).update(chunk.keys)
        _raise_if_no_tables(chunks)
        return answer

    def insert(self, keys: Collection[bytes], state: KeyState = KeyState.QUEUED) -> InsertReport:
        return self._write(keys, lambda server, chunk: server.insert(chunk, state))

    def set_state(self, keys: Collection[bytes], state: KeyState) -> InsertReport:
        return self._write(keys, lambda server, chunk: server.set_state(chunk, state))

    def _write(self, keys: Collection[bytes], write: _Request[None]) -> InsertReport:
        self._look_again()
        missed: Counter[str] = Counter()
        chunks = list(self._chunks(keys))
        for step in range(self.replication):
            self._write_round(chunks, step, write, missed)
        _raise_if_no_tables(chunks)
        lost = {str(error): None for chunk in chunks if chunk.unanswered for error in chunk.errors}
        if lost:
            raise KeyServerDownError(
                f"no key server answers for some keys; down: {'; '.join(lost)}: run again when one is back"
            )
        return InsertReport(dict(missed))

    def _write_round(self, chunks: Sequence[_Chunk], step: int, write: _Request[None], missed: Counter[str]) -> None:
        """Write each chunk to its replica of this round; keys that did not reach it are counted in `missed`."""
        before = [len(chunk.errors) for chunk in chunks]
        self._round(chunks, step, write)
        for chunk, errors in zip(chunks, before, strict=True):
            if len(chunk.errors) > errors:
                missed[self.servers[chunk.places[step]].name] += len(chunk.keys)

    def claim(self, keys: Collection[bytes]) -> Claim:
        """Drop what another replica knew before, let the first one that answers decide, and tell the others.

        Reading before, never after, the decision keeps URLs: two writers that were decided by different replicas
        would drop each other's if they looked at the other replica afterwards.
        """
        self._look_again()
        claim = Claim()
        left = keys
        if self.replication > 1:
            before = self.unknown(keys)
            claim.theirs.update(before.known)
            left = before.new | before.undecided
        chunks = list(self._chunks(left))
        kept = self._decide(chunks, claim)
        missed: Counter[str] = Counter()

        def insert(server: KeyServer, keys: Sequence[bytes]) -> None:
            server.insert(keys, KeyState.QUEUED)

        for step in range(self.replication):
            self._write_round([chunk for at, chunk in kept if at < step], step, insert, missed)
            missed.update({self.servers[chunk.places[step]].name: len(chunk.keys) for at, chunk in kept if at > step})
        claim.missed.update(missed)
        _raise_if_no_tables(chunks)
        return claim

    def _decide(self, chunks: Sequence[_Chunk], claim: Claim) -> list[tuple[int, _Chunk]]:
        """Have each chunk decided by its first replica that answers.

        Returns what is left to be told to the other replicas: chunks of the keys that are kept, each with the step of
        the replica that decided.
        """
        kept = []
        waiting = list(chunks)
        for step in range(self.replication):
            for chunk, decided in self._round(waiting, step, lambda server, keys: server.claim(keys)):
                claim.ours.update(decided.ours)
                claim.theirs.update(decided.theirs)
                claim.unsure.update(decided.unsure)
                if keys := sorted(decided.ours | decided.unsure):
                    kept.append((step, _Chunk(chunk.places, keys)))
            waiting = [chunk for chunk in waiting if len(chunk.errors) > step]
        for chunk in waiting:
            claim.unsure.update(chunk.keys)
            claim.unreached.update(chunk.keys)
        return kept

    def forget(self, keys: Collection[bytes]) -> int:
        chunks = list(self._chunks(keys))
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
        found: dict[bytes, KeyState] = {}
        chunks = list(self._chunks(keys))
        for step in range(self.replication):
            for _, states in self._round(chunks, step, lambda server, keys: server.states(keys)):
                for key, state in states.items():
                    found[key] = max(state_of(state), found.get(key, KeyState.QUEUED))
        _raise_if_left_out([chunk for chunk in chunks if chunk.unanswered])
        return {key: found.get(key) for key in keys}

    def counts(self) -> list[ServerCounts]:
        self._down.clear()
        return list(self._lanes.run(range(len(self.servers)), self._counts_of).values())

    def _counts_of(self, place: int) -> ServerCounts:
        name = self.servers[place].name
        try:
            return counts_of(name, self._ask(place, self.servers[place].counts))
        except KeyStoreError as error:
            return ServerCounts(name, up=False, error=str(error))

    def exists(self) -> bool:
        # Every server is asked: one that is down must not hide behind one that has no tables.
        return all(self._have_tables())

    def _have_tables(self) -> list[bool]:
        """Whether there are tables, damaged ones too, by server. Raises KeyServerDownError if one does not answer."""
        self._down.clear()
        return list(self._lanes.run(range(len(self.servers)), self._has_tables).values())

    def _has_tables(self, place: int) -> bool:
        try:
            return self._ask(place, self.servers[place].exists)
        except DamagedKeysError:
            return True

    def create(self, *, drop: bool = False) -> None:
        filled = [server.name for server, has in zip(self.servers, self._have_tables(), strict=True) if has]
        if filled and not drop:
            raise KeyTablesError(
                f"there are key tables already on {', '.join(filled)}: nothing was touched;"
                " `krake keys create --drop` deletes them with all their keys and creates new ones"
            )
        self._lanes.run(range(len(self.servers)), lambda place: self._ask(place, self.servers[place].create, drop=drop))

    def create_missing(self) -> list[str]:
        """Create the key tables where there are none, touch no others; returns the names of those servers.

        For a set-up that may be run again, and for a server that came back with an empty disk (a repair then fills
        it). Raises KeyServerDownError if one does not answer.
        """
        missing = [place for place, has_tables in enumerate(self._have_tables()) if not has_tables]
        self._lanes.run(missing, lambda place: self._ask(place, self.servers[place].create))
        return [self.servers[place].name for place in missing]

    def ensure_tables(self) -> None:
        for server in self.servers:
            server.ensure()

    def require_ring(self, *, write: bool = True) -> None:
        """See that the tables were filled for these servers in this order; write the notes that are missing (`ring`).

        The servers are asked at the same time, within the limit on connections. From then on a request looks again, if
        the last look is older than `LOOK_S`. Without `write`, for dry runs, nothing is written, and this is the only
        look. Raises KeyTablesError if the tables were filled for other servers, or while `krake keys reshard` is under
        way, and KeyStoreError.
        """
        notes = missing_notes(self.servers, self.replication, self._notes(KeyServerDownError))
        if write:
            self._lanes.run(sorted(notes), lambda place: self.servers[place].write_note(notes[place].to_text()))
            self._next_look_s = self._clock() + LOOK_S

    def _look_again(self) -> None:
        if self._next_look_s is not None and self._clock() >= self._next_look_s:
            self.require_ring()

    def ring_problem(self) -> str | None:
        """`ring.ring_problem`, with the servers asked in the same way. Writes nothing."""
        return ring_problem(self.servers, self.replication, self._notes(KeyStoreError))

    def _notes(self, left_out: type[KeyStoreError]) -> dict[int, RingNote | None]:
        """The notes of the servers that have tables, by place; without those that fail with an error of `left_out`."""

        def look(place: int) -> tuple[bool, RingNote | None]:
            try:
                return self._ask(place, look_at, self.servers[place])
            except left_out:
                return False, None

        answers = self._lanes.run(range(len(self.servers)), look)
        return {place: note for place, (has_tables, note) in answers.items() if has_tables}

    def close(self) -> None:
        self._lanes.close()
        for server in self.servers:
            server.close()

    def _chunks(self, keys: Collection[bytes]) -> Iterator[_Chunk]:
        ordered = sorted(keys if isinstance(keys, set | frozenset) else set(keys))
        for first, part in enumerate(split(ordered, len(self.servers))):
            for start in range(0, len(part), STATEMENT_KEYS):
                yield _Chunk(self._rings[first], part[start : start + STATEMENT_KEYS])

    def _round(self, chunks: Sequence[_Chunk], step: int, request: _Request[_T]) -> list[tuple[_Chunk, _T]]:
        """Send each chunk that has keys to its replica number `step`; returns those that were answered, with answers.

        Where the replica was left out, the chunk notes the error. Other errors are raised, at the end of the round.
        """
        lanes: dict[int, list[_Chunk]] = {}
        for chunk in chunks:
            if chunk.keys:
                lanes.setdefault(chunk.places[step], []).append(chunk)
        rounds = self._lanes.run(
            sorted(lanes), lambda place: [self._try(place, request, chunk.keys) for chunk in lanes[place]]
        )
        answered: list[tuple[_Chunk, _T]] = []
        for place, answers in rounds.items():
            for chunk, answer in zip(lanes[place], answers, strict=True):
                if isinstance(answer, KeyStoreError):
                    chunk.errors.append(answer)
                else:
                    answered.append((chunk, answer))
        return answered

    def _try(self, place: int, request: _Request[_T], keys: Sequence[bytes]) -> _T | KeyStoreError:
        """The answer of the server at `place`, or the error for which it is left out."""
        try:
            return self._ask(place, request, self.servers[place], keys)
        except _LEFT_OUT as error:
            return error

    def _ask(self, place: int, request: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T:
        """One request to the server at `place`; raises at once if it did not answer a moment ago."""
        remembered = self._down.get(place)
        if remembered is not None:
            if self._clock() < remembered[0]:
                raise KeyServerDownError(remembered[1])
            del self._down[place]
        try:
            return request(*arguments, **named)
        except KeyServerDownError as error:
            self._down[place] = (self._clock() + self._down_s, str(error))
            raise


def _raise_if_no_tables(chunks: Sequence[_Chunk]) -> None:
    """Raise KeyTablesError if every replica of some keys answers that it has no tables: waiting will not help."""
    for chunk in chunks:
        if chunk.unanswered and all(isinstance(error, KeyTablesError) for error in chunk.errors):
            raise KeyTablesError("; ".join(map(str, chunk.errors)))


def _raise_if_left_out(chunks: Sequence[_Chunk]) -> None:
    """Raise the first error of a replica that was left out."""
    for chunk in chunks:
        if chunk.errors:
            raise chunk.errors[0]


def counts_of(server: str, by_keyinfo: Mapping[int, int]) -> ServerCounts:
    """The counts of a server that answered, from its numbers of keys by keyinfo."""
    by_state = {state.name.lower(): by_keyinfo.get(state, 0) for state in KeyState}
    other = sum(by_keyinfo.values()) - sum(by_state.values())
    if other:
        by_state["other"] = other
    return ServerCounts(server, sum(by_state.values()), by_state)


def open_key_store(config: KeyStorageConfig, password: str | None = None, *, first: int = 0) -> ShardedKeyStore:
    """The store that `key_storage` describes. Connects to nothing before the first request.

    `password`: of `config.user` on MySQL servers, None for none; it appears in no message or repr. `first`: the place
    of the server that is asked first. Raises ConfigError for a server name or a replication that cannot be.
    """
    servers = [_server(config, name, password) for name in config.servers]
    return ShardedKeyStore(servers, config.replication, connections=config.connections, first=first)


def own_server(config: Config, node: str) -> int:
    """The place of a node's own key server, which the node asks first.

    It is the server whose host is the node's name; else, where there are as many servers as nodes, the one at the
    node's place in `servers`; else the first. Which it is changes no result: with a server on each node the nodes
    begin at different servers, and not all at the first one.
    """
    names = config.key_storage.servers
    hosts = [name.rpartition(":")[0] or name for name in names]
    if node in hosts:
        return hosts.index(node)
    if node in config.servers and len(names) == len(config.servers):
        return config.servers.index(node)
    return 0


def _server(config: KeyStorageConfig, name: str, password: str | None) -> KeyServer:
    if is_sqlite_server(name):
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
