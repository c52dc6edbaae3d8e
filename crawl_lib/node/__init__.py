"""The tasks of a node: its crawl of an iteration, settle, retire, admit.

How data flows: `crawl` holds the steps of an iteration together. It locks the node's directory (`task`), finishes open
work of an earlier task, takes in the URLs found for the node (`sources`), makes URLs due for `krake retry --now`
(`due`), writes the take, has `crawl_lib.worker` fetch the take, publishes the segment, moves the queue on, and sets the
states of the keys (`take`). `settle_node` is the intake after the last iteration. `retire` hands the queue of a leaving
node to the others; a node with a lost disk is retired without its queue, and refused until it is admitted. `guards`
refuses what does not fit, such as an older copy of a directory; `watermarks` pauses while a disk is too full.

After a kill between any two steps the next task of the node, of any run, finds the take and does the missing steps:
`docs/protocol.md` lists the durable steps, and the state after each step.
"""

from typing import TYPE_CHECKING

from crawl_lib.lazy import loads_later

if TYPE_CHECKING:
    from crawl_lib.node.crawl import crawl_node, require_ready, settle_node
    from crawl_lib.node.guards import mismatch
    from crawl_lib.node.retire import (
        RetireReport,
        admit_node,
        read_decision,
        retire_lost,
        retire_node,
    )
    from crawl_lib.node.sources import taken_in_before, waiting_sources
    from crawl_lib.node.take import mark_pages
    from crawl_lib.node.watermarks import FreeSpace
else:
    # Arrow takes a tenth of a second, and who asks for free room (`FreeSpace`) needs none.
    __getattr__ = loads_later(
        __name__,
        {
            "crawl": ("crawl_node", "require_ready", "settle_node"),
            "guards": ("mismatch",),
            "retire": (
                "RetireReport",
                "admit_node",
                "read_decision",
                "retire_lost",
                "retire_node",
            ),
            "sources": ("taken_in_before", "waiting_sources"),
            "take": ("mark_pages",),
            "watermarks": ("FreeSpace",),
        },
    )
