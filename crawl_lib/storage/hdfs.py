"""A file store in HDFS, over WebHDFS."""

import builtins
import io
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any, BinaryIO, cast

from crawl_lib.config import DfsConfig
from crawl_lib.errors import (
    PathNotFoundError,
    StoppedError,
    StorageError,
    StorageRightsError,
    TargetExistsError,
    os_errors,
)
from crawl_lib.storage.access import parse_address
from crawl_lib.storage.filestore import Entry, Storage, check_path, hidden_next_to
from crawl_lib.storage.hdfs_files import READ_BUFFER_BYTES, FileBody, HdfsReader, HdfsWriter
from crawl_lib.storage.webhdfs import BelowAFileError, Datanodes, WebHdfs

DISCARD_S = 3.0
STOPPED_DISCARD_S = 1.0  # a task that is told to stop has 5 s in all


class HdfsStorage(Storage):
    """Files below a root path of HDFS. Namenodes may fail over at any time: requests wait up to `dfs.wait_s`.

    * `upload` and `write_bytes` send a file under a hidden name, again after a break, and then rename the file.
    * `rename` knows its own success by the file id, also where the answer was lost and a second try was refused.
    * HttpFS refuses no target: if a folder appeared in this moment, the source is moved out of the folder again.
    """

    def __init__(self, hdfs: WebHdfs) -> None:
        self._hdfs = hdfs

    @classmethod
    def open(
        cls, address: str, config: DfsConfig, stop: Event | None = None, *, make: bool = True
    ) -> "HdfsStorage":
        """Open the store at an address (`access.parse_address`).

        Its root path is made if missing (and `make`).

        `stop`: see `open_storage`. Raises ConfigError if the address is invalid, StorageError if no namenode answers or
        permission is missing, StoppedError.
        """
        storage = cls(WebHdfs(parse_address(address), config, stop=stop))
        if storage.stat("") is None and make:
            storage.make_dirs("")
        return storage

    @property
    def name(self) -> str:
        """The address."""
        return str(self._hdfs.address)

    def open_read(self, path: str, offset: int = 0, length: int | None = None) -> BinaryIO:
        check_path(path)
        failure: StorageError | None = None
        if length != 0:
            try:
                return cast(
                    BinaryIO,
                    io.BufferedReader(
                        HdfsReader(self._hdfs, path, offset, length), READ_BUFFER_BYTES
                    ),
                )
            except StorageError as error:  # a namenode refuses to read from the end on
                failure = error
        entry = self.stat(path)
        if entry is None:
            raise PathNotFoundError(f"{self._show(path)}: is not there") from failure
        if entry.is_dir:
            raise StorageError(f"{self._show(path)}: cannot be read: is a directory") from failure
        if failure is not None and offset < entry.size_bytes:
            raise failure
        return io.BytesIO()

    def open_write(self, path: str) -> BinaryIO:
        self._refuse_existing(path)
        return cast(BinaryIO, HdfsWriter(self._hdfs, path, self._discard))

    def write_bytes(self, path: str, data: bytes) -> None:
        self._refuse_existing(path)
        self._put(path, lambda: data, len(data))

    def upload(self, local: Path, path: str) -> None:
        """Upload a file completely or not at all, repeatedly if necessary."""
        with os_errors(local, "cannot be read"):
            size = local.stat().st_size
            local.open("rb").close()
        self._refuse_existing(path)

        def body() -> FileBody:
            self._hdfs.go_on()  # before anything is sent, so that nothing is left
            return FileBody(local, size, self._hdfs.go_on)

        self._put(path, body, size)

    def rename(self, source: str, target: str) -> None:
        if not source or not target or target.startswith(f"{source}/"):
            raise StorageError(
                f"{self._show(source)}: cannot be renamed to {target!r}: the root, or inside itself"
            )
        before = self._identity(source)
        if before is None:
            raise PathNotFoundError(
                f"{self._show(source)}: is not there, so it cannot be renamed to {target}"
            )
        self._refuse_existing(
            target
        )  # saves asking a second time; renameoptions=NONE is what decides
        parent = target.rpartition("/")[0]
        if parent and parent != source.rpartition("/")[0]:
            self.make_dirs(parent)
        try:
            to = {"destination": self._hdfs.place(target), "renameoptions": "NONE"}
            gateway_says = self._hdfs.call("cannot be renamed", "RENAME", source, **to)
        except StorageError as error:
            # The answer of a rename that was carried out may be lost; the second sending is then refused.
            after = self._identity(target)
            if after == before and self._identity(source) is None:
                return
            if after is not None:
                raise TargetExistsError(
                    f"{self._show(target)}: is there already, and was not touched"
                ) from error
            raise
        if gateway_says is not None:
            self._check_rename(source, target, before)

    def _check_rename(self, source: str, target: str, before: tuple[object, ...]) -> None:
        """Refuse a rename onto an existing target.

        HttpFS knows no `renameoptions`: HDFS answers yes or no, and moves into a folder that has just appeared.
        """
        if self._identity(target) == before:
            return
        inside = f"{target}/{source.rpartition('/')[2]}"
        if self._identity(inside) == before:
            self._hdfs.call(
                "cannot be moved out again", "RENAME", inside, destination=self._hdfs.place(source)
            )
        self._refuse_existing(target)
        raise StorageError(
            f"{self._show(source)}: was not renamed to {target}: the gateway says no more"
        )

    def list(self, path: str) -> list[Entry]:
        check_path(path)
        statuses = self._hdfs.call("cannot be listed", "LISTSTATUS", path)["FileStatus"]
        if any(status["pathSuffix"] == "" for status in statuses):
            raise StorageError(
                f"{self._show(path)}: cannot be listed: is a regular file, not a directory"
            )
        return sorted(_entry(status["pathSuffix"], status) for status in statuses)

    def stat(self, path: str) -> Entry | None:
        status = self._status(path)
        return None if status is None else _entry(path.rpartition("/")[2], status)

    def stamp(self, path: str) -> str | None:
        identity = self._identity(path)
        return None if identity is None else " ".join(map(str, identity))

    def delete(self, path: str) -> bool:
        if not path:
            raise StorageError(f"{self.name}: the root of the file store is not deleted")
        if self.stat(path) is None:
            return False
        self._hdfs.call("cannot be deleted", "DELETE", path, recursive="true")
        return True

    def make_dirs(self, path: str) -> None:
        check_path(path)
        try:
            made = self._hdfs.call("cannot be made", "MKDIRS", path)
        except TargetExistsError as error:
            raise StorageError(
                f"{self._show(path)}: cannot be made: is a regular file, not a directory"
            ) from error
        if not made:
            raise StorageError(f"{self._show(path)}: cannot be made: the namenode says no more")

    def free_bytes(self) -> int:
        """Room of the whole HDFS, divided by its default replication."""
        room = self._hdfs.call("has no status (Hadoop 3.4 or newer?)", "GETSTATUS", "")
        defaults = self._hdfs.call("has no defaults", "GETSERVERDEFAULTS", "")
        return int(room["remaining"]) // max(1, int(defaults["replication"]))

    def require_writable(self, path: str) -> None:
        if self.stat(path) is not None:
            self._hdfs.call("cannot be written to", "CHECKACCESS", path, fsaction="rwx")
        elif path:
            self.require_writable(path.rpartition("/")[0])
        elif root := self._hdfs.address.root:
            try:
                HdfsStorage(self._hdfs.above()).require_writable("")
            except StorageRightsError as error:
                made = f"hdfs dfs -mkdir -p {root}; hdfs dfs -chown {self._hdfs.config.user} {root}"
                raise StorageRightsError(
                    f"{self.name}: is not there, and cannot be made by us: {made}"
                ) from error

    def _show(self, path: str) -> str:
        return f"{self.name}/{path}"

    def _status(self, path: str) -> Any:
        check_path(path)
        try:
            return self._hdfs.call("cannot be looked at", "GETFILESTATUS", path)
        except (PathNotFoundError, BelowAFileError):
            return None

    def _identity(self, path: str) -> tuple[object, ...] | None:
        """Return a status without parts changed by a rename.

        None: nothing is there.
        """
        status = self._status(path)
        # An HttpFS before 3.4 gives no file id: then kind, size and time must do.
        return status and tuple(
            status.get(name) for name in ("type", "fileId", "length", "modificationTime")
        )

    def _refuse_existing(self, path: str) -> None:
        if self.stat(path) is not None:
            raise TargetExistsError(f"{self._show(path)}: is there already, and was not touched")

    def _put(self, path: str, body: Callable[[], bytes | Iterable[bytes]], size_bytes: int) -> None:
        """Send a file under a hidden name, then rename it.

        A broken request is repeated.
        """
        tried: builtins.list[str] = []
        datanodes = Datanodes(self._hdfs)

        def attempt() -> None:
            hidden = hidden_next_to(path)
            location = datanodes.location("CREATE", hidden, overwrite="false")
            tried.append(hidden)
            datanodes.exchange(location, body())

        try:
            self._hdfs.persist("cannot be written", path, attempt)
            status = self._status(tried[-1])
            if status is None or status["length"] != size_bytes:
                raise StorageError(
                    f"{self._show(path)}: was stored with other bytes than sent; run the task again"
                )
            self.rename(tried[-1], path)
            tried.pop()
        finally:
            with suppress(StorageError, StoppedError):
                self._discard(*tried)

    def _discard(self, *paths: str) -> None:
        """Delete leftovers of broken requests.

        A datanode may still make a file, so look again for a while.
        """
        until_s = time.monotonic() + (STOPPED_DISCARD_S if self._hdfs.stop.is_set() else DISCARD_S)
        while (
            paths := tuple(path for path in paths if not self.delete(path))
        ) and time.monotonic() < until_s:
            time.sleep(0.1)


def _entry(name: str, status: dict[str, Any]) -> Entry:
    is_dir = status["type"] == "DIRECTORY"
    return Entry(name, is_dir, 0 if is_dir else int(status["length"]))
