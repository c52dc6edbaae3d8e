"""Watermarks: below a set amount of free room a node's task pauses, and after some time it stops.

While it pauses nothing is fetched; what is fetched already is in the spool, so nothing is half-written. The reason is
in the log, in the task's progress (`krake status`, Airflow's task state store), and in the error of the task that gives
up waiting; Airflow tries that one again later.
"""

import logging
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from crawl_lib.config import WatermarksConfig
from crawl_lib.errors import KrakeError, NoRoomError, StorageError
from crawl_lib.node.task import NodeTask
from crawl_lib.storage import Storage
from crawl_lib.stores import open_stores

log = logging.getLogger(__name__)

LOOK_INTERVAL_S = 1.0
DFS_LOOK_INTERVAL_S = 30.0
"""How often the DFS is asked, at last: a request to the namenode each time."""

_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1, "bytes"))


def shortage(config: WatermarksConfig, directory: Path | None, storage: Storage | None) -> str | None:
    """What there is too little of, in words, or None. `directory`, `storage`: None leaves it out.

    Raises StorageError if the DFS cannot be asked.
    """
    if directory is not None:
        free = shutil.disk_usage(directory).free
        if free < config.min_free_local_bytes:
            return _words(str(directory), free, "min_free_local_bytes", config.min_free_local_bytes)
    if storage is not None and config.min_free_dfs_bytes:
        free = storage.free_bytes()
        if free < config.min_free_dfs_bytes:
            return _words(storage.name, free, "min_free_dfs_bytes", config.min_free_dfs_bytes)
    return None


def _words(place: str, free: int, option: str, least: int) -> str:
    return f"{place}: {_size(free)} are free, less than watermarks.{option} ({_size(least)})"


def _size(count: int) -> str:
    unit, name = next(((unit, name) for unit, name in _UNITS if count >= unit), _UNITS[-1])
    return f"{count / unit:.1f} {name}" if unit > 1 else f"{count} {name}"


class RoomWatch:
    """Looks after the room of a node's task in a thread of its own, while others fetch.

    `reason` is None while there is enough. The DFS is asked through a connection of its own, and one that does not
    answer is no shortage: the task finds out itself, when it needs the DFS. Nor is anything else that goes wrong in the
    thread; should it die all the same, the task ends with an error instead of going on unwatched.
    """

    def __init__(self, task: NodeTask) -> None:
        self.reason: str | None = None
        self._task = task
        self._config = task.stores.config.watermarks
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="room-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()

    def is_short(self) -> bool:
        """Whether the task should pause. Raises StorageError if the thread has ended."""
        if not self._thread.is_alive():
            raise StorageError(f"{self._task.directory}: the watch over its free room has ended; run the task again")
        return self.reason is not None

    def _watch(self) -> None:
        storage: Storage | None = None
        next_dfs_s = 0.0
        while not self._over.is_set():
            look_at_dfs = time.monotonic() >= next_dfs_s
            try:
                if look_at_dfs and storage is None and self._config.min_free_dfs_bytes:
                    storage = open_stores(self._task.stores.config, self._task.stores.secrets).storage
                self.reason = shortage(self._config, self._task.directory, storage if look_at_dfs else None)
            except Exception as error:
                unexpected = None if isinstance(error, KrakeError | OSError) else error
                log.warning("free room cannot be looked at: %s", error, exc_info=unexpected)
            if look_at_dfs:
                next_dfs_s = time.monotonic() + DFS_LOOK_INTERVAL_S
            self._over.wait(LOOK_INTERVAL_S)


def _backing_off(config: WatermarksConfig, directory: Path | None, storage: Storage) -> Iterator[str | None]:
    """`shortage`, each time it is asked; the DFS is asked again after 1, 2, 4, and at last every 30 seconds."""
    of_dfs: str | None = None
    pause_s, next_dfs_s = LOOK_INTERVAL_S, time.monotonic()
    while True:
        reason = shortage(config, directory, None)
        if reason is None and time.monotonic() >= next_dfs_s:
            of_dfs = shortage(config, None, storage)
            next_dfs_s = time.monotonic() + pause_s
            pause_s = min(pause_s * 2, DFS_LOOK_INTERVAL_S)
        yield reason or of_dfs


def wait_for_room(task: NodeTask, *, local: bool = True) -> None:
    """Go on at once where there is room; else pause until there is.

    `local`: False looks at the DFS only, before a step that ends with more local room than it found.
    Raises NoRoomError after `watermarks.max_pause_s`, and StoppedError.
    """
    config = task.stores.config.watermarks
    directory = task.directory if local else None
    began_s = time.monotonic()
    look = _backing_off(config, directory, task.stores.storage)
    told: str | None = None
    while (reason := next(look)) is not None:
        if reason != told:
            log.warning("%s: pauses: %s", task.node, reason)
        told = reason
        task.progress.pause(reason)
        task.stores.go_on()
        if time.monotonic() - began_s >= config.max_pause_s:
            raise NoRoomError(f"{reason}; paused for {config.max_pause_s:g} s; make room, then run the task again")
        task.stores.stop.wait(LOOK_INTERVAL_S)
    if told is not None:
        log.info("%s: goes on: there is room again", task.node)
