"""Requests to WebHDFS: one configured session, all namenodes, bounded waiting, and every error translated.

HdfsCLI asks the namenodes in turn; what it gives up is asked again here for as long as `PATIENCE` says. Every request
that is sent again is safe to send again: reads, `MKDIRS`, `DELETE`, and `RENAME`, whose caller compares file ids.
Documentation of the protocol: https://hadoop.apache.org/docs/stable/hadoop-project-dist/hadoop-hdfs/WebHDFS.html
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import urlsplit

import requests
import urllib3
from hdfs.client import Client, _Request  # type: ignore[import-untyped]
from hdfs.util import HdfsError  # type: ignore[import-untyped]
from requests.adapters import HTTPAdapter

from crawl_lib.config.model import DfsConfig
from crawl_lib.errors import ConfigError, PathNotFoundError, StoppedError, StorageError, TargetExistsError

T = TypeVar("T")
POOL_CONNECTIONS = 8
SHORT_WAIT_S = 10.0
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
ANSWER_FACTOR = 5  # a datanode answers a PUT only when the last block is on its disk
FOREIGN = (HdfsError, requests.RequestException, urllib3.exceptions.HTTPError, OSError, UnicodeError, LookupError)


class Patience(Enum):
    """How long the same request is sent again after an error."""

    NONE = "it will not go away"
    SHORT = f"{SHORT_WAIT_S:.0f} s, it may go away"
    FULL = "dfs.wait_s, for it goes away when a server is back"


# Remote exception -> patience; what is not named has SHORT.
PATIENCE = {
    "StandbyException": Patience.FULL,
    "RetriableException": Patience.FULL,
    "SafeModeException": Patience.FULL,
    "ConnectException": Patience.FULL,
    "ConnectTimeoutException": Patience.FULL,
    "SocketTimeoutException": Patience.FULL,
    "SocketException": Patience.FULL,
    "EOFException": Patience.FULL,
    "NoRouteToHostException": Patience.FULL,
    "BlockMissingException": Patience.FULL,
    "FileNotFoundException": Patience.NONE,
    "FileAlreadyExistsException": Patience.NONE,
    "ParentNotDirectoryException": Patience.NONE,
    "AccessControlException": Patience.NONE,
    "SecurityException": Patience.NONE,
    "IllegalArgumentException": Patience.NONE,
    "InvalidPathException": Patience.NONE,
    "UnsupportedOperationException": Patience.NONE,
    "NSQuotaExceededException": Patience.NONE,
    "DSQuotaExceededException": Patience.NONE,
    "PathComponentTooLongException": Patience.NONE,
    "MaxDirectoryItemsExceededException": Patience.NONE,
    "Unauthorized": Patience.NONE,
    "certificate": Patience.NONE,
    "unreachable": Patience.FULL,
}
# Words of a message that say more than its exception (IOException, mostly).
WORDS = (
    ("out of the range", Patience.NONE),
    ("(is not a directory)", Patience.NONE),
    ("Failed to find datanode", Patience.FULL),
    ("could only be written to 0 of the", Patience.FULL),
    ("Authentication failure", Patience.NONE),
)


class Address(NamedTuple):
    """`namenodes`: scheme, host and port of each; `root`: absolute path, "" for the root of the file system."""

    namenodes: tuple[str, ...]
    root: str

    def __str__(self) -> str:
        return ";".join(self.namenodes) + self.root


def parse_address(text: str) -> Address:
    """`http://nn1:9870;http://nn2:9870/path`: namenodes, and the root path behind the last one (or behind all).

    Raises ConfigError: the operator mends `dfs_primary`.
    """
    parts = [urlsplit(part.strip()) for part in text.split(";") if part.strip()]
    paths = {part.path.rstrip("/") for part in parts[:-1]}
    root = parts[-1].path.rstrip("/")
    if not paths <= {"", root}:
        raise ConfigError(f"dfs_primary: {text}: the namenodes' paths differ; give one path, behind the last namenode")
    for part in parts:
        _check_namenode(text, part.scheme, part.netloc, part.query or part.fragment)
    if any(name in {"", ".", ".."} or ":" in name for name in root.split("/")[1:]):
        raise ConfigError(f"dfs_primary: {text}: {root} is no path of HDFS")
    return Address(tuple(f"{part.scheme}://{part.netloc}" for part in parts), root)


def _check_namenode(text: str, scheme: str, netloc: str, rest: str) -> None:
    if scheme not in {"http", "https"} or not netloc or rest:
        raise ConfigError(f"dfs_primary: {text}: each namenode is http://host:port or https://host:port, no more")
    if "@" in netloc:
        raise ConfigError("dfs_primary: no user and password in the address; dfs.user names the user")


@dataclass(frozen=True)
class Problem:
    """Why a request failed: the remote exception (or `unreachable`, `certificate`), what it says, who said it."""

    exception: str
    message: str
    server: str = ""

    @property
    def patience(self) -> Patience:
        """How long to ask again."""
        for words, patience in WORDS:
            if words in self.message:
                return patience
        return PATIENCE.get(self.exception, Patience.SHORT)

    @property
    def is_below_a_file(self) -> bool:
        """Whether a part of the path is a regular file."""
        return self.exception == "ParentNotDirectoryException" or "(is not a directory)" in self.message

    def __str__(self) -> str:
        text = f"{self.exception}: {self.message}" if self.exception not in {"unreachable", ""} else self.message
        return f"{self.server}: {text}" if self.server else text


class RefusedError(Exception):
    """A server's answer that is an error. Never leaves this package."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


class HdfsProblemError(StorageError):
    """A StorageError that keeps its `problem`, for callers in this package that look at it."""

    def __init__(self, text: str, problem: Problem) -> None:
        super().__init__(text)
        self.problem = problem


def problem_of(error: BaseException) -> Problem:
    """What a foreign exception means."""
    if isinstance(error, RefusedError):
        return error.problem
    if isinstance(error, HdfsError):
        text = error.message
        text = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
        return Problem(str(error.exception or ""), _one_line(text))
    server = _server_of(error)
    if isinstance(error, requests.exceptions.SSLError):
        return Problem("certificate", _one_line(str(_first_cause(error))), server)
    if isinstance(error, requests.exceptions.InvalidURL | UnicodeError | LookupError):
        return Problem("no WebHDFS answer", _one_line(repr(error)), server)
    if isinstance(error, requests.Timeout):
        kind = "no connection" if isinstance(error, requests.ConnectTimeout) else "no answer"
        return Problem("unreachable", f"{kind} within its time limit", server)
    cause = _first_cause(error)
    return Problem("unreachable", _one_line(getattr(cause, "strerror", None) or str(cause)), server)


def problem_of_response(response: requests.Response) -> Problem:
    """What an answer with an error status means."""
    server = urlsplit(response.url).netloc
    if response.status_code == requests.codes.unauthorized:
        return Problem("Unauthorized", "Authentication failure", server)
    try:
        remote = response.json()["RemoteException"]
        return Problem(str(remote["exception"]), _one_line(str(remote["message"])), server)
    except (ValueError, LookupError, TypeError):
        return Problem("", f"HTTP status {response.status_code}", server)


def _server_of(error: BaseException) -> str:
    request = getattr(error, "request", None)
    return urlsplit(request.url or "").netloc if request is not None else ""


def _first_cause(error: BaseException) -> BaseException:
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return error


def _one_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0][:300]


class _Client(Client):  # type: ignore[misc]
    """HdfsCLI with paths taken as they are (its own `resolve` expands `#LATEST`), remembering why each failed."""

    _get_status = _Request("GET")
    _get_server_defaults = _Request("GET")

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self.failures: dict[str, Problem] = {}

    def resolve(self, hdfs_path: str) -> str:
        return hdfs_path

    def _request(self, method: str, url: str, **options: Any) -> requests.Response:
        server = urlsplit(url).netloc
        try:
            response = cast(requests.Response, super()._request(method, url, **options))
        except requests.RequestException as error:
            self.failures[server] = problem_of(error)
            raise
        if response.ok:
            self.failures.clear()
        else:
            self.failures[server] = problem_of_response(response)
        return response


def open_session(config: DfsConfig) -> requests.Session:
    """A session with pooled connections that checks certificates and takes nothing from the environment.

    Raises ConfigError where a certificate file is missing, or where Kerberos is asked for and its packages are not
    installed.
    """
    for name in ("ca_file", "cert_file", "key_file"):
        path = getattr(config, name)
        if path is not None and not Path(path).exists():
            raise ConfigError(f"dfs.{name}: {path}: is not there")
    if config.key_file and not config.cert_file:
        raise ConfigError("dfs.key_file: is of no use without dfs.cert_file")
    session = requests.Session()
    session.trust_env = False  # neither a proxy nor .netrc of whoever runs the task
    session.verify = config.ca_file or True
    if config.cert_file:
        session.cert = (config.cert_file, config.key_file) if config.key_file else config.cert_file
    session.headers["Accept-Encoding"] = "identity"
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(pool_connections=POOL_CONNECTIONS, pool_maxsize=POOL_CONNECTIONS))
    if config.security == "kerberos":
        _use_kerberos(session)
    else:
        session.params = {"user.name": config.user}
        session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return session


def _use_kerberos(session: requests.Session) -> None:
    try:
        from hdfs.ext.kerberos import KerberosClient  # type: ignore[import-untyped] # noqa: PLC0415
    except ImportError as error:
        raise ConfigError("dfs.security: kerberos needs the extra: pip install 'krake[kerberos]'") from error
    KerberosClient("http://unused", session=session)  # sets the session's authentication in place


class WebHdfs:
    """One HDFS. `call` asks the namenodes; `send` and `fetch` speak with datanodes; `persist` asks again.

    `stop`: when it is set, nothing is waited for any more: what fails is not asked again, and streams end
    (`go_on`); both raise StoppedError. A request that succeeds at once still does, so that what was begun can be
    cleared away. `sleep` and `clock` (seconds) are arguments for tests.
    """

    def __init__(
        self,
        address: Address,
        config: DfsConfig,
        *,
        stop: Event | None = None,
        sleep: Callable[[float], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address, self.config = address, config
        self._stop = stop or Event()
        self._sleep, self._clock = sleep or self._stop.wait, clock
        self._session = open_session(config)
        self._timeout = (config.connect_timeout_s, config.timeout_s)
        self._client = _Client(";".join(address.namenodes), session=self._session, timeout=self._timeout)

    def place(self, path: str) -> str:
        """The absolute path in HDFS of a path of the store."""
        return f"{self.address.root}/{path}" if path else self.address.root or "/"

    def call(self, what: str, operation: str, path: str, **params: object) -> Any:
        """Ask the namenodes and return the JSON of the answer (None if there is none).

        `what`: what fails, for messages ("cannot be listed"). `operation`: name of HdfsCLI's raw call. Raises
        StorageError and its children.
        """
        return self.persist(what, path, lambda: self.ask(operation, path, **params))

    def ask(self, operation: str, path: str, **params: object) -> Any:
        """The same once, with foreign exceptions: for use inside `persist`."""
        response = getattr(self._client, f"_{operation}")(self.place(path), **params)
        with response:
            return response.json() if response.content else None

    def fetch(self, location: str) -> requests.Response:
        """The streamed answer of a datanode; foreign exceptions, RefusedError."""
        response = self._session.get(location, stream=True, timeout=self._timeout, allow_redirects=False)
        return _checked(response)

    def send(self, location: str, body: bytes | Iterable[bytes]) -> None:
        """Send a whole body to a datanode; it is in HDFS when this returns. Foreign exceptions, RefusedError.

        The socket keeps the connection's time limit while a body is sent, so here that is the longer one.
        """
        limits = (self.config.timeout_s, self.config.timeout_s * ANSWER_FACTOR)
        headers = {"Content-Type": "application/octet-stream"}
        with self._session.put(location, data=body, headers=headers, timeout=limits, allow_redirects=False) as response:
            _checked(response)

    def persist(self, what: str, path: str, attempt: Callable[[], T]) -> T:
        """Make attempts until one succeeds or patience ends; foreign exceptions become StorageError.

        Raises StoppedError instead of waiting once the task is to stop.
        """
        begun, pause = self._clock(), FIRST_PAUSE_S
        while True:
            try:
                return attempt()
            except (*FOREIGN, RefusedError) as error:
                problem = problem_of(error)
                limit = {Patience.NONE: 0.0, Patience.SHORT: SHORT_WAIT_S, Patience.FULL: self.config.wait_s}
                if self._clock() - begun >= min(limit[problem.patience], self.config.wait_s):
                    raise self.translated(what, path, problem, waited=True) from error
                failure = error
            self.go_on(failure)
            self._sleep(pause)
            self.go_on(failure)
            pause = min(pause * 2, LONGEST_PAUSE_S)

    def go_on(self, failure: BaseException | None = None) -> None:
        """Raise StoppedError if the task is to stop. `failure`: what it would wait for."""
        if self._stop.is_set():
            waited = f", while waiting for {problem_of(failure)}" if failure is not None else ""
            raise StoppedError(f"{self.address}: stopped as asked{waited}; run the task again to go on") from failure

    def translated(self, what: str, path: str, problem: Problem, waited: bool = False) -> StorageError:
        """The error for a problem, naming path and servers. `waited`: the request was repeated for `dfs.wait_s`."""
        where = ";".join(self.address.namenodes) + self.place(path)
        if problem.is_below_a_file:
            text = f"{where}: {what}: a part of this path is a regular file, not a directory"
            return HdfsProblemError(text, problem)
        if problem.exception == "FileNotFoundException":
            return PathNotFoundError(f"{where}: {what}: is not there ({problem})")
        if problem.exception == "FileAlreadyExistsException":
            return TargetExistsError(f"{where}: {what}: is there already, it was not touched ({problem})")
        return HdfsProblemError(f"{where}: {what}: {self._explained(problem, waited)}", problem)

    def _explained(self, problem: Problem, waited: bool) -> str:
        """Every namenode's own reason, and what the operator does."""
        if problem.exception == "AccessControlException":
            root = self.address.root or "/"
            return f"no permission: {problem}; let dfs.user own {root}: hdfs dfs -chown {self.config.user} {root}"
        told = {str(problem)} if problem.server else set()
        # A copy, made in one step: a writer's thread asks namenodes too.
        told |= {str(failure) for failure in list(self._client.failures.values())}
        text = "; ".join(sorted(told)) or str(problem)
        if waited and problem.patience is Patience.FULL:
            return f"{text}; asked again for {self.config.wait_s:g} s; look at the server"
        return text


class Datanodes:
    """Where namenodes send a reader (`open`) or writer (`create`): never twice in a row to one that failed."""

    def __init__(self, hdfs: WebHdfs) -> None:
        self._hdfs, self._failed = hdfs, ""

    def location(self, operation: str, path: str, **params: object) -> str:
        """The address to go to; foreign exceptions."""
        failed, self._failed = self._failed, ""
        if failed:
            with suppress(*FOREIGN):
                return self._ask(operation, path, excludedatanodes=failed, **params)
        return self._ask(operation, path, **params)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Around the request to a datanode: notes which one failed."""
        try:
            yield
        except (*FOREIGN, RefusedError) as error:
            self._failed = problem_of(error).server
            raise

    def _ask(self, operation: str, path: str, **params: object) -> str:
        return str(self._hdfs.ask(operation, path, noredirect="true", **params)["Location"])


def _checked(response: requests.Response) -> requests.Response:
    if response.ok:
        return response
    with response:
        raise RefusedError(problem_of_response(response))
