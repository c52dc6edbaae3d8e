"""The executor of an Airflow of one machine: the scheduler goes on as soon as a task has ended."""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing.connection import wait
from typing import Any

from airflow.executors.local_executor import LocalExecutor

LOOK_S = 0.2
"""The scheduler looks at the database this often, and begins new runs, while no task runs.

The price is a twelfth of a core while nothing runs.
"""
BUSY_LOOK_S = 0.5
"""The same while tasks run: ends of tasks wake the scheduler, and a look is for new runs and retries alone."""


class PromptExecutor(LocalExecutor):
    """A LocalExecutor that waits in the place of the scheduler, which sleeps blindly.

    A sleep of 0.2 s costs each level of a run 0.1 s on average. The scheduler calls `sync` in each of its rounds, and
    must not sleep as well (`scheduler_idle_sleep_time` is 0).
    """

    _has_ended = False

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)  # type: ignore[no-untyped-call]
        self._at_work: set[object] = set()
        """Keys of tasks that began and have not ended; a LocalExecutor does not keep its `running`."""

    def _process_workloads(self, workload_list: Sequence[Any]) -> None:
        self._at_work |= {workload.key for workload in workload_list}
        super()._process_workloads(workload_list)  # type: ignore[no-untyped-call]

    def sync(self) -> None:
        """Wait for the end of a task, for at most `LOOK_S` or `BUSY_LOOK_S`, and read results.

        The round after an end begins the next tasks, and waits for their ends at once. If no task runs then, the round
        does not wait: a task without work ends in one round (`committed`), and the next round begins the tasks behind
        that task.
        """
        if self._at_work or not self._has_ended:
            wait_s = BUSY_LOOK_S if self._at_work and not self._has_ended else LOOK_S
            wait([self.result_queue._reader], wait_s)  # type: ignore[attr-defined]
        super().sync()
        self._has_ended = bool(self.event_buffer)
        self._at_work -= self.event_buffer.keys()
