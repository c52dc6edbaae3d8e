"""
### Krake: crawl

One run adds some iterations to the crawl that Krake's config describes, and then makes a new export of all of it.

1. **inject** leaves the seeds for the nodes that own their hosts. Seeds that are known already add nothing.
2. **iteration_N**: *start* names the iteration's folder; *crawl.NODE* (in the node's queue) takes in what other nodes
   found for it, fetches the next batch, and commits its segment; *commit* checks that the segments of all nodes are
   there, or as many as `crawl.min_nodes` asks for.
   Iterations that the run does not ask for are skipped at once.
3. **settle.NODE** takes in what the last iteration found, so that the queues are complete until the next run.
4. **maintain_keys.server_N** counts the keys of the N-th key server, compares all replicas of its own interval of
   keys, and fills those that miss some; the task shows the server's name. The tasks work side by side.
5. **export**, **linker** and **finalizer** write mapping, content and offsets, then arcs, then the web graph.

#### Parameters
*seeds*: URLs, a line each (`key=value` metadata after tabs), or the path of a file or of a folder of files in
`inject.directory` on the machine of the queue `default`, relative to it or absolute; empty: go on with what is queued.
*iterations*: how many. *batch_size*: URLs that one node takes in one iteration; empty: as the config says.
*label*: the export's name; empty: the time of its newest iteration.

#### When it failed
Every task may be run again at any time: it goes on where it stopped, or finds its work done.

* **A crawl task failed**: its log's last lines name what is in the way (a full disk, a key server that does not
  answer). Remove the cause, then *Clear* the failed task with its downstream. The other nodes' work is kept.
* **A crawl task refuses its machine**: its config or version is not that of *start*; the log names what differs. Make
  it the same and clear the task; where the change is meant for all, clear the iteration's *start* with its downstream.
* **inject or start refuses the list of nodes**: it names who has to settle, to be retired, or to be put back first.
* **commit failed**: it names the nodes whose segment is missing. Clear their crawl tasks with downstream.
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

from datetime import UTC, datetime

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import (  # type: ignore[attr-defined]  # the package's stub forgets ParamsDict
    DAG,
    BaseOperator,
    Param,
    ParamsDict,
    TaskGroup,
    TriggerRule,
)
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
    after_all_nodes,
    config_at_parse,
    crawl_timeout,
    default_args,
    key_servers,
    label_param,
    node_retries,
    schedule_of,
    settle_timeout,
    task_ids_of_iterations,
)

config = config_at_parse()
most = config.crawl.max_iterations
ids = task_ids_of_iterations(config)

params = ParamsDict(
    {
        "seeds": Param(
            "",
            type=["null", "string"],
            format="multiline",
            title="Seeds",
            description_md="URLs, one a line, or the path of a file or folder with seeds in `inject.directory` of the "
            f"config ({config.inject.directory}). Empty: go on with what is queued.",
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
    }
)

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
) as dag:
    # Edges are drawn as soon as both ends are there: for each end Airflow looks at all tasks that the DAG has by then.
    # settle hangs on inject and on ALL commits, skipped ones too: on the last commit alone it would begin as soon as
    # that one is skipped, which is at once. `committed` and `settled` are not work, and no worker sees them: they save
    # an edge for each pair of commit and node, and of node and key server.
    inject = InjectOperator(task_id="inject", later=ids)
    committed = EmptyOperator(task_id="committed", trigger_rule=TriggerRule.NONE_FAILED)
    inject >> committed
    before: BaseOperator = inject
    for i in range(1, most + 1):
        with TaskGroup(f"iteration_{i}"):
            start = StartOperator(task_id="start", iteration=i)
            with TaskGroup("crawl"):
                crawls = [
                    CrawlOperator(
                        task_id=node,
                        iteration=i,
                        node=node,
                        queue=node,
                        retries=node_retries(config),
                        execution_timeout=crawl_timeout(config),
                    )
                    for node in config.servers
                ]
            later = {number: tasks for number, tasks in ids.items() if number > i}
            commit = CommitOperator(task_id="commit", iteration=i, later=later, trigger_rule=after_all_nodes(config))
        before >> start >> crawls >> commit >> committed
        before = commit
    with TaskGroup("settle"):
        settles = [
            SettleOperator(
                task_id=node,
                node=node,
                queue=node,
                retries=node_retries(config),
                execution_timeout=settle_timeout(config),
            )
            for node in config.servers
        ]
    settled = EmptyOperator(task_id="settled", trigger_rule=after_all_nodes(config))
    with TaskGroup("maintain_keys"):
        maintains = [
            MaintainKeysOperator(
                task_id=task_id, task_display_name=server, server=server, execution_timeout=BATCH_TIMEOUT
            )
            for task_id, server in key_servers(config).items()
        ]
    export = ExportOperator(
        task_id="export", of_run=True, execution_timeout=BATCH_TIMEOUT, trigger_rule=after_all_nodes(config)
    )
    linker = LinkOperator(task_id="linker", execution_timeout=BATCH_TIMEOUT)
    finalizer = FinalizeOperator(task_id="finalizer", execution_timeout=BATCH_TIMEOUT)

    # Not given to DAG(): each task would copy them, at each level of its class, which took half of the time to parse.
    dag.params = params

    committed >> settles >> settled >> maintains >> export >> linker >> finalizer
