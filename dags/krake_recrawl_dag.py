"""
### Krake: recrawl

One run visits again what is due, and what was found and is new, in some iterations; then it makes a new export. It is
the DAG of a config with `frontier.order: crawldb`: the CrawlDb, a table of all URLs, says what is visited and when.

1. **inject** leaves the seeds for the nodes that own their hosts, and takes them into the CrawlDb.
2. **iteration_N**: *generate* makes the list of what is due and matters most, and names the iteration's folder.
   *crawl.NODE* fetches the node's part of the list, and commits its segment. *commit* checks that the segments of all
   nodes are there, or as many as `crawl.min_nodes` asks for. *update* makes the next version of the CrawlDb: when each
   URL is visited next, and what is new.
   Where nothing is due and nothing waits, *generate* ends the run's iterations: its result says when the first URL is
   due, and all that is left of the iterations is skipped, as are those that the run does not ask for.
   With `parse.requisites` rounds of requisites follow the last iteration (**requisites_N**); their lists have no page,
   and the first empty list ends them.
3. **settle.NODE**, **maintain_keys.server_N** (the key servers keep the hosts' turns only), **export**, **linker** and
   **finalizer** are as in a crawl without a CrawlDb. The export has what is there now: no page that is gone.
4. What `scores.tasks` of the config names, with `scores.when: run`: **invert_links** takes new segments into the
   LinkDb, **duplicates** gives all but the best of equal pages that status, **score** makes the ranks of the export's
   pages the scores of the CrawlDb.

#### Parameters
*seeds*: URLs, a line each (`key=value` metadata after tabs), or the path of a file or of a folder of files in
`inject.directory` on the machine of the queue `default`, relative to it or absolute; empty: visit what is due.
*iterations*: how many at most. *batch_size*: URLs that one node takes in one iteration; empty: as the config says.
*retry_now*: on, URLs that wait for another try are fetched with the first iteration, as `krake retry --now` does.
*label*: the export's name; empty: the time of its newest iteration that found something.

#### When it failed
Every task may be run again at any time: it goes on where it stopped, or finds its work done. Cleared, *generate* finds
the list that it made, also one that ended the iterations: what is due since then is for the next run.

* **A crawl task, commit, export, maintain_keys or settle failed**: the page of a DAG without a CrawlDb, and
  `docs/operating.md`, say what to do; it is the same.
* **generate or update names a damaged version or list**: do what the message says; the last whole version counts. Then
  *Clear* the failed task with its downstream.
* **update failed for want of room**: see to the disk of `scratch.directory`, or to the store; clear it. Until it is
  done, what the iteration fetched is not known to the CrawlDb, and its list keeps the URLs from being visited twice.
* Or leave the failed run and trigger a new one: it first finishes what the failed one left open. URLs of its lists
  that no node has fetched are due again once the lease of their list is over (`generate.lease_s`).

With `crawl.min_nodes` below 1 a node that is dead does not stop the round, as in a crawl without a CrawlDb.

A backfill ignores the limit of one run at a time; use `airflow backfill create --max-active-runs 1`. Its runs visit
what is due when they run, so the second one usually finds nothing.
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
    """inject, then each iteration behind the one before, then rounds of requisites; returns their updates."""
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
