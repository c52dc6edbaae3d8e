"""
### Krake: crawl

One run adds some iterations to the crawl that Krake's config describes, and then makes a new export of all of it.

1. **inject** leaves the seeds for the nodes that own their hosts. Seeds that are known already add nothing.
2. **iteration_N**: *start* names the iteration's folder; *crawl.NODE* (in the node's queue) takes in what other nodes
   found for it, fetches the next batch, and commits its segment; *commit* checks that the segments of all nodes stand.
   Iterations that the run does not ask for are skipped at once.
3. **settle.NODE** takes in what the last iteration found, so that the queues are complete until the next run.
4. **maintain_keys.server_N** counts the keys of the N-th key server, compares all replicas of its own interval of
   keys, and fills those that miss some; the task shows the server's name. The tasks work side by side.
5. **export**, **linker** and **finalizer** write mapping, content and offsets, then arcs, then the web graph.

#### Parameters
*seeds*: URLs, a line each (`key=value` metadata after tabs), or the path of a file or of a folder of files; empty: go
on with what is queued. *iterations*: how many. *batch_size*: URLs that one node takes in one iteration; empty: as the
config says. *label*: the export's name; empty: the time of its newest iteration.

#### When it failed
Every task may be run again at any time: it goes on where it stopped, or finds its work done.

* **A crawl task failed**: its log's last lines name what is in the way (a full disk, a key server that does not
  answer). Mend it, then *Clear* the failed task with its downstream. The other nodes' work stands.
* **commit failed**: it names the nodes whose segment is missing. Clear their crawl tasks with downstream.
* **export says that the name is taken**: an export of that label was made of other iterations. Trigger
  `krake_process` with another label, or delete the named folder and clear export with its downstream.
* **A task of maintain_keys failed**: its log names the server that does not answer, or that waits for the operator: the
  task's own, or one that holds replicas of its keys. What the others miss is filled. Mend the server, then *Clear* the
  failed tasks with their downstream.
* **settle or a crawl task waits**: another task works on the same node; its log names the process.
* Or leave the failed run and trigger a new one: it first finishes what the failed one left open.

Backfill does not heed the limit of one run at a time; use `airflow backfill create --max-active-runs 1`.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Param, TaskGroup, TriggerRule
from krake_airflow.operators import (
    CommitOperator,
    CrawlOperator,
    ExportOperator,
    FinalizeOperator,
    InjectOperator,
    LinkOperator,
    MaintainKeysOperator,
    SettleOperator,
    StartOperator,
)
from krake_airflow.parsing import (
    BATCH_TIMEOUT,
    CRAWL_RETRIES,
    config_at_parse,
    crawl_timeout,
    default_args,
    key_servers,
    label_param,
    schedule_of,
    settle_timeout,
    task_ids_of_iterations,
)

config = config_at_parse()
most = config.crawl.max_iterations
ids = task_ids_of_iterations(config)

with DAG(
    dag_id="krake_crawl",
    description="Seeds to WARC files, tables and web graph",
    doc_md=__doc__,
    schedule=schedule_of(config),
    start_date=datetime(2024, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    max_active_tasks=max(16, len(config.servers)),
    default_args=default_args(),
    tags=["krake"],
    params={
        "seeds": Param(
            "",
            type=["null", "string"],
            format="multiline",
            title="Seeds",
            description_md="URLs, one a line, or the **path** of a file or folder with seeds. "
            "Empty: go on with what is queued.",
        ),
        "iterations": Param(
            min(3, most),
            type="integer",
            minimum=1,
            maximum=most,
            title="Iterations",
            description_md=f"Rounds of this run, 1 to {most} (`crawl.max_iterations`).",
        ),
        "batch_size": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Batch size",
            description_md="URLs that one node takes in one iteration. "
            f"Empty: `batch.size` of the config ({config.batch.size}).",
        ),
        "label": label_param(),
    },
) as dag:
    inject = InjectOperator(task_id="inject", later=ids)
    starts, crawls, commits = {}, {}, {}
    for i in range(1, most + 1):
        with TaskGroup(f"iteration_{i}"):
            starts[i] = StartOperator(task_id="start", iteration=i)
            with TaskGroup("crawl"):
                crawls[i] = [
                    CrawlOperator(
                        task_id=node,
                        iteration=i,
                        node=node,
                        queue=node,
                        retries=CRAWL_RETRIES,
                        execution_timeout=crawl_timeout(config),
                    )
                    for node in config.servers
                ]
            later = {number: tasks for number, tasks in ids.items() if number > i}
            commits[i] = CommitOperator(task_id="commit", iteration=i, later=later)
    with TaskGroup("settle"):
        settles = [
            SettleOperator(
                task_id=node,
                node=node,
                queue=node,
                retries=CRAWL_RETRIES,
                execution_timeout=settle_timeout(config),
                trigger_rule=TriggerRule.NONE_FAILED,
            )
            for node in config.servers
        ]
    # No work, and no worker: the scheduler itself passes it. It saves an edge for each pair of node and key server.
    settled = EmptyOperator(task_id="settled")
    with TaskGroup("maintain_keys"):
        maintains = [
            MaintainKeysOperator(
                task_id=task_id, task_display_name=server, server=server, execution_timeout=BATCH_TIMEOUT
            )
            for task_id, server in key_servers(config).items()
        ]
    export = ExportOperator(task_id="export", of_run=True, execution_timeout=BATCH_TIMEOUT)
    linker = LinkOperator(task_id="linker", execution_timeout=BATCH_TIMEOUT)
    finalizer = FinalizeOperator(task_id="finalizer", execution_timeout=BATCH_TIMEOUT)

    # The edges. settle hangs on inject and on ALL commits, skipped ones too: on the last commit alone it would begin as
    # soon as that one is skipped, which is at once.
    inject >> starts[1]
    for i in range(1, most + 1):
        starts[i] >> crawls[i] >> commits[i] >> settles
        if i < most:
            commits[i] >> starts[i + 1]
    inject >> settles >> settled >> maintains >> export >> linker >> finalizer
