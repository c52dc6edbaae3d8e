"""The crawl directory on the DFS: folders, segments and seeds, what nodes say there, and what an iteration is named.

How data flows: `CrawlDirectory` finds folders (`Folder`) and segments (`SegmentRef`), and reads their small files.
`Inbox` has the seeds and lists left for nodes, `Scopes` the hosts of each iteration. `start` asks `Starts` (`naming`)
for the next folder, which stays the next folder however many starts overlap. A node's `settle` leaves a note of the
sources that the node had taken in (`SettledNotes`): by this note other machines know of a queue on another disk.
`krake retry --now` leaves a note for all nodes (`RetryNowNotes`). `Unfilled` names the sources that new key tables
lack, `Forgotten` the keys that people forgot. `NodeProgress` reports the work of a task.

Each file is written once, under a hidden name, and renamed; a rename refuses an existing target. A file with its final
name is therefore whole after a crash, and a second writer uses the file of the first.
"""

from typing import TYPE_CHECKING

from crawl_lib.crawldir.directory import (
    IMPORT_NODE,
    CrawlDirectory,
    FileName,
    Folder,
    Inbox,
    Iteration,
    Kind,
    Scopes,
    SegmentRef,
)
from crawl_lib.crawldir.folderindex import FolderIndex
from crawl_lib.crawldir.handed import InboxManifest
from crawl_lib.crawldir.naming import Starts
from crawl_lib.crawldir.progress import NodeProgress
from crawl_lib.crawldir.register import Register
from crawl_lib.crawldir.retrynow import RetryNow, RetryNowNotes
from crawl_lib.crawldir.settled import Settled, SettledNotes
from crawl_lib.crawldir.state import FolderState
from crawl_lib.crawldir.unfilled import Unfilled
from crawl_lib.lazy import loads_later

if TYPE_CHECKING:
    from crawl_lib.crawldir.forgotten import Forget, Forgotten
else:
    # numpy begins threads, and no task reads what was forgotten.
    __getattr__ = loads_later(__name__, {"forgotten": ("Forget", "Forgotten")})
