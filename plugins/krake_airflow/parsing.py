"""What a DAG file needs while it is parsed: the configs, and what follows from one: ids, trigger rules, times."""

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
"""A node's crawl task: a machine that is restarted, or a store that is away for some minutes, ends no run."""
RETRIES_WHERE_OTHERS_GO_ON = 3
"""The same with `crawl.min_nodes` below 1: the others wait for the last try of a node that fails, a minute or two."""
_SLACK_S = 1800.0
"""For intake, tables and upload, in addition to what the config limits."""


def configs_to_parse(kind: str) -> list[Config]:
    """The configs whose DAGs of a kind this process needs: for a task that of its own DAG, else all.

    Raises AirflowException if the task's cannot be used, with what is wrong in a line each.
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
    """What the DAG processor shows in the place of DAGs that cannot be; nothing where a task is begun."""
    return read_configs(config_path(os.environ))[1] if get_parsing_context().dag_id is None else []


def require_good_configs() -> None:
    """Raise AirflowException with a line for each mistake of configs that make no DAG; Airflow shows it on Home."""
    lines = [line for bad in bad_configs() for line in bad.lines]
    if lines:
        raise AirflowException(
            "\n".join(["these configs of Krake make no DAG; correct what is named:", *lines])
        )


def node_retries(config: Config) -> int:
    """How often a node's task is tried again."""
    return CRAWL_RETRIES if config.crawl.min_nodes == 1 else RETRIES_WHERE_OTHERS_GO_ON


def after_all_nodes(config: Config) -> TriggerRule:
    """The trigger rule of what follows the tasks of all nodes, or of all key servers.

    With `crawl.min_nodes` below 1 it runs once all of them have ended and one succeeded. `ALL_DONE` would do the same,
    and more: it would run in iterations that were skipped, and after an `inject` that failed.
    """
    return (
        TriggerRule.ALL_SUCCESS
        if config.crawl.min_nodes == 1
        else TriggerRule.ALL_DONE_MIN_ONE_SUCCESS
    )


def default_args(config: Config) -> dict[str, Any]:
    """What all tasks share: whose they are, retries that begin soon and then wait longer, a limit of time."""
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


def label_param() -> Param:
    """The param `label` of both DAGs."""
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
    """The ids of all tasks of each iteration, in their order."""
    parts = _parts_of_iteration(config)
    return {
        number: [f"iteration_{number}.{part}" for part in parts]
        for number in range(1, config.crawl.max_iterations + 1)
    }


def _parts_of_iteration(config: Config) -> list[str]:
    """Return the ids of the tasks of an iteration, within its group."""
    parts = [*(f"crawl.{node}" for node in config.servers), "commit"]
    return ["generate", *parts, "update"] if config.order.makes_lists else parts
