"""Taking in the URLs that segments and seeds hold for this node: those whose key is new join the queue."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import sha1

from crawl_lib.durable import reached, write_durable
from crawl_lib.errors import QueueError, StoppedError
from crawl_lib.frontier.adopt import adopt
from crawl_lib.frontier.directory import NodeDirectory
from crawl_lib.frontier.hostcounts import HostCounts, counts_bytes, host_of_line
from crawl_lib.frontier.journal import (
    CLAIM,
    INSERT,
    UNDECIDED,
    Draft,
    IntakeReport,
    Journal,
    Pair,
    read_journal,
)
from crawl_lib.frontier.move import Appended, Change, carry_out_move, finish_open_move, plan_move
from crawl_lib.frontier.outlinks import HANDED_ON_MARK, key_of_line, url_of_line
from crawl_lib.frontier.past_check import DROPPED, PastCheck
from crawl_lib.frontier.queue import Queue
from crawl_lib.frontier.source import Source, SourceLines, file_lines
from crawl_lib.frontier.take import open_take
from crawl_lib.keys import KeyStore
from crawl_lib.urls import Owners, Rejection

CHUNK_LINES = 50_000


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

    `routing`: `host` or `local`. `owners`: who owns which host (needed by adoption with `host` routing).
    `max_pages_per_host`: None: no limit. `max_length_chars`: of a URL that people queued. `chunk_lines`: how many are
    decided upon at a time.
    """

    routing: str
    owners: Owners | None = None
    max_pages_per_host: int | None = None
    max_length_chars: int = 2000
    chunk_lines: int = CHUNK_LINES


def intake(
    queue: Queue,
    sources: Sequence[Source],
    keys: KeyStore,
    rules: IntakeRules,
    *,
    complete_folders: Collection[str] = (),
    stop: Callable[[], bool] | None = None,
    on_progress: Callable[[IntakeReport], None] | None = None,
) -> IntakeReport:
    """Take in each source that has not been taken in, in the order given; adopt a queue made by hand first.

    `complete_folders`: folders all of whose sources are taken in once these are; their record is kept short.
    `stop`: asked between chunks. Returns `pending_report`: the same again if there is nothing (more) to do.
    The caller holds the node's lock. Raises QueueError, KeyStoreError, StorageError or StoppedError; whatever
    happened, the next call goes on there.
    """
    if open_take(queue.directory) is not None:
        raise QueueError(f"{queue.directory}: a take is open; run the crawl task of this node again, which finishes it")
    finish_open_move(queue)
    queue.create()
    if not queue.is_ours():
        owners = rules.owners if rules.routing == "host" else None
        adopt(queue, keys, owners, max_length_chars=rules.max_length_chars)
    taken_in, past_check = queue.taken_in(), PastCheck(queue, keys)
    waiting = [past_check.of(source) for source in sources if (source.folder, source.node) not in taken_in]
    if waiting or queue.files.journal.exists() or queue.files.undecided.exists():
        with closing(_Intake(queue, waiting, keys, rules)) as run:
            run.resume()
            while run.read_chunk():
                if on_progress:
                    on_progress(run.report)
                if stop and stop():
                    raise StoppedError(f"{queue.directory}: the intake was stopped; it goes on when run again")
            run.finish(complete_folders)
    return pending_report(queue)


class _Intake:
    """What an intake does with the lines that it reads: what is new joins the draft, and its key is inserted."""

    def __init__(self, queue: Queue, waiting: Sequence[Source], keys: KeyStore, rules: IntakeRules) -> None:
        """Bring the files to what the journal says, or begin; plan what is to be taken in."""
        sources = {(source.folder, source.node): source for source in waiting}
        self.nodes_of = {pair: tuple(sorted(source.nodes)) for pair, source in sources.items()}
        self.draft = Draft.open(queue, list(sources))
        sources[UNDECIDED] = Source(*UNDECIDED, lambda: read_undecided(queue))
        journal = self.draft.journal
        self.lines = SourceLines(journal.plan, sources, journal.at, journal.line)
        self.report = self.draft.report
        self.keys, self.rules = keys, rules
        self._stored: dict[bytes, int] = {}
        self._last_keys: list[bytes] = []

    def close(self) -> None:
        """Close the source that is open."""
        self.lines.close()

    def resume(self) -> None:
        """Do what the journal says was under way."""
        if self.draft.journal.phase == CLAIM:
            self._claim(self.draft.candidates(), first=False)
        if self.draft.journal.phase == INSERT:
            self._insert_keys(self.draft.keys_of_chunk())

    def read_chunk(self) -> bool:
        """Read, decide and append one chunk; False if nothing was left to read."""
        lines = self.lines.take(self.rules.chunk_lines)
        if not lines:
            return False
        accepted = self._decide(lines)
        self.draft.journal.at, self.draft.journal.line = self.lines.at, self.lines.line
        if self.rules.routing == "local" and accepted:
            self.draft.write_candidates(accepted)
            self._claim(accepted, first=True)
        else:
            self._append(accepted)
        self._insert_keys(self._last_keys)
        return True

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
        self._reject(Rejection.HOST_LIMIT, len(accepted) - len(kept))
        return kept

    def _reject(self, reason: str, count: int) -> None:
        if count:
            self.report.rejected[str(reason)] = self.report.rejected.get(str(reason), 0) + count

    def _claim(self, lines: list[bytes], *, first: bool) -> None:
        """Claim keys and append the URLs that are ours; only a definite answer to the first sending drops one."""
        keyed = {key_of_line(line): line for line in lines}
        asked = [key for key, line in keyed.items() if HANDED_ON_MARK not in line]
        if not first:
            self.report.unsure += len(asked)
            self._append(lines)
            return
        claim = self.keys.claim(asked)
        reached("intake.claimed")
        self._miss(claim.missed)
        self.report.known += len(claim.theirs)
        self.report.unsure += len(claim.unsure - claim.unreached)
        self.draft.add_undecided([line for key, line in keyed.items() if key in claim.unreached])
        dropped = claim.theirs | claim.unreached
        self._append([line for key, line in keyed.items() if key not in dropped])
        self._last_keys = [key for key in self._last_keys if key not in claim.ours]

    def _append(self, lines: list[bytes]) -> None:
        self._last_keys = self.draft.append(lines)

    def _insert_keys(self, keys: list[bytes]) -> None:
        if keys:
            self._miss(self.keys.insert(keys).missed)
        reached("intake.chunk.inserted")

    def _miss(self, missed: dict[str, int]) -> None:
        for server, count in missed.items():
            self.report.missed[server] = self.report.missed.get(server, 0) + count

    def finish(self, complete_folders: Collection[str]) -> None:
        """One move: `new` becomes the last data file, the sources are noted, the journal goes."""
        draft, queue, journal = self.draft, self.draft.queue, self.draft.journal
        write_durable(queue.files.new_hosts, counts_bytes(draft.hosts))
        reached("intake.hosts_written")
        state = queue.state()
        record = queue.record()
        ours = queue.is_ours(state)
        waits = bool(journal.undecided_count)
        change = Change(
            move_id=_move_id(journal, record.last_move),
            state=state,
            record=replace(
                record,
                taken_in=record.taken_in.with_sources(
                    [pair for pair in journal.plan if pair != UNDECIDED], complete_folders
                ),
                nodes=record.nodes if _divided_among(record.nodes, journal, self.nodes_of) else (),
                pending=IntakeReport.from_mapping(record.pending).plus(draft.report).to_mapping(),
            ),
            ours=ours,
            appended=Appended(NodeDirectory.new, journal.new_count),
            deletes=[
                *([] if journal.new_count else [NodeDirectory.new, NodeDirectory.new_meta]),
                *([] if waits else [NodeDirectory.undecided, NodeDirectory.new_undecided]),
                NodeDirectory.new_claim,
                NodeDirectory.journal,
            ],
            renames=[(NodeDirectory.new_undecided, NodeDirectory.undecided)] if waits else [],
            counts_hosts=True,
            offsets=(record.offset, record.meta_offset) if ours else (None, None),
        )
        carry_out_move(queue, plan_move(queue, change))


def _divided_among(nodes: tuple[str, ...], journal: Journal, nodes_of: Mapping[Pair, tuple[str, ...]]) -> bool:
    """Whether all that was taken in was divided among these nodes; of what was undecided nobody can tell."""
    return all(pair in nodes_of and nodes_of[pair] in ((), nodes) for pair in journal.plan)


def _move_id(journal: Journal, last: str) -> str:
    """An id that no other move of this queue has: it is a digest of what was taken in, and of the move before."""
    text = json.dumps([last, journal.plan, journal.new_bytes, journal.report], sort_keys=True)
    return f"intake-{sha1(text.encode()).hexdigest()}"
