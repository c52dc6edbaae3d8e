"""The shared parts of a crawl's DAGs: the form, a row of crawl tasks, and all tasks after the iterations.

Edges are drawn as soon as both ends exist: for each end Airflow looks at all earlier tasks of the DAG.
"""

from __future__ import annotations

from collections.abc import Callable
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

from crawl_lib.config import Config
from krake_airflow.configs import crawl_dag_id
from krake_airflow.operators import (
    CrawlOperator,
    ExportOperator,
    FinalizeOperator,
    LinkOperator,
    MaintainKeysOperator,
    SettleOperator,
)
from krake_airflow.outputs import add_outputs
from krake_airflow.parsing import (
    BATCH_TIMEOUT,
    after_all_nodes,
    crawl_timeout,
    default_args,
    label_param,
    node_retries,
    settle_timeout,
)
from krake_airflow.scores import add_scores


def crawl_dag(config: Config, doc: str, add_rounds: Callable[[Config], list[BaseOperator]]) -> None:
    """Make the DAG of a config's crawl. `add_rounds`: adds inject and the iterations; returns the end of each."""
    with DAG(
        dag_id=crawl_dag_id(config),
        description="Seeds to WARC files, tables and web graph",
        doc_md=doc,
        schedule=config.crawl.schedule,
        start_date=datetime(2024, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        max_active_tasks=max(16, len(config.servers) + len(config.key_storage.servers)),
        default_args=default_args(config),
        tags=["krake"],
    ) as dag:
        _add_outputs(config, _committed(add_rounds(config)))
        # Not given to DAG(): each task would copy the params, at each level of its class: half of the parsing time.
        dag.params = params_of(config)


def params_of(config: Config) -> ParamsDict:
    """Return the form behind *Trigger*."""
    most = config.crawl.max_iterations
    return ParamsDict(
        {
            "seeds": Param(
                "",
                type=["null", "string"],
                format="multiline",
                title="Seeds",
                description_md="URLs with http:// or https://, one a line (# begins a comment, key=value follows "
                "tabs), or the path of a file or folder with seeds in *inject.directory* of the config "
                f"({config.inject.directory}). Empty: go on with what is queued.",
            ),
            "iterations": Param(
                min(3, most),
                type="integer",
                minimum=1,
                maximum=most,
                title="Iterations",
                description_md=f"Rounds of this run at most: a whole number, 1 to {most} (*crawl.max_iterations*). "
                "It ends them when nothing waits, nothing is due yet, or *crawl.max_pages* is reached.",
            ),
            "batch_size": Param(
                None,
                type=["null", "integer"],
                minimum=1,
                title="Batch size",
                description_md="URLs that one node takes in one iteration: a whole number, at least 1. "
                f"Empty: *batch.size* of the config ({config.batch.size}).",
            ),
            "retry_now": Param(
                default=False,
                type="boolean",
                title="Retry now",
                description_md="On: URLs that wait for another try since their site failed are fetched with the first "
                "iteration, and back-offs of hosts end. What a host asked for (*Retry-After*) holds.",
            ),
            "label": label_param(),
        }
    )


def iterations_group() -> TaskGroup:
    """Make the group of all iterations, which Airflow draws as one box until somebody opens the group.

    The ids of the tasks are the same with and without the group. The boxes of twenty iterations side by side would be
    too small to read.
    """
    return TaskGroup("iterations", prefix_group_id=False)


def add_crawls(
    config: Config, iteration: int, *, of_requisites: bool = False
) -> list[BaseOperator]:
    """Add the crawl tasks of an iteration, one for each node."""
    with TaskGroup("crawl"):
        return [
            CrawlOperator(
                task_id=node,
                iteration=iteration,
                of_requisites=of_requisites,
                node=node,
                queue=node,
                retries=node_retries(config),
                execution_timeout=crawl_timeout(config),
            )
            for node in config.servers
        ]


def _committed(ends: list[BaseOperator]) -> BaseOperator:
    """Make the one task behind all iterations, without work of its own.

    The task waits for the end of EACH iteration: the last iteration alone may be skipped, and so be done at once.
    Without this task each commit would have an edge to each node and key server: 120 for 20 iterations, three nodes and
    three servers.
    """
    return join("committed", ends)


def join(task_id: str, ends: list[BaseOperator]) -> BaseOperator:
    """Make a task without work that waits for all these tasks; some may be skipped."""
    joined = EmptyOperator(task_id=task_id, trigger_rule=TriggerRule.NONE_FAILED)
    ends >> joined
    return joined


def _add_settles(config: Config) -> list[BaseOperator]:
    """Add the last intake of each node."""
    with TaskGroup("settle"):
        return [
            SettleOperator(
                task_id=node,
                node=node,
                queue=node,
                retries=node_retries(config),
                execution_timeout=settle_timeout(config),
                trigger_rule=TriggerRule.NONE_FAILED,
            )
            for node in config.servers
        ]


def _add_maintains(config: Config) -> list[BaseOperator]:
    """Add the maintenance of each key server."""
    with TaskGroup("maintain_keys"):
        return [
            MaintainKeysOperator(
                task_id=task_id,
                server=task_id,
                execution_timeout=BATCH_TIMEOUT,
                trigger_rule=TriggerRule.NONE_FAILED,
            )
            for task_id in config.key_storage.by_short_name
        ]


def _add_outputs(config: Config, committed: BaseOperator) -> None:
    """Add all tasks after the iterations."""
    settles, maintains = _add_settles(config), _add_maintains(config)
    export = ExportOperator(task_id="export", of_run=True, execution_timeout=BATCH_TIMEOUT)
    linker = LinkOperator(task_id="linker", execution_timeout=BATCH_TIMEOUT)
    finalizer = FinalizeOperator(task_id="finalizer", execution_timeout=BATCH_TIMEOUT)
    committed >> [*settles, *maintains]
    if after_all_nodes(config) == TriggerRule.ALL_SUCCESS:
        [*settles, *maintains] >> export
    else:  # each kind needs one success, so each needs a join
        settled = EmptyOperator(task_id="settled", trigger_rule=after_all_nodes(config))
        maintained = EmptyOperator(task_id="maintained", trigger_rule=after_all_nodes(config))
        settles >> settled >> export
        maintains >> maintained >> export
    export >> linker >> finalizer
    last = add_scores(config, finalizer) if config.scores.when == "run" else finalizer
    if config.outputs.when == "run":
        add_outputs(config, last)
