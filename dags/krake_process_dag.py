"""
### Krake: process

Maintenance, export, linker and finalizer alone, over iterations that were crawled before.

1. **maintain_keys.server_N** counts the keys of the N-th key server, compares all replicas of its own interval of
   keys, and fills those that miss some; the task shows the server's name. The tasks work side by side.
2. **export** writes mapping, content and offsets of the pages of the chosen iterations.
3. **linker** turns their links into arcs.
4. **finalizer** writes the web graph.

#### Parameters
*folders*: names of iterations (folders of the crawl directory, POSIX times), one a line; empty: all that are complete.
*label*: the export's name; empty: the newest iteration in it.

#### When it failed
Correct what the log's last line names, then *Clear* the failed task with its downstream. An export that exists already
and was made of the same iterations is found complete; one of other iterations is never overwritten: choose another
label.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param, TaskGroup
from krake_airflow.operators import ExportOperator, FinalizeOperator, LinkOperator, MaintainKeysOperator
from krake_airflow.parsing import BATCH_TIMEOUT, config_at_parse, default_args, key_servers, label_param

config = config_at_parse()

with DAG(
    dag_id="krake_process",
    description="Export, links and web graph of iterations that are crawled already",
    doc_md=__doc__,
    schedule=None,
    catchup=False,
    max_active_runs=1,
    default_args={**default_args(), "execution_timeout": BATCH_TIMEOUT},
    tags=["krake"],
    params={
        "folders": Param(
            None,
            type=["null", "array"],
            items={"type": "string", "pattern": "^[0-9]+$"},
            title="Iterations",
            description_md="Names of iterations (folders of the crawl directory), one a line. Empty: all.",
        ),
        "label": label_param(),
    },
) as dag:
    with TaskGroup("maintain_keys"):
        maintains = [
            MaintainKeysOperator(task_id=task_id, task_display_name=server, server=server)
            for task_id, server in key_servers(config).items()
        ]
    export = ExportOperator(task_id="export", of_run=False)
    linker = LinkOperator(task_id="linker")
    finalizer = FinalizeOperator(task_id="finalizer")

    maintains >> export >> linker >> finalizer
