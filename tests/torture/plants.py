"""Known mistakes, put into the crawler's code of an attempt: the harness must find each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha1
from typing import Any

from crawl_lib import durable
from crawl_lib.fetch import dispatch
from crawl_lib.frontier import TakeHeader, intake, move, takes
from crawl_lib.frontier.queue import Queue, State
from crawl_lib.node import take as node_take
from crawl_lib.urlfiles import split_line


def _no_fsync_dir(directory: Any) -> None:
    """Stands for `durable.fsync_dir`."""


def _only_flush(file: Any) -> None:
    """Stands for `durable.fsync_file`."""
    file.flush()


def lost_rename() -> None:
    """Renames are not made durable: the directory is not fsynced. Seen when the power goes."""
    durable.fsync_dir.__code__ = _no_fsync_dir.__code__


def fsync_order() -> None:
    """Files are renamed before their data are durable. Seen when the power goes."""
    durable.fsync_file.__code__ = _only_flush.__code__


def move_forgotten_early() -> None:
    """The file `move` is deleted before what it lists is done, so that a kill loses renames."""
    carry_out = move._carry_out

    def forget_first(queue: Queue, planned: move.Move) -> None:
        durable.delete_durable(queue.files.move)
        carry_out(queue, planned)

    move._carry_out = forget_first


def key_first() -> None:
    """An intake inserts keys before their URLs are durable in `new`."""
    append = intake._IntakeRun._append

    def insert_first(self: Any, lines: Sequence[bytes]) -> list[bytes]:
        self.keys.insert([sha1(split_line(line)[0]).digest() for line in lines])
        return append(self, lines)

    intake._IntakeRun._append = insert_first


def passed_over_lost() -> None:
    """What a take passed over does not go to the queue's end."""
    takes._passed_over = lambda lines, header: iter(())


def other_runs() -> None:
    """A take's header names other lines of the queue than it has."""
    real = TakeHeader.at

    def shifted(self: TakeHeader, state: State, taken: bytearray) -> TakeHeader:
        said = real(self, state, taken)
        runs = [(start - 1, stop - 1) if start else (start, stop) for start, stop in said.runs]
        return replace(said, runs=runs)

    TakeHeader.at = shifted


def failure_not_put_back() -> None:
    """A failure that passes has its row, and does not join the queue again."""
    node_take._again = lambda task, take, segment: iter(())


def retries_forgotten() -> None:
    """What is tried again does not know how often it was."""
    real = node_take._again
    node_take._again = lambda *given: (replace(one, retries=0) for one in real(*given))


def failures_final() -> None:
    """A failure that passes is final at once."""
    dispatch.retry_at = lambda *given: None


PLANTS: dict[str, Callable[[], None]] = {
    plant.__name__: plant
    for plant in (
        *(lost_rename, fsync_order, move_forgotten_early, key_first),
        *(passed_over_lost, other_runs, failure_not_put_back, retries_forgotten, failures_final),
    )
}
