"""
### Krake: crawl

A run adds iterations to the crawl of Krake's config, and then makes a new export of the whole crawl.

1. **inject** leaves the seeds for the nodes that own their hosts. Known seeds add nothing.
2. **iteration_N**: *crawl.NODE* (in the node's queue) takes in the URLs that other nodes found for the node, fetches
   the next batch, and commits a segment; the first task names the iteration's folder. *commit* checks that the segments
   of all nodes are there, or as many as `crawl.min_nodes` asks for. Iterations beyond the run's number are skipped at
   once. After an iteration without work and without finds, later iterations are skipped too, if no URL waits or no
   waiting URL is due yet (the result of *commit* says so). With `parse.requisites` rounds of requisites follow the last
   iteration (**requisites_N**), while requisites wait.
3. **settle.NODE** takes in the finds of the last iteration, so the queues are complete until the next run. Meanwhile
   **maintain_keys.server_N** counts the keys of the N-th key server, compares all replicas of the server's own interval
   of keys, and fills in missing keys; the task shows the server's name. All these tasks work side by side.
4. **export**, **linker** and **finalizer** write mapping, content and offsets, then arcs, then the web graph.
   With `scores.tasks: [invert_links]` the LinkDb then takes in new segments.

#### Parameters
*seeds*: URLs, a line each (`key=value` metadata after tabs), or the path of a file or of a folder of files in
`inject.directory` on the machine of the queue `default`, relative to this directory or absolute; empty: go on with
queued URLs. *iterations*: the most iterations of the run. *batch_size*: URLs of one node in one iteration; empty: as in
the config. *retry_now*: on, the first iteration fetches URLs that wait for another try, as `krake retry --now` does.
*label*: the export's name; empty: the time of the newest iteration with finds.

#### When it failed
Every task may be run again at any time: the task goes on where the last try stopped, or finds its work done.

* **inject failed**: the last lines of the log name wrong seeds, or unknown keys of the run's conf. Trigger a new run: a
  cleared task keeps its parameters. Only after the correction of a file of seeds, *Clear* inject.
* **A crawl task failed**: the last lines of the log name the obstacle (a full disk, a silent key server). Remove the
  cause, then *Clear* the failed task with its downstream. The other nodes' work is kept.
* **A crawl task refuses its machine**: config or version differ from those of the task that named the iteration's
  folder; the log names the differences. Make both the same and clear the task. If the change is meant for all, clear
  *inject* with its downstream: the config of inject's machine then counts for iterations that lack segments.
* **inject or a crawl task refuses the list of nodes**: the log names the nodes to settle, to retire, or to put back
  first.
* **commit failed**: the log names the nodes without a segment. Clear their crawl tasks with downstream. Or too few URLs
  were answered (`crawl.min_success`): look at the network. Nothing is lost: a new run goes on, as does this run once
  *commit* is cleared with its downstream.
* **export says that the name is taken**: an export of this label was made of other iterations. Trigger `krake_process`
  with another label, or move the named folder away and clear export with its downstream.
* **A task of maintain_keys failed**: the log names the server that does not answer, or that waits for the operator. The
  server is the task's own, or holds replicas of its keys. Other servers got their missing keys. Repair the server, then
  *Clear* the failed tasks with their downstream.
* **settle or a crawl task waits**: another task works on the same node; the log names the process.
* Or leave the failed run and trigger a new run, which first finishes the open work.

With `crawl.min_nodes` below 1 a dead node does not stop the round. Its crawl task fails after all tries, or after three
times Airflow's `task_queued_timeout` (30 minutes in all) if no worker takes the task; *commit* goes on without the node
and names it, and the run may end in success. Once the node works again, its next task finishes the open take.

A backfill ignores the limit of one run at a time; use `airflow backfill create --max-active-runs 1`.
"""

from __future__ import annotations

from itertools import chain

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, BaseOperator, TaskGroup
from krake_airflow.configs import CRAWL
from krake_airflow.operators import CommitOperator, InjectOperator
from krake_airflow.parsing import (
    after_all_nodes,
    bad_configs,
    configs_to_parse,
    task_ids_of_iterations,
    task_ids_of_requisites,
)
from krake_airflow.watching import in_lines
from krake_airflow.wiring import add_crawls, crawl_dag, iterations_group, join

from crawl_lib.config import Config


def add_rounds(config: Config) -> list[BaseOperator]:
    """Add inject, then each iteration behind the last, then rounds of requisites; return their commits."""
    ids, requisites = task_ids_of_iterations(config), task_ids_of_requisites(config)
    before: BaseOperator = InjectOperator(task_id="inject", later=ids)
    commits: list[BaseOperator] = []
    rule = after_all_nodes(config)
    with iterations_group():
        for i in [*ids, *requisites]:
            of_requisites = i in requisites
            if of_requisites and i - 1 in ids:
                before = join("iterated", commits)
            with TaskGroup((ids | requisites)[i][-1].removesuffix(".commit")):
                crawls = add_crawls(config, i, of_requisites=of_requisites)
                commit = CommitOperator(
                    task_id="commit",
                    iteration=i,
                    of_requisites=of_requisites,
                    later={number: tasks for number, tasks in ids.items() if number > i},
                    requisites={
                        number: tasks for number, tasks in requisites.items() if number > i
                    },
                    trigger_rule=rule,
                )
            before >> crawls >> commit
            before = commit
            commits.append(commit)
    return commits


for one in configs_to_parse(CRAWL):
    crawl_dag(one, __doc__ or "", add_rounds)

for bad in bad_configs():
    with DAG(
        dag_id=bad.dag_id,
        description=bad.lines[0],
        doc_md="This config makes no DAGs:\n\n```text\n{}\n```\n".format(
            "\n".join(chain(*map(in_lines, bad.lines)))
        ),
        schedule=None,
        is_paused_upon_creation=True,
        tags=["krake"],
    ):
        EmptyOperator(task_id="correct_the_config")
