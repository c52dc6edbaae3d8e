"""Checking and repairing a crawl by hand: what `krake fsck` finds, and the commands that each finding names.

How data flows: `fsck` goes through the parts of a crawl. Each subroom checks its own part, returns `Finding`s, and
repairs the part if asked: `queue` a node's directory, `folders` the small files of iterations and seeds, `segments` a
segment from its WARC files, `keys` the key tables. The subrooms are one room, which exports for all. `sweep` deletes
leftovers of killed attempts.

Each command may be killed anywhere and run again. A dry run leaves no trace, not even a lock. No URL is dropped: in
doubt a URL is fetched again.
"""

from crawl_lib.repair.fsck import FsckReport, fsck, repair_crawl
from crawl_lib.repair.keys.again import find_lost_again
from crawl_lib.repair.keys.held import held_keys, keys_of, urls_on_their_way
from crawl_lib.repair.places import repairs_locked
from crawl_lib.repair.queue.node import restart_node
from crawl_lib.repair.segments.glean import fetched_of, is_robots
from crawl_lib.repair.segments.revisits import bodies_needed
from crawl_lib.repair.segments.salvage import salvage_segment
from crawl_lib.repair.segments.swap import finish_all_swaps, finish_swaps, replace_segment
from crawl_lib.repair.sweep import SweepReport, sweep
