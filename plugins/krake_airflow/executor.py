"""The executor of an Airflow of one machine: its scheduler goes on as soon as a task has ended."""

from __future__ import annotations

from multiprocessing.connection import wait

from airflow.executors.local_executor import LocalExecutor

LOOK_S = 0.2
"""The scheduler looks at the database this often, and begins new runs, while no task ends.

The price is a twelfth of a core while nothing runs.
"""


class PromptExecutor(LocalExecutor):
    """A LocalExecutor that waits in the place of the scheduler, which sleeps blindly.

    A sleep of 0.2 s costs each level of a run 0.1 s on average. The scheduler calls `sync` in each of its rounds. It
    must not sleep as well (`scheduler_idle_sleep_time` is 0).
    """

    _has_ended = False

    def sync(self) -> None:
        """Wait for the end of a task, for at most `LOOK_S`, and read results.

        After an end the next round does not wait: a task without work ends in one round (`committed`), and the next
        round begins the tasks behind that task.
        """
        if not self._has_ended:
            wait([self.result_queue._reader], LOOK_S)  # type: ignore[attr-defined]
        super().sync()
        self._has_ended = bool(self.event_buffer)
