"""Requests to WebHDFS: all namenodes, bounded waiting, and every error translated.

HdfsCLI asks the namenodes in turn; what it gives up is asked again here for as long as `problems.PATIENCE` says. Every
request that is sent again is safe to send again: reads, `MKDIRS`, `DELETE`, and `RENAME`, whose caller compares file
ids. Documentation of the protocol: https://hadoop.apache.org/docs/stable/hadoop-project-dist/hadoop-hdfs/WebHDFS.html
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Event
from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import urlsplit

import requests
from hdfs.client import Client, _Request  # type: ignore[import-untyped]

from crawl_lib.config import DfsConfig
from crawl_lib.errors import (
    ConfigError,
    PathNotFoundError,
    StoppedError,
    StorageAccessError,
    StorageError,
    TargetExistsError,
)
from crawl_lib.storage.problems import (
    FOREIGN,
    SHORT_WAIT_S,
    HdfsProblemError,
    Patience,
    Problem,
    RefusedError,
    problem_of,
    problem_of_response,
)
from crawl_lib.storage.session import open_session

T = TypeVar("T")
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
TOKEN_AGE_S = 6 * 3600.0
"""An older token serves no new stream: HDFS takes one for a day, and a stream needs it to its end."""
ANSWER_FACTOR = 5  # a datanode answers a PUT only when the last block is on its disk


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


class _Client(Client):  # type: ignore[misc]
    """HdfsCLI with paths taken as they are (its own `resolve` expands `#LATEST`).

    `failures`: why each server failed since the last answer; `let_in`: whether a server ever did what it was asked.
    """

    _get_status = _Request("GET")
    _get_server_defaults = _Request("GET")
    _get_delegation_token = _Request("GET")

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self.failures: dict[str, Problem] = {}
        self.let_in = False

    def resolve(self, hdfs_path: str) -> str:
        return hdfs_path

    def _request(self, method: str, url: str, **options: Any) -> requests.Response:
        server = urlsplit(url).netloc
        try:
            response = cast(requests.Response, super()._request(method, url, **options | {"allow_redirects": False}))
        except requests.RequestException as error:
            self.failures[server] = problem_of(error)
            raise
        if response.ok and not response.is_redirect:
            self.failures.clear()
            self.let_in = True
            return response
        self.failures[server] = problem = problem_of_response(response)
        if problem.exception == "gateway":
            raise requests.ConnectionError(problem.message, request=response.request)  # HdfsCLI asks the next one
        if problem.exception not in _OF_ONE_NAMENODE:
            raise RefusedError(problem)  # HdfsCLI takes some for answers, and writes the pages of others into the log
        return response


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
        self._token: dict[str, str] | None = None if config.security == "kerberos" else {}
        self._token_made_s = 0.0

    def place(self, path: str) -> str:
        """The absolute path in HDFS of a path of the store."""
        return f"{self.address.root}/{path}" if path else self.address.root or "/"

    def call(self, what: str, operation: str, path: str, **params: object) -> Any:
        """Ask the namenodes and return what they answer: the one value of the JSON, None if there is no JSON.

        `what`: what fails, for messages ("cannot be listed"). `operation`: name of HdfsCLI's raw call. Raises
        StorageError and its children.
        """
        return self.persist(what, path, lambda: self.ask(operation, path, **params))

    def ask(self, operation: str, path: str, **params: object) -> Any:
        """The same once, for use inside `persist`. RefusedError, also for an answer that is none (a LookupError)."""
        with _without_address(), getattr(self._client, f"_{operation}")(self.place(path), **params) as response:
            if operation not in _ANSWERS or (operation == "rename" and not response.content):
                return None
            answer = response.json()
            if not isinstance(answer, dict) or _ANSWERS[operation] not in answer:
                raise LookupError(f"an answer to {operation} has no {_ANSWERS[operation]}")
            return answer[_ANSWERS[operation]]

    def token(self) -> dict[str, str]:
        """The parameter that lets a datanode act for us, empty without Kerberos; RefusedError.

        One for the session, until it is `TOKEN_AGE_S` old or a server takes it no more (a day, by default): else a
        namenode makes one for each file that is opened, writes it into its log and keeps it for that day.
        """
        token = self._token  # another thread may find out in between that it is taken no more
        if token is None or (token and self._clock() - self._token_made_s > TOKEN_AGE_S):
            made_s = self._clock()
            made = self.ask("get_delegation_token", "")  # null where HDFS is not secured
            self._token = token = {"delegation": made["urlString"]} if made else {}
            self._token_made_s = made_s
        return token

    def fetch(self, location: str) -> requests.Response:
        """The streamed answer of a datanode; RefusedError."""
        with _without_address():
            response = self._session.get(location, stream=True, timeout=self._timeout, allow_redirects=False)
        return _checked(response)

    def send(self, location: str, body: bytes | Iterable[bytes]) -> None:
        """Send a whole body to a datanode; it is in HDFS when this returns. RefusedError.

        The socket keeps the connection's time limit while a body is sent, so here that is the longer one.
        """
        limits = (self.config.timeout_s, self.config.timeout_s * ANSWER_FACTOR)
        headers = {"Content-Type": "application/octet-stream"}
        with _without_address():
            response = self._session.put(location, data=body, headers=headers, timeout=limits, allow_redirects=False)
        _checked(response).close()

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
                if problem.is_of_token and self._token:
                    self._token = None
                if self._clock() - begun >= self._limit_s(problem):
                    raise self.translated(what, path, problem, waited=True) from error
                failure = error
            self.go_on(failure)
            self._sleep(pause)
            self.go_on(failure)
            pause = min(pause * 2, LONGEST_PAUSE_S)

    def _limit_s(self, problem: Problem) -> float:
        """How long to ask again. A ticket that was good once is renewed by somebody; who has none is told at once."""
        if problem.exception == "ticket" and self._client.let_in:
            return self.config.wait_s
        limit = {Patience.NONE: 0.0, Patience.SHORT: SHORT_WAIT_S, Patience.FULL: self.config.wait_s}
        return min(limit[problem.patience], self.config.wait_s)

    @property
    def stopped(self) -> bool:
        """Whether the task is to stop."""
        return self._stop.is_set()

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
        if problem.exception in _REFUSALS:
            return StorageAccessError(f"{where}: {what}: {self._refused(problem)}")
        return HdfsProblemError(f"{where}: {what}: {self._explained(problem, waited)}", problem)

    def _refused(self, problem: Problem) -> str:
        kerberos, root = self.config.security == "kerberos", self.address.root or "/"
        if problem.exception == "AccessControlException":
            who, name = ("the ticket's user", "USER") if kerberos else ("dfs.user", self.config.user)
            return f"no permission: {self._told(problem)}; let {who} own {root}: hdfs dfs -chown {name} {root}"
        if problem.exception in _REMEDIES:
            return f"{self._told(problem)}; {_REMEDIES[problem.exception]}"
        if kerberos:
            return f"{self._told(problem)}; the server takes no ticket of ours, its log says why"
        return f"{self._told(problem)}; where HDFS is secured, set dfs.security: kerberos and {_GET_A_TICKET}"

    def _told(self, problem: Problem) -> str:
        """Every namenode's own reason."""
        told = {str(problem)} if problem.server else set()
        # A copy, made in one step: a writer's thread asks namenodes too.
        told |= {str(failure) for failure in list(self._client.failures.values())}
        return "; ".join(sorted(told)) or str(problem)

    def _explained(self, problem: Problem, waited: bool) -> str:
        if waited and problem.patience is Patience.FULL:
            return f"{self._told(problem)}; asked again for {self.config.wait_s:g} s; look at the server"
        return self._told(problem)


_GET_A_TICKET = (
    "get a ticket by kinit, or name in KRB5CCNAME the cache that a renewer keeps (such as `airflow kerberos`), "
    "or in KRB5_CLIENT_KTNAME a keytab"
)
_REMEDIES = {
    "certificate": "dfs.ca_file names the certificate of the authority that is trusted",
    "TLS": "look at scheme and port in dfs_primary, and at dfs.ca_file, dfs.cert_file and dfs.key_file",
    "redirect": "dfs_primary names namenodes, as they are reached",
    "ticket": _GET_A_TICKET,
    "clock": "set the clocks of this machine, of the KDC and of the server (NTP)",
}
_REFUSALS = {"AccessControlException", "Unauthorized", *_REMEDIES}
_OF_ONE_NAMENODE = {"StandbyException", "RetriableException"}  # of which HdfsCLI knows that another may do better
_ANSWERS = {
    "get_file_status": "FileStatus",
    "list_status": "FileStatuses",
    "get_status": "FsStatus",
    "get_server_defaults": "FsServerDefaults",
    "get_delegation_token": "Token",
    "mkdirs": "boolean",
    "rename": "boolean",  # of HttpFS only
    "open": "Location",
    "create": "Location",
}
"""The name of the one value that answers an operation; what is not here answers nothing of use."""


class Datanodes:
    """Where namenodes send a reader (`open`) or writer (`create`): never twice in a row to one that failed."""

    def __init__(self, hdfs: WebHdfs) -> None:
        self._hdfs, self._failed = hdfs, ""

    def location(self, operation: str, path: str, **params: object) -> str:
        """The address to go to; RefusedError."""
        failed, self._failed = self._failed, ""
        if failed:
            with suppress(RefusedError):
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
        return str(self._hdfs.ask(operation, path, noredirect="true", **self._hdfs.token(), **params))


def _checked(response: requests.Response) -> requests.Response:
    if response.ok and not response.is_redirect:  # else its empty body would be taken for the file
        return response
    with response:
        raise RefusedError(problem_of_response(response))


@contextmanager
def _without_address() -> Iterator[None]:
    """Foreign exceptions become RefusedError: theirs hold the address, and it the token that lets its holder in."""
    try:
        yield
    except FOREIGN as error:
        raise RefusedError(problem_of(error)) from None
