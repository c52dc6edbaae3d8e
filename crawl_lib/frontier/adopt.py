"""Adopting a queue made by hand: its lines become canonical, and their keys known; none is dropped for being known."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from hashlib import file_digest, sha1
from typing import BinaryIO

from crawl_lib.durable import fsync_file, reached, write_durable
from crawl_lib.errors import UrlError
from crawl_lib.frontier.directory import NodeDirectory
from crawl_lib.frontier.hostcounts import counts_bytes, host_of_line
from crawl_lib.frontier.journal import IntakeReport
from crawl_lib.frontier.move import Appended, Change, carry_out_move, plan_move
from crawl_lib.frontier.outlinks import join_line, key_of_line, some_lines
from crawl_lib.frontier.queue import Queue, QueueReader, State
from crawl_lib.frontier.take import write_lines
from crawl_lib.keys import KeyStore
from crawl_lib.urls import Owners, Rejection, canonicalize, host_of, refused_port

EXAMPLES = 20
_INSERT_KEYS = 50_000


@dataclass
class _Adoption:
    """What one pass over the queue finds."""

    repeated: frozenset[int] = frozenset()
    report: IntakeReport = field(default_factory=IntakeReport)
    prefixes: array[int] = field(default_factory=lambda: array("Q"))
    scope: set[str] = field(default_factory=set)
    earlier: frozenset[bytes] = frozenset()
    seen: set[bytes] = field(default_factory=set)

    def is_repeated(self, key: bytes) -> bool:
        """Whether an earlier line has this key; sure in the second pass, where the suspects are known."""
        prefix = int.from_bytes(key[:8], "big")
        self.prefixes.append(prefix)
        if prefix not in self.repeated:
            return False
        if key in self.seen:
            return True
        self.seen.add(key)
        return False

    def suspects(self) -> frozenset[int]:
        """Key prefixes that came up more than once: 8 bytes a line, since a set of keys would need 100."""
        import numpy as np  # noqa: PLC0415 - costs a process 110 ms at its start, and few ever adopt

        values = np.sort(np.frombuffer(self.prefixes, dtype=np.uint64)) if self.prefixes else np.empty(0, np.uint64)
        return frozenset(values[1:][values[1:] == values[:-1]].tolist())


def adopt(queue: Queue, keys: KeyStore, owners: Owners | None, *, max_length_chars: int = 2000) -> IntakeReport:
    """Make a queue made by hand ours.

    `owners`: with `host` routing; URLs of other nodes go to the file `handed_on`, and travel with the next segment
    past the key check. None: they all stay here. The hosts go to the file `scope_added`. Repeats within the queue are
    dropped, and counted. Until its move is durable nothing has changed but keys, so a kill only means beginning anew.
    """
    state = queue.state()
    found = _read_all(queue, state, owners, _Adoption(), max_length_chars)
    suspects = found.suspects()
    if suspects:
        found = _read_all(queue, state, owners, _Adoption(repeated=suspects), max_length_chars)
    count = found.report.adopted
    reached("adopt.written")
    scope = sorted(found.scope.union(read_scope_added(queue)))
    write_durable(queue.files.adopted_scope, "".join(f"{host}\n" for host in scope).encode())
    _count_hosts(queue, keys)
    reached("adopt.files_written")
    _insert_all(queue, keys, found)
    reached("adopt.inserted")
    record = queue.record()
    change = Change(
        move_id=_move_id(queue, record.last_move, state, found),
        state=state,
        record=replace(record, pending=IntakeReport.from_mapping(record.pending).plus(found.report).to_mapping()),
        ours=True,
        appended=Appended(NodeDirectory.adopted, count),
        replaces=True,
        deletes=[
            NodeDirectory.adopted_counted,
            *([] if count else [NodeDirectory.adopted, f"{NodeDirectory.adopted}.meta"]),
        ],
        renames=[
            (NodeDirectory.adopted_handed_on, NodeDirectory.handed_on),
            (NodeDirectory.adopted_scope, NodeDirectory.scope_added),
        ],
        counts_hosts=True,
    )
    carry_out_move(queue, plan_move(queue, change))
    return found.report


def _read_all(queue: Queue, state: State, owners: Owners | None, found: _Adoption, max_length_chars: int) -> _Adoption:
    """One pass over the queue, which writes `adopted` and `adopted.handed_on`.

    The latter begins with what an earlier adoption left for the segment to come.
    """
    found.earlier = frozenset(read_handed_on(queue))
    with queue.files.adopted_handed_on.open("wb") as handed_on:
        handed_on.writelines(line + b"\n" for line in read_handed_on(queue))
        lines = _adopted_lines(queue, state, owners, found, handed_on=handed_on, max_length_chars=max_length_chars)
        found.report.adopted = write_lines(queue, NodeDirectory.adopted, lines)
        fsync_file(handed_on)
    return found


def read_handed_on(queue: Queue) -> Iterator[bytes]:
    """Outlink lines, flagged `h`, that the node's next segment carries to their owners."""
    path = queue.files.handed_on
    if path.exists():
        with path.open("rb") as file:
            for line in file:
                yield line.rstrip(b"\n")


def read_scope_added(queue: Queue) -> list[str]:
    """Hosts of adopted URLs, sorted, that the node's next segment adds to the scope."""
    path = queue.files.scope_added
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _adopted_lines(
    queue: Queue,
    state: State,
    owners: Owners | None,
    found: _Adoption,
    *,
    handed_on: BinaryIO,
    max_length_chars: int,
) -> Iterator[tuple[bytes, bytes]]:
    reader = QueueReader(queue, state)
    where = _places(state)
    for url, meta in reader.lines():
        number, line = next(where)
        try:
            text = url.decode("utf-8", "surrogateescape")
            canonical = canonicalize(text.strip(), max_length_chars=max_length_chars)
            host = host_of(canonical)
            if refused_port(canonical, host) is not None:
                raise UrlError(Rejection.PORT, canonical)
        except UrlError as error:
            refuse(found.report.adopted_refused, found.report.examples, error, f"{queue.files.data(number)}:{line}")
            continue
        data = canonical.encode()
        if found.is_repeated(sha1(data).digest()):
            found.report.adopted_duplicates += 1
            continue
        found.scope.add(host)
        if owners is not None and owners.owner(host) != queue.node:
            found.report.adopted_handed_on += 1
            handed = join_line(data, meta, b"h")
            if handed not in found.earlier:
                handed_on.write(handed + b"\n")
            continue
        yield data, meta


def _places(state: State) -> Iterator[tuple[int, int]]:
    """File and line (from 1) of each URL that waits."""
    for number, total in enumerate(state.totals):
        for line in range(state.processed if number == 0 else 0, total):
            yield number, line + 1


def refuse(counts: dict[str, int], examples: list[str], error: UrlError, where: str) -> None:
    """Count a refused line, and name the first ones: lines of a file are not for all who read results."""
    reason = str(error.reason)
    counts[reason] = counts.get(reason, 0) + 1
    if len(examples) < EXAMPLES:
        examples.append(f"{where}: {reason}")


def _count_hosts(queue: Queue, keys: KeyStore) -> None:
    """Write down how many URLs of each host are new: those of a queue of ours that people edited have been counted.

    Once keys are inserted nobody can tell any more, so a note says of which lines the counts are; a rerun keeps them.
    """
    path, note = queue.files.adopted, queue.files.adopted_counted
    with path.open("rb") as file:
        digest = file_digest(file, "sha1").hexdigest().encode()
    if note.exists() and note.read_bytes() == digest:
        return
    hosts: Counter[bytes] = Counter()
    with path.open("rb") as file:
        for lines in some_lines((line.rstrip(b"\n") for line in file), _INSERT_KEYS):
            keyed = {sha1(line).digest(): line for line in lines}
            hosts.update(host_of_line(keyed[key]) for key in keyed.keys() - keys.unknown(list(keyed)).known)
    write_durable(queue.files.new_hosts, counts_bytes(hosts))
    write_durable(note, digest)
    reached("adopt.counted")


def _insert_all(queue: Queue, keys: KeyStore, found: _Adoption) -> None:
    with queue.files.adopted.open("rb") as file:
        _insert(keys, found, (sha1(line.rstrip(b"\n")).digest() for line in file))
    with queue.files.adopted_handed_on.open("rb") as file:
        _insert(keys, found, map(key_of_line, file))


def _insert(keys: KeyStore, found: _Adoption, digests: Iterable[bytes]) -> None:
    for some in some_lines(digests, _INSERT_KEYS):
        for server, count in keys.insert(some).missed.items():
            found.report.missed[server] = found.report.missed.get(server, 0) + count


def _move_id(queue: Queue, last: str, state: State, found: _Adoption) -> str:
    """An id that no other move of this queue has: a digest of what was adopted, and of the move before."""
    size = queue.files.adopted.stat().st_size
    text = json.dumps([last, state.processed, state.totals, size, found.report.to_mapping()], sort_keys=True)
    return f"adopt-{sha1(text.encode()).hexdigest()}"
