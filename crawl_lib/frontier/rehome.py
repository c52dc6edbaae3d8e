"""Rehoming a queue: once there are other nodes, some of its hosts are theirs, and the URLs of those are handed on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha1
from typing import BinaryIO

from crawl_lib.durable import fsync_file, reached
from crawl_lib.frontier.adopt import read_handed_on
from crawl_lib.frontier.directory import NodeDirectory
from crawl_lib.frontier.hostcounts import host_of_line
from crawl_lib.frontier.journal import IntakeReport
from crawl_lib.frontier.move import Appended, Change, carry_out_move, plan_move
from crawl_lib.frontier.outlinks import join_line
from crawl_lib.frontier.queue import Queue, QueueReader, State
from crawl_lib.frontier.record import Record
from crawl_lib.frontier.take import require_settled, write_lines
from crawl_lib.urls import Owners


def rehome(queue: Queue, owners: Owners | None) -> int:
    """Hand on the queued URLs whose hosts other nodes own; returns how many.

    `owners`: with `host` routing; None: whatever is queued stays. They go to the file `handed_on`, and travel with the
    next segment past the key check, since their keys are in. The queue is read only where it was filled by other
    nodes than these. One move does it all: killed before it, nothing has happened; after it, it is carried out.
    Host counts (`urls.max_pages_per_host`) stay: the new owner counts what it is handed, not what was fetched before.
    A queue made by hand is left alone: the next intake adopts it. The caller holds the lock, and has finished an open
    take. Raises QueueError or StorageError.
    """
    require_settled(queue)
    record = queue.record()
    nodes = tuple(sorted(owners.nodes)) if owners else ()
    state = queue.state()
    if record.nodes == nodes or not queue.is_ours(state):
        return 0
    change = Change(
        move_id=f"rehome-{sha1(json.dumps([record.last_move, nodes]).encode()).hexdigest()}",
        state=state,
        record=replace(record, nodes=nodes),
        ours=True,
        offsets=(record.offset, record.meta_offset),
    )
    handed = _divide(queue, state, owners) if owners and state.length else None
    if handed is None or not handed[1]:
        change.deletes = [NodeDirectory.rehomed, f"{NodeDirectory.rehomed}.meta", NodeDirectory.rehomed_handed_on]
    else:
        _replace(change, record, *handed)
    carry_out_move(queue, plan_move(queue, change))
    return handed[1] if handed else 0


def _replace(change: Change, record: Record, kept: int, handed: int) -> None:
    report = IntakeReport.from_mapping(record.pending).plus(IntakeReport(handed_on=handed))
    change.record = replace(change.record, pending=report.to_mapping())
    change.appended = Appended(NodeDirectory.rehomed, kept)
    change.replaces = True
    change.deletes = [] if kept else [NodeDirectory.rehomed, f"{NodeDirectory.rehomed}.meta"]
    change.renames = [(NodeDirectory.rehomed_handed_on, NodeDirectory.handed_on)]


def _divide(queue: Queue, state: State, owners: Owners) -> tuple[int, int]:
    """Write what stays, and what is handed on, to files of their own; returns how many each."""
    with queue.files.rehomed_handed_on.open("wb") as handed_on:
        handed_on.writelines(line + b"\n" for line in read_handed_on(queue))
        kept = write_lines(queue, NodeDirectory.rehomed, _kept(queue, state, owners, handed_on))
        fsync_file(handed_on)
    reached("rehome.written")
    return kept, state.length - kept


def _kept(queue: Queue, state: State, owners: Owners, handed_on: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    for url, meta in QueueReader(queue, state).lines():
        if owners.owner(host_of_line(url).decode()) == queue.node:
            yield url, meta
        else:
            handed_on.write(join_line(url, meta, b"h") + b"\n")
