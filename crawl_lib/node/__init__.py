"""The tasks of a node: its crawl of an iteration, settle, retire, admit.

`node` is a node's task of one iteration, in the order of the protocol:

1. lock the node's directory; finish an open move, then an open take, whichever run and iteration it is of;
2. if this iteration's segment of this node stands, there is nothing to do;
3. take in what was found for this node (`sources` says what there is, `frontier.intake` does it);
4. write the take: the decision which URLs this iteration fetches;
5. fetch: `workers` runs processes (`process`), each a `worker`, which fetches (`fetch`), keeps records
   (`segment.PartWriter`) and makes rows (`page`; of large pages in turns of the loop, `large`, read by a process of
   their own, `aside`), in the scope of all that was taken in; what reads strangers' bytes gets no secrets
   (`environment`) and may open next to no files (`sandbox`). Full WARC files go to the
   take's hidden folder on the DFS meanwhile, and leave the disk (`segment.Sealer`); what a time limit leaves over
   is written down as the decision that fetching is over;
6. seal what is left, build the segment from the workers' parts and publish it: one rename;
7. the queue moves on, the keys are marked, the take is deleted, then the spool.

After a kill between any two steps the next task of the node, of whatever run, finds the take and does what is missing;
every step from 5 on may be done twice. The WARC files in the spool are the log: a rerun cuts off a torn tail, makes the
rows of the open part again from its records, and fetches only what has no record.

`start` and `commit` work on the DFS alone; `settle` is the intake of step 3 after the last iteration. `places` knows
the crawl directory, `naming` which folder comes next when attempts of `start` overlap, `shares` what a node may
take under `crawl.max_pages`, `exports` which segments an export takes in, `status` shows all of it, `progress`
what is going on. `ready` asks, where all nodes are on one machine, whether they can work, before a folder is made.

**The durable steps of a round, and what is true after a crash behind each.** The names are those of `durable.reached`.

| step | true after it | the next run |
|---|---|---|
| `start.written` | a hidden folder, which nobody reads | makes another one; `commit` deletes this one |
| `start.decided` | this attempt's hidden folder is the crawl's next one | gives it its name |
| `start.renamed` | the iteration has its folder, nodes, scope, batch sizes | finds the folder |
| `intake.*`, `queue.move.*` | see `frontier` | goes on with the intake, then with the move |
| `rehome.written` | nothing that counts: files of their own | writes them anew |
| `settle.mark_away` | the DFS does not call the node settled any more | goes on; its next settle marks it again |
| `take.written` | these URLs are being fetched, for this folder; the queue has not moved | fetches them |
| `hosts.gathered`, `hosts.moved` | files of before are on their way to the folder `hosts`, or there | goes on |
| `node.scope`, `segment.part.*`, `seal.*` | records are in the spool, or sealed on the DFS | fetches the rest |
| `take.leftover` | fetching is over; what has no record goes back to the queue | builds |
| `segment.publish.uploaded` | some files of the segment are in the take's hidden folder | sends what is not whole |
| `segment.publish.renamed` | the segment stands | sees its own take's id in the manifest: success |
| `commit.late_scope` | hosts of a late segment outlive its folder | the same |
| `queue.move.*`, `node.advanced` | the queue is past the take | does the move's rest, or nothing |
| `node.marked` | keys are marked crawled or gone | marks them again |
| `take.deleted`, `take.leftover_deleted` | the take is over; the spool is rubbish | deletes the spool |
| `commit.scope`, `commit.written` | the folder is committed; only a repair writes its index anew | returns its counts |
| `settle.marked` | `start` may know that the node rests, and with which folders taken in | the same |

**A page that kills.** What a large page says is read after its place is noted in the spool (`notes`, `page.noted`):
the process that dies of it, fetching or aside, leaves a note without an end. After two such notes the page
is not read any more, by this attempt nor by a later one: its row has no links, and `parse_error` says why.

`retire` lists the steps of taking a node out, `heldnotes` how other machines know what a node's queue holds.

A step may be seen before it is durable: a process is killed between the rename and the fsync of the directory, and
then, after the next task has gone on from there, the power fails. So whoever finds a step done makes it durable before
acting on it: `finish_open_move` the node's directory, `Storage.secure` what stands on the DFS.

**A node that is late.** With `crawl.min_nodes` below 1 `commit` goes on once enough segments stand, and names the
missing nodes in the index. Such a node finishes its take when it works again (step 1), in its old folder, beside the
index, and leaves an empty segment in each folder of which it took nothing (`node.fill_missed`). Until all of them
stand the folder is not complete: `start` does not sum it up for good, and no node notes it as taken in for ever. A
node that never comes back keeps the URLs of its queue and its take to itself: they are lost to the crawl until it is
retired, with its directory or as lost (`krake nodes retire`).

**Alike on all machines.** `start` notes Krake's version and the options that all must share; a task of a machine that
differs is refused before it begins (`agreement`).

**Other nodes.** An iteration keeps the nodes it began with. `layout` says when the next one may have others: when
each old node's mark on the DFS (`marks`) says that it has taken in all that stands, and has nothing open. `retire`
hands the queue of a node that goes to the others (`handover`); one whose disk was lost and that comes back is refused
until it is admitted (`admission`).

**Two attempts at once.** Airflow may start a second attempt of a task while the first still runs, or sleeps. The node's
lock parts them: `flock` on a file of its directory. It is no lease: it does not run out. The kernel frees it when the
last process that holds it is dead, and the fetching processes inherit it; so an attempt that was stopped, or a fetching
process whose parent was killed, keeps the second attempt out, which waits, and then fails naming the holder. There is
no moment at which the first could wake up and find that another took its place. This needs a local disk: on NFS a
client that was cut off may lose a lock and not know it. `queue.local_dir` must not lie there. What would still hold
then: a segment is published under the id of its take, and rename refuses a target, so one of two attempts of a take
wins and the other one sees it; the queue's advance refuses a state that is not the take's; but files of the spool could
be written by two. On the DFS nothing is locked: each file is written once, by a rename that refuses a target, and of
two `start` or `commit` that race, the second takes what the first wrote.
"""

from crawl_lib.node.admission import admit_node, plan_admission
from crawl_lib.node.crawl import crawl_node
from crawl_lib.node.keystates import mark_pages
from crawl_lib.node.ready import require_ready
from crawl_lib.node.retire import plan_retirement, retire_lost, retire_node
from crawl_lib.node.rollback import mismatch
from crawl_lib.node.settle import settle_node
from crawl_lib.node.sources import OUTLINKS_FILE, waiting_sources

__all__ = [
    "OUTLINKS_FILE",
    "admit_node",
    "crawl_node",
    "mark_pages",
    "mismatch",
    "plan_admission",
    "plan_retirement",
    "require_ready",
    "retire_lost",
    "retire_node",
    "settle_node",
    "waiting_sources",
]
