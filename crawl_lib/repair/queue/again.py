"""Taking in everything anew: for URLs that no queue holds any more, and that segments and seeds still have."""

from crawl_lib.durable import write_durable
from crawl_lib.frontier import Queue, finish_open_move, read_journal
from crawl_lib.sealed import sealed_json


def take_in_anew(queue: Queue) -> None:
    """Forget what the node has taken in: its next intake reads every source, and drops what is known.

    An open intake goes on, and reads once more what it has read. The caller holds the node's lock. Raises QueueError,
    DamagedFileError. Repeatable.
    """
    finish_open_move(queue)
    if queue.files.record.exists():
        write_durable(queue.files.record, sealed_json(queue.record().taking_in_again().to_mapping()))
    journal = read_journal(queue.directory)
    if journal is not None and journal.at:
        journal.plan, journal.at = journal.plan[journal.at :], 0
        journal.write(queue.directory)
