"""Begin and end of an iteration, on the DFS alone: start and commit, which nodes take part, status.

How data flows: the first node that comes to an iteration makes its folder (`start`): its nodes (`layout` says whether
a changed list is allowed yet), the scope, how many URLs each node may take (`shares`), and what all machines must have
alike (`agreement`). A place of another crawl is refused (`crawlname`). The nodes crawl. `commit` reads the manifests of
their segments and writes the sums, `index.json`. `status` shows all of it. `waiting`
finds what is not due yet, for messages; `pagecounts` counts status codes, types and hosts of the newest pages.

Both may be run again at any time, also two at once: a file is written once, and the second attempt uses it.
"""

from typing import TYPE_CHECKING

from crawl_lib.lazy import loads_later
from crawl_lib.rounds.agreement import AGREED_PREFIX, note_change, require_agreement
from crawl_lib.rounds.commit import (
    commit_iteration,
    index_problem,
    keep_late_scope,
    needed_segments,
    refresh_index,
)
from crawl_lib.rounds.crawlname import CrawlName
from crawl_lib.rounds.ending import (
    ended_before,
    generated,
    is_of_requisites,
    list_number,
    nothing_due,
    requisite_rounds,
)
from crawl_lib.rounds.layout import NodeLayout
from crawl_lib.rounds.shares import share_of_node
from crawl_lib.rounds.start import scope_at_start, start_import, start_iteration, start_live
from crawl_lib.rounds.waiting import at_once, waits_until

if TYPE_CHECKING:
    from crawl_lib.rounds.iterations import Iterations, Span
    from crawl_lib.rounds.status import (
        CrawlReader,
        crawl_status,
        keys_status,
        open_to_look,
        status_of,
    )
else:
    # Arrow begins threads, and takes a third of a second; no task asks for the status.
    __getattr__ = loads_later(
        __name__,
        {
            "iterations": ("Iterations", "Span"),
            "status": ("CrawlReader", "crawl_status", "keys_status", "open_to_look", "status_of"),
        },
    )
