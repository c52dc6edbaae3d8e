"""Taking in the URLs for this node from segments and seeds: URLs with new keys join the queue."""

from collections import Counter
from collections.abc import Callable, Collection, Container, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from hashlib import sha1
from itertools import islice
from typing import TYPE_CHECKING

from crawl_lib.dataclass import dataclass
from crawl_lib.durable import reached, write_durable
from crawl_lib.errors import StoppedError
from crawl_lib.frontier.admission import Admission
from crawl_lib.frontier.directory import NodeDirectory
from crawl_lib.frontier.fairness import interleaved
from crawl_lib.frontier.hostcounts import HostCounts
from crawl_lib.frontier.journal import (
    CLAIM,
    INSERT,
    UNDECIDED,
    IntakeReport,
    Journal,
    open_journal,
)
from crawl_lib.frontier.move import Change, HeldQueue, move_id
from crawl_lib.frontier.queue import Queue
from crawl_lib.frontier.record import Record
from crawl_lib.states import KeyState
from crawl_lib.urlfiles import (
    CHUNK_BYTES,
    HANDED_ON_MARK,
    Source,
    bytes_of,
    file_lines,
    is_listed,
    is_requisite,
    key_of_line,
    key_of_via,
    next_lines,
    some_lines,
    split_line,
    via_of_line,
)
from crawl_lib.urls import Budgets, Rejection, Traps

if TYPE_CHECKING:  # fetching processes import this package
    import numpy as np
    import numpy.typing as npt

    from crawl_lib.keys import ShardedKeyStore

CHUNK_LINES = 50_000
DROPPED = b""
"""In place of a dropped line: an intake counts the lines of its sources, to go on at the right line after a kill."""


@dataclass(frozen=True)
class IntakeRules:
    """How a node takes URLs in.

    `routing`: `host` or `local`. `budgets`, `traps`: see `Admission`. `chunk_lines`: the number of lines in a decision.
    `full_pages`: finds, among keys of pages, those with too many equal pages: links of such pages do not join.
    """

    routing: str
    budgets: Budgets | None = None
    traps: Traps | None = None
    chunk_lines: int = CHUNK_LINES
    full_pages: Callable[[Collection[bytes]], Collection[bytes]] | None = None


class Intake:
    """The intake of a node whose lock is held: see `NodeHome.intake`."""

    def __init__(self, queue: HeldQueue) -> None:
        self._queue = queue

    def run(
        self,
        sources: Sequence[Source],
        keys: "ShardedKeyStore",
        rules: IntakeRules,
        *,
        complete_folders: Collection[str] = (),
        stop: Callable[[], bool] | None = None,
        on_progress: Callable[[IntakeReport], None] | None = None,
    ) -> None:
        """Take in the new sources, in the order given.

        The same task has adopted the queue.

        `complete_folders`: folders without further sources after these; their record is kept short.
        `stop`: asked between chunks. `Record.report` has the counts. Raises QueueError, KeyStoreError, StorageError or
        StoppedError; after any error, the next call goes on there.
        """
        queue = self._queue
        queue.require_no_take()
        queue.require_settled()
        record = queue.record()
        waiting = {
            (one.folder, one.node): one
            for one in sources
            if (one.folder, one.node) not in record.taken_in
        }
        goes_on = queue.files.journal.exists() or queue.files.undecided.exists()
        if not goes_on and all(source.is_empty for source in waiting.values()):
            if waiting:  # no URL joins, so one file is enough, without a journal and a move
                taken = _with_taken_in(record, list(waiting), waiting, complete_folders)
                queue.write_record(taken)
                reached("intake.empty")
            return
        journal = open_journal(queue, list(waiting))
        admission = Admission(queue.directory, rules.budgets, rules.traps)
        run = _IntakeRun(
            queue, waiting, keys, rules, journal, admission, _PastCheck(queue, keys, record.again)
        )
        run.resume()
        with closing(run.chunks()) as chunks:
            for lines in chunks:
                run.take_in(lines)
                if on_progress:
                    on_progress(run.report)
                if stop and stop():
                    raise StoppedError(
                        f"{queue.directory}: the intake was stopped; it goes on when run again"
                    )
        run.finish(complete_folders)

    def take_in_again(self) -> None:
        """Forget the sources taken in, so that all are read again.

        The next intake reads every source, and drops known URLs. For URLs that no queue holds any more, and that
        segments and seeds still have. An open intake goes on, and reads its finished sources once more. Raises
        QueueError, DamagedFileError. Repeatable.
        """
        queue = self._queue
        queue.finish_open_move()
        HostCounts(queue.directory).begin_groups()
        if queue.files.record.exists():
            queue.write_record(queue.record().taking_in_again())
        journal = Journal.read(queue.directory)
        if journal is not None and journal.at:
            journal.plan, journal.at = journal.plan[journal.at :], 0
            journal.write(queue.directory)


@dataclass
class _IntakeRun:
    """The work of an intake on its lines: new URLs join `new`, and their keys are inserted.

    `journal`: the progress of the work. `admission`: counts the URLs in `new`.
    """

    queue: HeldQueue
    sources: Mapping[tuple[str, str], Source]
    keys: "ShardedKeyStore"
    rules: IntakeRules
    journal: Journal
    admission: Admission
    past_check: "_PastCheck"

    @property
    def report(self) -> IntakeReport:
        """The report of the work so far."""
        return self.journal.report

    def resume(self) -> None:
        """Repeat the step that the journal names as under way."""
        if self.journal.is_claiming:
            lines = [*file_lines(self.queue.files.new_claim)]
            self.report.unsure += sum(HANDED_ON_MARK not in line for line in lines)
            self._append(lines)
        if self.journal.phase == INSERT:
            urls = file_lines(self.queue.files.new, self.journal.chunk_bytes)
            self._insert_keys([sha1(url).digest() for url in urls])

    def chunks(self) -> Generator[list[bytes]]:
        """Yield the remaining lines in chunks.

        The journal has the place of the lines after a chunk.
        """
        journal, most, lines, size = self.journal, self.rules.chunk_lines, list[bytes](), 0
        while journal.at < len(journal.plan):
            with closing(self._source(*journal.plan[journal.at])) as source:
                next(islice(source, journal.line, journal.line), None)
                while some := next_lines(source, most - len(lines), CHUNK_BYTES - size):
                    lines += some
                    size += bytes_of(some)
                    journal.line += len(some)
                    if len(lines) == most or size >= CHUNK_BYTES:
                        yield lines
                        lines, size = [], 0
            journal.at, journal.line = journal.at + 1, 0
        if lines:
            yield lines

    def _source(self, folder: str, node: str) -> Generator[bytes]:
        """Yield a source's lines, with `DROPPED` for some.

        A dropped line was handed on, and its URL is known.
        """
        if (folder, node) == UNDECIDED:
            yield from self.queue.undecided()
            return
        lines = self.sources[folder, node].open()
        try:
            for some in some_lines(lines, CHUNK_LINES):
                yield from self.past_check.chosen(some, (folder, node))
        finally:
            if hasattr(lines, "close"):
                lines.close()

    def take_in(self, lines: list[bytes]) -> None:
        """Decide on one chunk, and append the new URLs."""
        accepted = self._decide(lines)
        if self.rules.routing == "local" and accepted:
            self._insert_keys(self._claim(accepted))
        else:
            self._insert_keys(self._append(accepted))

    def _decide(self, lines: list[bytes]) -> list[bytes]:
        """Return the lines to append, and count all lines.

        Undecided lines go to their file.
        """
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
        answer = self.keys.unknown(
            [key for key in fresh if key not in past] if past else list(fresh)
        )
        new = answer.new | past
        accepted = [line for key, line in fresh.items() if key in new]
        undecided = [line for key, line in fresh.items() if key in answer.undecided]
        report.duplicates += len(lines) - len(fresh)
        report.known += len(fresh) - len(accepted) - len(undecided)
        report.past_check += len(past)
        self._keep_undecided(undecided)
        wanted = self._without_similar(accepted)
        kept, rejected = self.admission.choose(wanted)
        rejected[Rejection.SIMILAR] += len(accepted) - len(wanted)
        report.rejected = dict(Counter(report.rejected) + rejected)
        report.over_budget, self.admission.refused = (
            IntakeReport.largest(report.over_budget, self.admission.refused),
            Counter(),
        )
        return kept

    def _without_similar(self, lines: list[bytes]) -> list[bytes]:
        """Return the lines, except links of `IntakeRules.full_pages`.

        Lines of other nodes, lines of lists and requisites stay.
        """
        if self.rules.full_pages is None:
            return lines
        stays = (HANDED_ON_MARK in line or is_listed(line) or is_requisite(line) for line in lines)
        judged = [b"" if one else via_of_line(line) for one, line in zip(stays, lines, strict=True)]
        keys = {via: key_of_via(via) for via in set(judged)}
        full = self.rules.full_pages({*keys.values()} - {b""})
        return (
            [line for line, via in zip(lines, judged, strict=True) if keys[via] not in full]
            if full
            else lines
        )

    def _claim(self, lines: list[bytes]) -> list[bytes]:
        """Claim keys, and append the URLs that are ours.

        Only a definite answer to the first sending drops a URL. Returns the keys that still have to be inserted.
        """
        keyed = {key_of_line(line): line for line in lines}
        self.journal.write_candidates(self.queue.directory, lines)
        reached("intake.claim.written")
        self._note(CLAIM)
        reached("intake.claim.journalled")
        claim = self.keys.claim([key for key, line in keyed.items() if HANDED_ON_MARK not in line])
        reached("intake.claimed")
        self.report.add_missed(claim.missed)
        self.report.known += len(claim.theirs)
        self.report.unsure += len(claim.unsure - claim.unreached)
        self._keep_undecided([line for key, line in keyed.items() if key in claim.unreached])
        dropped = claim.theirs | claim.unreached
        appended = self._append([line for key, line in keyed.items() if key not in dropped])
        return [key for key in appended if key not in claim.ours]

    def _append(self, lines: Sequence[bytes]) -> list[bytes]:
        """Append URLs to `new`; return their keys.

        Once the journal has these lines, the decision is final.
        """
        journal, directory = self.journal, self.queue.directory
        pairs = interleaved([split_line(line) for line in lines])
        journal.chunk_bytes = journal.new_bytes
        journal.append(directory, NodeDirectory.new, [url for url, _, _ in pairs])
        journal.append(directory, NodeDirectory.new_meta, [meta for _, meta, _ in pairs])
        self.admission.count([(url, meta) for url, meta, _ in pairs])
        journal.new_count += len(pairs)
        self.report.new += len(pairs)
        reached("intake.chunk.appended")
        self._note(INSERT)
        reached("intake.chunk.journalled")
        return [sha1(url).digest() for url, _, _ in pairs]

    def _keep_undecided(self, lines: Sequence[bytes]) -> None:
        """Keep lines for the next intake, which asks again.

        The journal of the chunk counts these lines.
        """
        self.journal.append(self.queue.directory, NodeDirectory.new_undecided, lines)
        self.journal.undecided_count += len(lines)
        self.report.undecided += len(lines)

    def _note(self, phase: str) -> None:
        self.journal.phase = phase
        self.journal.write(self.queue.directory)

    def _insert_keys(self, keys: list[bytes]) -> None:
        if keys:
            self.report.add_missed(self.keys.insert(keys))
        reached("intake.chunk.inserted")

    def finish(self, complete_folders: Collection[str]) -> None:
        """Finish the intake by one move.

        `new` becomes the last data file, the sources are noted, and the journal goes.
        """
        queue, journal = self.queue, self.journal
        if journal.new_count:
            write_durable(queue.files.new_hosts, self.admission.lines())
            reached("intake.hosts_written")
        state, record = queue.state(), queue.record()
        waits = bool(journal.undecided_count)
        change = Change(
            move_id=move_id(
                "intake",
                record.last_move,
                journal.plan,
                journal.new_bytes,
                asdict(self.report),
            ),
            state=state,
            record=self.report.added_to(
                _with_taken_in(record, journal.plan, self.sources, complete_folders)
            ),
            ours=queue.is_ours(state, record),
            appended=(NodeDirectory.new, journal.new_count),
            deletes=[
                *([] if waits else [NodeDirectory.undecided, NodeDirectory.new_undecided]),
                NodeDirectory.new_claim,
                NodeDirectory.journal,
            ],
            renames=[(NodeDirectory.new_undecided, NodeDirectory.undecided)] if waits else [],
            counts_hosts=bool(journal.new_count),
        )
        queue.change(change)


def _with_taken_in(
    record: Record,
    plan: Sequence[tuple[str, str]],
    sources: Mapping[tuple[str, str], Source],
    complete_folders: Collection[str],
) -> Record:
    """Return the record after all sources of a plan were taken in."""
    taken_in = record.taken_in.with_sources(
        [pair for pair in plan if pair != UNDECIDED], complete_folders
    )
    taken_in = taken_in.without_lists(
        but=complete_folders
    )  # without deleted lists, whose number has no limit
    # Whether all sources were divided among these nodes; unknown for undecided lines.
    found = [sources.get(pair) for pair in plan]
    divided = all(source and tuple(sorted(source.nodes)) in ((), record.nodes) for source in found)
    return replace(record, taken_in=taken_in, nodes=record.nodes if divided else ())


class _PastCheck:
    """The choice of handed-on lines that are taken in without a question to the key store.

    Their keys are known already, and only the line has the URL. But a URL may wait in this queue already, after two
    ways: from a queue that was divided again, and once more when the node was retired as lost. The line is then
    dropped.

    A node that takes in everything again (`Record.taking_in_again`, after the loss of its queue) looks for URLs that no
    queue holds any more. Earlier sources have whole queues of other nodes, with URLs mostly fetched long ago.
    Therefore a line of a source taken in earlier (`Record.again`) is also dropped if its page was crawled, unless a
    list asked for the page.
    """

    def __init__(
        self, queue: Queue, keys: "ShardedKeyStore", read_before: Container[tuple[str, str]]
    ) -> None:
        self._queue, self._keys, self._read_before = queue, keys, read_before
        self._here: npt.NDArray[np.bytes_] | None = None
        self._passed: set[bytes] = set()

    def chosen(self, some: list[bytes], source: tuple[str, str]) -> Iterator[bytes]:
        """Yield some lines of a source, with `DROPPED` for some.

        A source that was taken in before also raises KeyServerDownError: without a server there is no decision.
        """
        handed = {line: key_of_line(line) for line in some if HANDED_ON_MARK in line}
        wanted = set(handed.values())
        asked = {key for line, key in handed.items() if not is_listed(line)}
        if asked and source in self._read_before:
            states = self._keys.states(list(asked))
            wanted -= {
                key
                for key, state in states.items()
                if state is not None and state is not KeyState.QUEUED
            }
        wanted = self._not_here(wanted)
        for line in some:
            key = handed.get(line)
            if key is None or key in wanted:
                wanted.discard(key or b"")
                yield line
            else:
                yield DROPPED

    def _not_here(self, keys: set[bytes]) -> set[bytes]:
        """Return the keys whose URLs do not wait in this queue.

        Each key is returned once in an intake.
        """
        if not keys:
            return set()
        import numpy as np  # noqa: PLC0415 - fetching processes import this package, and have no use for it

        if self._here is None:
            self._here = np.unique(np.frombuffer(bytearray().join(self._keys_here()), "S20"))
        asked = list(keys)
        there: list[bool] = np.isin(np.array(asked, "S20"), self._here).tolist()
        passed = {
            key for key, is_there in zip(asked, there, strict=True) if not is_there
        } - self._passed
        self._passed |= passed
        return passed

    def _keys_here(self) -> Iterator[bytes]:
        """Yield the keys of all URLs in this queue.

        These URLs wait, were taken in by this intake, or leave with a segment. Candidates are left out: an intake that
        was killed before their journal reads them again.
        """
        for url, _ in self._queue.lines(self._queue.state()):
            yield sha1(url).digest()
        for name in (NodeDirectory.new, NodeDirectory.handed_on):
            yield from map(key_of_line, file_lines(self._queue.directory / name))
