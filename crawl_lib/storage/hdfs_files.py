"""Open files of HDFS: a reader that goes on after an error, a writer that streams in constant memory."""

import io
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from queue import Full, Queue
from types import TracebackType

import requests

from crawl_lib.errors import StoppedError, StorageError, TargetExistsError, os_errors
from crawl_lib.storage.filestore import COPY_BYTES
from crawl_lib.storage.problems import FOREIGN, problem_of
from crawl_lib.storage.webhdfs import Datanodes, WebHdfs

QUEUED_PIECES = 4
READ_BUFFER_BYTES = 1 << 17
LOOK_S = 0.5  # how often a waiting writer checks that its thread is alive


class HdfsReader(io.RawIOBase):
    """Bytes of a file from `offset` on, `length` bytes or to the end. An error in the middle is read past.

    Raises PathNotFoundError when made, StorageError when no server goes on within `dfs.wait_s`, StoppedError.
    """

    def __init__(self, hdfs: WebHdfs, path: str, offset: int, length: int | None) -> None:
        self._hdfs, self._path = hdfs, path
        self._at, self._left = offset, length
        self._datanodes = Datanodes(hdfs)
        self._response: requests.Response | None = None
        self._response = hdfs.persist("cannot be read", path, self._open)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: object) -> int:
        """Read the next bytes; return 0 at the end."""
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        if self._left is not None:
            view = view[: self._left]
        if not view:
            return 0
        self._hdfs.go_on()
        count = self._hdfs.persist("cannot be read", self._path, lambda: self._read(view))
        self._at += count
        if self._left is not None:
            self._left -= count
        return count

    def readall(self) -> bytes:
        """Return all remaining bytes."""
        return b"".join(iter(lambda: self.read(COPY_BYTES) or b"", b""))

    def close(self) -> None:
        """Give the connection back."""
        if self._response is not None:
            self._response.close()
        super().close()

    def _read(self, view: memoryview) -> int:
        if self._response is None:
            self._response = self._open()
        try:
            data: bytes = self._response.raw.read(len(view))
        except FOREIGN:
            self._response.close()
            self._response = None
            raise
        view[: len(data)] = data
        return len(data)

    def _open(self) -> requests.Response:
        """Open the file at the datanode named by a namenode."""
        length = {} if self._left is None else {"length": self._left}
        location = self._datanodes.location("OPEN", self._path, offset=self._at, **length)
        response = self._datanodes.exchange(location)
        # The promised bytes are the read bytes: "to the end" becomes a number, to notice a cut answer.
        if self._left is None and "Content-Length" in response.headers:
            self._left = int(response.headers["Content-Length"])
        return response


class FileBody:
    """A local file as the body of a request: pieces, and a length that is sent before.

    `go_on`: called before each piece; what it raises ends the request.
    """

    def __init__(self, local: Path, size_bytes: int, go_on: Callable[[], None]) -> None:
        self._local, self._go_on = local, go_on
        self.len = size_bytes  # what `requests` makes Content-Length of

    def __iter__(self) -> Iterator[bytes]:
        left = self.len
        with os_errors(self._local, "cannot be read"), self._local.open("rb") as file:
            while left and (piece := file.read(min(COPY_BYTES, left))):
                left -= len(piece)
                self._go_on()
                yield piece
        if left:
            raise StorageError(f"{self._local}: became shorter while it was sent")


class HdfsWriter(io.RawIOBase):
    """A new file, sent by a thread while it is written: a few pieces wait, never more.

    * In HDFS, durably, when `close` returned. As a context manager an exception deletes it.
    * A datanode rides over a fail-over of namenodes. Where it cannot (it dies, or the only namenode restarts), `write`
      or `close` raises StorageError and the file is deleted: a stream cannot be sent again, so run the task again.
      For a local file, `upload` is better, which repeats a broken transfer by itself.
    * A stopping task: StoppedError from `write` or `close`, and the file is deleted.
    * A request is ended in order wherever that is possible, also by a stop: a datanode makes the file when it gets to
      it, so the file of a connection that was cut can come to life after it was deleted.
    """

    def __init__(self, hdfs: WebHdfs, path: str, delete: Callable[[str], object]) -> None:
        self._hdfs, self._path, self._delete = hdfs, path, delete
        self._datanodes = Datanodes(hdfs)
        self._pieces: Queue[bytearray | None] = Queue(QUEUED_PIECES)
        self._piece = bytearray()
        self._begun = False
        self._sent: Future[None] = Future()
        threading.Thread(target=self._run, name=f"hdfs-write-{path}", daemon=True).start()

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: object) -> int:
        """Take all of `data`; waits while the datanode is slower."""
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        self._piece += view
        if len(self._piece) >= COPY_BYTES:
            self._put(self._piece)
            self._piece = bytearray()
        return len(view)

    def close(self) -> None:
        """Send the rest and wait until HDFS has it.

        Raises StorageError on failure; then nothing is left.
        """
        if self.closed:
            return
        try:
            if self._piece:
                self._put(self._piece)
            self._put(None)
            self._sent.result()
        except (StorageError, StoppedError):
            self._delete_ours()
            raise
        finally:
            super().close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        elif not self.closed:
            super().close()
            with suppress(StorageError, StoppedError):
                self._put(None)
            self._delete_ours()

    def _delete_ours(self) -> None:
        """Delete our file, without hiding the current error.

        Files of other writers stay.
        """
        error = (
            self._sent.exception()
        )  # it ends: it was told to, or what it met is the error that led here
        if self._begun and not isinstance(error, TargetExistsError):
            with suppress(StorageError, StoppedError):
                self._delete(self._path)

    def _put(self, piece: bytearray | None) -> None:
        while not self._sent.done():
            with suppress(Full):
                return self._pieces.put(piece, timeout=LOOK_S)
        return self._sent.result()

    def _run(self) -> None:
        """Send the file; tell the writer how the thread ended.

        So the writer neither waits for ever nor takes the file for sent.
        """
        try:
            self._sent.set_result(self._hdfs.persist("cannot be written", self._path, self._send))
        except (StorageError, StoppedError) as error:
            self._sent.set_exception(error)
        except BaseException as error:
            failure = StorageError(
                f"{self._path}: cannot be written: {type(error).__name__}: {error}"
            )
            failure.__cause__ = error
            self._sent.set_exception(failure)

    def _send(self) -> None:
        try:
            location = self._datanodes.location("CREATE", self._path, overwrite="false")
            self._datanodes.exchange(location, self._body())
        except FOREIGN as error:
            if not self._begun:
                raise
            # What was taken out of the queue is gone.
            more = "; a stream cannot be sent again, so run the task again"
            raise self._hdfs.translated(
                "cannot be written", self._path, problem_of(error), more
            ) from error
        self._hdfs.go_on()

    def _body(self) -> Iterator[bytearray]:
        self._begun = True
        while (piece := self._pieces.get()) is not None and not self._hdfs.stop.is_set():
            yield piece
