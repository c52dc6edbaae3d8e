"""`krake queue repair`: make a queue that contradicts itself usable again. Never loses a URL; may fetch some again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from crawl_lib.durable import rename_durable, write_durable
from crawl_lib.errors import DamagedFileError, QueueError
from crawl_lib.frontier.move import EMPTY_FILE, MOVE_FILE, finish_open_move
from crawl_lib.frontier.queue import STATE_FILE, Queue, QueueReader, State, count_lines, parse_state
from crawl_lib.frontier.record import RECORD_FILE, UNKNOWN_SIZE, Record, record_bytes
from crawl_lib.frontier.take import TAKE_FILE, Take, open_take, write_take

BROKEN = ".broken"


@dataclass
class RepairReport:
    """What a repair did, in words, and the state that the queue has now."""

    done: list[str] = field(default_factory=list)
    state: State = field(default_factory=State)


def repair_queue(queue: Queue) -> RepairReport:
    """Repair a node's queue; the caller holds its lock.

    What is there is counted, and `state` says so. What cannot be used is set aside as `<name>.broken`. URLs of file 0
    count as processed only if `state` fits that file; else they are fetched again. The next intake adopts the queue:
    its URLs are checked and their keys inserted.
    """
    report = RepairReport()
    whole_move = _finish_move(queue, report)
    _close_gaps(queue, report)
    totals = _count(queue, report)
    processed = _processed(queue, totals, report) if whole_move else 0
    report.state = State(processed, totals)
    _believe_nothing(queue, report)
    write_durable(queue.path(STATE_FILE), report.state.to_bytes())
    report.done.append(f"state: {report.state.length} URLs wait in {len(totals)} data files")
    _reposition_take(queue, report)
    return report


def _finish_move(queue: Queue, report: RepairReport) -> bool:
    try:
        if finish_open_move(queue):
            report.done.append("move: carried out")
    except QueueError as error:
        _set_aside(queue, MOVE_FILE, report)
        report.done.append(f"move: {error}")
        return False
    return True


def _set_aside(queue: Queue, name: str, report: RepairReport) -> None:
    rename_durable(queue.path(name), queue.path(name + BROKEN))
    report.done.append(f"{name}: set aside as {name}{BROKEN}")


def _close_gaps(queue: Queue, report: RepairReport) -> None:
    for wanted, number in enumerate(queue.data_files()):
        if wanted == number:
            continue
        if queue.path(f"{wanted}.meta").exists():
            _set_aside(queue, f"{wanted}.meta", report)
        if queue.path(f"{number}.meta").exists():
            rename_durable(queue.path(f"{number}.meta"), queue.path(f"{wanted}.meta"))
        rename_durable(queue.path(str(number)), queue.path(str(wanted)))
        report.done.append(f"{number}: renamed to {wanted}")
    if not queue.data_files():
        write_durable(queue.path(EMPTY_FILE), b"")
        rename_durable(queue.path(EMPTY_FILE), queue.path("0"))


def _count(queue: Queue, report: RepairReport) -> tuple[int, ...]:
    totals = []
    for number in queue.data_files():
        totals.append(count_lines(queue.path(str(number))))
        meta = queue.path(f"{number}.meta")
        if meta.exists() and count_lines(meta) != totals[-1]:
            _set_aside(queue, meta.name, report)
    return tuple(totals)


def _processed(queue: Queue, totals: tuple[int, ...], report: RepairReport) -> int:
    try:
        said = parse_state(queue.path(STATE_FILE).read_bytes())
    except (OSError, ValueError) as error:
        report.done.append(f"state: {error}")
        return 0
    if said.totals[0] != totals[0]:
        report.done.append(f"state: said file 0 has {said.totals[0]} URLs, it has {totals[0]}; none count as processed")
        return 0
    return said.processed


def _believe_nothing(queue: Queue, report: RepairReport) -> None:
    try:
        record = queue.record()
    except DamagedFileError:
        _set_aside(queue, RECORD_FILE, report)
        record = Record()
    found = [queue.path(str(number)).stat().st_size for number in queue.data_files()]
    sizes = tuple(size if size in record.sizes else UNKNOWN_SIZE for size in found)
    blank = replace(record, state_sha1="", sizes=sizes, offset=None, meta_offset=None)
    write_durable(queue.path(RECORD_FILE), record_bytes(blank.to_mapping()))


def _reposition_take(queue: Queue, report: RepairReport) -> None:
    """An open take: its URLs leave the queue once they are committed if they are next in it, else nothing leaves."""
    try:
        take = open_take(queue.directory)
        if take is None or queue.record().last_move == f"take-{take.take_id}":
            return
        header = take.header
        after = report.state.after(header.count)[0] if _is_next(queue, take, report.state) else report.state
        header = replace(header, position_before=report.state, position_after=after)
        write_take(queue.directory, header, take.lines())
        report.done.append(f"take {take.take_id}: now begins at the queue's position")
    except DamagedFileError as error:
        # Its URLs are still in the queue: nothing moves before a take is committed.
        report.done.append(f"take: {error}")
        _set_aside(queue, TAKE_FILE, report)


def _is_next(queue: Queue, take: Take, state: State) -> bool:
    if state.length < take.count:
        return False
    waiting = QueueReader(queue, state).lines(take.count)
    return all(ours[0] == theirs[0] for ours, theirs in zip(take.lines(), waiting, strict=True))
