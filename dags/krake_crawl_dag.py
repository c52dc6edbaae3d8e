"""
### Krake: crawl

One run adds some iterations to the crawl that Krake's config describes, and then makes a new export of all of it.

1. **inject** leaves the seeds for the nodes that own their hosts. Seeds that are known already add nothing.
2. **iteration_N**: *crawl.NODE* (in the node's queue) takes in what other nodes found for it, fetches the next batch,
   and commits its segment; the first one names the iteration's folder. *commit* checks that the segments of all nodes
   are there, or as many as `crawl.min_nodes` asks for.
   Iterations that the run does not ask for are skipped at once, and those after one that had nothing to do and found
   nothing, if nothing waits, or nothing that is due yet (the result of its *commit* says so).
   With `parse.requisites` rounds of requisites follow the last iteration (**requisites_N**), as long as some wait.
3. **settle.NODE** takes in what the last iteration found, so that the queues are complete until the next run. Meanwhile
   **maintain_keys.server_N** counts the keys of the N-th key server, compares all replicas of its own interval of
   keys, and fills those that miss some; the task shows the server's name. All of them work side by side.
4. **export**, **linker** and **finalizer** write mapping, content and offsets, then arcs, then the web graph.
   With `scores.tasks: [invert_links]` the LinkDb then takes in new segments.

#### Parameters
*seeds*: URLs, a line each (`key=value` metadata after tabs), or the path of a file or of a folder of files in
`inject.directory` on the machine of the queue `default`, relative to it or absolute; empty: go on with what is queued.
*iterations*: how many at most. *batch_size*: URLs that one node takes in one iteration; empty: as the config says.
*retry_now*: on, URLs that wait for another try are fetched with the first iteration, as `krake retry --now` does.
*label*: the export's name; empty: the time of its newest iteration that found something.

#### When it failed
Every task may be run again at any time: it goes on where it stopped, or finds its work done.

* **inject failed**: its log's last lines name the seeds that are wrong, or keys of the run's conf that are unknown.
  Trigger a new run: a cleared task keeps its parameters. Only where a file of seeds was corrected, *Clear* inject.
* **A crawl task failed**: its log's last lines name what is in the way (a full disk, a key server that does not
  answer). Remove the cause, then *Clear* the failed task with its downstream. The other nodes' work is kept.
* **A crawl task refuses its machine**: its config or version is not that of the task which named the iteration's
  folder; the log names what differs. Make it the same and clear the task; where the change is meant for all, clear
  *inject* with its downstream: what its machine has then holds for iterations that lack segments.
* **inject or a crawl task refuses the list of nodes**: it names who has to settle, to be retired, or to be put back
  first.
* **commit failed**: it names the nodes whose segment is missing. Clear their crawl tasks with downstream. Or it says
  that too few URLs were answered (`crawl.min_success`): see to the network; nothing is lost, and a new run goes on, or
  this one once *commit* is cleared with its downstream.
* **export says that the name is taken**: an export of that label was made of other iterations. Trigger
  `krake_process` with another label, or move the named folder away and clear export with its downstream.
* **A task of maintain_keys failed**: its log names the server that does not answer, or that waits for the operator: the
  task's own, or one that holds replicas of its keys. What the others miss is filled. Repair the server, then *Clear*
  the failed tasks with their downstream.
* **settle or a crawl task waits**: another task works on the same node; its log names the process.
* Or leave the failed run and trigger a new one: it first finishes what the failed one left open.

With `crawl.min_nodes` below 1 a node that is dead does not stop the round: its crawl task fails after its tries, or
after three times Airflow's `task_queued_timeout` (30 minutes in all) if no worker takes it; *commit* goes on without
it and names it, and the run may end in success. Once the node works again, its next task finishes what it had taken.

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
    """inject, then each iteration behind the one before, then rounds of requisites; returns their commits."""
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
