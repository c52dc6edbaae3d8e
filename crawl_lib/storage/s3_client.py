"""Requests to an S3 object store: bounded waiting, conditional writes, and every error translated.

The client is botocore, in the extra `s3`, loaded only where `dfs_primary` begins with `s3://`. botocore finds
credentials in the environment and by the machine's role. obstore takes a fifth of its CPU, and lacks three requests
that the store rests on: the conditional completion of a multipart upload, the conditional DELETE, and the list of
unfinished uploads.

Requests are repeated here and not by botocore, so that a lost answer is known: a repeated conditional write may be
refused because of its own first try. Each write has a random token, and a refused one looks for it. Protocol:
https://docs.aws.amazon.com/AmazonS3/latest/API/ and, for conditional writes,
https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-requests.html
"""

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cache
from threading import Event
from typing import Any, NamedTuple

from crawl_lib.config import Config
from crawl_lib.errors import (
    ConfigError,
    PathNotFoundError,
    StoppedError,
    StorageAccessError,
    StorageError,
    StorageRightsError,
    TargetExistsError,
)
from crawl_lib.storage.access import S3Address, S3Credentials, parse_s3_address

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
TOKEN = "krake-write"
KEYS_OF_A_REQUEST = 1000
NOT_FOUND = 404
_PASSING = frozenset(
    {
        "409",
        "ConditionalRequestConflict",
        "IncompleteBody",
        "InternalError",
        "OperationAborted",
        "RequestTimeout",
    }
    | {"ServiceUnavailable", "SlowDown"}
)
_PASSING_STATUS = frozenset({408, 425, 429, *range(500, 600)} - {501})
_CREDENTIALS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, give the machine a role, or fill in Airflow's connection"
    " krake_dfs of type aws"
)
_UNKNOWN = frozenset(
    {"401", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"}
)
_STATUS = {
    "NoSuchBucket": 404,
    "NoSuchKey": 404,
    "NoSuchUpload": 404,
    "PreconditionFailed": 412,
    "AccessDenied": 403,
}
"""By code: the status of a refusal that came in an answer of status 200, or with one of many keys."""
_FILE = "a part of this path is a regular file, not a directory"
_ELSEWHERE = (
    "the bucket is in another region or at another endpoint; correct s3.region and s3.endpoint"
)
_CLOCK = "the clocks of this machine and of the server differ by too much; set them"
_PROBLEMS = {
    "301": _ELSEWHERE,
    "302": _ELSEWHERE,
    "307": _ELSEWHERE,
    "501": "the server does not know this request; docs/storage.md says what a server must do",
    "AuthorizationHeaderMalformed": _ELSEWHERE,
    "IllegalLocationConstraintException": _ELSEWHERE,
    "InvalidObjectState": "is archived, and must be restored first; docs/storage.md says which rules are safe",
    "NoSuchUpload": "the upload was ended by another task or by a rule of the bucket; run the task again",
    "NotImplemented": "the server does not know this request; docs/storage.md says what a server must do",
    "ObjectIsDirectory": _FILE,
    "ObjectParentIsFile": _FILE,
    "PermanentRedirect": _ELSEWHERE,
    "RequestExpired": _CLOCK,
    "RequestTimeTooSkewed": _CLOCK,
    "TemporaryRedirect": _ELSEWHERE,
}
"""By code: problem and remedy, if the status of an answer does not tell."""
MESSAGE_CHARACTERS = 300
"""The most characters of a server's message that an error shows."""


class S3Object(NamedTuple):
    """An object as a LIST shows it: key below the prefix of the store, size in bytes, ETag."""

    path: str
    size_bytes: int
    etag: str


class Unfinished(NamedTuple):
    """An unfinished multipart upload: path, id, and age by the server's clock."""

    path: str
    upload_id: str
    age: timedelta


@dataclass(frozen=True)
class Found:
    """One LIST: its objects, and the paths of the folders directly in it."""

    objects: list[S3Object] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)


class RequestRefusedError(Exception):
    """A server refused a request. `code`: of S3, or the HTTP status; `repeated`: an earlier try may have been done."""

    def __init__(self, code: str, status: int, message: str, *, repeated: bool) -> None:
        super().__init__(message[:MESSAGE_CHARACTERS])
        self.code, self.status, self.repeated = code, _STATUS.get(code, status), repeated

    @property
    def passes(self) -> bool:
        """Whether the same request may be answered later."""
        return self.code in _PASSING or (
            self.status in _PASSING_STATUS and self.code not in _PROBLEMS
        )


class UploadEndedError(StorageError):
    """An unfinished multipart upload was ended by another task or by a rule of the bucket. For this package."""


class S3Client:
    """One bucket, below a prefix.

    `hook`: called with the operation and the key before each request, for tests. `sleep` waits some seconds, `clock`
    tells seconds: arguments for tests. So is `opened`: what `open_client` returned, shared by clients of one thread.
    `stop`: when set, a request that fails is not repeated.
    """

    def __init__(
        self,
        config: Config,
        credentials: S3Credentials | None = None,
        *,
        stop: Event | None = None,
        hook: Callable[[str, str], object] | None = None,
        sleep: Callable[[float], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
        opened: "tuple[Any, _Failures] | None" = None,
    ) -> None:
        self.address: S3Address = parse_s3_address(config.dfs_primary)
        self.stop = stop or Event()
        self.clock = clock
        self._wait_s = config.dfs.wait_s
        self._hook = hook or (lambda operation, key: None)
        self._sleep = sleep or self.stop.wait
        self._client, self._failures = opened or open_client(config, credentials)

    def key(self, path: str) -> str:
        """Return the key of a path of the store."""
        return self.address.prefix + path

    def show(self, path: str) -> str:
        """Return a path as messages name it."""
        return f"{self.address}/{path}"

    def go_on(self) -> None:
        """Raise StoppedError if the task is to stop."""
        if self.stop.is_set():
            raise StoppedError(f"{self.address}: stopped as asked; run the task again to go on")

    def ask(self, what: str, path: str, operation: str, **words: Any) -> Any:
        """Send a request for a path's object and return the answer.

        `what`: what fails, for messages ("cannot be read"). `operation`: a method of botocore's client. `words`: its
        arguments, without bucket and key. Raises StorageError and its children, StoppedError.
        """
        try:
            return self.ask_once(what, path, operation, Key=self.key(path), **words)
        except RequestRefusedError as error:
            raise self.translated(what, path, error) from error

    def ask_once(self, what: str, path: str, operation: str, **words: Any) -> Any:
        """Send a request, repeatedly if only time is needed.

        Raises RequestRefusedError for what the server refuses, StorageAccessError if there are no credentials,
        StorageError if nothing answers for `dfs.wait_s`, StoppedError.
        """
        begun, pause, tries = self.clock(), FIRST_PAUSE_S, 0
        while True:
            self._hook(operation, words.get("Key", words.get("Prefix", "")))
            try:
                return getattr(self._client, operation)(Bucket=self.address.bucket, **words)
            except self._failures.without_credentials as error:
                raise StorageAccessError(
                    f"{self.show(path)}: {what}: no credentials: {_CREDENTIALS}"
                ) from error
            except self._failures.refused as error:
                refused = _refused(error.response, repeated=tries > 0)
                if not refused.passes:
                    raise refused from None
                reason = f"{refused.code} ({refused.status})"
            except self._failures.failed as error:
                reason = type(error).__name__
            tries += 1
            self.require_patience(what, path, begun, reason)
            self._sleep(pause)
            self.go_on()
            pause = min(pause * 2, LONGEST_PAUSE_S)

    def require_patience(self, what: str, path: str, begun: float, reason: str) -> None:
        """Check the time limit of a repeated request.

        Raises StorageError after `dfs.wait_s`, StoppedError if the task is to stop.

        `begun`: when the first try was, by `clock`.
        """
        if self.clock() - begun >= self._wait_s:
            where = f"{self.show(path)}: {what}: the server answers {reason}"
            raise StorageError(f"{where}; asked again for {self._wait_s:g} s; look at the server")
        self.go_on()

    def pause(self, what: str, path: str, begun: float, reason: str) -> None:
        """Wait for what another task does. Raises as `require_patience`."""
        self.require_patience(what, path, begun, reason)
        self._sleep(LONGEST_PAUSE_S / 4)
        self.go_on()

    @property
    def broken(self) -> tuple[type[Exception], ...]:
        """The exceptions of an answer that ends too early."""
        return self._failures.failed

    def translated(self, what: str, path: str, error: RequestRefusedError) -> StorageError:
        """Return the error for a refused request."""
        where, code = f"{self.show(path)}: {what}", error.code
        if code in _UNKNOWN:
            return StorageAccessError(f"{where}: {code}: {_CREDENTIALS}")
        kind: type[StorageError] = StorageError
        problem = f"{code}: {error}"
        if code == "NoSuchBucket":
            problem = f"there is no bucket {self.address.bucket}; create it"
        elif code in _PROBLEMS:
            kind = UploadEndedError if code == "NoSuchUpload" else StorageError
            problem = _PROBLEMS[code]
        elif error.status == 404:
            kind, problem = PathNotFoundError, "is not there"
        elif error.status == 412:
            kind, problem = TargetExistsError, "is there already, and was not touched"
        elif error.status == 403:
            kind, problem = (
                StorageRightsError,
                f"no permission ({code}); docs/storage.md names the rights",
            )
        return kind(f"{where}: {problem}")

    def etag(self, path: str, answer: Mapping[str, Any]) -> str:
        """Return an answer's ETag as a condition names it.

        In quotes, and strong, because objects never change. Raises StorageError if the server gives no ETag.
        """
        text = str(answer.get("ETag") or "").removeprefix("W/").strip('"')
        if not text:
            raise StorageError(
                f"{self.show(path)}: the server gives no ETag, by which one write of an object is told from another;"
                " look for a proxy that removes this header"
            )
        return f'"{text}"'

    def create(self, path: str, data: bytes) -> str:
        """Create an object and return its ETag.

        Raises TargetExistsError.
        """
        return self._put(path, data, IfNoneMatch="*")

    def replace(self, path: str, data: bytes, etag: str) -> str:
        """Replace the object with an ETag; return the new ETag.

        Raises TargetExistsError if the object has another one.
        """
        return self._put(path, data, IfMatch=etag)

    def _put(self, path: str, data: bytes, **condition: str) -> str:
        what, token = "cannot be written", uuid.uuid4().hex
        words = {"Key": self.key(path), "Body": data, "Metadata": {TOKEN: token}, **condition}
        try:
            return self.etag(path, self.ask_once(what, path, "put_object", **words))
        except RequestRefusedError as error:
            return self.own_etag(path, token, error, what)

    def own_etag(self, path: str, token: str, error: RequestRefusedError, what: str) -> str:
        """Return the ETag of an earlier try's object, by token.

        The later write was refused. Raises the translated error if no earlier try did.
        """
        if error.repeated and error.status in {404, 412}:
            head = self.head(path)
            if head and head["Metadata"].get(TOKEN) == token:
                return self.etag(path, head)
        raise self.translated(what, path, error) from error

    def head(self, path: str) -> Any:
        """Return the HEAD of a path's object, or None."""
        try:
            return self.ask("cannot be looked at", path, "head_object")
        except PathNotFoundError:
            return None

    def delete(self, path: str, etag: str | None = None) -> None:
        """Delete an object, or only the one with an ETag.

        Raises TargetExistsError if the object has another one. A missing object is no error.
        """
        words = {} if etag is None else {"IfMatch": etag}
        try:
            self.ask("cannot be deleted", path, "delete_object", **words)
        except PathNotFoundError:
            return

    def delete_all(self, paths: list[str]) -> None:
        """Delete objects, a thousand with each request.

        Missing objects are no error. Raises StorageError naming the first one that could not be deleted.
        """
        for at in range(0, len(paths), KEYS_OF_A_REQUEST):
            left, begun = paths[at : at + KEYS_OF_A_REQUEST], self.clock()
            while left := self._delete_some(left):
                self.pause(
                    "cannot be deleted", left[0], begun, "that it cannot delete this object now"
                )

    def _delete_some(self, paths: list[str]) -> list[str]:
        """Delete objects with one request; return the keys to repeat."""
        what, by_key = "cannot be deleted", {self.key(path): path for path in paths}
        asked = {"Objects": [{"Key": key} for key in by_key], "Quiet": True}
        try:
            answer = self.ask_once(what, paths[0], "delete_objects", Delete=asked)
        except RequestRefusedError as error:
            raise self.translated(what, paths[0], error) from error
        later = []
        for problem in answer.get("Errors", []):
            path, code = by_key[problem["Key"]], str(problem.get("Code"))
            refused = RequestRefusedError(code, 0, str(problem.get("Message")), repeated=False)
            if refused.passes:
                later.append(path)
            elif refused.status != NOT_FOUND:
                raise self.translated(what, path, refused)
        return later

    def pages(self, prefix: str, *, below: bool) -> Iterator[Found]:
        """List objects by prefix, at most a thousand for each request.

        `below`: all of them; False: those directly in a folder, and the folders in it.
        """
        cut, words = len(self.address.prefix), {} if below else {"Delimiter": "/"}
        marks = {"ContinuationToken": "NextContinuationToken"}
        for page in self._listing("list_objects_v2", prefix, marks, **words):
            objects = [(one["Key"][cut:], one) for one in page.get("Contents", [])]
            yield Found(
                [S3Object(path, one["Size"], self.etag(path, one)) for path, one in objects],
                [one["Prefix"][cut:].rstrip("/") for one in page.get("CommonPrefixes", [])],
            )

    def _listing(
        self, operation: str, prefix: str, marks: Mapping[str, str], **words: str
    ) -> Iterator[Any]:
        """Yield each answer of a LIST.

        `marks`: the arguments that go on, and the fields of an answer for them.
        """
        words["Prefix"] = self.key(prefix)
        while True:
            try:
                page = self.ask_once("cannot be listed", prefix, operation, **words)
            except RequestRefusedError as error:
                raise self.translated("cannot be listed", prefix, error) from error
            yield page
            if not page.get("IsTruncated"):
                return
            after = {argument: page.get(mark) or "" for argument, mark in marks.items()}
            if after.items() <= words.items() or not any(after.values()):
                raise StorageError(
                    f"{self.show(prefix)}: cannot be listed: the server does not say where the next page begins"
                )
            words |= after

    def below(self, prefix: str) -> list[S3Object]:
        """Return all objects whose path begins with `prefix`."""
        return [one for page in self.pages(prefix, below=True) for one in page.objects]

    def has_below(self, prefix: str) -> bool:
        """Say whether any object's path begins with `prefix`."""
        return any(page.objects for page in self.pages(prefix, below=True))

    def uploads(self, prefix: str) -> Iterator[Unfinished]:
        """List unfinished multipart uploads whose path begins with `prefix`."""
        cut = len(self.address.prefix)
        marks = {"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"}
        for page in self._listing("list_multipart_uploads", prefix, marks):
            now = server_time(page)
            for one in page.get("Uploads", []):
                yield Unfinished(one["Key"][cut:], one["UploadId"], now - one["Initiated"])

    def abort(self, path: str, upload_id: str) -> None:
        """End an unfinished multipart upload, if it exists."""
        what = "cannot be ended"
        try:
            self.ask_once(
                what, path, "abort_multipart_upload", Key=self.key(path), UploadId=upload_id
            )
        except RequestRefusedError as error:
            if error.status != NOT_FOUND:
                raise self.translated(what, path, error) from error


class _Failures(NamedTuple):
    """Exceptions of botocore: an answer that refuses, no credentials, no answer."""

    refused: type[Any]
    without_credentials: tuple[type[Exception], ...]
    failed: tuple[type[Exception], ...]


def open_client(config: Config, credentials: S3Credentials | None) -> tuple[Any, _Failures]:
    """Return botocore's client and its exceptions.

    Raises ConfigError if the package is missing or an option wrong.
    """
    try:
        from botocore import exceptions  # noqa: PLC0415 - an extra, which only a store of this kind needs
        from botocore.config import Config as ClientConfig  # noqa: PLC0415
        from botocore.parsers import ResponseParserError  # noqa: PLC0415
        from botocore.session import Session  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            "dfs_primary: s3:// needs the extra s3: pip install 'krake[s3]'"
        ) from error
    logging.getLogger("botocore").setLevel(
        logging.INFO
    )  # lines of DEBUG have headers, with the token of a session
    words = {} if credentials is None else credentials.words()
    options = ClientConfig(
        s3={"addressing_style": config.s3.addressing},
        retries={"total_max_attempts": 1},
        connect_timeout=config.dfs.connect_timeout_s,
        read_timeout=config.dfs.timeout_s,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    try:
        session = Session()
        session.register_component("data_loader", _loader())
        client = session.create_client(
            "s3",
            region_name=config.s3.region,
            endpoint_url=config.s3.endpoint,
            config=options,
            **words,
        )
    except (exceptions.BotoCoreError, ValueError) as error:
        raise ConfigError(f"s3: {error}") from error
    failures = _Failures(
        exceptions.ClientError,
        (
            exceptions.NoCredentialsError,
            exceptions.PartialCredentialsError,
            exceptions.CredentialRetrievalError,
        ),
        (exceptions.BotoCoreError, exceptions.HTTPClientError, ResponseParserError, OSError),
    )
    return client, failures


def server_time(answer: Mapping[str, Any]) -> datetime:
    """Return the time of an answer by the server's clock.

    By this machine's if the answer has no valid Date.
    """
    try:
        found = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"].get("date", ""))
    except ValueError:
        return datetime.now(UTC)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


@cache
def _loader() -> Any:
    """Return botocore's loader of service descriptions.

    Once for a process, because loading takes 0.1 s of CPU.
    """
    from botocore.loaders import create_loader  # noqa: PLC0415 - an extra

    return create_loader()


def _refused(response: dict[str, Any], *, repeated: bool) -> RequestRefusedError:
    problem = response.get("Error", {})
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return RequestRefusedError(
        str(problem.get("Code")), status, str(problem.get("Message")), repeated=repeated
    )
