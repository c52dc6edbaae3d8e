"""Parts of a DAG file at its parsing: the configs, and ids, trigger rules and times of a config's tasks."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from airflow.sdk import Param, TriggerRule, get_parsing_context
from airflow.sdk.exceptions import AirflowException

from crawl_lib.config import Config, Pattern
from crawl_lib.errors import ConfigError
from crawl_lib.rounds import requisite_rounds
from krake_airflow.configs import BadConfig, config_named, kinds_of, read_configs
from krake_airflow.settings import config_path

OWNER = "krake"
CRAWL_RETRIES = 6
"""The retries of a node's crawl task: a restarted machine, or a store absent for some minutes, ends no run."""
RETRIES_WHERE_OTHERS_GO_ON = 3
"""The same with `crawl.min_nodes` below 1: other nodes wait a minute or two for the last try of a failing node."""
_SLACK_S = 1800.0
"""For intake, tables and upload, in addition to the config's limits."""


def configs_to_parse(kind: str) -> list[Config]:
    """Return the configs with a DAG of this kind: in a task only its own config, else all.

    Raises AirflowException if the task's config is unusable, with a line for each fault.
    """
    dag_id = get_parsing_context().dag_id
    name, _, its_kind = (dag_id or "").rpartition("_")
    try:
        if dag_id is None:
            found = read_configs(config_path(os.environ))[0]
        else:
            found = [config_named(name)] if its_kind == kind else []
    except ConfigError as error:
        raise AirflowException(f"Krake's config cannot be used: {error}") from None
    return [config for config in found if kind in kinds_of(config)]


def bad_configs() -> list[BadConfig]:
    """Return the configs shown as DAGs by the DAG processor because they are unusable; in a task, an empty list."""
    return read_configs(config_path(os.environ))[1] if get_parsing_context().dag_id is None else []


def require_good_configs() -> None:
    """Raise AirflowException with a line for each fault of configs without DAGs; Airflow's Home shows this error."""
    lines = [line for bad in bad_configs() for line in bad.lines]
    if lines:
        raise AirflowException(
            "\n".join(["these configs of Krake make no DAG; correct what is named:", *lines])
        )


def node_retries(config: Config) -> int:
    """Return how often a node's task is tried again."""
    return CRAWL_RETRIES if config.crawl.min_nodes == 1 else RETRIES_WHERE_OTHERS_GO_ON


def after_all_nodes(config: Config) -> TriggerRule:
    """Return the trigger rule of tasks behind all nodes, or behind all key servers.

    With `crawl.min_nodes` below 1 such a task runs once all have ended and one has succeeded. `ALL_DONE` would also run
    the task in skipped iterations, and after a failed `inject`.
    """
    return (
        TriggerRule.ALL_SUCCESS
        if config.crawl.min_nodes == 1
        else TriggerRule.ALL_DONE_MIN_ONE_SUCCESS
    )


def default_args(config: Config) -> dict[str, Any]:
    """Return the arguments of all tasks: owner, retries with growing delays, and a limit of time."""
    return {
        "owner": OWNER,
        "crawl": config.crawl.name,
        "retries": 3,
        "retry_delay": timedelta(seconds=10),
        "retry_exponential_backoff": 2,
        "max_retry_delay": timedelta(minutes=5),
        "execution_timeout": timedelta(hours=1),
    }


def crawl_timeout(config: Config) -> timedelta:
    """Return the limit of a crawl task: waiting for the node, the batch of an earlier attempt, and its own batch.

    Each of both batches may pause for want of room, before its fetches and before its commit.
    """
    one_batch_s = config.batch.time_limit_s + config.fetch.time_limit_s
    waits_s = config.queue.lock_timeout_s + 4 * config.watermarks.max_pause_s
    return timedelta(seconds=waits_s + 2 * one_batch_s + _SLACK_S)


def settle_timeout(config: Config) -> timedelta:
    """Return the limit of the last intake: waiting for the node, an earlier batch, and the intake."""
    return crawl_timeout(config) + timedelta(seconds=_SLACK_S)


BATCH_TIMEOUT = timedelta(hours=24)
"""The limit of maintenance, export, linker and finalizer. Their time grows with the crawl; this only stops a hang."""


def label_param() -> Param:
    """Return the param `label` of both DAGs."""
    return Param(
        None,
        type=["null", "string"],
        pattern=f"^({Pattern.NAME})?$",
        title="Label",
        description_md="Name of the export's folder: letters (a to z, A to Z), digits, dot, underscore and hyphen, "
        "beginning with a letter or digit. Anything else is a *Bad Request*. Empty: the time of the newest iteration "
        "in it.",
    )


def task_ids_of_requisites(config: Config) -> dict[int, list[str]]:
    """Return the ids of all tasks of each round of requisites, by the number of its iteration."""
    rounds, parts = requisite_rounds(config), _parts_of_iteration(config)
    return {
        number: [f"requisites_{place}.{part}" for part in parts]
        for place, number in enumerate(rounds, 1)
    }


def task_ids_of_iterations(config: Config) -> dict[int, list[str]]:
    """Return the ids of all tasks of each iteration, in order."""
    parts = _parts_of_iteration(config)
    return {
        number: [f"iteration_{number}.{part}" for part in parts]
        for number in range(1, config.crawl.max_iterations + 1)
    }


def _parts_of_iteration(config: Config) -> list[str]:
    """Return the ids of the tasks of an iteration, within its group."""
    parts = [*(f"crawl.{node}" for node in config.servers), "commit"]
    return ["generate", *parts, "update"] if config.order.makes_lists else parts
