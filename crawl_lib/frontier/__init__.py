"""The URLs that a node fetches next: a FIFO queue on the node's disk, and how URLs get in and out, through any crash.

Readers need no lock: `NodeDirectory` names each file; `Queue` has waiting, undecided and handed-on URLs; `Take`,
`Journal`, `Move` and `Record` read one file each. Only a node's tasks change its files: while the lock is held,
`NodeLock` gives a task the home of the node, `NodeHome`. How data flows:

* `home.rewrites` adopts a queue made by people, and divides the hosts of a queue that other nodes filled.
* `home.intake` reads the lines for this node (`urlfiles`), asks the key store which URLs are new, and appends these.
* `home.takes` writes down the next URLs (`fairness`), and moves the queue past these once their segment is committed.
* `home.queue` changes by moves alone (`move`). `home.counts`: URLs by host; `home.lost`: URLs that are gone.

The state after a crash: `docs/protocol.md`; the files: `docs/formats.md`.
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
