"""The stages of a crawl that the nodes work at: start, crawl, commit, settle.

`node` is a node's task of one iteration, in the order of the protocol:

1. lock the node's directory; finish an open move, then an open take, whichever run and iteration it is of;
2. if this iteration's segment of this node stands, there is nothing to do;
3. take in what was found for this node (`sources` says what there is, `frontier.intake` does it);
4. write the take: the decision which URLs this iteration fetches;
5. fetch: `workers` runs processes (`process`), each a `worker`, which fetches (`fetch`), keeps records
   (`segment.PartWriter`) and makes rows (`page`), in the scope of all that was taken in; full WARC files go to the
   take's hidden folder on the DFS meanwhile, and leave the disk (`segment.Sealer`); what a time limit leaves over
   is written down as the decision that fetching is over;
6. seal what is left, build the segment from the workers' parts and publish it: one rename;
7. the queue moves on, the keys are marked, the take is deleted, then the spool.

After a kill between any two steps the next task of the node, of whatever run, finds the take and does what is missing;
every step from 5 on may be done twice. The WARC files in the spool are the log: a rerun cuts off a torn tail, makes the
rows of the open part again from its records, and fetches only what has no record.

`start` and `commit` work on the DFS alone; `settle` is the intake of step 3 after the last iteration. `places` knows
the crawl directory, `exports` which segments an export takes in, `status` shows all of it, `progress` what is going on.
"""
