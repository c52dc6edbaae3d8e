"""Requests of `krake retry --now`, carried out on a node: back-offs end, and URLs that wait are due.

The notes lie in the crawl directory (`crawldir.retrynow`); the queue's record names those that were followed. First
hosts are let go, then one move changes the queue and its record. Killed between the two, the next task does both.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from math import ceil

from crawl_lib.crawldir import RetryNow, RetryNowNotes
from crawl_lib.durable import reached
from crawl_lib.fetch import HostStore, make_hosts_folder
from crawl_lib.frontier import host_of_line
from crawl_lib.node.task import NodeTask
from crawl_lib.urlfiles import due_of, is_listed


def follow_notes(task: NodeTask) -> None:
    """Follow the new notes of `krake retry --now`.

    A host that asked to be left alone (Retry-After) is left alone until then, unless the note says otherwise. Raises
    DamagedFileError naming a note or a file of the queue, QueueError, StorageError.
    """
    stores, queue, longest_s = task.stores, task.queue, task.stores.config.retry.max_wait_s
    names, followed = RetryNowNotes(stores.crawl).names(longest_s), queue.record().made_due
    notes = [RetryNowNotes(stores.crawl).read(name) for name in names if name not in followed]
    if not notes:
        return
    now = time.time()
    with HostStore(make_hosts_folder(task.directory)) as hosts:
        asked = hosts.asked_until(now, longest_s)
        for note in notes:
            hosts.let_go(note.names_host, {} if note.ignore_retry_after else asked)
    reached("retry_now.hosts")
    task.home.rewrites.make_due(
        _new_due(notes, asked, now, lists=stores.config.order.makes_lists), names
    )


def _new_due(
    notes: Sequence[RetryNow], asked: Mapping[str, float], now: float, *, lists: bool
) -> Callable[[bytes, bytes], int]:
    """Return the function that gives each line its due time.

    The function follows some notes.

    `lists`: whether lines come from lists, which do not know what their hosts asked for.
    """

    def new_due(url: bytes, meta: bytes) -> int:
        due = due_of(meta)
        if due <= now and not (lists and is_listed(meta, is_meta=True)):
            return due
        host = host_of_line(url).decode()
        named = [note for note in notes if note.names_url(url, host)]
        if not named:
            return due
        until = 0 if any(note.ignore_retry_after for note in named) else ceil(asked.get(host, 0.0))
        return min(due, until) if due > now else until

    return new_due
