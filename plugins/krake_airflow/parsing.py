"""What a DAG file needs while it is parsed: the config, and times that follow from it."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from airflow.sdk import Param, TriggerRule
from airflow.sdk.exceptions import AirflowException
from croniter import croniter  # type: ignore[import-untyped]  # a dependency of Airflow

from crawl_lib.config import NAME_PATTERN, Config, load_config
from crawl_lib.errors import ConfigError
from krake_airflow.settings import config_path

OWNER = "krake"
CRAWL_RETRIES = 6
"""A node's crawl task: a machine that is restarted, or a store that is away for some minutes, ends no run."""
RETRIES_WHERE_OTHERS_GO_ON = 3
"""The same with `crawl.min_nodes` below 1: the others wait for the last try of a node that fails, a minute or two."""
_SLACK_S = 1800.0
"""For intake, tables and upload, in addition to what the config limits."""


def config_at_parse() -> Config:
    """The config, for the shape of a DAG.

    Raises AirflowException with the config's one clear line, which Airflow shows as the DAG's import error.
    """
    path = config_path(os.environ)
    try:
        return load_config(path)
    except ConfigError as error:
        raise AirflowException(f"Krake's config cannot be used: {error}") from None


def schedule_of(config: Config) -> str | None:
    """The cron expression of `crawl.schedule`. Raises AirflowException that says so if it is none."""
    schedule = config.crawl.schedule
    if schedule is not None and not croniter.is_valid(schedule):
        raise AirflowException(f"Krake's config cannot be used: crawl.schedule: {schedule!r} is not a cron expression")
    return schedule


def node_retries(config: Config) -> int:
    """How often a node's task is tried again."""
    return CRAWL_RETRIES if config.crawl.min_nodes == 1 else RETRIES_WHERE_OTHERS_GO_ON


def after_all_nodes(config: Config) -> TriggerRule:
    """The trigger rule of what follows the tasks of all nodes, or of all key servers.

    With `crawl.min_nodes` below 1 it runs once all of them have ended and one succeeded. `ALL_DONE` would do the same,
    and more: it would run in iterations that were skipped, and after a start that failed.
    """
    return TriggerRule.ALL_SUCCESS if config.crawl.min_nodes == 1 else TriggerRule.ALL_DONE_MIN_ONE_SUCCESS


def default_args() -> dict[str, Any]:
    """What all tasks share: owner, retries that begin soon and then wait longer, a limit of time."""
    return {
        "owner": OWNER,
        "retries": 3,
        "retry_delay": timedelta(seconds=10),
        "retry_exponential_backoff": 2,
        "max_retry_delay": timedelta(minutes=5),
        "execution_timeout": timedelta(hours=1),
    }


def crawl_timeout(config: Config) -> timedelta:
    """The limit of a crawl task: wait for the node, finish a batch that an earlier attempt left, then do its own.

    Each of both batches may pause for want of room, before it is fetched and before it is committed.
    """
    one_batch_s = config.batch.time_limit_s + config.fetch.time_limit_s
    waits_s = config.queue.lock_timeout_s + 4 * config.watermarks.max_pause_s
    return timedelta(seconds=waits_s + 2 * one_batch_s + _SLACK_S)


def settle_timeout(config: Config) -> timedelta:
    """The limit of the last intake: wait for the node, finish a batch that was left, take in."""
    return crawl_timeout(config) + timedelta(seconds=_SLACK_S)


BATCH_TIMEOUT = timedelta(hours=24)
"""The limit of maintenance, export, linker and finalizer: they grow with the crawl, so this only catches a hang."""


def key_servers(config: Config) -> dict[str, str]:
    """The key servers by task id: `server_1` and so on in the order of the config, since paths are no task ids."""
    return {f"server_{number}": name for number, name in enumerate(config.key_storage.servers, start=1)}


def label_param() -> Param:
    """The param `label` of both DAGs."""
    return Param(
        None,
        type=["null", "string"],
        pattern=f"^({NAME_PATTERN})?$",
        title="Label",
        description_md="Name of the export's folder. Empty: the time of the newest iteration in it.",
    )


def task_ids_of_iterations(config: Config) -> dict[int, list[str]]:
    """The ids of all tasks of each iteration."""
    parts = ["start", *(f"crawl.{node}" for node in config.servers), "commit"]
    return {
        number: [f"iteration_{number}.{part}" for part in parts] for number in range(1, config.crawl.max_iterations + 1)
    }
