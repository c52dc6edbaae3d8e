"""Krake's library: a batch web crawler that works in rounds. It knows nothing of Airflow.

The life of a URL, and where to read on:

1. A seed is made canonical (`urls`) and left in a file for the node that owns its host (`seeds.inject`).
2. The first node that comes to an iteration names its folder on the DFS (`storage`) and fixes what its nodes agree on
   (`rounds.start`, `rounds.agreement`).
3. The node takes in what was left for it: URLs whose key the key store (`keys`) does not know join the node's queue
   files (`frontier`).
4. The node takes the first `batch.size` URLs of its queue (`frontier.take`), and shares them among fetching processes
   by host (`worker.workers`, `worker.forkserver`, `worker.worker`).
5. A process asks robots.txt, waits the host's and the address's turn, and fetches (`fetch`).
6. Request and response become WARC records of the node's segment (`segment`); content, links and metadata are read out
   of the page (`parse`) and become rows of its tables (`worker.page`). Full WARC files leave for the DFS meanwhile
   (`segment.publish`).
7. Each link is made canonical, filtered and keyed (`urls`); what belongs to the crawl goes into the segment's file of
   outlinks, in the part of the node that owns its host.
8. The segment appears on the DFS all at once (`segment`), the queue moves on (`frontier`), and the keys of its
   URLs are marked as crawled (`keys`): `node.crawl` holds these steps together. `rounds.commit` sees that all nodes
   did, or enough of them.
9. In the next iteration its owner takes the link in: back to 3; after the last one `node.settle_node` does, and says
   on the DFS that the node has settled (`crawldir.settled`).
10. Crawled pages are numbered and written out (`export`), their links become the web graph (`graph`); `engine` sorts
    and joins the tables for both.

Nodes may come and go between iterations (`rounds.layout`, `frontier.rehome`, `node.retire`), and so may key servers
(`keys.moving`). `repair` finds and repairs what is damaged, `curate` is what people do with a crawl by hand, `ask` what
they ask of it, `cli` is the command `krake`.

`stages` has one function for each of these steps, `config` every option, `states` what a URL can be, `errors` what can
go wrong and who must act, `durable` what "durable" means.
"""

import os
from typing import TYPE_CHECKING

from crawl_lib.lazy import loads_later
from crawl_lib.version import VERSION

__version__ = VERSION

# Before Arrow is loaded. Its own allocator takes memory in huge pages: 80 MB more for a node, and where the kernel must
# make room for them, twice the time. It loads numpy, which begins a thread for each core but one that spins, for linear
# algebra, of which there is none.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

if TYPE_CHECKING:
    from crawl_lib.config import Config, from_mapping, load_config
    from crawl_lib.errors import KrakeError
    from crawl_lib.records import Fetched, QueuedUrl, TakenUrl
    from crawl_lib.states import KeyState, Outcome
    from crawl_lib.stores import Secrets, Stores, open_stores
else:
    # Loaded when they are asked for: a program gets here before it can do anything, also before it obeys Ctrl-C.
    __getattr__ = loads_later(
        __name__,
        {
            "config": ("Config", "from_mapping", "load_config"),
            "errors": ("KrakeError",),
            "records": ("Fetched", "QueuedUrl", "TakenUrl"),
            "states": ("KeyState", "Outcome"),
            "stores": ("Secrets", "Stores", "open_stores"),
        },
    )


__all__ = [
    "Config",
    "Fetched",
    "KeyState",
    "KrakeError",
    "Outcome",
    "QueuedUrl",
    "Secrets",
    "Stores",
    "TakenUrl",
    "__version__",
    "from_mapping",
    "load_config",
    "open_stores",
]
