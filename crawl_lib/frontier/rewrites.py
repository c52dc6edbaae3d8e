"""Writing a whole queue again, each time by one move.

A queue made by hand is adopted; the queue of other nodes than today's is divided again; `krake retry --now` changes the
times of lines; requisites come before all other lines. The new queue is written to its own files, and URLs of other
nodes follow the URLs already handed on. Then one move puts everything in place. A kill before the move has changed
nothing but keys; after the move's beginning, the next task carries out the move.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from hashlib import sha1
from itertools import chain, compress
from typing import TYPE_CHECKING

from crawl_lib.durable import fsync_file, reached, write_durable
from crawl_lib.errors import UrlError
from crawl_lib.frontier.directory import NodeDirectory
from crawl_lib.frontier.hostcounts import counts_bytes, host_of_line
from crawl_lib.frontier.journal import IntakeReport
from crawl_lib.frontier.move import Change, HeldQueue, move_id
from crawl_lib.frontier.queue import State
from crawl_lib.frontier.record import digest_of
from crawl_lib.frontier.takes import OTHERS
from crawl_lib.urlfiles import (
    ScopeFile,
    decode_meta,
    due_of,
    encode_meta,
    file_lines,
    is_requisite,
    join_line,
    key_of_line,
    some_lines,
)
from crawl_lib.urls import Owners, Rejection, canonicalize, host_of, refused_port

if TYPE_CHECKING:  # fetching processes import this package
    from crawl_lib.keys import ShardedKeyStore

EXAMPLES = 20
_INSERT_KEYS = 50_000


def refuse(
    counts: dict[str, int], examples: list[str], error: UrlError, where: str, words: str = ""
) -> None:
    """Count a refused line, and name the first lines.

    The content of a line is left out: not everybody who reads results may see the line.

    `words`: the reason in words, if any.
    """
    reason = str(error.reason)
    counts[reason] = counts.get(reason, 0) + 1
    if len(examples) < EXAMPLES:
        examples.append(f"{where}: {words or reason}")


class Rewrites:
    """The means to rewrite the queue of a node whose lock is held: see `NodeHome.rewrites`. Each is one move."""

    def __init__(self, queue: HeldQueue) -> None:
        self._queue = queue

    def adopt(
        self, keys: "ShardedKeyStore", owners: Owners | None, *, max_length_chars: int = 2000
    ) -> None:
        """Adopt a queue made by hand, or make an empty queue.

        An open move is finished first. Lines of a queue made by hand become canonical, and their keys known; known URLs
        stay. Repeats within the queue are dropped, and counted. `owners`: with `host` routing; URLs of other nodes go
        to the file `handed_on`, and travel with the next segment past the key check. None: all URLs stay here. The
        hosts go to the file `scope_added`. Raises QueueError, KeyStoreError or StorageError.
        """
        queue = self._queue
        queue.require_no_take()
        queue.finish_open_move()
        queue.create()
        state = queue.state()
        if queue.is_ours(state):
            return
        report, scope, repeated = _write(queue, state, owners, max_length_chars)
        if repeated:
            report, scope, _ = _write(queue, state, owners, max_length_chars, repeated)
        reached("adopt.written")
        scope |= {*queue.scope_added()}
        write_durable(queue.files.adopted_scope, ScopeFile.data_of(scope))
        _count_hosts(queue, keys)
        reached("adopt.files_written")
        ours = (sha1(line).digest() for line in file_lines(queue.files.adopted))
        for some in some_lines(
            chain(ours, map(key_of_line, file_lines(queue.files.adopted_handed_on))), _INSERT_KEYS
        ):
            report.add_missed(keys.insert(some))
        reached("adopt.inserted")
        record = queue.record()
        size = queue.files.adopted.stat().st_size
        change = Change(
            move_id=move_id(
                "adopt", record.last_move, state.processed, state.totals, size, asdict(report)
            ),
            state=state,
            record=report.added_to(record),
            ours=True,
            appended=(NodeDirectory.adopted, report.adopted),
            replaces=True,
            deletes=[NodeDirectory.adopted_counted],
            renames=[
                (NodeDirectory.adopted_handed_on, NodeDirectory.handed_on),
                (NodeDirectory.adopted_scope, NodeDirectory.scope_added),
            ],
            counts_hosts=True,
        )
        queue.change(change)

    def rehome(self, owners: Owners | None) -> int:
        """Hand on the URLs that other nodes own; return how many.

        `owners`: with `host` routing; None: all URLs stay. Handed-on URLs go to the file `handed_on`, and travel with
        the next segment past the key check, since their keys are in the tables. The queue is read only if other nodes
        filled the queue. Host counts (`urls.max_pages_per_host`) stay: the new owner counts the handed-on URLs, not
        earlier fetches. A queue made by hand is left alone until its adoption. The caller has finished an open take.
        Raises QueueError or StorageError.
        """
        queue = self._queue
        queue.require_settled()
        record, state = queue.record(), queue.state()
        nodes = tuple(sorted(owners.nodes)) if owners else ()
        if record.nodes == nodes or not queue.is_ours(state):
            return 0
        changed = replace(record, nodes=nodes)
        if not state.length:
            queue.write_record(changed)
            reached("rehome.empty")
            return 0
        handed = kept = 0
        if owners:
            kept = _divide(queue, state, owners)
            handed = state.length - kept
        change = Change(
            move_id=move_id("rehome", record.last_move, nodes),
            state=state,
            record=IntakeReport(handed_on=handed).added_to(changed) if handed else changed,
            ours=True,
            appended=(NodeDirectory.rehomed, kept if handed else 0),
            replaces=bool(handed),
            deletes=[] if handed else [NodeDirectory.rehomed_handed_on],
            renames=[(NodeDirectory.rehomed_handed_on, NodeDirectory.handed_on)] if handed else [],
        )
        queue.change(change)
        return handed

    def make_due(self, new_due: Callable[[bytes, bytes], int], notes: Sequence[str]) -> int:
        """Change due times of lines; return how many lines changed.

        The notes that ask for new times are recorded as followed.

        `new_due`: the POSIX seconds from which on a line (of data and meta) may be taken. `notes`: the names of all
        notes that the queue has followed then. The queue keeps its order. The caller has adopted the queue. One move
        does all: run again after a kill, the function finds the notes recorded, or nothing changed.

        Raises QueueError, DamagedFileError or StorageError.
        """
        queue = self._queue
        queue.require_no_take()
        queue.require_settled()
        state, record, where = queue.state(), queue.record(), str(queue.directory)

        def lines() -> Iterator[tuple[bytes, bytes]]:
            for url, meta in queue.lines(state):
                due = new_due(url, meta)
                is_same = due == due_of(meta)
                yield (
                    url,
                    meta
                    if is_same
                    else encode_meta(replace(decode_meta(url, meta, where), due=due)),
                )

        changed = sum(new_due(*line) != due_of(line[1]) for line in queue.lines(state))
        count = queue.write_lines(NodeDirectory.made_due, lines()) if changed else 0
        reached("retry_now.written")
        change = Change(
            move_id=move_id("due", record.last_move, [*notes]),
            state=state,
            record=replace(record, made_due=tuple(notes)),
            ours=True,
            appended=(NodeDirectory.made_due, count),
            replaces=bool(changed),
        )
        queue.change(change)
        return changed

    def bring_forward(self) -> int:
        """Move requisites before all other lines; return how many there are.

        Requisites keep their order, and so do the other lines. The caller has adopted the queue. If a requisite is
        behind another line, one move replaces the queue, in time linear in its length. Run again after a kill, the
        function finds the work done, or begins again. Raises QueueError, DamagedFileError or StorageError.
        """
        queue = self._queue
        queue.require_no_take()
        queue.require_settled()
        state, record = queue.state(), queue.record()
        marks = bytearray(is_requisite(meta, is_meta=True) for _, meta in queue.lines(state))
        count = marks.count(1)
        if marks.rfind(1) < count:
            return count
        lines = chain(
            compress(queue.lines(state), marks),
            compress(queue.lines(state), marks.translate(OTHERS)),
        )
        written = queue.write_lines(NodeDirectory.made_due, lines)
        reached("forward.written")
        change = Change(
            move_id=move_id("forward", record.last_move, written, count),
            state=state,
            record=record,
            ours=True,
            appended=(NodeDirectory.made_due, written),
            replaces=True,
        )
        queue.change(change)
        return count


def _write(
    queue: HeldQueue,
    state: State,
    owners: Owners | None,
    max_length_chars: int,
    repeated: frozenset[int] = frozenset(),
) -> tuple[IntakeReport, set[str], frozenset[int]]:
    """Write `adopted` and `adopted.handed_on` in one pass.

    The queue was made by hand. Returns the report, the hosts, and the first 8 bytes of repeated keys: this takes 8
    bytes a line, where a set of keys would need 100. `repeated`: the beginnings of keys from an earlier pass.
    """
    import numpy as np  # noqa: PLC0415 - costs a process 110 ms at its start, and few ever adopt

    report, scope, prefixes = IntakeReport(), set[str](), array("Q")
    seen, earlier = set[bytes](), frozenset(queue.handed_on())

    def is_repeated(key: bytes) -> bool:
        """Return whether an earlier line has this key.

        The second pass, with the suspects of the first, is sure.
        """
        prefixes.append(prefix := int.from_bytes(key[:8], "big"))
        found = key in seen
        if prefix in repeated:
            seen.add(key)
        return found

    def lines() -> Iterator[tuple[bytes, bytes]]:
        for host, data, meta in _canonical_lines(queue, state, max_length_chars, report):
            if is_repeated(sha1(data).digest()):
                report.adopted_duplicates += 1
                continue
            scope.add(host)
            if owners is None or owners.owner(host) == queue.node:
                yield data, meta
                continue
            report.adopted_handed_on += 1
            if (handed := join_line(data, meta, b"h")) not in earlier:
                handed_on.write(handed + b"\n")

    with queue.files.adopted_handed_on.open("wb") as handed_on:
        handed_on.writelines(line + b"\n" for line in queue.handed_on())
        report.adopted = queue.write_lines(NodeDirectory.adopted, lines())
        fsync_file(handed_on)
    values = np.sort(np.array(prefixes, np.uint64))
    return report, scope, frozenset(values[1:][values[1:] == values[:-1]].tolist())


def _canonical_lines(
    queue: HeldQueue, state: State, max_length_chars: int, report: IntakeReport
) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield host, canonical URL and meta of each waiting line.

    Invalid URLs are counted in `report`.
    """
    places = (
        (number, line)
        for number, total in enumerate(state.totals)
        for line in range(0 if number else state.processed, total)
    )
    for (number, line), (url, meta) in zip(places, queue.lines(state), strict=True):
        try:
            text = url.decode("utf-8", "surrogateescape")
            if (
                "\0" in text
            ):  # a file system that lost power leaves zeros, which the URL standard would strip
                raise UrlError(Rejection.INVALID, text)
            canonical = canonicalize(text.strip(), max_length_chars=max_length_chars)
            host = host_of(canonical)
            if refused_port(canonical, host) is not None:
                raise UrlError(Rejection.PORT, canonical)
        except UrlError as error:
            refuse(
                report.adopted_refused,
                report.examples,
                error,
                f"{queue.files.data(number)}:{line + 1}",
            )
        else:
            yield host, canonical.encode(), meta


def _count_hosts(queue: HeldQueue, keys: "ShardedKeyStore") -> None:
    """Count the new URLs of each host.

    Edited URLs of a queue of ours were counted before. After the insertion of keys, edited and new URLs look the same:
    so a note has the digests of lines and counts, and a rerun keeps the counts.
    """
    path, note = queue.files.adopted, queue.files.adopted_counted
    lines = digest_of(path)
    if (
        note.exists()
        and note.read_bytes() == f"{lines} {digest_of(queue.files.new_hosts)}".encode()
    ):
        return
    hosts: Counter[bytes] = Counter()
    for some in some_lines(file_lines(path), _INSERT_KEYS):
        keyed = {sha1(line).digest(): line for line in some}
        hosts.update(
            host_of_line(keyed[key]) for key in keyed.keys() - keys.unknown(list(keyed)).known
        )
    write_durable(queue.files.new_hosts, counts_bytes(hosts))
    write_durable(note, f"{lines} {digest_of(queue.files.new_hosts)}".encode())
    reached("adopt.counted")


def _divide(queue: HeldQueue, state: State, owners: Owners) -> int:
    """Write `rehomed` with the URLs that stay, and `rehomed.handed_on`; return how many stay."""

    def kept() -> Iterator[tuple[bytes, bytes]]:
        for url, meta in queue.lines(state):
            if owners.owner(host_of_line(url).decode()) == queue.node:
                yield url, meta
            else:
                handed_on.write(join_line(url, meta, b"h") + b"\n")

    with queue.files.rehomed_handed_on.open("wb") as handed_on:
        handed_on.writelines(line + b"\n" for line in queue.handed_on())
        count = queue.write_lines(NodeDirectory.rehomed, kept())
        fsync_file(handed_on)
    reached("rehome.written")
    return count
