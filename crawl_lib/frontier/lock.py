"""The lock of a node's directory: one attempt of one task at a time, whatever Airflow believes."""

import fcntl
import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from crawl_lib.errors import LockedError, os_errors
from crawl_lib.frontier.directory import NodeDirectory
from crawl_lib.frontier.home import NodeHome

_POLL_S = 0.1


class NodeLock:
    """flock on `<directory>/lock`, held from `__enter__` to the death of the last process with the descriptor.

    * Children that get `fileno()` (`pass_fds`) hold the lock too: the death of the last writer frees the lock.
    * The file's text names the holder (pid, host, work, begin), for others that wait.
    * The kernel frees the lock at any death, also by SIGKILL. Nothing has to be cleaned up.
    """

    def __init__(
        self,
        directory: Path,
        node: str,
        timeout_s: float,
        *,
        what: str = "",
        on_wait: Callable[[str], None] | None = None,
        report_interval_s: float = 5.0,
        leaves_trace: bool = True,
    ) -> None:
        """Prepare the lock.

        `timeout_s`: how long to wait for another holder. `what`: this task's work, for other tasks that wait.

        `on_wait`: called with the holder's text at once and then every `report_interval_s` seconds of waiting.
        `leaves_trace`: False: a missing file is not made (then nothing is held), and the text of a file stays.
        """
        self.path, self.node = NodeDirectory(directory).lock, node
        self._timeout_s, self._interval_s = timeout_s, report_interval_s
        self._what, self._on_wait, self._leaves_trace = what, on_wait, leaves_trace
        self._descriptor, self._is_held = -1, False

    def __enter__(self) -> NodeHome:
        """Wait for the lock, and return the node's home.

        The home is valid while the lock is held. Raises LockedError naming the holder, StorageError naming the path.
        """
        if self._leaves_trace or self.path.exists():
            self._lock()
        self._is_held = True
        return NodeHome(self.path.parent, self.node, self)

    def _lock(self) -> None:
        flags = os.O_RDWR | os.O_CREAT if self._leaves_trace else os.O_RDONLY
        with os_errors(self.path, "cannot be opened"):
            self._descriptor = os.open(self.path, flags | os.O_CLOEXEC, 0o644)
        try:
            with os_errors(self.path, "cannot be locked"):
                self._wait()
            if self._leaves_trace:
                who = {
                    "pid": os.getpid(),
                    "host": socket.gethostname(),
                    "what": self._what,
                    "since": round(time.time()),
                }
                with os_errors(self.path, "cannot be written"):
                    os.ftruncate(self._descriptor, 0)
                    os.pwrite(self._descriptor, json.dumps(who).encode(), 0)
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give our hold up; children with the descriptor keep their hold."""
        self._is_held = False
        # No LOCK_UN: an unlock would take the lock from the children too.
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def fileno(self) -> int:
        """Return the descriptor, for `pass_fds` of child processes."""
        return self._descriptor

    def require_held(self) -> None:
        """Raise LockedError, unless the lock is held."""
        if not self._is_held:
            raise LockedError(f"{self.path}: node {self.node} is to be changed without the lock")

    def _wait(self) -> None:
        deadline_s = time.monotonic() + self._timeout_s
        told_s = 0.0
        tries = 0
        while not _try_lock(self._descriptor, fcntl.LOCK_EX):
            tries += 1
            now_s = time.monotonic()
            if now_s >= deadline_s and tries > 2:
                raise LockedError(
                    f"{self.path}: node {self.node} is locked by {self._holder()}; waited {self._timeout_s:g} s."
                    " Wait for it to end, or stop it"
                )
            if self._on_wait and tries > 1 and now_s - told_s >= self._interval_s:
                told_s = now_s
                self._on_wait(self._holder())
            time.sleep(_POLL_S if now_s < deadline_s else 0.01)

    def _holder(self) -> str:
        return _describe(os.pread(self._descriptor, 4096, 0))


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _describe(text: bytes) -> str:
    try:
        value = json.loads(text)
        what = f", {value['what']}" if value["what"] else ""
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(value["since"]))
        return (
            f"process {value['pid']} on {value['host']}{what}, since {since} UTC (or a child of it)"
        )
    except (ValueError, KeyError, TypeError):
        return "an unnamed process"
