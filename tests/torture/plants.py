"""Known mistakes, put into the crawler's code of an attempt: the harness must find each of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from hashlib import sha1
from typing import Any

from crawl_lib import durable
from crawl_lib.frontier import move
from crawl_lib.frontier.outlinks import split_line
from crawl_lib.frontier.queue import Queue


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
    intake = sys.modules["crawl_lib.frontier.intake"]  # the package's `intake` is the function
    append = intake._Intake._append

    def insert_first(self: Any, lines: Sequence[bytes]) -> list[bytes]:
        self.keys.insert([sha1(split_line(line)[0]).digest() for line in lines])
        return append(self, lines)

    intake._Intake._append = insert_first


PLANTS: dict[str, Callable[[], None]] = {
    plant.__name__: plant for plant in (lost_rename, fsync_order, move_forgotten_early, key_first)
}
