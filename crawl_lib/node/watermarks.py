"""Watermarks: below a set amount of free room a node's task pauses, and after some time it stops.

During a pause no URL is fetched; earlier fetches are in the spool, so no file is half-written. The reason of the pause
is in the log, in the task's progress (`krake status`, Airflow's task state store), and in the error of a task that
gives up; Airflow tries such a task again later.
"""

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from crawl_lib.config import WatermarksConfig
from crawl_lib.errors import KrakeError, NoRoomError, StorageError
from crawl_lib.node.task import NodeTask
from crawl_lib.storage import Storage
from crawl_lib.stores import open_stores

log = logging.getLogger(__name__)

LOOK_INTERVAL_S = 1.0
DFS_LOOK_INTERVAL_S = 30.0
"""The interval of looks at the DFS in the end: each look is a request to the namenode."""

_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1, "bytes"))


class FreeSpace:
    """Free room of a directory and of the DFS, measured at each call; a value of None leaves one out.

    `storage`: called when a look at the DFS is due: at once, then after 1, 2, 4, and in the end every 30 seconds.
    """

    def __init__(
        self,
        config: WatermarksConfig,
        directory: Path | None,
        storage: Callable[[], Storage] | None = None,
    ) -> None:
        self._config, self._directory, self._storage = config, directory, storage
        self._pause_s, self._next_dfs_s = LOOK_INTERVAL_S, time.monotonic()
        self._of_dfs: str | None = None

    def shortage(self) -> str | None:
        """Name the place with too little room, or return None.

        Raises StorageError if the DFS cannot be asked.
        """
        config, now_s = self._config, time.monotonic()
        if self._directory is not None:
            free = shutil.disk_usage(self._directory).free
            if free < config.min_free_local_bytes:
                return _words(
                    str(self._directory), free, "min_free_local_bytes", config.min_free_local_bytes
                )
        if self._storage and config.min_free_dfs_bytes and now_s >= self._next_dfs_s:
            self._next_dfs_s, self._pause_s = (
                now_s + self._pause_s,
                min(self._pause_s * 2, DFS_LOOK_INTERVAL_S),
            )
            storage, least = self._storage(), config.min_free_dfs_bytes
            free = storage.free_bytes()
            self._of_dfs = (
                _words(storage.name, free, "min_free_dfs_bytes", least) if free < least else None
            )
        return self._of_dfs


def _words(place: str, free: int, option: str, least: int) -> str:
    return f"{place}: {_size(free)} are free, less than watermarks.{option} ({_size(least)})"


def _size(count: int) -> str:
    unit, name = next(((unit, name) for unit, name in _UNITS if count >= unit), _UNITS[-1])
    return f"{count / unit:.1f} {name}" if unit > 1 else f"{count} {name}"


@contextmanager
def room_watch(task: NodeTask) -> Iterator[Callable[[], bool]]:
    """Watch the free space of a node's task in another thread.

    Yields a function that says whether the task should pause. The DFS is asked through a separate connection. A DFS
    without an answer is no shortage: the task notices the DFS by itself, when needed. Other errors in the thread are no
    shortage either. If the thread should die all the same, the task ends with an error (StorageError) instead of going
    on unwatched.
    """
    over, short = threading.Event(), threading.Event()
    thread = threading.Thread(
        target=_watch, args=(task, over, short), name="room-watch", daemon=True
    )

    def is_short() -> bool:
        if not thread.is_alive():
            raise StorageError(
                f"{task.directory}: the watch over its free room has ended; run the task again"
            )
        return short.is_set()

    thread.start()
    try:
        yield is_short
    finally:
        over.set()


def _watch(task: NodeTask, over: threading.Event, short: threading.Event) -> None:
    storage = cache(lambda: open_stores(task.stores.config, task.stores.secrets).storage)
    room = FreeSpace(task.stores.config.watermarks, task.directory, storage)
    while not over.is_set():
        try:
            (short.set if room.shortage() else short.clear)()
        except Exception as error:
            unexpected = None if isinstance(error, KrakeError | OSError) else error
            log.warning("free room cannot be looked at: %s", error, exc_info=unexpected)
        over.wait(LOOK_INTERVAL_S)


def wait_for_room(task: NodeTask, *, local: bool = True) -> None:
    """Pause until there is room; without a shortage, return at once.

    `local`: False looks at the DFS only, before a step that frees local room. Raises NoRoomError after
    `watermarks.max_pause_s`, and StoppedError.
    after `watermarks.max_pause_s`, and StoppedError.
    """
    config = task.stores.config.watermarks
    room = FreeSpace(config, task.directory if local else None, lambda: task.stores.storage)
    began_s, last_reason = time.monotonic(), ""
    while (reason := room.shortage()) is not None:
        if reason != last_reason:
            log.warning("%s: pauses: %s", task.node, reason)
        last_reason = reason
        task.progress.enter("paused", reason)
        task.stores.go_on()
        if time.monotonic() - began_s >= config.max_pause_s:
            raise NoRoomError(
                f"{reason}; paused for {config.max_pause_s:g} s; make room, then run the task again"
            )
        task.stores.stop.wait(LOOK_INTERVAL_S)
    if last_reason:
        log.info("%s: goes on: there is room again", task.node)
