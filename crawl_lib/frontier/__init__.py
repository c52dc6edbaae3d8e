"""What a node fetches next: its FIFO queue on its own disk, and how URLs get into it and out of it, through any crash.

How data flows: injected seeds and the file `outlinks` of each segment hold URLs for their owners, as lines
(`urlfiles`). `intake` reads the parts that are this node's, asks the key store which URLs are new, and appends those
to the queue (`journal`); URLs that other nodes handed on are queued without asking. A queue that people made is
adopted first, and with other nodes than before its hosts are divided again (`adopt`). `make_take` writes down the next
URLs, of no host more than its share while others wait (`fairness`); once their segment is committed, `advance` moves
the queue past them (`take`). `make_due` has lines that wait taken at once (`due`). Every change of the queue is a move
(`move`), under `NodeLock`.

`NodeDirectory` has each file by name. Only this node's tasks write into it. What holds after a crash:
`docs/protocol.md`; the files: `docs/formats.md`.
"""

from typing import TYPE_CHECKING

from crawl_lib.frontier.admission import LARGE_PATTERN, full_for
from crawl_lib.frontier.adopt import adopt, refuse, rehome
from crawl_lib.frontier.directory import HANDED_ON_SUFFIX, META, NodeDirectory, open_node_dir
from crawl_lib.frontier.due import make_due
from crawl_lib.frontier.fairness import Shares, look_ahead_of, share_of_domain
from crawl_lib.frontier.forward import bring_forward
from crawl_lib.frontier.hostcounts import COUNTS_TABLES, HostCounts, host_of_line
from crawl_lib.frontier.intake import DROPPED, IntakeRules, intake, take_in_again
from crawl_lib.frontier.journal import Journal
from crawl_lib.frontier.lock import NodeLock
from crawl_lib.frontier.move import Change, Move, change_queue, finish_open_move
from crawl_lib.frontier.queue import Queue, State, count_lines, lines_until
from crawl_lib.frontier.record import IntakeReport, Record, digest_of
from crawl_lib.frontier.take import (
    Take,
    TakeHeader,
    advance,
    close_take,
    make_take,
    position,
    take_lines,
    write_leftover,
    write_lines,
    write_take,
)
from crawl_lib.lazy import loads_later

if TYPE_CHECKING:
    from crawl_lib.frontier.check import check_queue, is_readable, lost_advice, note_lost, read_lost
else:
    # No task looks for damage.
    names = ("check_queue", "is_readable", "lost_advice", "note_lost", "read_lost")
    __getattr__ = loads_later(__name__, {"check": names})
