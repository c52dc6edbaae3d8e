"""Taking in the URLs that segments and seeds hold for this node: those whose key is new join the queue."""

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import sha1
from itertools import islice
from typing import TYPE_CHECKING

from crawl_lib.durable import reached, write_durable
from crawl_lib.errors import StoppedError
from crawl_lib.frontier.directory import NodeDirectory
from crawl_lib.frontier.hostcounts import HostCounts, counts_bytes, host_of_line
from crawl_lib.frontier.journal import CLAIM, INSERT, UNDECIDED, Draft, IntakeReport, read_journal
from crawl_lib.frontier.move import Appended, Change, carry_out_move, move_id, plan_move
from crawl_lib.frontier.outlinks import HANDED_ON_MARK, Source, file_lines, key_of_line, some_lines, url_of_line
from crawl_lib.frontier.queue import Queue, QueueReader
from crawl_lib.frontier.take import require_no_take, require_settled
from crawl_lib.keys import ShardedKeyStore
from crawl_lib.states import KeyState
from crawl_lib.urls import Rejection

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

CHUNK_LINES = 50_000
DROPPED = b""
"""In place of a line that is dropped: an intake counts the lines of its sources, to go on where it was killed."""


def open_plan(queue: Queue) -> list[tuple[str, str]]:
    """(folder, node) of the sources that an unfinished intake has yet to finish; the next intake needs them."""
    journal = read_journal(queue.directory)
    return [pair for pair in journal.plan[journal.at :] if pair != UNDECIDED] if journal else []


def pending_report(queue: Queue) -> IntakeReport:
    """What intakes did since the last committed segment of this node: the segment to come reports it."""
    return IntakeReport.from_mapping(queue.record().pending)


def read_undecided(queue: Queue) -> Iterator[bytes]:
    """Outlink lines whose key servers did not answer; the next intake begins with them."""
    return file_lines(queue.files.undecided)


@dataclass(frozen=True)
class IntakeRules:
    """How a node takes URLs in.

    `routing`: `host` or `local`. `max_pages_per_host`: None: no limit. `chunk_lines`: how many are decided upon at a
    time.
    """

    routing: str
    max_pages_per_host: int | None = None
    chunk_lines: int = CHUNK_LINES


def intake(
    queue: Queue,
    sources: Sequence[Source],
    keys: ShardedKeyStore,
    rules: IntakeRules,
    *,
    complete_folders: Collection[str] = (),
    stop: Callable[[], bool] | None = None,
    on_progress: Callable[[IntakeReport], None] | None = None,
) -> None:
    """Take in each source that has not been taken in, in the order given. `queue`: adopted (`adopt`) by the same task.

    `complete_folders`: folders all of whose sources are taken in once these are; their record is kept short.
    `stop`: asked between chunks. `pending_report` says what was done.
    The caller holds the node's lock. Raises QueueError, KeyStoreError, StorageError or StoppedError; whatever
    happened, the next call goes on there.
    """
    require_no_take(queue)
    require_settled(queue)
    taken_in = queue.taken_in()
    waiting = [source for source in sources if (source.folder, source.node) not in taken_in]
    if not (waiting or queue.files.journal.exists() or queue.files.undecided.exists()):
        return
    with closing(_Intake(queue, waiting, keys, rules)) as run:
        run.resume()
        while run.read_chunk():
            if on_progress:
                on_progress(run.report)
            if stop and stop():
                raise StoppedError(f"{queue.directory}: the intake was stopped; it goes on when run again")
        run.finish(complete_folders)


class _Intake:
    """What an intake does with the lines that it reads: what is new joins the draft, and its key is inserted."""

    def __init__(self, queue: Queue, waiting: Sequence[Source], keys: ShardedKeyStore, rules: IntakeRules) -> None:
        """Bring the files to what the journal says, or begin; plan what is to be taken in."""
        self.sources = {(source.folder, source.node): source for source in waiting}
        self.draft = Draft.open(queue, list(self.sources))
        self.past_check = _PastCheck(queue, keys)
        self.report = self.draft.report
        self.keys, self.rules = keys, rules
        self._open: Generator[bytes] | None = None
        self._stored: dict[bytes, int] = {}
        self._last_keys: list[bytes] = []

    def close(self) -> None:
        """Close the source that is open."""
        if self._open:
            self._open.close()
        self._open = None

    def resume(self) -> None:
        """Do what the journal says was under way."""
        if self.draft.journal.phase == CLAIM:
            self._claim(self.draft.candidates(), first=False)
        if self.draft.journal.phase == INSERT:
            self._insert_keys(self.draft.keys_of_chunk())

    def read_chunk(self) -> bool:
        """Read, decide and append one chunk; False if nothing was left to read."""
        lines = self._next_lines()
        if not lines:
            return False
        accepted = self._decide(lines)
        if self.rules.routing == "local" and accepted:
            self.draft.write_candidates(accepted)
            self._claim(accepted, first=True)
        else:
            self._last_keys = self.draft.append(accepted)
        self._insert_keys(self._last_keys)
        return True

    def _next_lines(self) -> list[bytes]:
        """The next chunk, fewer lines only at the very end; the journal will say where the one after it begins."""
        journal, lines = self.draft.journal, list[bytes]()
        while (wanted := self.rules.chunk_lines - len(lines)) and journal.at < len(journal.plan):
            if self._open is None:
                self._open = self._open_source(*journal.plan[journal.at])
                next(islice(self._open, journal.line, journal.line), None)
            some = list(islice(self._open, wanted))
            lines += some
            journal.line += len(some)
            if len(some) < wanted:
                self.close()
                journal.at, journal.line = journal.at + 1, 0
        return lines

    def _open_source(self, folder: str, node: str) -> Generator[bytes]:
        """Its lines, with `DROPPED` in place of some that were handed on."""
        if (folder, node) == UNDECIDED:
            yield from read_undecided(self.draft.queue)
            return
        lines = self.sources[folder, node].open()
        try:
            for some in some_lines(lines, CHUNK_LINES):
                yield from self.past_check.chosen(some, (folder, node))
        finally:
            if hasattr(lines, "close"):
                lines.close()

    def _decide(self, lines: list[bytes]) -> list[bytes]:
        """Which lines to append; the undecided ones go to their file, all are counted."""
        fresh: dict[bytes, bytes] = {}
        past: set[bytes] = set()
        report = self.report
        report.seen += len(lines)
        report.known += lines.count(DROPPED)
        lines = [line for line in lines if line != DROPPED]
        for line in lines:
            key = key_of_line(line)
            if HANDED_ON_MARK in line:
                past.add(key)
                fresh[key] = line
            elif key not in fresh:
                fresh[key] = line
        answer = self.keys.unknown([key for key in fresh if key not in past] if past else list(fresh))
        new = answer.new | past
        accepted = [line for key, line in fresh.items() if key in new]
        undecided = [line for key, line in fresh.items() if key in answer.undecided]
        report.duplicates += len(lines) - len(fresh)
        report.known += len(fresh) - len(accepted) - len(undecided)
        report.past_check += len(past)
        self.draft.add_undecided(undecided)
        return self._limited(accepted, past)

    def _limited(self, accepted: list[bytes], past: set[bytes]) -> list[bytes]:
        """Drop, and count, what is over its host's limit."""
        limit = self.rules.max_pages_per_host
        if limit is None:
            return accepted
        hosts = [host_of_line(url_of_line(line)) for line in accepted]
        self._stored.update(
            HostCounts(self.draft.queue.directory).get({host for host in hosts if host not in self._stored})
        )
        chunk: Counter[bytes] = Counter()
        kept: list[bytes] = []
        for host, line in zip(hosts, accepted, strict=True):
            room = self._stored.get(host, 0) + self.draft.hosts[host] + chunk[host] < limit
            if room or HANDED_ON_MARK in line:
                chunk[host] += 1
                kept.append(line)
        if rejected := len(accepted) - len(kept):
            reason = str(Rejection.HOST_LIMIT)
            self.report.rejected[reason] = self.report.rejected.get(reason, 0) + rejected
        return kept

    def _claim(self, lines: list[bytes], *, first: bool) -> None:
        """Claim keys and append the URLs that are ours; only a definite answer to the first sending drops one."""
        keyed = {key_of_line(line): line for line in lines}
        asked = [key for key, line in keyed.items() if HANDED_ON_MARK not in line]
        if not first:
            self.report.unsure += len(asked)
            self._last_keys = self.draft.append(lines)
            return
        claim = self.keys.claim(asked)
        reached("intake.claimed")
        self.report.add_missed(claim.missed)
        self.report.known += len(claim.theirs)
        self.report.unsure += len(claim.unsure - claim.unreached)
        self.draft.add_undecided([line for key, line in keyed.items() if key in claim.unreached])
        dropped = claim.theirs | claim.unreached
        appended = self.draft.append([line for key, line in keyed.items() if key not in dropped])
        self._last_keys = [key for key in appended if key not in claim.ours]

    def _insert_keys(self, keys: list[bytes]) -> None:
        if keys:
            self.report.add_missed(self.keys.insert(keys).missed)
        reached("intake.chunk.inserted")

    def finish(self, complete_folders: Collection[str]) -> None:
        """One move: `new` becomes the last data file, the sources are noted, the journal goes."""
        draft, queue, journal = self.draft, self.draft.queue, self.draft.journal
        write_durable(queue.files.new_hosts, counts_bytes(draft.hosts))
        reached("intake.hosts_written")
        state, record = queue.state(), queue.record()
        taken_in = record.taken_in.with_sources([pair for pair in journal.plan if pair != UNDECIDED], complete_folders)
        nodes = record.nodes if self._is_divided_among(record.nodes) else ()
        waits = bool(journal.undecided_count)
        change = Change(
            move_id=move_id("intake", record.last_move, journal.plan, journal.new_bytes, journal.report),
            state=state,
            record=draft.report.added_to(replace(record, taken_in=taken_in, nodes=nodes)),
            ours=queue.is_ours(state),
            appended=Appended(NodeDirectory.new, journal.new_count),
            deletes=[
                *([] if waits else [NodeDirectory.undecided, NodeDirectory.new_undecided]),
                NodeDirectory.new_claim,
                NodeDirectory.journal,
            ],
            renames=[(NodeDirectory.new_undecided, NodeDirectory.undecided)] if waits else [],
            counts_hosts=True,
        )
        carry_out_move(queue, plan_move(queue, change))

    def _is_divided_among(self, nodes: tuple[str, ...]) -> bool:
        """Whether all that was taken in was divided among these nodes; of what was undecided that is not known."""
        sources = [self.sources.get(pair) for pair in self.draft.journal.plan]
        return all(source and tuple(sorted(source.nodes)) in ((), nodes) for source in sources)


class _PastCheck:
    """Which of the lines that other nodes handed on are taken in without asking the key store.

    Their keys are known already, and only the line has their URL. That is not so of a URL that waits in this queue:
    it came by two ways, such as from a queue that was divided again, and once more when the node was retired as lost.
    Such a line is dropped.

    A node that takes in everything again (`taken_in_anew`, a queue that was lost) looks for URLs that no queue holds
    any more. Whole queues that it once got from others would be queued again, most of it fetched long ago. So of
    sources that it has taken in before (`Record.again`) a line is dropped, too, if its page was crawled.
    """

    def __init__(self, queue: Queue, keys: ShardedKeyStore) -> None:
        self._queue, self._keys = queue, keys
        self._read_before = queue.record().again
        self._here: npt.NDArray[np.bytes_] | None = None
        self._passed: set[bytes] = set()

    def chosen(self, some: list[bytes], source: tuple[str, str]) -> Iterator[bytes]:
        """Some lines of a source, with `DROPPED` in place of those to drop.

        For a source that was taken in before this raises KeyServerDownError too: no server, no decision.
        """
        handed = {line: key_of_line(line) for line in some if HANDED_ON_MARK in line}
        wanted = set(handed.values())
        if wanted and source in self._read_before:
            states = self._keys.states(list(wanted))
            wanted = {key for key, state in states.items() if state is None or state is KeyState.QUEUED}
        wanted = self._not_here(wanted)
        for line in some:
            key = handed.get(line)
            if key is None or key in wanted:
                wanted.discard(key or b"")
                yield line
            else:
                yield DROPPED

    def _not_here(self, keys: set[bytes]) -> set[bytes]:
        """Those whose URLs do not wait in this queue; each once in an intake."""
        if not keys:
            return set()
        import numpy as np  # noqa: PLC0415 - fetching processes import this package, and have no use for it

        if self._here is None:
            self._here = np.unique(np.frombuffer(bytearray().join(self._keys_here()), "S20"))
        asked = list(keys)
        there: list[bool] = np.isin(np.array(asked, "S20"), self._here).tolist()
        passed = {key for key, is_there in zip(asked, there, strict=True) if not is_there} - self._passed
        self._passed |= passed
        return passed

    def _keys_here(self) -> Iterator[bytes]:
        """Keys of all that waits in this queue, that this intake has taken already, and that leaves with a segment.

        Not of candidates: an intake that was killed before its journal spoke of them reads them again.
        """
        for url, _ in QueueReader(self._queue, self._queue.state()).lines():
            yield sha1(url).digest()
        for name in (NodeDirectory.new, NodeDirectory.handed_on):
            yield from map(key_of_line, file_lines(self._queue.directory / name))
