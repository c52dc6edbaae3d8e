"""
### Krake: recrawl

A run visits due URLs again, and new URLs for the first time, in some iterations; then the run makes a new export. This
is the DAG of a config with `frontier.order: crawldb`: the CrawlDb, a table of all URLs, says when to visit each URL.

1. **inject** leaves the seeds for the nodes that own their hosts, and takes the seeds into the CrawlDb.
2. **iteration_N**: *generate* lists the best due URLs, and names the iteration's folder. *crawl.NODE* fetches the
   node's part of the list, and commits a segment. *commit* checks that the segments of all nodes are there, or as many
   as `crawl.min_nodes` asks for. *update* makes the next version of the CrawlDb, with new URLs and the time of each
   URL's next visit. If no URL is due and none waits, *generate* ends the run's iterations: its result says when the
   first URL is due. All later tasks of the iterations are skipped, as are iterations beyond the run's number. With
   `parse.requisites` rounds of requisites follow the last iteration (**requisites_N**); their lists have no page, and
   the first empty list ends these rounds.
3. **settle.NODE**, **maintain_keys.server_N** (the key servers keep the hosts' turns only), **export**, **linker** and
   **finalizer** are as in a crawl without a CrawlDb. The export has the current pages, and no page that is gone.
4. With `scores.when: run`, the tasks in `scores.tasks` follow: **invert_links** takes new segments into the LinkDb,
   **duplicates** gives all but the best of equal pages the status `duplicate`, **score** makes the ranks of the
   export's pages the scores of the CrawlDb.

#### Parameters
*seeds*: URLs, a line each (`key=value` metadata after tabs), or the path of a file or of a folder of files in
`inject.directory` on the machine of the queue `default`, relative to this directory or absolute; empty: visit due URLs.
*iterations*: the most iterations of the run. *batch_size*: URLs of one node in one iteration; empty: as in the config.
*retry_now*: on, the first iteration fetches URLs that wait for another try, as `krake retry --now` does.
*label*: the export's name; empty: the time of the newest iteration with finds.

#### When it failed
Every task may be run again at any time: the task goes on where the last try stopped, or finds its work done. A cleared
*generate* finds its list, also an empty list that ended the iterations: URLs due since then are for the next run.

* **A crawl task, commit, export, maintain_keys or settle failed**: the remedy is the same as in a DAG without a
  CrawlDb; see the page of such a DAG, and `docs/operating.md`.
* **generate or update names a damaged version or list**: follow the message; the last whole version counts. Then
  *Clear* the failed task with its downstream.
* **update failed for want of room**: make room on the disk of `scratch.directory`, or in the store, and clear the task.
  Until then the CrawlDb lacks the iteration's fetches, and the iteration's list keeps the URLs from a second visit.
* Or leave the failed run and trigger a new run, which first finishes the open work. Listed URLs that no node has
  fetched are due again after the lease of the list (`generate.lease_s`).

With `crawl.min_nodes` below 1 a dead node does not stop the round, as in a crawl without a CrawlDb.

A backfill ignores the limit of one run at a time; use `airflow backfill create --max-active-runs 1`. Its runs visit the
URLs due at the time of the run, so the second run usually finds no due URL.
"""

from __future__ import annotations

from airflow.sdk import BaseOperator, TaskGroup
from krake_airflow.configs import RECRAWL
from krake_airflow.operators import CommitOperator, GenerateOperator, InjectOperator, UpdateOperator
from krake_airflow.parsing import (
    BATCH_TIMEOUT,
    after_all_nodes,
    configs_to_parse,
    task_ids_of_iterations,
    task_ids_of_requisites,
)
from krake_airflow.wiring import add_crawls, crawl_dag, iterations_group, join

from crawl_lib.config import Config


def add_rounds(config: Config) -> list[BaseOperator]:
    """Add inject, then each iteration behind the last, then rounds of requisites; return their updates."""
    ids, requisites = task_ids_of_iterations(config), task_ids_of_requisites(config)
    before: BaseOperator = InjectOperator(
        task_id="inject", later=ids, execution_timeout=BATCH_TIMEOUT
    )
    updates: list[BaseOperator] = []
    with iterations_group():
        for i, (first, *others) in (ids | requisites).items():
            later = {number: tasks for number, tasks in ids.items() if number > i}
            more = {number: tasks for number, tasks in requisites.items() if number > i}
            of_requisites = i in requisites
            if of_requisites and i - 1 in ids:
                before = join("iterated", updates)
            with TaskGroup(first.removesuffix(".generate")):
                generate = GenerateOperator(
                    task_id="generate",
                    iteration=i,
                    later={i: others, **later} if i in ids else {},
                    requisites=more if i in ids else {i: others, **more},
                    execution_timeout=BATCH_TIMEOUT,
                    of_requisites=of_requisites,
                )
                crawls = add_crawls(config, i, of_requisites=of_requisites)
                rule = after_all_nodes(config)
                commit = CommitOperator(
                    task_id="commit",
                    iteration=i,
                    later={},
                    trigger_rule=rule,
                    of_requisites=of_requisites,
                )
                update = UpdateOperator(
                    task_id="update",
                    iteration=i,
                    later=later,
                    execution_timeout=BATCH_TIMEOUT,
                    of_requisites=of_requisites,
                )
            before >> generate >> crawls >> commit >> update
            before = update
            updates.append(update)
    return updates


for one in configs_to_parse(RECRAWL):
    crawl_dag(one, __doc__ or "", add_rounds)
