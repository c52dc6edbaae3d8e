"""The crawl directory on the DFS: folders, segments and seeds, what nodes say there, and what an iteration is named.

How data flows: `CrawlDirectory` finds folders (`Folder`) and segments (`SegmentRef`), and reads what their small files
say: `iteration.json`, `scope`, `index.json`, manifests. `start` asks `naming` for the next folder, which stays the next
one however many starts overlap. A node's `settle` leaves a note of what it had taken in (`settled`), and a check leaves
the keys that the node holds (`heldnotes`): so other machines know of a queue that is not on their disk. `krake
retry --now` leaves a note for all nodes (`retrynow`). `progress` is what a task says while it works.

Each file is written once, under a hidden name, and renamed; a rename refuses a target that exists. So after a crash a
file that has its name is whole, and of two writers the second one uses what the first wrote.
"""

from typing import TYPE_CHECKING

from crawl_lib.crawldir.directory import (
    DAMAGED_PREFIX,
    DROPPED_FILE,
    IMPORT_NODE,
    INDEX_FILE,
    ITERATION_FILE,
    LISTS_FOLDER,
    MANIFEST_PARTS,
    SCOPE_DIGEST,
    SCOPE_FILE,
    SCOPE_FOLDER,
    SEEDS_FOLDER,
    SWAP_PREFIX,
    SWAP_SUFFIX,
    CrawlDirectory,
    Folder,
    Iteration,
    Kind,
    SegmentRef,
    kind_of,
    scope_digest,
)
from crawl_lib.crawldir.heldnotes import (
    HELD_FOLDER,
    HeldNote,
    note_command,
    noted_keys,
    read_note,
    take_note_away,
    unsettle,
    write_note,
)
from crawl_lib.crawldir.naming import (
    FOLLOWS,
    NONE,
    START_PREFIX,
    STARTED_FOLDER,
    finish_open_start,
    follower,
    give_name,
    give_up_name,
    hidden_prefix,
    is_choice,
    is_passed_over,
    require_clock,
)
from crawl_lib.crawldir.progress import NodeProgress
from crawl_lib.crawldir.register import Register
from crawl_lib.crawldir.retrynow import (
    RETRY_NOW_FOLDER,
    RetryNow,
    read_retry_now,
    retry_now_names,
    write_retry_now,
)
from crawl_lib.crawldir.settled import (
    SETTLED_FOLDER,
    Settled,
    delete_settled,
    note_begun,
    read_settled,
    settled_nodes,
    urls_of_lost_queue,
    write_settled,
)
from crawl_lib.crawldir.state import FolderState, sum_counts
from crawl_lib.crawldir.unfilled import PAGES, UNFILLED_FOLDER, mark_filled, mark_unfilled, unfilled
from crawl_lib.lazy import loads_later

if TYPE_CHECKING:
    from crawl_lib.crawldir.forgotten import OPEN_PREFIX, Forget, Forgotten
else:
    # numpy begins threads, and no task asks what was forgotten.
    names = (
        "OPEN_PREFIX",
        "Forget",
        "Forgotten",
    )
    __getattr__ = loads_later(__name__, {"forgotten": names})
