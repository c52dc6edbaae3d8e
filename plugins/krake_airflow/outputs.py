"""Tasks that make outputs, as `outputs.tasks` names them: at the end of a run, or in a DAG of their own."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowSkipException

from crawl_lib import stages
from crawl_lib.config import OUTPUT_TASKS, Config
from crawl_lib.errors import NoExportError
from crawl_lib.stores import Stores
from krake_airflow.operators import KrakeOperator
from krake_airflow.parsing import BATCH_TIMEOUT


class OutputOperator(KrakeOperator):
    """A task of `outputs.tasks`. A subclass says which by its `stage_name`."""

    ui_color = "#d5e6e0"

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Make what is missing of the output."""
        return stages.make_output(stores, output=self.stage_name)


class TextOperator(OutputOperator):
    """`text`: what each page says."""

    stage_name = "text"


class CapturesOperator(OutputOperator):
    """`captures`: where the newest capture of each URL is."""

    stage_name = "captures"


class IndexOperator(OutputOperator):
    """`index`: a version of the index with the pages that are there now."""

    stage_name = "index"


class PushOperator(OutputOperator):
    """`push`: the pages of the newest index in OpenSearch."""

    stage_name = "push"


class CommonCrawlOperator(OutputOperator):
    """`commoncrawl`: Common Crawl's index, and WET files, of all iterations."""

    stage_name = "commoncrawl"


class GraphsOperator(OutputOperator):
    """`graphs`: files of hosts, domains and links of the newest export, for other programs."""

    stage_name = "graphs"

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Make what is missing; skipped before the first export."""
        try:
            return super().stage(stores, context)
        except NoExportError as error:
            raise AirflowSkipException(str(error)) from None


_KINDS = (TextOperator, IndexOperator, PushOperator, CommonCrawlOperator, GraphsOperator, CapturesOperator)
TASKS: dict[str, type[OutputOperator]] = {kind.stage_name: kind for kind in _KINDS}


def add_outputs(config: Config, before: BaseOperator | None = None) -> None:
    """Add the tasks of a config, one behind the other. `before`: the task that they follow, None for none."""
    chosen: list[BaseOperator] = [
        TASKS[name](task_id=name, execution_timeout=BATCH_TIMEOUT)
        for name in OUTPUT_TASKS
        if name in config.outputs.tasks
    ]
    for one, other in pairwise([*([before] if before is not None else []), *chosen]):
        one >> other
