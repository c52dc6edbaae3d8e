"""The tasks' operators. Each makes one call of `crawl_lib.stages` and returns a small mapping of paths and counts.

`translated` turns an error into Airflow's: a task is retried if running again can help, and fails at once if the
operator has to correct or to check something first. A stopped stage is retried, never a success.
Work is keyed by run id, iteration and node; `logical_date` is None for most runs and is not used.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit

from airflow.sdk import Asset, BaseOperator, BaseOperatorLink, Context
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    DownstreamTasksSkipped,
)

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.errors import (
    ConfigError,
    DamagedFileError,
    FewAnswersError,
    InputError,
    KeyAccessError,
    KeyTablesError,
    KrakeError,
    OutputConflictError,
    QueueError,
    StoppedError,
)
from crawl_lib.signals import LastResort
from crawl_lib.stores import Secrets, Stores, open_stores
from krake_airflow.configs import config_named
from krake_airflow.connections import secrets_for
from krake_airflow.metrics import tell_failure, tell_result
from krake_airflow.settings import NODE_VARIABLE, TASK_TAB
from krake_airflow.taskdocs import TASK_DOCS
from krake_airflow.watching import (
    NEW_RUN,
    NEW_RUN_OR_FILE,
    REFUSALS,
    REFUSED_SEEDS,
    Reporter,
    say_failure,
    say_result,
    say_retry,
    watcher,
)


def asset_of(crawl: str, what: str) -> Asset:
    """Return an asset of a crawl: `segments`, updated by each commit, or `exports`, updated by each finalizer."""
    return Asset(name=f"{crawl}_{what}", uri=f"krake://{crawl}/{what}")


def tell_waiting(task: BaseOperator, context: Context, **extra: Any) -> None:
    """Note the news in the event of the task's asset, for DAGs that wait for the asset."""
    with suppress(KeyError):
        context["outlet_events"][task.outlets[0]].extra = {**extra, "run_id": run_id(context)}


_BY_SIGTERM = 143
"""Exit code of a task that did not notice a stop in time."""
_CORRECTED_BY_HAND = (
    ConfigError,
    DamagedFileError,
    FewAnswersError,
    InputError,
    KeyAccessError,
    KeyTablesError,
    OutputConflictError,
    QueueError,
)


class ParamsError(InputError):
    """The parameters of a run are wrong. The user has to trigger another run."""


class NewRunNeeded(AirflowFailException):
    """A task failed because of its run's parameters, which no clear changes. `remedy`: for the user."""

    def __init__(self, text: str, remedy: str) -> None:
        super().__init__(text)
        self.remedy = remedy


def translated(
    error: KrakeError, of_params: tuple[type[KrakeError], ...] = (ParamsError,)
) -> AirflowException:
    """Return Airflow's exception for an error: fail at once if only a person can help, else retry.

    `of_params`: errors caused by the run's parameters.
    """
    text = str(error)
    if isinstance(error, of_params):
        return NewRunNeeded(text, NEW_RUN if isinstance(error, ParamsError) else NEW_RUN_OR_FILE)
    if watcher().stopping or isinstance(error, _CORRECTED_BY_HAND):
        return AirflowFailException(text)
    if isinstance(error, StoppedError):
        return AirflowException(
            f"stopped before it was done; what it had is kept, and the next try goes on: {text}"
        )
    return AirflowException(text)


class KrakeLink(BaseOperatorLink):
    """The button "Krake" on a task that ran, to the tab of the task."""

    name = "Krake"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """Return the path of the tab, below the address of the API server."""
        base = urlsplit(conf.get("api", "base_url", fallback="/")).path.rstrip("/")
        dag, run, task = (
            quote(part, safe="") for part in (ti_key.dag_id, ti_key.run_id, ti_key.task_id)
        )
        return f"{base}/dags/{dag}/runs/{run}/tasks/{task}/plugin/{TASK_TAB}"


class KrakeOperator(BaseOperator):
    """One stage as a task. A subclass names the stage; the shared parts are here.

    `crawl`: the name of the crawl (`crawl.name` of its config).
    """

    stage_name: str
    """The name of the stage in metrics and texts."""
    run_needs_it: ClassVar[bool] = True
    """Whether a failure of this task leaves the run without work; other tasks may work at the same time."""
    refusals: ClassVar[Collection[str]] = REFUSALS
    """Fields of a result that are no success, and warnings in the log."""
    of_params: ClassVar[tuple[type[KrakeError], ...]] = (ParamsError,)
    """Errors caused by the run's parameters."""
    shallow_copy_attrs: Sequence[str] = ("_stop", "_last_resort")  # all copies share them
    operator_extra_links = (KrakeLink(),)
    ui_color = "#e8f1f8"

    def __init__(self, *, crawl: str = "krake", **kwargs: Any) -> None:
        super().__init__(**{"doc_md": TASK_DOCS[self.stage_name].doc_md, **kwargs})
        # After the callbacks of `default_args`, such as notifiers: their lines must not be the last lines.
        self.on_failure_callback = [*self.on_failure_callback, say_failure]
        self.on_retry_callback = [*self.on_retry_callback, say_retry]
        self.crawl = crawl
        self._stop = threading.Event()
        self._last_resort = LastResort()

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Make the one call of the stage. Raises KrakeError."""
        raise NotImplementedError

    def require(self, context: Context) -> None:
        """Raise the refusal of a task before anything is opened."""

    def _require_known(self, context: Context) -> None:
        """Raise ParamsError for keys of the run's conf that its DAG lacks: Airflow takes any key, such as `seed`."""
        run, dag = context.get("dag_run"), self.get_dag()
        if run is None or dag is None:
            return
        known = sorted(dag.params)
        unknown = ", ".join(repr(key) for key in sorted(run.conf or {}) if key not in known)
        if unknown:
            raise ParamsError(
                f"conf: unknown: {unknown}; {dag.dag_id} knows {', '.join(known) or 'no key'}"
            )

    def look_ahead(self, config: Config, secrets: Secrets) -> None:
        """Raise an error that would refuse a later task."""

    def tags(self) -> dict[str, str]:
        """Return the tags of the metrics: the crawl, and the task's node or key server."""
        return {
            name: value for name, value in vars(self).items() if name in ("crawl", "node", "server")
        }

    def execute(self, context: Context) -> Any:
        """Run the stage, report the result, and skip later tasks without need."""
        watcher().started(self)
        began_s, tags = time.monotonic(), self.tags()
        try:
            with Reporter(
                self, context.get("task_state_store"), context["ti"].try_number
            ) as report:
                result = self._result(context, report)
                report.take_result(result)
        except KrakeError as error:
            tell_failure(self.stage_name, time.monotonic() - began_s, error, tags)
            failure = translated(error, self.of_params)
            final = isinstance(failure, AirflowFailException) or context["ti"].try_number > (
                self.retries or 0
            )
            watcher().failed(self, str(failure), final=final)
            self.log.debug("where it was raised", exc_info=error)
            raise failure from None  # the log shows one traceback, and ends with the message
        tell_result(self.stage_name, time.monotonic() - began_s, result, tags)
        watcher().finished(self, result)
        say_result(result, self.refusals)
        if skipped := self.not_needed(context, result):
            # The signal ends the task (as a success), so its result has to be pushed before.
            context["ti"].xcom_push(key="return_value", value=result)
            raise DownstreamTasksSkipped(tasks=skipped)  # type: ignore[no-untyped-call]
        return result

    def _result(self, context: Context, report: Reporter) -> dict[str, Any]:
        """Check the task's needs, open the stores and run the stage. Raises KrakeError."""
        if watcher().stopping:
            raise StoppedError("the run was asked to stop")
        self._require_known(context)
        self.require(context)
        config = config_named(self.crawl)
        secrets = secrets_for(config)
        with self._last_resort:
            self.look_ahead(config, secrets)
            return self.stage(
                open_stores(config, secrets, stop=self._stop, on_progress=report), context
            )

    def not_needed(self, context: Context, result: Mapping[str, Any]) -> list[str]:
        """Return the ids of later tasks that this run does not need after this result."""
        return []

    def on_kill(self) -> None:
        """End the task for Airflow: the stage writes finished work and stops, within 5 s in any case."""
        self.ask_to_stop()
        watcher().stop()
        self._last_resort.begin(_BY_SIGTERM)

    def ask_to_stop(self) -> None:
        """Let the stage stop; the task then fails, to be tried again."""
        self._stop.set()


def wanted_iterations(context: Context) -> int:
    """Return the number of iterations of this run."""
    return int(context["params"]["iterations"])


def _require_wanted(iteration: int, context: Context) -> None:
    """Skip a task of an iteration beyond the run's number: somebody cleared the task."""
    wanted = wanted_iterations(context)
    if iteration > wanted:
        raise AirflowSkipException(
            f"this run asks for {wanted} iterations; this is number {iteration}"
        )


def _require_not_ended(stores: Stores, iteration: int, context: Context) -> None:
    """Skip a task of an iteration after the end of the run's iterations: somebody cleared the task."""
    may_end = iteration > 1 or stores.config.order.makes_lists
    if may_end and (
        said := stages.ended_before(stores, run_id=run_id(context), iteration=iteration)
    ):
        raise AirflowSkipException(
            f"the iterations of this run ended before number {iteration}: {said}"
        )


class _SkipsLaterIterations(KrakeOperator):
    """A task before iterations that the run may not need: each time the task runs, it skips these at once.

    `later`: the task ids of each later iteration. Skipped singly these would cost the scheduler a second each, and a
    clear with downstream would bring them back to life. `requisites`: the task ids of later rounds of requisites.
    """

    iteration = 0
    """The iteration that ends with the task, or 0."""
    counts_requisites = False
    """Whether the result counts waiting requisites. With a CrawlDb, lists give this count instead."""

    def __init__(
        self,
        *,
        later: Mapping[int, Sequence[str]],
        requisites: Mapping[int, Sequence[str]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.later = later
        self.requisites = requisites or {}

    def not_needed(self, context: Context, result: Mapping[str, Any]) -> list[str]:
        """Return tasks of iterations beyond the run's number, or of all later ones if the iterations end here.

        Rounds of requisites are skipped too, if the run's last iteration or a round leaves no requisite.
        """
        wanted = 0 if result.get("ended") else wanted_iterations(context)
        skipped = [
            task_id for number, tasks in self.later.items() if number > wanted for task_id in tasks
        ]
        leaves_none = (
            self.counts_requisites and self.iteration >= wanted and not result.get("requisites")
        )
        if result.get("ended") or leaves_none:
            skipped += [task_id for tasks in self.requisites.values() for task_id in tasks]
        return skipped


class InjectOperator(_SkipsLaterIterations):
    """`inject`: leave the run's seeds for the nodes, and skip iterations beyond the run's number.

    `any_path`: set by `make crawl` alone, whose user may name any readable file. No param sets this attribute: users
    who trigger a DAG may name files of `inject.directory` only.
    """

    stage_name = "inject"
    any_path = False
    refusals = REFUSED_SEEDS
    of_params = (InputError,)

    def look_ahead(self, config: Config, secrets: Secrets) -> None:
        """Raise all problems of paths, rights and servers in the first task, not in the last."""
        stages.require_usable(config, secrets, self._stop, batch=True)

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Inject the param `seeds`; with `retry_now`, make all waiting URLs due."""
        result = stages.inject(
            stores,
            run_id=run_id(context),
            seeds=context["params"]["seeds"] or "",
            below=None if self.any_path else Path(stores.config.inject.directory),
        )
        if context["params"].get("retry_now"):  # runs of older versions lack this param
            result["retry_now"] = stages.retry_now(stores, run_id=run_id(context))
        return result


class NodeOperator(KrakeOperator):
    """A task of one node, for the machine that has the node's queue."""

    run_needs_it = False

    def __init__(self, *, node: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.node = node

    def require(self, context: Context) -> None:
        """Raise ConfigError on the machine of another node; without `KRAKE_NODE` a machine has all nodes."""
        here = os.environ.get(NODE_VARIABLE, self.node)
        if here != self.node:
            raise ConfigError(
                f"this is the worker of {here} ({NODE_VARIABLE}), and {self.task_id} is a task of {self.node}: give"
                f" the queue {self.queue} to the worker of {self.node}, and to no other one"
            )


class CrawlOperator(NodeOperator):
    """`crawl`: one node's batch of an iteration. The first task of an iteration names the folder.

    `of_requisites`: whether this is a round of requisites after the run's iterations.
    """

    stage_name = "crawl"
    ui_color = "#cfe8cf"

    def __init__(
        self, *, iteration: int, node: str, of_requisites: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(node=node, **kwargs)
        self.iteration, self.of_requisites = iteration, of_requisites

    def require(self, context: Context) -> None:
        """Refuse another node's machine, and an iteration beyond the run's number: somebody cleared the task."""
        super().require(context)
        if not self.of_requisites:
            _require_wanted(self.iteration, context)

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Crawl the batch and commit its segment."""
        _require_not_ended(stores, self.iteration, context)
        return stages.crawl_node(
            stores,
            run_id=run_id(context),
            iteration=self.iteration,
            node=self.node,
            batch_size=context["params"]["batch_size"],
        )


class _OfIteration(_SkipsLaterIterations):
    """A task of an iteration, for all nodes together."""

    def __init__(self, *, iteration: int, of_requisites: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.iteration, self.of_requisites = iteration, of_requisites

    def require(self, context: Context) -> None:
        """Refuse an iteration beyond the run's number: somebody cleared a skipped task."""
        if not self.of_requisites:
            _require_wanted(self.iteration, context)


class GenerateOperator(_OfIteration):
    """`generate`: the list of an iteration, and its folder. If no URL is due, the rest of the run is skipped.

    `later`: includes the other tasks of the same iteration.
    """

    stage_name = "generate"

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Make or find the list."""
        _require_not_ended(
            stores, self.iteration - 1, context
        )  # the task repeats the answer of its own list
        size = context["params"]["batch_size"]
        return stages.generate(
            stores, run_id=run_id(context), iteration=self.iteration, batch_size=size
        )


class UpdateOperator(_OfIteration):
    """`update_crawldb`: a new version of the CrawlDb with the iteration's fetches and finds."""

    stage_name = "update_crawldb"

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Take in all segments and seeds that the newest version lacks."""
        _require_not_ended(stores, self.iteration, context)
        return stages.update_crawldb(stores)


class CommitOperator(_OfIteration):
    """`commit`: check the nodes' segments, or as many as `crawl.min_nodes` asks for, and sum up their counts.

    Publishes the asset `<crawl.name>_segments`. If no URL waits, all later iterations are skipped. With fewer answers
    than `crawl.min_success` the task fails at the end of its work; once cleared, the task goes on.
    """

    counts_requisites = True
    stage_name = "commit"

    def __init__(self, *, crawl: str = "krake", **kwargs: Any) -> None:
        super().__init__(crawl=crawl, outlets=[asset_of(crawl, "segments")], **kwargs)

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Commit the iteration."""
        _require_not_ended(stores, self.iteration, context)
        result = stages.commit_iteration(stores, run_id=run_id(context), iteration=self.iteration)
        tell_waiting(self, context, folder=result["folder"], urls=result.get("urls", 0))
        return result


class SettleOperator(NodeOperator):
    """`settle`: take in the last iteration's finds for a node."""

    stage_name = "settle"

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Settle the node."""
        return stages.settle_node(stores, node=self.node, run_id=run_id(context))


class MaintainKeysOperator(KrakeOperator):
    """`maintain_keys`: count the keys of one server, compare its interval's replicas, and repair these replicas.

    `server`: the short name of the server (`KeyStorageConfig.by_short_name`).
    """

    stage_name = "maintain_keys"
    run_needs_it = False

    def __init__(self, *, server: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.server = server

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Check and repair the server's part of the keys."""
        server = stores.config.key_storage.by_short_name.get(
            self.server, self.server
        )  # the stage knows which servers exist
        self.log.info("%s is key server %s: it and the replicas of its keys", self.server, server)
        return stages.maintain_keys(stores, server=server)


class ExportOperator(KrakeOperator):
    """`export`: mapping, content and offsets. `of_run`: all segments up to this run, else the chosen folders."""

    stage_name = "export"
    ui_color = "#f3e6c8"
    of_params = (InputError, OutputConflictError)

    def __init__(self, *, of_run: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.of_run = of_run

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Export the run's crawl, or the chosen iterations."""
        params = context["params"]
        return stages.export_pages(
            stores,
            run_id=run_id(context) if self.of_run else None,
            label=params["label"] or None,
            folders=None if self.of_run else params["folders"] or None,
        )


class LinkOperator(KrakeOperator):
    """`linker`: links between exported pages become arcs."""

    stage_name = "linker"
    ui_color = "#f3e6c8"

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Link the export of this run."""
        return stages.link_export(stores, export=exported(context))


class FinalizeOperator(KrakeOperator):
    """`finalizer`: arcs become the web graph. Publishes the asset `<crawl.name>_exports`."""

    stage_name = "finalizer"
    ui_color = "#f3e6c8"

    def __init__(self, *, crawl: str = "krake", **kwargs: Any) -> None:
        super().__init__(crawl=crawl, outlets=[asset_of(crawl, "exports")], **kwargs)

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Finalize the export of this run."""
        name = exported(context)
        result = stages.finalize_export(stores, export=name)
        path = f"{stores.config.export.directory}/{name}"
        tell_waiting(self, context, export=name, path=path)
        return result


def run_id(context: Context) -> str:
    """Return the id of the task's run."""
    return str(context["run_id"])


def exported(context: Context) -> str:
    """Return the name of this run's export, from the result of the task `export`."""
    result = context["ti"].xcom_pull(task_ids="export")
    if not isinstance(result, Mapping) or "export" not in result:
        raise AirflowFailException(
            "the task export left no result in this run; clear it with its downstream"
        )
    return str(result["export"])
