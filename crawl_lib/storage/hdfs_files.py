"""Open files of HDFS: a reader that goes on after an error, a writer that streams in constant memory."""

import io
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from queue import Full, Queue
from types import TracebackType

import requests

from crawl_lib.errors import StoppedError, StorageError, TargetExistsError, os_errors
from crawl_lib.storage.filestore import COPY_BYTES
from crawl_lib.storage.problems import FOREIGN, HdfsProblemError, Problem, RefusedError, problem_of
from crawl_lib.storage.webhdfs import Datanodes, WebHdfs

QUEUED_PIECES = 4
READ_BUFFER_BYTES = 1 << 17
LOOK_S = 0.5  # how often a writer that waits looks whether its thread is alive


class HdfsReader(io.RawIOBase):
    """Bytes of a file from `offset` on, `length` of them or to its end. An error in the middle is read past.

    Raises PathNotFoundError when made, StorageError when no server goes on within `dfs.wait_s`, StoppedError.
    """

    def __init__(self, hdfs: WebHdfs, path: str, offset: int, length: int | None) -> None:
        self._hdfs, self._path = hdfs, path
        self._at, self._left = offset, length
        self._datanodes = Datanodes(hdfs)
        self._response: requests.Response | None = None
        self._response = hdfs.persist("cannot be read", path, self._open)

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: object) -> int:
        """The next bytes; 0 at the end."""
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
        """All that is left."""
        return b"".join(iter(lambda: self.read(COPY_BYTES) or b"", b""))

    def close(self) -> None:
        """Give the connection back."""
        self._drop()
        super().close()

    def _drop(self) -> None:
        if self._response is not None:
            self._response.close()
        self._response = None

    def _read(self, view: memoryview) -> int:
        if self._response is None:
            self._response = self._open()
        try:
            data: bytes = self._response.raw.read(len(view))
        except FOREIGN:
            self._drop()
            raise
        view[: len(data)] = data
        return len(data)

    def _open(self) -> requests.Response:
        """A namenode names a datanode, which answers."""
        length = {} if self._left is None else {"length": self._left}
        location = self._datanodes.location("open", self._path, offset=self._at, **length)
        with self._datanodes.watched():
            response = self._hdfs.fetch(location)
        # What is promised is what is read: "to the end" becomes a number, so that a cut answer is seen as one.
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
      What lies in a local file is better sent by `upload`, which sends it again by itself.
    * A task that is to stop: StoppedError from `write` or `close`, and the file is deleted.
    * A request is ended in order wherever that is possible, also by a stop: a datanode makes the file when it gets to
      it, so the file of a connection that was cut can come to life after it was deleted.
    """

    def __init__(self, hdfs: WebHdfs, path: str, delete: Callable[[str], object]) -> None:
        self._hdfs, self._path, self._delete = hdfs, path, delete
        self._datanodes = Datanodes(hdfs)
        self._pieces: Queue[bytes | None] = Queue(QUEUED_PIECES)
        self._open_piece = bytearray()
        self._begun = False
        self._sent = False
        self._error: StorageError | StoppedError | None = None
        self._thread = threading.Thread(target=self._run, name=f"hdfs-write-{path}", daemon=True)
        self._thread.start()

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, data: object) -> int:
        """Take all of `data`; waits while the datanode is slower."""
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        if len(view) < COPY_BYTES:
            self._open_piece += view
            if len(self._open_piece) >= COPY_BYTES:
                self._put_open_piece()
            return len(view)
        self._put_open_piece()
        self._put(data if isinstance(data, bytes) else bytes(view))
        return len(view)

    def close(self) -> None:
        """Send the rest and wait until HDFS has it. Raises StorageError if it has not; then nothing is left."""
        if self.closed:
            return
        try:
            self._put_open_piece()
            self._end()
        except (StorageError, StoppedError):
            self._delete_ours()
            raise
        finally:
            super().close()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        elif not self.closed:
            self._discard()

    def _discard(self) -> None:
        with suppress(StorageError, StoppedError):
            self._end()
        super().close()
        self._delete_ours()

    def _end(self) -> None:
        self._put(None)
        self._thread.join()
        self._check()
        if not self._sent:
            raise self._died()

    def _delete_ours(self) -> None:
        """Never hides the error that led here, and never takes what another writer put there."""
        self._thread.join()  # it ends: it was told to, or what it met is the error that led here
        if self._begun and not isinstance(self._error, TargetExistsError):
            with suppress(StorageError, StoppedError):
                self._delete(self._path)

    def _put_open_piece(self) -> None:
        if self._open_piece:
            piece, self._open_piece = bytes(self._open_piece), bytearray()
            self._put(piece)

    def _put(self, piece: bytes | None) -> None:
        while True:
            alive = self._thread.is_alive()
            self._check()
            if not alive:
                raise self._died()
            with suppress(Full):
                return self._pieces.put(piece, timeout=LOOK_S)

    def _died(self) -> StorageError:
        """For a thread that ended without a word: whoever writes neither waits for ever nor takes the file for sent."""
        return StorageError(f"{self._path}: cannot be written: the thread that sends it has ended; run the task again")

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._hdfs.persist("cannot be written", self._path, self._send)
        except (StorageError, StoppedError) as error:
            self._error = self._error or error
        except Exception as error:
            told = StorageError(f"{self._path}: cannot be written: {type(error).__name__}: {error}")
            told.__cause__ = error
            self._error = self._error or told

    def _send(self) -> None:
        try:
            location = self._datanodes.location("create", self._path, overwrite="false")
            with self._datanodes.watched():
                self._hdfs.send(location, self._body())
            self._sent = True
        except (*FOREIGN, RefusedError) as error:
            if self._begun:  # what was taken out of the queue cannot be sent again
                raise self._broken(problem_of(error)) from error
            raise

    def _broken(self, problem: Problem) -> StorageError:
        error = self._hdfs.translated("cannot be written", self._path, problem)
        if not isinstance(error, HdfsProblemError):
            return error
        return HdfsProblemError(f"{error}; a stream cannot be sent again, so run the task again", problem)

    def _body(self) -> Iterator[bytes]:
        while (piece := self._pieces.get()) is not None:
            self._begun = True
            try:
                self._hdfs.go_on()
            except StoppedError as error:
                self._error = error
                return
            yield piece
        self._begun = True
