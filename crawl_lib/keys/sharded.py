"""The key store over many servers: each key on the server of its interval and on the next ones in the ring."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import ParamSpec, TypeVar

from crawl_lib.errors import KeyServerDownError, KeyStoreError, KeyTablesError
from crawl_lib.keys.base import STATEMENT_KEYS, Answer, Claim, InsertReport, KeyServer, KeyStore, ServerCounts
from crawl_lib.keys.ring import ring, split
from crawl_lib.states import KeyState

_T = TypeVar("_T")
_P = ParamSpec("_P")
DOWN_S = 30.0
_STATES = frozenset(KeyState)


class ShardedKeyStore(KeyStore):
    """A KeyStore over `servers`, in the order of the config.

    `replication`: servers that hold each key, from 1 to their number (else ConfigError). `down_s`: seconds for which
    a server that did not answer is left alone. `clock`: monotonic seconds.
    """

    def __init__(
        self,
        servers: Sequence[KeyServer],
        replication: int = 1,
        *,
        down_s: float = DOWN_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.servers = list(servers)
        self.replication = replication
        self._rings = [ring(index, len(servers), replication) for index in range(len(servers))]
        self._down: dict[int, tuple[float, str]] = {}
        self._down_s = down_s
        self._clock = clock

    def places(self, first: int) -> list[int]:
        """The places of the servers that hold the interval `first`, the first server first."""
        return self._rings[first]

    def unknown(self, keys: Collection[bytes]) -> Answer:
        answer = Answer()
        for places, chunk in self._chunks(keys):
            self._ask_chunk(places, chunk, answer)
        return answer

    def _ask_chunk(self, places: Sequence[int], chunk: Sequence[bytes], answer: Answer) -> None:
        """Ask the replicas one after the other, each for what the ones before it did not know."""
        left = chunk
        answered = False
        for place in places:
            if not left:
                break
            try:
                found = self._ask(place, self.servers[place].known, left)
            except KeyServerDownError:
                continue
            answered = True
            if found:
                answer.known.update(found)
                left = [key for key in left if key not in found]
        (answer.new if answered else answer.undecided).update(left)

    def insert(self, keys: Collection[bytes], state: KeyState = KeyState.QUEUED) -> InsertReport:
        return self._write(keys, lambda server, chunk: server.insert(chunk, state))

    def mark(self, keys: Collection[bytes], state: KeyState) -> InsertReport:
        return self._write(keys, lambda server, chunk: server.mark(chunk, state))

    def _write(self, keys: Collection[bytes], write: Callable[[KeyServer, Sequence[bytes]], None]) -> InsertReport:
        missed: Counter[str] = Counter()
        lost: dict[str, None] = {}
        for places, chunk in self._chunks(keys):
            down = self._write_chunk(places, chunk, write, missed)
            if len(down) == len(places):
                lost.update(dict.fromkeys(down))
        if lost:
            raise KeyServerDownError(
                f"no key server answers for some keys; down: {'; '.join(lost)}: run again when one is back"
            )
        return InsertReport(dict(missed))

    def _write_chunk(
        self,
        places: Sequence[int],
        chunk: Sequence[bytes],
        write: Callable[[KeyServer, Sequence[bytes]], None],
        missed: Counter[str],
    ) -> list[str]:
        """Write to each replica; returns the errors of those that are down."""
        down = []
        for place in places:
            try:
                self._ask(place, write, self.servers[place], chunk)
            except KeyServerDownError as error:
                missed[self.servers[place].name] += len(chunk)
                down.append(str(error))
        return down

    def claim(self, keys: Collection[bytes]) -> Claim:
        missed: Counter[str] = Counter()
        claim = Claim()
        for places, chunk in self._chunks(keys):
            self._claim_chunk(places, chunk, claim, missed)
        claim.missed.update(missed)
        return claim

    def _claim_chunk(self, places: Sequence[int], chunk: Sequence[bytes], claim: Claim, missed: Counter[str]) -> None:
        """Drop what another replica knew before, let the first one that answers decide, and tell the others.

        Reading before, never after, the decision keeps URLs: two writers that were decided by different replicas
        would drop each other's if they looked at the other replica afterwards.
        """
        left: Sequence[bytes] = chunk
        if len(places) > 1:
            before = Answer()
            self._ask_chunk(places, chunk, before)
            claim.theirs.update(before.known)
            left = [key for key in chunk if key not in before.known]
        if not left:
            return
        down: list[str] = []
        for at, place in enumerate(places):
            server = self.servers[place]
            try:
                decided = self._ask(place, server.claim, left)
            except KeyServerDownError:
                down.append(server.name)
                continue
            claim.ours.update(decided.ours)
            claim.theirs.update(decided.theirs)
            claim.unsure.update(decided.unsure)
            kept = sorted(decided.ours | decided.unsure)
            if kept:
                missed.update(dict.fromkeys(down, len(kept)))
                self._write_chunk(places[at + 1 :], kept, _insert_queued, missed)
            return
        claim.unsure.update(left)
        claim.unreached.update(left)

    def forget(self, keys: Collection[bytes]) -> int:
        chunks = list(self._chunks(keys))
        self._down.clear()
        for place in sorted({place for places, _ in chunks for place in places}):
            self._ask(place, self.servers[place].exists)
        forgotten = 0
        for places, chunk in chunks:
            known: set[bytes] = set()
            for place in places:
                known |= self._ask(place, self.servers[place].known, chunk)
                self._ask(place, self.servers[place].delete, chunk)
            forgotten += len(known)
        return forgotten

    def states(self, keys: Collection[bytes]) -> dict[bytes, KeyState | None]:
        found: dict[bytes, KeyState] = {}
        for places, chunk in self._chunks(keys):
            errors = []
            for place in places:
                try:
                    states = self._ask(place, self.servers[place].states, chunk)
                except KeyServerDownError as error:
                    errors.append(error)
                    continue
                for key, state in states.items():
                    found[key] = max(state_of(state), found.get(key, KeyState.QUEUED))
            if len(errors) == len(places):
                raise errors[0]
        return {key: found.get(key) for key in keys}

    def counts(self) -> list[ServerCounts]:
        self._down.clear()
        return [self._counts_of(place) for place in range(len(self.servers))]

    def _counts_of(self, place: int) -> ServerCounts:
        name = self.servers[place].name
        try:
            found = self._ask(place, self.servers[place].counts)
        except KeyStoreError as error:
            return ServerCounts(name, up=False, error=str(error))
        by_state = {state.name.lower(): found.pop(state, 0) for state in KeyState}
        if found:
            by_state["other"] = sum(found.values())
        return ServerCounts(name, sum(by_state.values()), by_state)

    def exists(self) -> bool:
        self._down.clear()
        # Every server is asked: one that is down must not hide behind one that has no tables.
        standing = [self._ask(place, self.servers[place].exists) for place in range(len(self.servers))]
        return all(standing)

    def create(self, *, drop: bool = False) -> None:
        self._down.clear()
        standing = [
            server.name for place, server in enumerate(self.servers) if self._ask(place, self.servers[place].exists)
        ]
        if standing and not drop:
            raise KeyTablesError(
                f"key tables stand already on {', '.join(standing)}: nothing was touched;"
                " `krake keys create --drop` deletes them with all their keys and creates new ones"
            )
        for place in range(len(self.servers)):
            self._ask(place, self.servers[place].create, drop=drop)

    def create_missing(self) -> list[str]:
        """Create the key tables where there are none, touch no others; returns the names of those servers.

        For a set-up that may be run again, and for a server that came back with an empty disk (a repair then fills
        it). Raises KeyServerDownError if one does not answer.
        """
        self._down.clear()
        standing = [self._ask(place, server.exists) for place, server in enumerate(self.servers)]
        missing = [place for place, stands in enumerate(standing) if not stands]
        for place in missing:
            self._ask(place, self.servers[place].create)
        return [self.servers[place].name for place in missing]

    def ensure_tables(self) -> None:
        for server in self.servers:
            server.ensure()

    def close(self) -> None:
        for server in self.servers:
            server.close()

    def _chunks(self, keys: Collection[bytes]) -> Iterator[tuple[list[int], Sequence[bytes]]]:
        """Statements' worth of sorted keys, each with the places of their replicas."""
        ordered = sorted(keys if isinstance(keys, set | frozenset) else set(keys))
        for first, part in enumerate(split(ordered, len(self.servers))):
            for start in range(0, len(part), STATEMENT_KEYS):
                yield self._rings[first], part[start : start + STATEMENT_KEYS]

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


def _insert_queued(server: KeyServer, keys: Sequence[bytes]) -> None:
    server.insert(keys, KeyState.QUEUED)


def state_of(keyinfo: int) -> KeyState:
    """The state that a keyinfo means; one that is none of ours (an older table, a row by hand) means known, no more."""
    return KeyState(keyinfo) if keyinfo in _STATES else KeyState.QUEUED
