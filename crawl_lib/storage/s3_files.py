"""Open files of an object store, and the conditional copy of an object."""

import io
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

from crawl_lib.errors import StoppedError, StorageError
from crawl_lib.storage.filestore import COPY_BYTES
from crawl_lib.storage.s3_client import TOKEN, RequestRefusedError, S3Client, S3Object

PART_BYTES = 8 << 20
GROWTH_BYTES = 112 << 10
"""Each part is so much larger than the one before: MOST_PARTS make more than 5 TiB."""
MOST_PARTS = 10_000
"""The most parts that S3 takes for an object."""
PRECONDITION_FAILED = 412
COPY_PART_BYTES = 256 << 20
"""An object is copied in parts of this size, between which a claim can be renewed; above 2.4 TiB in larger ones."""


class S3Reader(io.RawIOBase):
    """Bytes of an object from `offset` on, `length` bytes or to the end. A broken answer is asked for again.

    The later requests ask for the same ETag. Raises PathNotFoundError when made.
    """

    def __init__(self, client: S3Client, path: str, offset: int, length: int | None) -> None:
        self._client, self._path = client, path
        self._at, self._end = offset, None if length is None else offset + length
        self._etag: str | None = None
        self._body: Any = None
        self._open()

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: object) -> int:
        """Read the next bytes; 0 at the end."""
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        self._client.go_on()
        begun = self._client.clock()
        while True:
            try:
                data = self._body.read(len(view)) if self._body is not None else b""
                break
            except self._client.broken as error:
                self._body.close()
                self._client.pause("cannot be read", self._path, begun, type(error).__name__)
                self._open()
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        """Close the connection if something is left to be read."""
        if self._body is not None:
            self._body.close()
        super().close()

    def _open(self) -> None:
        words = {} if self._etag is None else {"IfMatch": self._etag}
        if self._at or self._end is not None:
            words["Range"] = f"bytes={self._at}-{'' if self._end is None else self._end - 1}"
        self._body = None
        try:
            answer = self._client.ask_once(
                "cannot be read",
                self._path,
                "get_object",
                Key=self._client.key(self._path),
                **words,
            )
        except RequestRefusedError as error:
            if error.status == 416:  # from the end on nothing is there
                return
            raise _of_source(self._client, self._path, error, "cannot be read") from error
        self._etag, self._body = self._client.etag(self._path, answer), answer["Body"]


class Upload:
    """A multipart upload of a new object. `keep`: called before each request, as by the holder of a claim."""

    def __init__(
        self, client: S3Client, path: str, keep: Callable[[], object] = lambda: None
    ) -> None:
        self._client, self._path, self._keep = client, path, keep
        self._token = uuid.uuid4().hex
        self._parts: list[dict[str, Any]] = []
        keep()
        answer = client.ask(
            "cannot be written", path, "create_multipart_upload", Metadata={TOKEN: self._token}
        )
        self._id = answer["UploadId"]

    def __len__(self) -> int:
        return len(self._parts)

    def send(self, data: bytes) -> None:
        """Send the next part."""
        try:
            self._add(self._part("upload_part", Body=data))
        except RequestRefusedError as error:
            raise self._client.translated("cannot be written", self._path, error) from error

    def copy(self, source: S3Object, first: int, end: int) -> None:
        """Copy a range of another object as the next part.

        From byte `first` to before `end`, on the server.
        """
        place = {"Bucket": self._client.address.bucket, "Key": self._client.key(source.path)}
        words: dict[str, Any] = {"CopySource": place, "CopySourceIfMatch": source.etag}
        if end - first < source.size_bytes:
            words["CopySourceRange"] = f"bytes={first}-{end - 1}"
        try:
            answer = self._part("upload_part_copy", **words)
        except RequestRefusedError as error:
            raise _of_source(self._client, source.path, error, "cannot be copied") from error
        self._add(answer.get("CopyPartResult", {}))

    def _part(self, operation: str, **words: Any) -> Any:
        self._keep()
        number = {
            "Key": self._client.key(self._path),
            "UploadId": self._id,
            "PartNumber": len(self._parts) + 1,
        }
        return self._client.ask_once("cannot be written", self._path, operation, **number, **words)

    def _add(self, answer: Mapping[str, Any]) -> None:
        etag = self._client.etag(self._path, answer)
        self._parts.append({"PartNumber": len(self._parts) + 1, "ETag": etag})

    def complete(self) -> str:
        """Make the object and return its ETag.

        Raises TargetExistsError if one exists.
        """
        self._keep()
        words = {
            "UploadId": self._id,
            "MultipartUpload": {"Parts": self._parts},
            "IfNoneMatch": "*",
        }
        what, client = "cannot be written", self._client
        try:
            answer = client.ask_once(
                what, self._path, "complete_multipart_upload", Key=client.key(self._path), **words
            )
        except RequestRefusedError as error:
            return client.own_etag(self._path, self._token, error, what)
        return client.etag(self._path, answer)

    def abort(self) -> None:
        """End the upload, without hiding the current error.

        A sweep ends leftovers.
        """
        with suppress(StorageError, StoppedError):
            self._client.abort(self._path, self._id)


def copy_object(
    client: S3Client, source: S3Object, target: str, keep: Callable[[], object] = lambda: None
) -> str:
    """Copy an object on the server; return the copy's ETag.

    The target must not exist.

    `CopyObject` ignores If-None-Match on most servers, so this is a multipart upload. Another process can end an
    upload, so that a late copy makes no object. Raises TargetExistsError.
    """
    upload = Upload(client, target, keep)
    try:
        if source.size_bytes == 0:
            upload.send(b"")
        step = max(COPY_PART_BYTES, -(-source.size_bytes // MOST_PARTS))
        for first in range(0, source.size_bytes, step):
            upload.copy(source, first, min(first + step, source.size_bytes))
        return upload.complete()
    except (StorageError, StoppedError):
        upload.abort()
        raise


def _of_source(client: S3Client, path: str, error: RequestRefusedError, what: str) -> StorageError:
    """Return the error for a refused source.

    A changed ETag of the source is no existing target.
    """
    if error.status == PRECONDITION_FAILED:
        return StorageError(
            f"{client.show(path)}: {what}: was replaced meanwhile; run the task again"
        )
    return client.translated(what, path, error)


class S3Writer(io.RawIOBase):
    """A new object: one PUT if it is small, else parts, which stay invisible until the upload is complete."""

    def __init__(self, client: S3Client, path: str) -> None:
        self._client, self._path = client, path
        self._buffer = bytearray()
        self._upload: Upload | None = None

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: object) -> int:
        """Take all of `data`; a full part is sent."""
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        for at in range(0, len(view), COPY_BYTES):
            self._client.go_on()
            self._buffer += view[at : at + COPY_BYTES]
            uploaded = len(self._upload or ())
            if len(self._buffer) >= PART_BYTES + uploaded * GROWTH_BYTES:
                self._send()
        return len(view)

    def _send(self) -> None:
        self._upload = self._upload or Upload(self._client, self._path)
        self._upload.send(bytes(self._buffer))
        self._buffer.clear()

    def close(self) -> None:
        """Make the object.

        Raises TargetExistsError if one exists, StorageError; then nothing is left.
        """
        if self.closed:
            return
        try:
            self._client.go_on()
            if self._upload is None:
                self._client.create(self._path, bytes(self._buffer))
                return
            if self._buffer:
                self._send()
            self._upload.complete()
        except (StorageError, StoppedError):
            if self._upload is not None:
                self._upload.abort()
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
            if self._upload is not None:
                self._upload.abort()

    def __del__(self) -> None:
        """Make no object of a file that was never closed."""
