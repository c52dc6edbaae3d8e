"""Tasks around a real-time service: segments of fetched pages, their statistics, and URLs that a DAG asks for."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowSkipException

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.errors import BusyError, ConfigError, InputError, KrakeError, StoppedError
from crawl_lib.realtime import Client
from crawl_lib.realtime.answers import MOST_URLS, Decision, Page
from crawl_lib.stores import Stores
from krake_airflow.connections import SERVICE_CONNECTION, service_access
from krake_airflow.operators import (
    KrakeOperator,
    NodeOperator,
    ParamsError,
    asset_of,
    tell_waiting,
    translated,
)
from krake_airflow.parsing import BATCH_TIMEOUT, node_retries

LOOK_S = 5.0
"""The longest wait within one request, so that a killed task ends soon."""
_ANSWER_S = 25.0
"""The time for an answer, besides the wait."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 10.0
_NOT_TAKEN = ("busy", "unavailable")
"""Decisions on URLs that the service did not take; a later submission may succeed."""
_T = TypeVar("_T")


class CollectOperator(NodeOperator):
    """`collect`: the fetches of a node's service become a segment. Updates the asset `<crawl.name>_segments`.

    The task is skipped if the service has closed no part since the last collection; then the asset stays as it is.
    """

    stage_name = "collect"
    ui_color = "#cfe8cf"

    def __init__(self, *, crawl: str = "krake", **kwargs: Any) -> None:
        super().__init__(crawl=crawl, outlets=[asset_of(crawl, "segments")], **kwargs)

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Collect all closed parts, or end an earlier collection."""
        result = stages.collect_realtime(stores)
        if not result["folder"]:
            raise AirflowSkipException(
                "nothing to collect: the service has closed no part since the last collection"
            )
        tell_waiting(self, context, folder=result["folder"], urls=result["pages"])
        return result


def add_collect(config: Config) -> BaseOperator:
    """Add the task of a config's service, on the machine of the service."""
    node = config.servers[0]
    return CollectOperator(
        task_id="collect",
        node=node,
        queue=node,
        retries=node_retries(config),
        execution_timeout=BATCH_TIMEOUT,
    )


class StatisticsOperator(KrakeOperator):
    """`statistics`: the counts of an hour, and of earlier hours with late segments. Updates `<crawl.name>_statistics`.

    The hour is the param `hour`, else the first hour of the run's data interval, else the last complete hour.
    """

    stage_name = "statistics"
    ui_color = "#cfe8cf"

    def __init__(self, *, crawl: str = "krake", **kwargs: Any) -> None:
        super().__init__(crawl=crawl, outlets=[asset_of(crawl, "statistics")], **kwargs)

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Make the missing statistics."""
        result = stages.make_statistics(stores, hour=hour_of(context))
        tell_waiting(self, context, hour=result["hour"], made=result["made"])
        return result


def hour_of(context: Context) -> datetime | None:
    """Return the hour that a run asks for; None for the last hour. Raises ParamsError."""
    if given := context["params"].get("hour"):
        try:
            return datetime.strptime(given, "%Y-%m-%dT%H").replace(tzinfo=UTC)
        except ValueError as error:
            raise ParamsError(
                f"hour: must be an hour in UTC such as 2026-11-28T07, not {given!r}"
            ) from error
    begins = context.get("data_interval_start")
    return None if begins is None else datetime.fromtimestamp(begins.timestamp(), UTC)


def add_statistics() -> BaseOperator:
    """Add the counting task. Any worker may run the task: segments are on the DFS."""
    return StatisticsOperator(task_id="statistics", execution_timeout=BATCH_TIMEOUT)


class FetchNowOperator(BaseOperator):
    """Have a real-time service fetch URLs now, and return the metadata of each URL.

    `urls`: at most 300; a template may render them. `policy`: a name of the service's `realtime.policies`. `wait_s`:
    how long the task waits for all documents. `max_age_s`: an older document is fetched again; None: as the policy
    says. `krake_conn_id`: an HTTP connection with host, port and schema of the service, and a token as its password.

    The result is a list with a mapping for each URL, in the order of `urls` (`metadata_of` names the fields). A refused
    URL has the rule. A URL still under way at the end has the state `waiting`.

    The task waits while the service is busy or away, and fails once `wait_s` is over; Airflow tries the task again. An
    unusable connection or request fails at once. No triggerer is needed.
    """

    template_fields: Sequence[str] = ("urls", "policy")
    shallow_copy_attrs: Sequence[str] = ("_stop",)
    ui_color = "#cfe8cf"

    def __init__(
        self,
        *,
        urls: Sequence[str],
        policy: str = "default",
        wait_s: float = 60.0,
        max_age_s: float | None = None,
        krake_conn_id: str = SERVICE_CONNECTION,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.urls, self.policy, self.wait_s, self.max_age_s = urls, policy, wait_s, max_age_s
        self.krake_conn_id = krake_conn_id
        self._stop = threading.Event()

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Submit the URLs, wait for the documents, and return the metadata."""
        try:
            urls = _checked(self.urls)
            if not urls:
                return []
            url, token = service_access(self.krake_conn_id)
            with Client(url, token, timeout_s=LOOK_S + _ANSWER_S) as client:
                asked = _Asked(client, urls, self.wait_s, self._stop)
                asked.submit(self.policy, self.max_age_s)
                found = [metadata_of(one, page) for one, page in asked.pages(self.max_age_s)]
        except KrakeError as error:
            raise translated(error) from None
        self.log.info(
            "%d of %d URLs have documents",
            sum(one["state"] == "known" for one in found),
            len(found),
        )
        return found

    def on_kill(self) -> None:
        """Stop waiting: submitted URLs are fetched all the same."""
        self._stop.set()


def _checked(urls: Any) -> list[str]:
    """Return URLs as a list without repetitions. Raises InputError."""
    if (
        isinstance(urls, str)
        or not isinstance(urls, Sequence)
        or not all(isinstance(url, str) for url in urls)
    ):
        raise InputError(f"urls must be a list of texts, not {type(urls).__name__}")
    found = list(dict.fromkeys(urls))
    if len(found) > MOST_URLS:
        raise InputError(
            f"urls has {len(found)} URLs, and a task may ask for {MOST_URLS}: divide the list (expand)"
        )
    return found


class _Asked:
    """The URLs of a task's request. `decisions`: by URL."""

    def __init__(
        self, client: Client, urls: Sequence[str], wait_s: float, stop: threading.Event
    ) -> None:
        self._client, self._urls, self._stop = client, urls, stop
        self._end_s = time.monotonic() + wait_s
        self.decisions: dict[str, Decision] = {}

    @property
    def _left_s(self) -> float:
        return max(0.0, self._end_s - time.monotonic())

    def submit(self, policy: str, max_age_s: float | None) -> None:
        """Submit all URLs; until the time is over, submit URLs of busy hosts and absent key servers again."""
        waiting = list(self._urls)
        while waiting:
            # Each repetition after a lost answer has the same key: the service counts a share once.
            submit = partial(
                self._client.submit,
                waiting,
                policy,
                max_age_s=max_age_s,
                idempotency_key=secrets.token_hex(16),
            )
            self.decisions |= dict(zip(waiting, self._persistent(submit), strict=True))
            waiting = [url for url in waiting if self.decisions[url].decision in _NOT_TAKEN]
            pause_s = max((self.decisions[url].retry_after_s or 1 for url in waiting), default=0)
            if pause_s > self._left_s:
                return
            self._pause(pause_s)

    def pages(self, max_age_s: float | None) -> Iterator[tuple[Decision, Page | None]]:
        """Yield decision and page of each URL; wait for pages under way."""
        for url in self._urls:
            decision = self.decisions[url]
            yield decision, self._page(url, max_age_s) if _is_taken(decision) else None

    def _page(self, url: str, max_age_s: float | None) -> Page | None:
        while True:
            wait_s = min(LOOK_S, self._left_s)
            page = self._persistent(
                partial(self._client.page, url, wait_s=wait_s, max_age_s=max_age_s)
            )
            if page is None or page.state != "waiting" or not self._left_s:
                return page
            self._pause(0)

    def _persistent(self, ask: Callable[[], _T]) -> _T:
        """Ask until an answer comes, or the time is over; then raise the last KrakeError."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return ask()
            except (InputError, ConfigError):
                raise
            except KrakeError as error:
                wait_s = error.retry_after_s if isinstance(error, BusyError) else pause_s
                if wait_s > self._left_s:
                    raise
            self._pause(wait_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _pause(self, seconds: float) -> None:
        """Wait. Raises StoppedError for a killed task."""
        if self._stop.wait(seconds):
            raise StoppedError("the task was asked to stop; the service goes on with its URLs")


def _is_taken(decision: Decision) -> bool:
    return decision.decision not in ("refused", *_NOT_TAKEN)


def metadata_of(decision: Decision, page: Page | None) -> dict[str, Any]:
    """Return the task's answer for a URL.

    `url`: as given. `state`: `known`, `waiting` (still under way), `unknown` (deleted meanwhile), `refused` (by
    `rule`), `busy` or `unavailable` (not taken within the time). `decision`: the first answer of the service.
    `fetched_ms`, `stale`, `outcome`, `status`, `final_url`, `facts` and `image` come from the document, and are missing
    without a document.
    """
    found: dict[str, Any] = {
        "url": decision.url,
        "key": decision.key,
        "decision": decision.decision,
    }
    if decision.rule is not None:
        found["rule"] = decision.rule
    found["state"] = (
        (page.state if page else "unknown") if _is_taken(decision) else decision.decision
    )
    if page is None or page.document is None:
        return found
    document = page.document
    return {
        **found,
        "fetched_ms": page.fetched_ms,
        "stale": page.stale,
        "outcome": document.outcome,
        "status": document.status,
        "final_url": document.final_url,
        "facts": document.facts,
        "image": document.image,
    }
