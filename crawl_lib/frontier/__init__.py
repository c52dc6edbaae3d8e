"""What a node fetches next: its FIFO queue on its own disk, and how URLs get into it and out of it, through any crash.

The flow of URLs:

1. `inject` leaves seeds for their nodes in a folder of the crawl directory (`seeds`, `inject`); a segment leaves the
   URLs that it discovered in the same form, the file `outlinks` (`outlinks`).
2. `intake` reads the parts that are this node's, asks the key store which URLs are new, and appends those to the
   queue (`source`, `intake`, `journal`). URLs that other nodes handed on join it unasked, unless they wait in it
   already (`past_check`). A queue that people made by hand is adopted first (`adopt`).
3. `make_take` writes down the next URLs; they are fetched, and their segment is committed (`take`).
4. `advance` moves the queue past them; what was left over joins its end (`take`, `move`).

All of it happens under `NodeLock` (`lock`). Nobody writes into another node's directory.

The files of a node's directory. Fixed format, for everybody: `0`, `1`..., `state`. Ours beside them:

    <n>.meta         line for line with data file n: via key, depth, redirects, seed metadata
    state.krake      digest of the `state` written last, byte offsets, what was taken in, id of the last move, counts
    lock             names who works on the node
    move             an open move
    take, leftover   an open take; the decision that its fetching is over, with what was not fetched
    put_back         the leftover as a data file, before its move
    intake           the journal of an open intake; new, new.meta, new.undecided, new.claim, new.hosts are its files
    undecided        URLs whose key servers did not answer; the next intake begins with them
    adopted, adopted.*   an adoption under way; rehomed, rehomed.*   a rehoming under way
    handed_on        queued URLs that other nodes own; scope_added: adopted hosts. The next segment carries both
    retire           a decision to hand all of it over (`node.handover`)
    hostcounts.sqlite    URLs admitted by host
    spool/, hosts/       what is fetched now; when hosts were asked last (`fetch.hosts`). Fetching processes write here
    lost                 how many URLs a repair found gone; `krake keys rebuild --drop-queued` deletes it

**Moves.** Everything that changes the queue is a move: (1) the files to come are durable under names of their own;
(2) `move` is durable: it lists each renaming and deletion with the inode that is meant, the new `state`, the new
`state.krake`; (3) the steps, group by group; (4) `state`; (5) host counts, in one transaction with the move's id;
(6) `state.krake`; (7) `move` is deleted. Killed before (2): nothing has happened, the files of (1) are written anew.
Killed after it: `finish_open_move` does (3) to (7) again; a step whose file is not under its old name is done if it is
under its new one. The inodes tell the file `0` that is to go from the file `0` that `1` has become. No inode is freed
and used again under a data file's name, since all files that get such a name exist when the move is planned. In a copy
of the directory all inodes are others: nothing is done, and the error names `krake queue repair`.

**Takes.** (1) `take` is durable; the queue has not changed, so a kill before means that nothing was taken. (2) Fetch;
`leftover` is durable: it is over. (3) The segment is committed (by the caller). (4) The move `take-<id>`: consumed
files go, the others move down, leftover joins the end; handed_on, scope_added and the counts of intakes go, for the
segment holds them. (5) `take` is deleted, then `leftover`, then the spool. Killed between (3) and (4): position
"before", the move is made. Between (4) and (5): the last move is the take's own, nothing is done. Anything else:
QueueError, which names `krake queue repair`.

**Intake.** (1) The journal with the plan, after empty files. For each chunk of lines: (2) the key store says what is
new; undecided lines go to `new.undecided`. (3, local routing) The candidates are durable in `new.claim`, then the
journal says "claim"; the claim is sent. (4) The URLs are appended to `new` and `new.meta`, fsynced. (5) The journal
says so: the decision. (6) Their keys are inserted. At the end (7) `new.hosts`, then one move: `new` becomes the last
data file, `new.undecided` becomes `undecided`, the sources are noted, the journal goes.
Killed before (5): what lies beyond the journal's sizes is cut off, and the chunk is done again; no key of it was
inserted, and nothing of it counts as waiting here. After (5): its keys are inserted again, which changes nothing.
Killed at (3) once the journal says "claim": the claim may have been sent, a second answer would call our own keys
known; so all candidates are kept, counted as `unsure`. With `host` routing one node writes a key, so nothing is lost
and nothing is doubled. The report stays in `state.krake` until a segment is committed, so no count is lost either.

**Adoption.** The whole queue is written anew, canonical, into `adopted`; keys are inserted; one move replaces it.
Killed before the move: it is done again from the start.

**Rehoming**, before an iteration with other nodes, or after URLs came that were divided among others. What stays is
written to `rehomed`, what other nodes own to `rehomed.handed_on`, which begins with what waits in `handed_on`; one move
puts both in place and notes the nodes in `state.krake`. Killed before the move: it is done again from the start.

**Repair** counts what is there and never drops a URL: in doubt it is fetched again (`repair`, `rescue`). What may hold
the only copy of a URL becomes a data file before anything is deleted; the next intake adopts the queue, which drops
repeats and inserts keys. URLs that no file holds any more are counted in the file `lost` before anything else says that
the queue is whole, and every segment is taken in anew (`anew`).
"""

from crawl_lib.frontier.adopt import adopt, read_handed_on, read_scope_added, refuse
from crawl_lib.frontier.directory import NodeDirectory, open_node_dir
from crawl_lib.frontier.hostcounts import HostCounts, host_of_line
from crawl_lib.frontier.intake import intake, open_plan, pending_report, read_undecided
from crawl_lib.frontier.journal import (
    CLAIM,
    INSERT,
    IntakeReport,
    Journal,
    read_journal,
)
from crawl_lib.frontier.lock import NodeLock, held_without_trace, holder
from crawl_lib.frontier.move import (
    Appended,
    Change,
    Move,
    carry_out_move,
    finish_open_move,
    impossible_steps,
    plan_move,
    read_move,
)
from crawl_lib.frontier.outlinks import (
    BARE_META,
    HANDED_ON,
    HANDED_ON_MARK,
    OutlinkPart,
    OutlinkWriter,
    decode_line,
    decode_meta,
    encode_line,
    join_line,
    part_mapping,
    read_outlinks,
    split_line,
)
from crawl_lib.frontier.queue import (
    Queue,
    QueueReader,
    State,
    count_lines,
    half_line_problem,
    parse_state,
)
from crawl_lib.frontier.record import (
    UNKNOWN_SIZE,
    Record,
    TakenIn,
    meta_digest,
    read_record,
    record_bytes,
    taken_in_anew,
)
from crawl_lib.frontier.rehome import rehome
from crawl_lib.frontier.source import Source, file_lines, lines_of, part_source
from crawl_lib.frontier.take import (
    Take,
    TakeHeader,
    advance,
    close_take,
    differing_line,
    make_take,
    open_take,
    read_leftover,
    write_leftover,
    write_take,
)

__all__ = [
    "BARE_META",
    "CLAIM",
    "HANDED_ON",
    "HANDED_ON_MARK",
    "INSERT",
    "UNKNOWN_SIZE",
    "Appended",
    "Change",
    "HostCounts",
    "IntakeReport",
    "Journal",
    "Move",
    "NodeDirectory",
    "NodeLock",
    "OutlinkPart",
    "OutlinkWriter",
    "Queue",
    "QueueReader",
    "Record",
    "Source",
    "State",
    "Take",
    "TakeHeader",
    "TakenIn",
    "adopt",
    "advance",
    "carry_out_move",
    "close_take",
    "count_lines",
    "decode_line",
    "decode_meta",
    "differing_line",
    "encode_line",
    "file_lines",
    "finish_open_move",
    "half_line_problem",
    "held_without_trace",
    "holder",
    "host_of_line",
    "impossible_steps",
    "intake",
    "join_line",
    "lines_of",
    "make_take",
    "meta_digest",
    "open_node_dir",
    "open_plan",
    "open_take",
    "parse_state",
    "part_mapping",
    "part_source",
    "pending_report",
    "plan_move",
    "read_handed_on",
    "read_journal",
    "read_leftover",
    "read_move",
    "read_outlinks",
    "read_record",
    "read_scope_added",
    "read_undecided",
    "record_bytes",
    "refuse",
    "rehome",
    "split_line",
    "taken_in_anew",
    "write_leftover",
    "write_take",
]
