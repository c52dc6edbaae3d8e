"""Tasks of outputs, as named in `outputs.tasks`: at the end of a run, or in their own DAG."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowSkipException

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.errors import NoExportError
from crawl_lib.stores import Stores
from krake_airflow.operators import KrakeOperator
from krake_airflow.parsing import BATCH_TIMEOUT


class OutputOperator(KrakeOperator):
    """A task of `outputs.tasks`. `output`: the name of the output, also in metrics and texts."""

    ui_color = "#d5e6e0"

    def __init__(self, *, output: str, **kwargs: Any) -> None:
        self.stage_name = output
        super().__init__(**kwargs)

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Make the missing parts of the output; skip the task if a needed export is missing."""
        try:
            return stages.make_output(stores, output=self.stage_name)
        except NoExportError as error:
            raise AirflowSkipException(str(error)) from None


def add_outputs(config: Config, before: BaseOperator | None = None) -> None:
    """Add the tasks of a config, each behind the last. `before`: the task before them, or None."""
    chosen: list[BaseOperator] = [
        OutputOperator(output=name, task_id=name, execution_timeout=BATCH_TIMEOUT)
        for name in config.outputs.in_order
    ]
    for one, other in pairwise([*([before] if before is not None else []), *chosen]):
        one >> other
