"""What an iteration begins and ends with, on the DFS alone: start and commit, which nodes take part, status.

How data flows: `start` makes the iteration's folder: its nodes (`layout` says whether a changed list is allowed yet),
the scope, how many URLs each node may take (`shares`), and what all machines must have alike (`agreement`). The nodes
crawl. `commit` reads the manifests of their segments and writes the sums, `index.json`. `status` shows all of it.

Both may be run again at any time, also two at once: a file is written once, and the second attempt uses it.
"""

from crawl_lib.rounds.agreement import AGREED_PREFIX, FIRST_FILE, require_agreement
from crawl_lib.rounds.commit import commit_iteration, keep_late_scope, needed_segments, require_iteration
from crawl_lib.rounds.layout import SEEDS_NODE, is_retired, nodes_changed, require_layout, unsettled
from crawl_lib.rounds.shares import share_of_node
from crawl_lib.rounds.start import start_import
from crawl_lib.rounds.status import crawl_status, status_of
