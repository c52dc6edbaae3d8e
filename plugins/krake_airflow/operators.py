"""The tasks' operators. Each makes one call of `crawl_lib.stages` and returns a small mapping of paths and counts.

`_translated` says what an error means to Airflow: where running again can help, the task is retried; where the
operator has to correct something first, it fails at once. A stage that was stopped is retried, never a success.
Work is keyed by run id, iteration and node; `logical_date` is None for most runs and is not used.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from airflow.sdk import Asset, BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException, DownstreamTasksSkipped

from crawl_lib.config import load_config
from crawl_lib.errors import (
    ConfigError,
    InputError,
    KeyAccessError,
    KeyTablesError,
    KrakeError,
    OutputConflictError,
    QueueError,
    StoppedError,
)
from crawl_lib.signals import LastResort
from crawl_lib.stores import Stores, open_stores
from krake_airflow.connections import secrets_for
from krake_airflow.settings import NODE_VARIABLE, config_path
from krake_airflow.watching import Reporter, watcher

SEGMENTS = Asset(name="krake_segments", uri="krake://crawl/segments")
"""Updated by every commit of an iteration; the event's `extra` names the folder."""

_BY_SIGTERM = 143
"""Exit code of a task that did not see in time that it was to stop."""
_CORRECTED_BY_HAND = (ConfigError, InputError, KeyAccessError, KeyTablesError, OutputConflictError, QueueError)


def _translated(error: KrakeError) -> AirflowException:
    """The Airflow exception of an error: one that fails at once if only a person can help, else one that retries."""
    line = " ".join(str(error).split())
    if watcher().stopping or isinstance(error, _CORRECTED_BY_HAND):
        return AirflowFailException(line)
    if isinstance(error, StoppedError):
        return AirflowException(f"stopped before it was done; what it had is kept, and the next try goes on: {line}")
    return AirflowException(line)


class KrakeOperator(BaseOperator):
    """One stage as a task. A subclass says which in `stage`; everything that all of them share is here."""

    run_needs_it: ClassVar[bool] = True
    """Whether nothing of a run is left to be done once this task failed; others may work at the same time."""
    shallow_copy_attrs: Sequence[str] = ("_stop", "_last_resort")  # all copies share them
    ui_color = "#e8f1f8"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._stop = threading.Event()
        self._last_resort = LastResort()

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Do the stage's one call. Raises KrakeError."""
        raise NotImplementedError

    def require(self, context: Context) -> None:
        """Raise what a task is refused with before anything is opened."""

    def execute(self, context: Context) -> Any:
        """Run the stage, report it, and skip what is not needed after it."""
        watcher().started(self)
        report = Reporter(self, context.get("task_state_store"))
        try:
            if watcher().stopping:
                raise StoppedError("the run was asked to stop")
            self.require(context)
            config = load_config(config_path(os.environ))
            with self._last_resort:
                stores = open_stores(config, secrets_for(config), stop=self._stop, on_progress=report)
                result = self.stage(stores, context)
        except KrakeError as error:
            translated = _translated(error)
            final = isinstance(translated, AirflowFailException) or context["ti"].try_number > (self.retries or 0)
            watcher().failed(self, str(translated), final=final)
            raise translated from error
        watcher().finished(self, result)
        self.log.info("%s", result)
        if skipped := self.not_needed(context):
            # The signal ends the task (as a success), so its result has to be pushed before.
            context["ti"].xcom_push(key="return_value", value=result)
            raise DownstreamTasksSkipped(tasks=skipped)  # type: ignore[no-untyped-call]
        return result

    def not_needed(self, context: Context) -> list[str]:
        """Ids of later tasks that this run does not need."""
        return []

    def on_kill(self) -> None:
        """Airflow wants the task to end: the stage writes what it has and stops, within 5 s in any case."""
        self.ask_to_stop()
        watcher().stop()
        self._last_resort.begin(_BY_SIGTERM)

    def ask_to_stop(self) -> None:
        """Let the stage stop; the task then fails, to be tried again."""
        self._stop.set()


def wanted_iterations(context: Context) -> int:
    """The iterations that this run asks for."""
    return int(context["params"]["iterations"])


def _require_wanted(iteration: int, context: Context) -> None:
    """Skip a task of an iteration that the run does not ask for: someone cleared it."""
    wanted = wanted_iterations(context)
    if iteration > wanted:
        raise AirflowSkipException(f"this run asks for {wanted} iterations; this is number {iteration}")


class _SkipsLaterIterations(KrakeOperator):
    """A task before iterations that the run may not need: it skips them all at once, each time it runs.

    `later`: for each later iteration its task ids. Skipped one by one they would cost the scheduler a second each, and
    a clear with downstream would bring them back to life.
    """

    def __init__(self, *, later: Mapping[int, Sequence[str]], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.later = later

    def not_needed(self, context: Context) -> list[str]:
        """All tasks of the iterations beyond those that the run asks for."""
        wanted = wanted_iterations(context)
        return [task_id for number, tasks in self.later.items() if number > wanted for task_id in tasks]


class InjectOperator(_SkipsLaterIterations):
    """`inject`: leave the run's seeds for the nodes, and skip the iterations that the run does not ask for.

    `any_path`: set by `make crawl` alone, whose user reads what he may read. No param says it: who triggers a DAG may
    name files of `inject.directory` and no others.
    """

    any_path = False

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Inject the param `seeds`."""
        from crawl_lib import stages  # noqa: PLC0415

        return stages.inject(
            stores,
            run_id=run_id(context),
            seeds=context["params"]["seeds"] or "",
            below=None if self.any_path else Path(stores.config.inject.directory),
        )


class StartOperator(KrakeOperator):
    """`start`: name the iteration's folder."""

    def __init__(self, *, iteration: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.iteration = iteration

    def require(self, context: Context) -> None:
        """Refuse an iteration that the run does not ask for: someone cleared a skipped task."""
        _require_wanted(self.iteration, context)

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Start the iteration."""
        from crawl_lib import stages  # noqa: PLC0415

        return stages.start_iteration(
            stores,
            run_id=run_id(context),
            iteration=self.iteration,
            batch_size=context["params"]["batch_size"],
        )


class _OnItsNode(KrakeOperator):
    """A task of one node, whose queue lies on that machine's disk."""

    run_needs_it = False

    def __init__(self, *, node: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.node = node

    def require(self, context: Context) -> None:
        """Raise ConfigError on the machine of another node; one without `KRAKE_NODE` has all nodes' directories."""
        here = os.environ.get(NODE_VARIABLE, self.node)
        if here != self.node:
            raise ConfigError(
                f"this is the worker of {here} ({NODE_VARIABLE}), and {self.task_id} is a task of {self.node}: give"
                f" the queue {self.queue} to the worker of {self.node}, and to no other one"
            )


class CrawlOperator(_OnItsNode):
    """`crawl`: one node's batch of an iteration."""

    ui_color = "#cfe8cf"

    def __init__(self, *, iteration: int, node: str, **kwargs: Any) -> None:
        super().__init__(node=node, **kwargs)
        self.iteration = iteration

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Crawl the batch and commit its segment."""
        from crawl_lib import stages  # noqa: PLC0415

        return stages.crawl_node(stores, run_id=run_id(context), iteration=self.iteration, node=self.node)


class CommitOperator(_SkipsLaterIterations):
    """`commit`: check that the nodes' segments are there, or as many as `crawl.min_nodes` asks for; sum them up.

    Publishes the asset `krake_segments`.
    """

    def __init__(self, *, iteration: int, later: Mapping[int, Sequence[str]], **kwargs: Any) -> None:
        super().__init__(later=later, outlets=[SEGMENTS], **kwargs)
        self.iteration = iteration

    def require(self, context: Context) -> None:
        """Refuse an iteration that the run does not ask for: someone cleared a skipped task."""
        _require_wanted(self.iteration, context)

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Commit the iteration."""
        from crawl_lib import stages  # noqa: PLC0415

        result = stages.commit_iteration(stores, run_id=run_id(context), iteration=self.iteration)
        with suppress(KeyError):
            context["outlet_events"][SEGMENTS].extra = {"folder": result["folder"], "run_id": run_id(context)}
        return result


class SettleOperator(_OnItsNode):
    """`settle`: take in what the last iteration found for a node."""

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Settle the node."""
        from crawl_lib import stages  # noqa: PLC0415

        return stages.settle_node(stores, node=self.node, run_id=run_id(context))


class MaintainKeysOperator(KrakeOperator):
    """`maintain_keys`: count the keys of one server, compare its interval's replicas, and repair them."""

    run_needs_it = False

    def __init__(self, *, server: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.server = server

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Check and repair the server's part of the keys."""
        from crawl_lib import stages  # noqa: PLC0415

        self.log.info("key server %s and the replicas of its keys", self.server)
        return stages.maintain_keys(stores, server=self.server)


class ExportOperator(KrakeOperator):
    """`export`: mapping, content and offsets. `of_run`: take in what this run could see, else the chosen folders."""

    ui_color = "#f3e6c8"

    def __init__(self, *, of_run: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.of_run = of_run

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Export the run's crawl, or the chosen iterations."""
        from crawl_lib import stages  # noqa: PLC0415

        params = context["params"]
        return stages.export_pages(
            stores,
            run_id=run_id(context) if self.of_run else None,
            label=params["label"] or None,
            folders=None if self.of_run else params["folders"] or None,
        )


class LinkOperator(KrakeOperator):
    """`linker`: links between exported pages become arcs."""

    ui_color = "#f3e6c8"

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Link the export of this run."""
        from crawl_lib import stages  # noqa: PLC0415

        return stages.link_export(stores, export=exported(context))


class FinalizeOperator(KrakeOperator):
    """`finalizer`: arcs become the web graph."""

    ui_color = "#f3e6c8"

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Finalize the export of this run."""
        from crawl_lib import stages  # noqa: PLC0415

        return stages.finalize_export(stores, export=exported(context))


def run_id(context: Context) -> str:
    """The run that a task belongs to."""
    return str(context["run_id"])


def exported(context: Context) -> str:
    """The name of this run's export, as the task `export` returned it."""
    result = context["ti"].xcom_pull(task_ids="export")
    if not isinstance(result, Mapping) or "export" not in result:
        raise AirflowFailException("the task export left no result in this run; clear it with its downstream")
    return str(result["export"])
