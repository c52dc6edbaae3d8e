"""Tasks that say what pages are worth, as `scores.tasks` names them: at the end of a run, or in a DAG of their own."""

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
    """A task of `TASKS`. `of_run`: of this run's export, where it needs one, else of the newest."""

    ui_color = "#e6d5f0"

    def __init__(self, *, of_run: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.of_run = of_run


class InvertLinksOperator(_OfLinks):
    """`invert_links`: the LinkDb takes in new segments."""

    stage_name = "invert_links"

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Make the version that has them."""
        return stages.invert_links(stores)


class DuplicatesOperator(_OfLinks):
    """`duplicates`: of equal pages all but the best become duplicates in the CrawlDb."""

    stage_name = "duplicates"

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Make a version of the CrawlDb, unless the newest one says so already."""
        return stages.mark_duplicates(stores)


class ScoreOperator(_OfLinks):
    """`score`: ranks become the scores of the CrawlDb."""

    stage_name = "score"

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Rank the export's pages, where they are not ranked yet, and make a version of the CrawlDb.

        Skipped before the first export: the first iterations of a crawl are committed before it.
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
"""Each by its name in `scores.tasks`, in the order in which they run."""


def add_scores(config: Config, before: BaseOperator | None = None) -> BaseOperator | None:
    """Add the tasks of a config, one behind the other; return the last one, or `before` where there are none.

    `before`: what ends the run that they belong to, None for none.
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
