"""
### Krake: process

Maintenance, export, linker and finalizer alone, over earlier iterations.

1. **maintain_keys.server_N** counts the keys of the N-th key server, compares all replicas of the server's own interval
   of keys, and fills in missing keys; the log names the server. The tasks work side by side.
2. **export** writes mapping, content and offsets of the pages of the chosen iterations.
3. **linker** turns the links of these pages into arcs.
4. **finalizer** writes the web graph.

#### Parameters
*folders*: iterations, a line each: names (folders of the crawl directory, POSIX times such as `1795000000`), `A..B`
(from A to B, both included), or `newest 3`; empty: all. Cleared after a later run, `newest 3` means other iterations.
*label*: the export's name (letters, digits, `.`, `_`, `-`); empty: the newest of the iterations.

#### When it failed
Correct the cause named by the log's last line, then *Clear* the failed task with its downstream. An existing export of
the same iterations is found complete. An export of other iterations is never overwritten: choose another label.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param, TaskGroup
from krake_airflow.configs import PROCESS
from krake_airflow.operators import (
    ExportOperator,
    FinalizeOperator,
    LinkOperator,
    MaintainKeysOperator,
)
from krake_airflow.parsing import BATCH_TIMEOUT, configs_to_parse, default_args, label_param

from crawl_lib.config import Config


def process_dag(config: Config) -> None:
    """Make the DAG of a config."""
    with DAG(
        dag_id=f"{config.crawl.name}_{PROCESS}",
        description="Export, links and web graph of crawled iterations",
        doc_md=__doc__,
        schedule=None,
        catchup=False,
        max_active_runs=1,
        default_args={**default_args(config), "execution_timeout": BATCH_TIMEOUT},
        tags=["krake"],
        params={
            "folders": Param(
                None,
                type=["null", "array"],
                items={"type": "string", "pattern": r"^([0-9]+(\.\.[0-9]+)?|newest [0-9]+)$"},
                title="Iterations",
                description_md="Iterations, one a line: names (folders of the crawl directory, all digits), *A..B* "
                "(from A to B), or *newest 3*. Anything else is a *Bad Request*. Empty: all.",
            ),
            "label": label_param(),
        },
    ):
        with TaskGroup("maintain_keys"):
            maintains = [
                MaintainKeysOperator(task_id=task_id, server=task_id)
                for task_id in config.key_storage.by_short_name
            ]
        export = ExportOperator(task_id="export", of_run=False)
        linker = LinkOperator(task_id="linker")
        finalizer = FinalizeOperator(task_id="finalizer")

        maintains >> export >> linker >> finalizer


for one in configs_to_parse(PROCESS):
    process_dag(one)
