"""`krake fsck --repair`: a contradictory queue is read line by line, and all readable lines are written again.

No URL is lost; some may be fetched again. All waiting URLs become one data file, whatever was damaged: data files, the
half-done files of an unreadable move, the chosen URLs of an intake that cannot go on. One move puts the file in place,
as in an adoption: a kill before the move has changed nothing but the note of lost URLs. The next intake adopts the
queue: it refuses lines without a URL, drops repeats, hands on URLs of other nodes, and inserts the keys.

The repair of parts that depend on segments (an open take with a segment, a spool, host counts) is in
`repair.queue.node`.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha1
from itertools import chain, compress, count, islice, repeat
from pathlib import Path
from threading import Event

from crawl_lib.durable import fsync_file, reached, rename_durable, write_durable
from crawl_lib.errors import DamagedFileError, QueueError
from crawl_lib.frontier import (
    HANDED_ON_SUFFIX,
    META,
    Change,
    Journal,
    Move,
    NodeDirectory,
    NodeHome,
    Record,
    State,
    Take,
    count_lines,
    digest_of,
    host_of_line,
    is_readable,
    lines_until,
)
from crawl_lib.stopping import go_on, until_stopped
from crawl_lib.urlfiles import (
    BARE_META,
    ScopeFile,
    TakenIn,
    decode_meta,
    file_lines,
    is_listed,
    some_lines,
    split_line,
)

ASKED = 10_000
BROKEN = ".broken"
Crawled = Callable[[Sequence[bytes]], Collection[bytes]]
Pairs = Iterator[tuple[bytes, bytes]]
_OF_MOVES = (NodeDirectory.adopted, NodeDirectory.rehomed, NodeDirectory.put_back)
_OF_INTAKES = (
    NodeDirectory.new,
    NodeDirectory.new_meta,
    NodeDirectory.new_claim,
    NodeDirectory.new_undecided,
)


def aside(path: Path, data: bytes | None = None) -> Path:
    """Return a path for setting a file, or part of it, aside.

    The names are `<name>.broken`, `<name>.broken-2` and so on. `data`: the part. A file set aside earlier stays; a
    killed repair finds the file with its data.
    """
    names = chain([""], (f"-{number}" for number in count(2)))
    places = (path.with_name(f"{path.name}{BROKEN}{name}") for name in names)

    def is_free(place: Path) -> bool:
        return not place.exists() or bool(data and place.read_bytes() == data)

    return next(filter(is_free, places))


@dataclass
class RepairReport:
    """The work of a repair, in words, and the queue's state after it. `lost`: URLs that no file holds any more."""

    done: list[str] = field(default_factory=list)
    state: State = field(default_factory=State)
    lost: int = 0


def repair_queue(
    home: NodeHome,
    crawled: Crawled = lambda keys: set(),
    *,
    again: Callable[[], TakenIn] = TakenIn,
    stop: Event | None = None,
) -> RepairReport:
    """Repair a node's queue.

    `crawled`: returns which keys are known as crawled or gone. `again`: the sources that the node had taken in, by the
    knowledge of others; used if the record is unreadable. If `state` does not fit file 0, the record or the key tables
    say how many URLs of the file have been processed. Raises StoppedError once `stop` is set; a stopped repair is run
    again, like a killed repair.
    """
    go_on(stop)
    repair = _Repair(home, stop)
    repair.run(crawled, again)
    return repair.report


class _Repair:
    """The repair of one queue. `in_move`: an unreadable move may have been half done."""

    def __init__(self, home: NodeHome, stop: Event | None) -> None:
        self.home, self.queue, self.files, self.stop = home, home.queue, home.files, stop
        self.report = RepairReport()
        self.deletes: list[str] = []
        self.renames: list[tuple[str, str]] = []
        self.in_move = False
        self.record = Record()

    def run(self, crawled: Crawled, again: Callable[[], TakenIn]) -> None:
        queue, report = self.queue, self.report
        self._finish_move()
        self._read_record(again)
        count = queue.write_lines(
            NodeDirectory.rescued, until_stopped(self._all(crawled), self.stop)
        )
        self._keep_lines(NodeDirectory.undecided, [])
        moved = [name + HANDED_ON_SUFFIX for name in _OF_MOVES]
        self._keep_lines(NodeDirectory.handed_on, moved if self.in_move else [])
        self._keep_scope()
        reached("repair.queue.rescued")
        go_on(self.stop)
        try:
            self.home.lost.count()
        except DamagedFileError as error:
            report.lost += 1  # the file says that URLs are lost
            self._say(str(error))
        if report.lost:
            self.home.counts.begin_groups()
            self.home.lost.note(report.lost)
            go_on(self.stop)
        if self.in_move:
            self.deletes += [
                name for one in _OF_MOVES for name in (one, one + META, one + HANDED_ON_SUFFIX)
            ]
            self.deletes += [NodeDirectory.adopted_scope, NodeDirectory.new_hosts]
        change = Change(
            move_id=self.record.last_move,  # tells whether an open take is over
            state=State(0, (1,)),  # all present files go
            record=self.record.taking_in_again() if self.files.lost.exists() else self.record,
            ours=False,
            appended=(NodeDirectory.rescued, count),
            replaces=True,
            deletes=self.deletes,
            renames=self.renames,
        )
        queue.change(change)
        report.state = queue.state()
        report.done.append(f"state: {count} URLs wait")
        self._reposition_take()

    def _say(self, text: str) -> None:
        self.report.done.append(text)

    def _set_aside(self, name: str) -> None:
        """Set a file aside in the move, if it exists.

        The file is not read any more.
        """
        if (self.queue.directory / name).exists():
            self.renames.append((name, aside(self.queue.directory / name).name))
            self._say(f"{name}: set aside as {self.renames[-1][1]}")

    def _keep(self, path: Path, data: bytes) -> str:
        """Set unusable data of a file aside; return the new name."""
        place = aside(path, data)
        write_durable(place, data)
        return place.name

    def _finish_move(self) -> None:
        try:
            move = Move.read(self.queue.directory)
            if move and move.counts_hosts and self.home.counts.problem():
                # The move cannot add to damaged counts. Later all URLs are counted again, with those of the move.
                write_durable(self.files.move, replace(move, counts_hosts="").to_bytes())
            if self.queue.finish_open_move():
                self._say("move: carried out")
        except (DamagedFileError, QueueError) as error:
            self.in_move = True
            self._keep(self.files.move, self.files.move.read_bytes())
            self._say(f"move: {error}")

    def _read_record(self, again: Callable[[], TakenIn]) -> None:
        try:
            self.record = (
                self.queue.record() if self.files.record.exists() else Record(again=again())
            )
        except DamagedFileError as error:
            self._say(str(error))
            self._set_aside(NodeDirectory.record)
            self.record = Record(again=again())

    # Waiting URLs

    def _all(self, crawled: Crawled) -> Pairs:
        """Yield every readable URL with its meta, in the queue's order."""
        yield from self._data(crawled)
        for name in _OF_MOVES if self.in_move else ():
            yield from _pairs(self.queue.directory / name, self.queue.directory / (name + META))
        yield from self._intake()

    def _data(self, crawled: Crawled) -> Pairs:
        """Yield the URLs of data files.

        Half a URL at the end of a file goes to `<n>.broken`.
        """
        queue, record, counts = self.queue, self.record, []
        numbers = sorted(queue.files.data_files(), key=self._place)
        own = queue.own_files(record)
        gone = 0
        for number in numbers:
            path, meta = self.files.data(number), self.files.meta(number)
            count = count_lines(path)
            half = queue.half_line(number, record)
            if half is not None:
                gone += 1
                shown = half[:200].decode("utf-8", "backslashreplace")
                name = self._keep(path, half + b"\n")
                self._say(f"{number}: line {count} is cut, {shown!r}; it was put into {name}")
            counts.append(count - (half is not None))
            if self._is_other(path, own, "at least one URL differs"):
                gone += 1
            self._is_other(meta, own, "some entries about URLs are wrong")
            start = self._processed(number, count) if len(counts) == 1 else 0
            ours = path.stat().st_size in record.sizes or half is not None
            believed = ours and meta.exists() and count_lines(meta) == count
            if meta.exists() and not believed:
                self._say(f"{meta.name}: does not fit {number}, whose URLs are kept without it")
            lines = _pairs(path, meta if believed else None, ends=half is None)
            yield from (
                self._not_crawled(number, lines, crawled)
                if start is None
                else islice(lines, start, None)
            )
        self._count_lost(sum(counts), gone)

    def _is_other(self, path: Path, own: Collection[int], problem: str) -> bool:
        """Report a file of Krake's whose bytes have changed.

        The file is a data file, or its meta. `own`: the numbers of Krake's files.
        """
        said = self.record.digests().get(path.name, "") if int(path.stem) in own else ""
        if other := said not in {"", digest_of(path)}:
            self._say(f"{path.name}: is not what Krake wrote; {problem}")
        return other

    def _place(self, number: int) -> int:
        """Return a data file's original number.

        The size identifies a file under another number.
        """
        sizes, size = self.record.sizes, self.files.data(number).stat().st_size
        return sizes.index(size) if number >= len(sizes) and size in sizes else number

    def _count_lost(self, there: int, gone: int) -> None:
        """Count the URLs that data files have lost.

        Files changed by people since then do not count.
        """
        try:
            state = self.queue.unchecked_state()
        except QueueError:
            state = State()
        if (
            not self.in_move
            and self.record.state_sha1 == state.sha1()
            and sum(state.totals) > there
        ):
            gone = max(gone, sum(state.totals) - there)
            self._say(f"data files: {gone} of {sum(state.totals)} URLs are gone")
        self.report.lost += gone

    def _processed(self, number: int, count: int) -> int | None:
        """Return how many URLs of the first file are done.

        `state` answers, or else the record. None: neither can. After an unfinished move the file may be another file,
        unless all sizes are the earlier sizes.
        """
        record, path = self.record, self.files.data(number)
        sizes = tuple(
            self.files.data(number).stat().st_size for number in self.queue.files.data_files()
        )
        same = self._place(number) == 0 and (not self.in_move or sizes == record.sizes)
        try:
            said = self.queue.unchecked_state()
            if (
                said.is_believed(record)
                and said.totals[0] == count
                and (same or not said.processed)
            ):
                return said.processed
            self._say(f"state: does not fit file {number}, which has {count} URLs")
        except QueueError as error:
            self._say(str(error))
        if same and record.offset is not None and record.sizes[0] == path.stat().st_size:
            lines = lines_until(path, record.offset)
            if lines is not None:
                return lines
        return None

    def _not_crawled(self, number: int, lines: Pairs, crawled: Crawled) -> Pairs:
        """Yield URLs that are not known as crawled, or were listed.

        A list's meta counts even if untrusted. URLs that takes passed over or put back are between the others, and once
        more at the queue's end: adoption drops repeats.
        """
        done, metas = 0, chain(file_lines(self.files.meta(number)), repeat(b""))
        for some in some_lines(lines, ASKED):
            keys = [sha1(url).digest() for url, _ in some]
            known = crawled(keys)
            waits = [
                key not in known or is_listed(meta, is_meta=True)
                for key, meta in zip(keys, metas, strict=False)
            ]
            yield from compress(some, waits)
            done += waits.count(False)
        self._say(f"file {number}: {done} of its URLs are known as crawled, and count as processed")

    def _intake(self) -> Pairs:
        """Yield the URLs of an intake whose journal is unusable.

        The journal is unreadable, missing, or contradicts its files. These URLs are in no queue yet, and their keys may
        be known. Undecided lines, and lines before their intake, are read again from their sources.
        """
        directory, new = self.queue.directory, self.files.new
        try:
            journal = Journal.read(directory)
            damaged = dict(journal.damaged_files(directory)) if journal else {}
            if not (damaged or (journal is None and new.exists() and new.stat().st_size)):
                return
        except DamagedFileError as error:
            journal, damaged = None, {NodeDirectory.journal: str(error)}
        for name, problem in damaged.items():
            self._say(f"{name}: {problem}")
        self._set_aside(NodeDirectory.journal)
        self.deletes += _OF_INTAKES
        count = 0
        for pair in _pairs(new, self.files.new_meta):
            count += 1
            yield pair
        if journal is None or journal.is_claiming:
            for line in _raw_lines(self.files.new_claim):
                if is_readable(line):
                    yield split_line(line[:-1])[:2]
        if journal is not None and (
            new.exists() or not self.in_move
        ):  # otherwise `new` has become a data file
            decided = {NodeDirectory.new, NodeDirectory.new_claim} & damaged.keys()
            self.report.lost += max(journal.new_count - count, bool(decided))

    # Other files

    def _keep_lines(self, name: str, others: Sequence[str]) -> None:
        """Keep the readable lines of a file and of its unfinished successors."""
        directory, bad = self.queue.directory, list[bytes]()
        sources = [directory / one for one in (name, *others) if (directory / one).exists()]
        rewritten, said = f"{NodeDirectory.rescued}.{name}", self.record.files.get(name)
        if not (sources or said):
            return
        changed = said is not None and said != digest_of(directory / name)
        with (directory / rewritten).open("wb") as out:
            for line in until_stopped(chain.from_iterable(map(_raw_lines, sources)), self.stop):
                if is_readable(line):
                    out.write(line)
                else:
                    bad.append(line)
            fsync_file(out)
        if bad:
            kept = self._keep(directory / name, b"".join(bad))
            self._say(f"{name}: {len(bad)} lines cannot be read, and were put into {kept}")
        self.report.lost += max(len(bad), changed)
        self.renames.append((rewritten, name))

    def _keep_scope(self) -> None:
        """Restore a damaged list of adopted URLs' hosts.

        The list gets the readable hosts, and hosts of bare URLs in the queue. URLs without meta came from people, or
        were seeds: their hosts are in the scope by right.
        """
        path, directory = self.files.scope_added, self.queue.directory
        paths = [path, self.files.adopted_scope] if self.in_move else [path]
        data = [path.read_bytes() for path in paths if path.exists()]
        said = self.record.files.get(NodeDirectory.scope_added)
        if (
            not self.in_move
            and all(map(ScopeFile.is_whole, data))
            and said in {None, digest_of(path)}
        ):
            return
        rescued = self.files.rescued
        lines = zip(file_lines(rescued), file_lines(self.files.meta_of(rescued)), strict=True)
        bare = {
            host_of_line(url) + b"\n" for url, meta in lines if meta == BARE_META and b"://" in url
        }
        hosts = set[str]().union(*map(ScopeFile.hosts_of, [*data, b"".join(bare)]))
        rewritten = f"{NodeDirectory.rescued}.{NodeDirectory.scope_added}"
        write_durable(directory / rewritten, ScopeFile.data_of(hosts))
        self.renames.append((rewritten, NodeDirectory.scope_added))
        self._say(f"{NodeDirectory.scope_added}: could not be read; it has {len(hosts)} hosts now")

    def _reposition_take(self) -> None:
        """Reposition an open take.

        Once the take is committed, its URLs leave the queue from their present places.
        """
        go_on(self.stop)
        queue, state = self.queue, self.report.state
        try:
            take = Take.open(queue.directory)
            if take is None or self.record.last_move == f"take-{take.take_id}":
                return
            ours = {one.queued.url.encode() for one in until_stopped(take.urls(), self.stop)}
            waiting = until_stopped(queue.lines(state), self.stop)
            taken = bytearray(url in ours for url, _ in waiting).rstrip(b"\0")
            self.home.takes.write(
                take.header.at(state, taken), until_stopped(take.lines(), self.stop)
            )
            self._say(f"take {take.take_id}: now begins at the queue's position")
        except DamagedFileError as error:
            # The URLs are still in the queue: nothing moves before a take is committed.
            place = aside(self.files.take)
            self._say(f"take: {error}; it was set aside as {place.name}")
            rename_durable(self.files.take, place)


def _raw_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file with newlines.

    A missing file has no lines.
    """
    if path.exists():
        with path.open("rb") as file:
            yield from file


def _pairs(path: Path, meta: Path | None, *, ends: bool = False) -> Pairs:
    """Yield URLs with their meta, which may be missing or malformed.

    A URL without usable meta is bare.

    `ends`: people may have written the last line, and its end is whole.
    """
    metas = chain(_raw_lines(meta) if meta else (), repeat(b""))
    for url, line in zip(_raw_lines(path), metas, strict=False):
        if ends or url.endswith(b"\n"):
            yield url.rstrip(b"\r\n"), _meta(line)


def _meta(line: bytes) -> bytes:
    try:
        decode_meta(b"", line[:-1], "")
    except DamagedFileError:
        return BARE_META
    return line[:-1] if line.endswith(b"\n") else BARE_META
