"""`krake fsck --repair`: make a queue that contradicts itself usable again. Never loses a URL; may fetch some again.

What depends on segments (an open take whose segment stands, a spool, host counts) is in `crawl_lib.repair`.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha1
from itertools import islice, takewhile
from threading import Event

from crawl_lib.durable import reached, rename_durable, write_durable
from crawl_lib.errors import DamagedFileError, QueueError, UrlError
from crawl_lib.frontier import (
    NOT_BELIEVED,
    UNKNOWN_SIZE,
    NodeDirectory,
    Queue,
    QueueReader,
    Record,
    State,
    Take,
    TakenIn,
    count_lines,
    differing_line,
    digest_of,
    finish_open_move,
    lost_advice,
    note_lost,
    open_take,
    parse_state,
    record_bytes,
    taken_in_anew,
    write_take,
)
from crawl_lib.repair.queue.rescue import BROKEN, Rescue
from crawl_lib.stopping import go_on, until_stopped
from crawl_lib.urls import canonicalize

ASKED = 10_000
_ANY_LENGTH = 1 << 30
Crawled = Callable[[Sequence[bytes]], Collection[bytes]]


@dataclass
class RepairReport:
    """What a repair did, in words, and the state that the queue has now. `lost`: URLs that no file holds any more."""

    done: list[str] = field(default_factory=list)
    state: State = field(default_factory=State)
    lost: int = 0

    def advice(self) -> list[str]:
        """What to run next, if anything."""
        if not self.lost:
            return []
        return [lost_advice(self.lost)]


def repair_queue(
    queue: Queue,
    crawled: Crawled = lambda keys: set(),
    *,
    again: Callable[[], TakenIn] = TakenIn,
    stop: Event | None = None,
) -> RepairReport:
    """Repair a node's queue; the caller holds its lock. `crawled`: which of these keys are known as crawled or gone.
    `again`: what it had taken in, as far as others can tell, if its record cannot.

    What is there is counted, and `state` says so. What cannot be used is set aside as `<name>.broken`. Where `state`
    does not fit file 0, the record or the key tables say how many of its URLs have been processed. The next intake
    adopts the queue: its URLs are checked and their keys inserted. Raises StoppedError once `stop` is set; a repair
    that was stopped is run again, as one that was killed.
    """
    go_on(stop)
    report = RepairReport()
    rescue = Rescue(queue, stop)
    whole_move = _finish_move(queue, report)
    before = _waited(queue) if whole_move else None
    _close_gaps(queue, report)
    go_on(stop)
    standing = _standing(queue)
    _changed_files(queue, report)
    if not whole_move:
        rescue.after_unreadable_move()
    rescue.note()
    rescue.half_lines()
    rescue.intake()
    rescue.lines()
    rescue.metas()
    rescue.scope()
    report.done += rescue.done
    report.lost += rescue.lost
    totals = _count(queue, report, stop)
    first_cut = 0 in rescue.cut
    processed = _processed(queue, totals, report, crawled, moved=not whole_move, first_cut=first_cut, stop=stop)
    report.state = State(processed, totals)
    if before is not None and standing < before:
        report.lost += before - standing
        report.done.append(f"data files: {before - standing} of {before} URLs are gone")
        note_lost(queue, before - standing)
    go_on(stop)
    write_durable(queue.files.state, report.state.to_bytes())
    reached("repair.queue.state")
    go_on(stop)
    _believe_nothing(queue, report, rescue.made, again)  # last: a `state` that is not its own is damage until then
    reached("repair.queue.record")
    report.done.append(f"state: {report.state.length} URLs wait in {len(totals)} data files")
    _reposition_take(queue, report, stop)
    return report


def _waited(queue: Queue) -> int | None:
    """URLs in all data files as Krake wrote them last; None if people have changed them since, or nobody can tell."""
    try:
        state = parse_state(queue.files.state.read_bytes())
        return sum(state.totals) if queue.record().state_sha1 == state.sha1() else None
    except (OSError, ValueError, DamagedFileError):
        return None


def _changed_files(queue: Queue, report: RepairReport) -> None:
    """What has the right size and is not what Krake wrote stays: it cannot be known which of its lines is another one.

    Of a data file that is one URL that no file holds any more.
    """
    try:
        datas, digests = (dict(enumerate(some)) for some in (queue.record().datas, queue.record().metas))
        numbers = sorted(queue.own_metas())
    except DamagedFileError:
        return
    for number in numbers:
        if datas.get(number) and datas[number] != digest_of(queue.files.data(number)):
            report.done.append(f"{number}: is not what Krake wrote; one of its URLs or more is another one")
            report.lost += 1
            note_lost(queue, 1)
        meta = queue.files.meta(number)
        if digests.get(number) and digests[number] != digest_of(meta):
            kept = "and is kept" if meta.exists() else "for it is gone"
            report.done.append(f"{meta.name}: is not what Krake wrote, {kept}")


def _standing(queue: Queue) -> int:
    return sum(count_lines(queue.files.data(number)) for number in queue.data_files())


def _finish_move(queue: Queue, report: RepairReport) -> bool:
    try:
        if finish_open_move(queue):
            report.done.append("move: carried out")
    except QueueError as error:
        _set_aside(queue, NodeDirectory.move, report)
        report.done.append(f"move: {error}")
        return False
    return True


def _set_aside(queue: Queue, name: str, report: RepairReport) -> None:
    rename_durable((queue.directory / name), queue.directory / (name + BROKEN))
    report.done.append(f"{name}: set aside as {name}{BROKEN}")


def _close_gaps(queue: Queue, report: RepairReport) -> None:
    _put_back(queue, report)
    for wanted, number in enumerate(queue.data_files()):
        if wanted == number:
            continue
        if queue.files.meta(wanted).exists():
            _set_aside(queue, f"{wanted}.meta", report)
        _renumber(queue, number, wanted, report)
    if not queue.data_files():
        write_durable(queue.files.empty, b"")
        rename_durable(queue.files.empty, queue.files.data(0))


def _put_back(queue: Queue, report: RepairReport) -> None:
    """Give a data file that lies under another number its own again, if its size says which that is."""
    try:
        sizes = queue.record().sizes
    except DamagedFileError:
        return
    files = queue.data_files()
    for wanted in (number for number in range(len(sizes)) if number not in files):
        strangers = [number for number in files if number >= len(sizes)]
        fitting = [number for number in strangers if queue.files.data(number).stat().st_size == sizes[wanted]]
        if len(fitting) == 1:
            _renumber(queue, fitting[0], wanted, report)
            files = queue.data_files()


def _renumber(queue: Queue, number: int, wanted: int, report: RepairReport) -> None:
    if queue.files.meta(number).exists():
        rename_durable(queue.files.meta(number), queue.files.meta(wanted))
    rename_durable(queue.files.data(number), queue.files.data(wanted))
    report.done.append(f"{number}: renamed to {wanted}")


def _count(queue: Queue, report: RepairReport, stop: Event | None) -> tuple[int, ...]:
    totals = []
    for number in until_stopped(queue.data_files(), stop):
        totals.append(count_lines(queue.files.data(number)))
        meta = queue.files.meta(number)
        if meta.exists() and count_lines(meta) != totals[-1]:
            _set_aside(queue, meta.name, report)
    return tuple(totals)


def _processed(
    queue: Queue,
    totals: tuple[int, ...],
    report: RepairReport,
    crawled: Crawled,
    *,
    moved: bool,
    first_cut: bool,
    stop: Event | None,
) -> int:
    """How many URLs of file 0 have been fetched: as `state` says, as the record says, else those known as crawled.

    `moved`: a move that cannot be read may have been half done, so that file 0 may be another one. `first_cut`: half
    of the last line of file 0 was taken away.
    """
    first = queue.files.data(0).stat().st_size
    try:
        record = queue.record()
    except DamagedFileError:
        record = Record()
    known = record.sizes
    same_file = not moved or (bool(known) and _sizes(queue)[: len(known)] == known)
    try:
        said = parse_state(queue.files.state.read_bytes())
        if not said.is_believed(record):
            report.done.append(f"state: {NOT_BELIEVED}")
        elif said.totals[0] == totals[0] + first_cut and (same_file or said.processed == 0):
            return min(said.processed, totals[0])
        else:
            report.done.append(f"state: says that file 0 has {said.totals[0]} URLs, and it has {totals[0]}")
    except (OSError, ValueError) as error:
        report.done.append(f"state: {error}")
    if same_file and record.offset is not None and record.sizes[:1] == (first,):
        with queue.files.data(0).open("rb") as file:
            return file.read(record.offset).count(b"\n")
    count = _crawled_first(queue, crawled, stop)
    report.done.append(f"file 0: its first {count} URLs are known as crawled, and count as processed")
    return count


def _sizes(queue: Queue) -> tuple[int, ...]:
    return tuple(queue.files.data(number).stat().st_size for number in queue.data_files())


def _crawled_first(queue: Queue, crawled: Crawled, stop: Event | None) -> int:
    """How many URLs at the head of file 0 are crawled."""
    count = 0
    with queue.files.data(0).open("rb") as file:
        while lines := list(islice(file, ASKED)):
            go_on(stop)
            keys = [sha1(line.rstrip(b"\r\n")).digest() for line in lines]
            known = crawled(keys)
            here = next((place for place, key in enumerate(keys) if key not in known), len(keys))
            count += here
            if here < len(keys):
                break
    return count


def _believe_nothing(queue: Queue, report: RepairReport, made: Collection[int], again: Callable[[], TakenIn]) -> None:
    try:
        record = queue.record() if queue.files.record.exists() else Record(again=again())
    except DamagedFileError:
        _set_aside(queue, NodeDirectory.record, report)
        record = Record(again=again())
    found = [(number, queue.files.data(number).stat().st_size) for number in queue.data_files()]
    sizes = tuple(size if number in made or size in record.sizes else UNKNOWN_SIZE for number, size in found)
    record = taken_in_anew(record) if report.lost or queue.files.lost.exists() else record
    blank = replace(record, state_sha1="", sizes=sizes, datas=(), metas=(), offset=None, meta_offset=None)
    write_durable(queue.files.record, record_bytes(blank.to_mapping()))


def _reposition_take(queue: Queue, report: RepairReport, stop: Event | None) -> None:
    """An open take: once it is committed, those of its URLs that are next in the queue leave it."""
    go_on(stop)
    try:
        take = open_take(queue.directory)
        if take is None or queue.record().last_move == f"take-{take.take_id}":
            return
        if not _is_readable(take, stop) or differing_line(take, queue, report.state) is not None:
            if not _begins_here(take, report.state):
                raise DamagedFileError(f"{take.path}: cannot be read, and the queue has moved on")
            lines = QueueReader(queue, report.state).lines(take.header.count)
            take = write_take(queue.directory, take.header, until_stopped(lines, stop))
            report.done.append(f"take {take.take_id}: its URLs were read from the queue again")
        header = take.header
        after = report.state.after(_leading(queue, take, report.state, stop))[0]
        header = replace(header, position_before=report.state, position_after=after)
        write_take(queue.directory, header, until_stopped(take.lines(), stop))
        report.done.append(f"take {take.take_id}: now begins at the queue's position")
    except DamagedFileError as error:
        # Its URLs are still in the queue: nothing moves before a take is committed.
        report.done.append(f"take: {error}")
        _set_aside(queue, NodeDirectory.take, report)


def _is_readable(take: Take, stop: Event | None) -> bool:
    """Whether a take can be read to its end, and has only URLs that a queue could have."""
    urls = (one.queued.url for one in until_stopped(take.urls(), stop))
    try:
        return all(canonicalize(url, max_length_chars=_ANY_LENGTH) == url for url in urls)
    except (DamagedFileError, UrlError, ValueError):
        return False


def _begins_here(take: Take, state: State) -> bool:
    """Whether the queue stands where the take begins; files may have joined its end since."""
    before = take.header.position_before
    same = (state.processed, state.totals[: len(before.totals)]) == (before.processed, before.totals)
    return same and state.length >= take.header.count


def _leading(queue: Queue, take: Take, state: State, stop: Event | None) -> int:
    """How many URLs at the queue's head are in the take: all of it, unless lines of the queue were lost or changed."""
    ours = {url for url, _ in until_stopped(take.lines(), stop)}
    waiting = until_stopped(QueueReader(queue, state).lines(min(take.count, state.length)), stop)
    return sum(1 for _ in takewhile(lambda line: line[0] in ours, waiting))
