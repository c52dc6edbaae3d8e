"""Parses the DAGs as Airflow's DAG processor does, and prints what tests ask for as JSON.

Run as a module, with the DAG folder and then config files: one process for all, because importing Airflow takes longer
than parsing.
"""

import json
import os
import sys
import time
from typing import Any


def _task(task: Any) -> dict[str, Any]:
    return {
        "operator": type(task).__name__,
        "upstream": sorted(task.upstream_task_ids),
        "downstream": sorted(task.downstream_task_ids),
        "owner": task.owner,
        "retries": task.retries,
        "retry_delay_s": task.retry_delay.total_seconds(),
        "timeout_s": task.execution_timeout.total_seconds() if task.execution_timeout else None,
        "queue": task.queue,
        "executor": task.executor,
        "server": getattr(task, "server", None),
        "shown": task.task_display_name,
        "trigger_rule": str(task.trigger_rule.value),
        "own_params": len(task.params),
        "later": {number: list(ids) for number, ids in getattr(task, "later", {}).items()},
    }


def parse(folder: str) -> dict[str, Any]:
    """DAGs, import errors and the CPU seconds that parsing took."""
    from airflow.dag_processing.dagbag import DagBag  # noqa: PLC0415 - the environment is set by then

    began_s = time.process_time()
    bag = DagBag(dag_folder=folder)
    parse_s = time.process_time() - began_s
    found = {
        dag_id: {
            "tasks": {task.task_id: _task(task) for task in dag.tasks},
            "doc": dag.doc_md,
            "tags": sorted(dag.tags),
            "max_active_runs": dag.max_active_runs,
            "catchup": dag.catchup,
            "schedule": getattr(dag.timetable, "expression", None),
            "params": {name: {**param.schema, "value": param.value} for name, param in dag.params.items()},
        }
        for dag_id, dag in bag.dags.items()
    }
    return {"dags": found, "errors": bag.import_errors, "parse_s": parse_s}


if __name__ == "__main__":
    for config in sys.argv[2:]:
        os.environ["KRAKE_CONFIG_PATH"] = config
        print("RESULT" + json.dumps(parse(sys.argv[1]), default=str))
