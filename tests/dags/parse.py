"""Parses the DAGs as Airflow's DAG processor does, and prints what tests ask for as JSON.

Run as a module, with the DAG folder and then config files, or folders: one process for all, because importing Airflow
takes longer than parsing. `DAG@CONFIG`: as a task of that DAG does.
"""

import json
import os
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any
from unittest.mock import patch

AS_A_TASK_OF = "_AIRFLOW_PARSING_CONTEXT_DAG_ID"
"""By this variable Airflow tells a process which task it is for (`get_parsing_context`)."""


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
        **{name: _ids(getattr(task, name, {})) for name in ("later", "requisites")},
    }


def _ids(of_iterations: Mapping[int, Iterable[str]]) -> dict[int, list[str]]:
    return {number: list(ids) for number, ids in of_iterations.items()}


def parse(folder: str) -> dict[str, Any]:
    """DAGs, import errors, the configs that were read, and the CPU seconds that parsing took."""
    from airflow.dag_processing.dagbag import DagBag  # noqa: PLC0415 - the environment is set by then
    from krake_airflow import configs  # noqa: PLC0415 - the same

    has_krake = "crawl_lib.stages" in sys.modules
    with patch.object(configs, "load_config", wraps=configs.load_config) as load:
        began_s = time.process_time()
        bag = DagBag(dag_folder=folder)
        parse_s = time.process_time() - began_s
    read = [str(call.args[0]) for call in load.call_args_list]
    found = {
        dag_id: {
            "tasks": {task.task_id: _task(task) for task in dag.tasks},
            "doc": dag.doc_md,
            "paused": dag.is_paused_upon_creation,
            "crawls": sorted({task.crawl for task in dag.tasks if hasattr(task, "crawl")}),
            "assets": sorted({asset.name for task in dag.tasks for asset in task.outlets}),
            "tags": sorted(dag.tags),
            "max_active_runs": dag.max_active_runs,
            "catchup": dag.catchup,
            "schedule": getattr(dag.timetable, "expression", None),
            "waits_for": [
                asset.name for asset in getattr(dag.timetable.asset_condition, "objects", [])
            ],
            "params": {
                name: {**param.schema, "value": param.value} for name, param in dag.params.items()
            },
        }
        for dag_id, dag in bag.dags.items()
    }
    return {
        "dags": found,
        "errors": bag.import_errors,
        "read": read,
        "parse_s": parse_s,
        "has_krake": has_krake,
    }


if __name__ == "__main__":
    for config in sys.argv[2:]:
        dag_id, _, path = config.rpartition("@")
        os.environ["KRAKE_CONFIG_PATH"] = path
        os.environ.pop(AS_A_TASK_OF, None)
        if dag_id:
            os.environ[AS_A_TASK_OF] = dag_id
        print("RESULT" + json.dumps(parse(sys.argv[1]), default=str))
