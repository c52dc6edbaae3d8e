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
    """A task of `outputs.tasks`. `output`: the name of the output, by which its metrics and texts are found."""

    ui_color = "#d5e6e0"

    def __init__(self, *, output: str, **kwargs: Any) -> None:
        self.stage_name = output
        super().__init__(**kwargs)

    def stage(self, stores: Stores, context: Context) -> dict[str, Any]:
        """Make what is missing of the output; skipped where it needs an export and there is none."""
        try:
            return stages.make_output(stores, output=self.stage_name)
        except NoExportError as error:
            raise AirflowSkipException(str(error)) from None


def add_outputs(config: Config, before: BaseOperator | None = None) -> None:
    """Add the tasks of a config, one behind the other. `before`: the task that they follow, None for none."""
    chosen: list[BaseOperator] = [
        OutputOperator(output=name, task_id=name, execution_timeout=BATCH_TIMEOUT)
        for name in OUTPUT_TASKS
        if name in config.outputs.tasks
    ]
    for one, other in pairwise([*([before] if before is not None else []), *chosen]):
        one >> other
