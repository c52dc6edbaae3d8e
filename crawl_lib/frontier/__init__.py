"""What a node fetches next: its FIFO queue on its own disk, and how URLs get into it and out of it, through any crash.

Whoever only reads needs no lock: `NodeDirectory` names each file; `Queue` has the URLs that wait, and those that are
undecided or handed on; `Take`, `Journal`, `Move` and `Record` read the files of these names. Only the tasks of a node
change its files. `NodeLock` gives a task the node's home, `NodeHome`, for as long as the lock is held, and each change
is a method of what the home has:

* `home.rewrites` writes the whole queue again: a queue that people made is adopted, the hosts of a queue that other
  nodes filled are divided again, lines become due, requisites come first.
* `home.intake` reads this node's part of injected seeds and of each segment's file `outlinks`, asks the key store which
  URLs are new, and appends these to the queue (`journal`); URLs that other nodes handed on are queued without asking.
* `home.takes` writes down the next URLs, of no host more than its share while others wait (`fairness`). Once the
  take's segment is committed, the queue moves past them.
* `home.queue` changes by moves alone (`move`). `home.counts` has the URLs admitted by host, `home.lost` the number of
  URLs that a repair found gone.

What holds after a crash: `docs/protocol.md`; the files: `docs/formats.md`.
"""

from typing import TYPE_CHECKING

from crawl_lib.frontier.admission import LARGE_PATTERN, full_for
from crawl_lib.frontier.directory import HANDED_ON_SUFFIX, META, NodeDirectory
from crawl_lib.frontier.fairness import Shares, look_ahead_of, share_of_domain
from crawl_lib.frontier.home import NodeHome
from crawl_lib.frontier.hostcounts import host_of_line
from crawl_lib.frontier.intake import DROPPED, IntakeRules
from crawl_lib.frontier.journal import Journal
from crawl_lib.frontier.lock import NodeLock
from crawl_lib.frontier.lost import LostUrls
from crawl_lib.frontier.move import Change, HeldQueue, Move
from crawl_lib.frontier.queue import Queue, State, count_lines, lines_until
from crawl_lib.frontier.record import IntakeReport, Record, digest_of
from crawl_lib.frontier.rewrites import refuse
from crawl_lib.frontier.take import Take, TakeHeader
from crawl_lib.lazy import loads_later

if TYPE_CHECKING:
    from crawl_lib.frontier.check import check_queue, is_readable
else:
    # No task looks for damage.
    __getattr__ = loads_later(__name__, {"check": ("check_queue", "is_readable")})
