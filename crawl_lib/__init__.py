"""Krake's library: a batch web crawler that works in rounds. It knows nothing of Airflow.

The life of a URL, and where to read on:

1. A seed is made canonical (`urls`) and left in a file for the node that owns its host (`seeds.inject`).
2. The first node that comes to an iteration names its folder on the DFS (`storage`) and fixes what its nodes agree on
   (`rounds.start`, `rounds.agreement`).
3. The node takes in what was left for it: URLs whose key the key store (`keys`) does not know join the node's queue
   files (`frontier`).
4. The node takes the first `batch.size` URLs of its queue (`frontier.Takes`), and shares them among fetching processes
   by host (`worker.workers`, `walls.forkserver`, `worker.worker`).
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

The life of what was crawled goes on in tables. `versions` keeps such a table: each update writes a new version next to
the older ones, and the newest whole version counts.

11. With `frontier.order: crawldb` each URL has a row in the CrawlDb (`crawldb`). `update` takes in new seeds and
    segments, and decides when the URL is due again. `generate` writes a list of due URLs, and the nodes of the next
    iteration take their URLs from this list: back to 3.
12. The main text of each page is extracted from the segments (`text`). `captures` chooses the capture that counts for
    each page. `duplicates` finds pages with equal or similar texts.
13. Links are collected by source and by target (`linkdb`). `ranks` computes PageRank of an export, LinkRank of all
    links, and harmonic centrality.
14. Plug-ins give scores to URLs (`scoring`), and ranks can become scores. Scores decide which due URL a list takes
    first.
15. Texts, anchors and ranks go into the index (`index`) and the table of words (`terms`). `search` answers queries,
    and `serve` is the search page. `push` sends the index to OpenSearch.
16. `commoncrawl` writes files for other tools: Common Crawl's index, WET, graphs.

`outputs` lists all data that is derived from segments. Checks, sweeps and drops of pages go through this list.

Nodes may come and go between iterations (`rounds.layout`, `frontier.Rewrites`, `node.retire`), and so may key servers
(`keys.moving`). `repair` finds damage and repairs it. People change a crawl by hand with `curate`, and look into a
crawl with `ask`. `cli` is the command `krake`.

`stages` has one function for each of these steps, `config` every option, `states` the states of a URL, `errors` the
tree of errors and who must act, `durable` the meaning of "durable".
"""

from typing import TYPE_CHECKING

from crawl_lib.lazy import loads_later
from crawl_lib.version import VERSION

__version__ = VERSION

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
