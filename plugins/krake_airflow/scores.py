"""Tasks of scores, as named in `scores.tasks`: at the end of a run, or in their own DAG."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowSkipException

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.errors import NoExportError
from crawl_lib.stores import Stores
from krake_airflow.operators import KrakeOperator, exported
from krake_airflow.parsing import BATCH_TIMEOUT


class _OfLinks(KrakeOperator):
    """A task of `TASKS`. `of_run`: whether to use this run's export, else the newest export."""

    ui_color = "#e6d5f0"

    def __init__(self, *, of_run: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.of_run = of_run


class InvertLinksOperator(_OfLinks):
    """`invert_links`: the LinkDb takes in new segments."""

    stage_name = "invert_links"

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Make a version with the new segments."""
        return stages.invert_links(stores)


class DuplicatesOperator(_OfLinks):
    """`duplicates`: all but the best of equal pages become duplicates in the CrawlDb."""

    stage_name = "duplicates"

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Make a version of the CrawlDb, unless the newest version has these marks."""
        return stages.mark_duplicates(stores)


class ScoreOperator(_OfLinks):
    """`score`: ranks become the scores of the CrawlDb."""

    stage_name = "score"

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Rank the export's pages if needed, and make a version of the CrawlDb.

        Skipped before the first export: the first iterations of a crawl are committed earlier.
        """
        try:
            return stages.update_score(stores, export=exported(context) if self.of_run else None)
        except NoExportError as error:
            raise AirflowSkipException(str(error)) from None


TASKS: dict[str, type[_OfLinks]] = {
    "invert_links": InvertLinksOperator,
    "duplicates": DuplicatesOperator,
    "score": ScoreOperator,
}
"""Each task by its name in `scores.tasks`, in the order of the run."""


def add_scores(config: Config, before: BaseOperator | None = None) -> BaseOperator | None:
    """Add the tasks of a config, each behind the last; return the last task, or `before` without tasks.

    `before`: the last task of the run, or None.
    """
    chosen: list[BaseOperator] = [
        kind(task_id=name, of_run=before is not None, execution_timeout=BATCH_TIMEOUT)
        for name, kind in TASKS.items()
        if name in config.scores.tasks
    ]
    row = [*([before] if before is not None else []), *chosen]
    for one, other in pairwise(row):
        one >> other
    return row[-1] if row else None
