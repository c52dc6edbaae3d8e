"""
### Krake: collect

The DAG of a config with a section `realtime`. The real-time service (`krake serve realtime`) fetches URLs all the time,
and closes a part of its archive every five minutes. Once an hour this DAG makes a segment of all closed parts.

* **collect** runs in the queue of the first node in `servers`, on the machine of the service. The service goes on
  meanwhile. The segment is like one of a crawl, and updates the asset `<crawl.name>_segments`. The task is skipped if
  no part is closed.

There is no DAG that crawls: a task of a node and the service exclude each other by the lock of the node.

#### When it failed
Run the task again at any time: each fetch is in exactly one segment, wherever an attempt stopped. Correct the cause
named by the last line of the log, then *Clear* the task. Or leave the failed run: the next run goes on there.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG
from krake_airflow.configs import COLLECT
from krake_airflow.parsing import configs_to_parse, default_args
from krake_airflow.realtime import add_collect

from crawl_lib.config import Config


def collect_dag(config: Config) -> None:
    """Make the DAG of a config."""
    with DAG(
        dag_id=f"{config.crawl.name}_{COLLECT}",
        description="Segments of pages fetched by the real-time service",
        doc_md=__doc__,
        schedule="@hourly",
        start_date=datetime(2024, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        default_args=default_args(config),
        tags=["krake"],
    ):
        add_collect(config)


for one in configs_to_parse(COLLECT):
    collect_dag(one)
