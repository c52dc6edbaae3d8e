"""
### Krake: statistics

The DAG of a config with a section `realtime`. Once an hour this DAG counts by domain the shares and fetches of the hour
before: URLs, shares, hits, images, outcomes, bytes and latencies. The counts of a day follow the day's last hour.

* **statistics** reads the segments of `<crawl.name>_collect`, and writes
  `statistics/<date>/<hour>-<version>.parquet` in the crawl directory. A late segment gives its hours new versions. The
  task updates the asset `<crawl.name>_statistics`.

Trigger the DAG with the param `hour` for any complete hour. A backfill works too. The same segments give the same
bytes.

#### When it failed
Run the task again at any time. Correct the cause named by the last line of the log, then *Clear* the task.
"""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG, CronDataIntervalTimetable, Param
from krake_airflow.configs import STATISTICS
from krake_airflow.parsing import configs_to_parse, default_args
from krake_airflow.realtime import add_statistics

from crawl_lib.config import Config


def statistics_dag(config: Config) -> None:
    """Make the DAG of a config."""
    with DAG(
        dag_id=f"{config.crawl.name}_{STATISTICS}",
        description="Counts by domain of URLs shared and fetched in real time",
        doc_md=__doc__,
        schedule=CronDataIntervalTimetable("0 * * * *", timezone="UTC"),
        start_date=datetime(2024, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        default_args=default_args(config),
        tags=["krake"],
        params={
            "hour": Param(
                None,
                type=["null", "string"],
                pattern=r"^(\d{4}-\d\d-\d\dT\d\d)?$",
                title="Hour",
                description_md="A past hour in UTC, such as `2026-11-28T07`. Empty: the hour of the run.",
            )
        },
    ):
        add_statistics()


for one in configs_to_parse(STATISTICS):
    statistics_dag(one)
