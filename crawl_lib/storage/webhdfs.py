"""Requests to WebHDFS: all namenodes, bounded waiting, and every error translated.

What no namenode answered is asked again for as long as `problems.PATIENCE` says. Every repeated request is safe to
repeat: reads, `MKDIRS`, `DELETE`, and `RENAME`, whose caller compares file ids. Documentation of the protocol:
https://hadoop.apache.org/docs/stable/hadoop-project-dist/hadoop-hdfs/WebHDFS.html

Not by HdfsCLI or another client: the loop in `ask` does the rest.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Event
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import requests

from crawl_lib.config import DfsConfig
from crawl_lib.errors import (
    PathNotFoundError,
    StoppedError,
    StorageAccessError,
    StorageError,
    StorageRightsError,
    TargetExistsError,
)
from crawl_lib.storage.access import DfsAddress
from crawl_lib.storage.problems import (
    FOREIGN,
    FULL,
    RefusedError,
    RequestProblem,
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
_HEADERS = {"Content-Type": "application/octet-stream"}
_OPERATIONS = {
    "GETFILESTATUS": ("GET", "FileStatus"),
    "LISTSTATUS": ("GET", "FileStatuses"),
    "GETSTATUS": ("GET", "FsStatus"),
    "GETSERVERDEFAULTS": ("GET", "FsServerDefaults"),
    "GETDELEGATIONTOKEN": ("GET", "Token"),
    "CHECKACCESS": ("GET", ""),
    "MKDIRS": ("PUT", "boolean"),
    "RENAME": ("PUT", "boolean"),  # of HttpFS only
    "DELETE": ("DELETE", ""),
    "OPEN": ("GET", "Location"),
    "CREATE": ("PUT", "Location"),
}
"""The method of each operation, and the name of the only value in the answer; without a name it is of no use."""
_OF_ONE_NAMENODE = {
    "StandbyException",
    "RetriableException",
    "gateway",
    "unreachable",
    "certificate",
    "TLS",
}
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


class BelowAFileError(StorageError):
    """A part of the path is a regular file: nothing can be there. For this package."""


class WebHdfs:
    """One HDFS. `call` asks the namenodes; `exchange` speaks with any server; `persist` asks again.

    `stop`: once set, all waiting ends: what fails is not asked again, and streams end (`go_on`);
    both raise StoppedError. A request that succeeds at once still does, so that begun work can be cleared away. `sleep`
    and `clock` (seconds) are arguments for tests. `namenodes`: the one that answered last is asked first. `failures`:
    why each server failed since the last answer; `let_in`: whether one ever did what it was asked.
    """

    def __init__(
        self,
        address: DfsAddress,
        config: DfsConfig,
        *,
        stop: Event | None = None,
        sleep: Callable[[float], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address, self.config, self.namenodes = address, config, address.namenodes
        self.stop = stop or Event()
        self._sleep, self._clock = sleep or self.stop.wait, clock
        self.session = open_session(config)
        self._token: dict[str, str] | None = None if config.security == "kerberos" else {}
        self._token_made_s = 0.0
        self.failures: dict[str, RequestProblem] = {}
        self.let_in = False

    def place(self, path: str) -> str:
        """Return the absolute HDFS path of a path."""
        return f"{self.address.root}/{path}" if path else self.address.root or "/"

    def above(self) -> "WebHdfs":
        """Return the same HDFS, rooted at the root path's parent."""
        address = self.address._replace(root=self.address.root.rpartition("/")[0])
        return WebHdfs(address, self.config, stop=self.stop, sleep=self._sleep, clock=self._clock)

    def call(self, what: str, operation: str, path: str, **params: object) -> Any:
        """Ask the namenodes and return the answer's value.

        That is the one value of the JSON, None if there is no JSON.

        `what`: what fails, for messages ("cannot be listed"). `operation`: of WebHDFS. Raises StorageError and its
        children.
        """
        return self.persist(what, path, lambda: self.ask(operation, path, **params))

    def ask(self, operation: str, path: str, **params: object) -> Any:
        """Ask the namenodes in turn, until one knows the answer.

        For use inside `persist`. Raises RefusedError; LookupError if an answer lacks the expected field.
        """
        method, name = _OPERATIONS[operation]
        asked, refused = {"op": operation, **params}, None
        for namenode in self.namenodes:
            url = f"{namenode}/webhdfs/v1{quote(self.place(path))}"
            try:
                response = self.exchange(method, url, params=asked, headers=_HEADERS)
            except RefusedError as error:
                self.failures[urlsplit(url).netloc] = error.problem
                if error.problem.exception not in _OF_ONE_NAMENODE:
                    raise
                refused = error
                continue
            self.failures.clear()
            self.let_in = True
            self.namenodes = (namenode, *(other for other in self.namenodes if other != namenode))
            if not name or (operation == "RENAME" and not response.content):
                return None
            answer = response.json()
            if not isinstance(answer, dict) or name not in answer:
                raise LookupError(f"an answer to {operation} has no {name}")
            return answer[name]
        raise refused or LookupError("no namenode")

    def exchange(self, method: str, url: str, **options: Any) -> requests.Response:
        """Return the answer of a server after success.

        RefusedError, which does not tell the address: the text may hold a token.
        """
        options = {"timeout": (self.config.connect_timeout_s, self.config.timeout_s), **options}
        try:
            response = self.session.request(method, url, allow_redirects=False, **options)
        except FOREIGN as error:
            raise RefusedError(problem_of(error)) from None
        if (
            response.ok and not response.is_redirect
        ):  # else its empty body would be taken for the file
            return response
        with response:
            raise RefusedError(problem_of_response(response))

    def token(self) -> dict[str, str]:
        """Return the parameter for a datanode to act for us.

        Empty without Kerberos. Raises RefusedError. A session keeps one token until `TOKEN_AGE_S`, or until a server
        refuses the token (after a day, by default). Without this a namenode makes, logs and keeps a token for each
        opened file.
        """
        token = self._token  # another thread may find out in between that it is taken no more
        if token is None or (token and self._clock() - self._token_made_s > TOKEN_AGE_S):
            made_s = self._clock()
            made = self.ask("GETDELEGATIONTOKEN", "")  # null where HDFS is not secured
            self._token = token = {"delegation": made["urlString"]} if made else {}
            self._token_made_s = made_s
        return token

    def persist(self, what: str, path: str, attempt: Callable[[], T]) -> T:
        """Make attempts until one succeeds or patience ends; foreign exceptions become StorageError.

        Raises StoppedError instead of waiting once the task is to stop.
        """
        begun, pause = self._clock(), FIRST_PAUSE_S
        while True:
            try:
                return attempt()
            except FOREIGN as error:
                failure, problem = error, problem_of(error)
            if self._token and "InvalidToken" in f"{problem.exception} {problem.message}":
                self._token = None
            # A ticket that was good once is renewed by something; where there was none, that is told at once.
            patience_s = (
                FULL if problem.exception == "ticket" and self.let_in else problem.patience_s
            )
            if self._clock() - begun >= min(patience_s, self.config.wait_s):
                waited = (
                    f"; asked again for {self.config.wait_s:g} s; look at the server"
                    if patience_s == FULL
                    else ""
                )
                raise self.translated(what, path, problem, waited) from failure
            self.go_on(failure)
            self._sleep(pause)
            self.go_on(failure)
            pause = min(pause * 2, LONGEST_PAUSE_S)

    def go_on(self, failure: BaseException | None = None) -> None:
        """Raise StoppedError if the task is to stop.

        `failure`: what it would wait for.
        """
        if self.stop.is_set():
            waited = f", while waiting for {problem_of(failure)}" if failure is not None else ""
            raise StoppedError(
                f"{self.address}: stopped as asked{waited}; run the task again to go on"
            ) from failure

    def translated(
        self, what: str, path: str, problem: RequestProblem, more: str = ""
    ) -> StorageError:
        """Return the error for a problem, naming path and servers.

        `more`: facts about a failed server.
        """
        where = f"{';'.join(self.address.namenodes)}{self.place(path)}: {what}"
        if (
            problem.exception == "ParentNotDirectoryException"
            or "(is not a directory)" in problem.message
        ):
            return BelowAFileError(
                f"{where}: a part of this path is a regular file, not a directory"
            )
        if problem.exception == "FileNotFoundException":
            return PathNotFoundError(f"{where}: is not there ({problem})")
        if problem.exception == "FileAlreadyExistsException":
            return TargetExistsError(f"{where}: is there already, and was not touched ({problem})")
        # Every namenode's own reason; a copy, made in one step: a writer's thread asks namenodes too.
        reasons = {str(failure) for failure in [problem, *self.failures.values()] if failure.server}
        reason = "; ".join(sorted(reasons)) or str(problem)
        if problem.exception in {"AccessControlException", "Unauthorized", *_REMEDIES}:
            kind = (
                StorageRightsError
                if problem.exception == "AccessControlException"
                else StorageAccessError
            )
            return kind(f"{where}: {self._refused(problem.exception, reason)}")
        return StorageError(f"{where}: {reason}{more}")

    def _refused(self, exception: str, reason: str) -> str:
        kerberos, root = self.config.security == "kerberos", self.address.root or "/"
        if exception == "AccessControlException":
            who, name = (
                ("the ticket's user", "USER") if kerberos else ("dfs.user", self.config.user)
            )
            return f"no permission: {reason}; let {who} own {root}: hdfs dfs -chown {name} {root}"
        unknown = f"where HDFS is secured, set dfs.security: kerberos and {_GET_A_TICKET}"
        if kerberos:
            unknown = "the server refuses our ticket: see the server's log"
        return f"{reason}; {_REMEDIES.get(exception, unknown)}"


class Datanodes:
    """Where namenodes send a reader (`OPEN`) or writer (`CREATE`): never twice in a row to a failed namenode."""

    def __init__(self, hdfs: WebHdfs) -> None:
        self._hdfs, self._failed = hdfs, ""

    def location(self, operation: str, path: str, **params: object) -> str:
        """Return the address to go to.

        Raises RefusedError.
        """
        failed, self._failed = self._failed, ""
        params |= {"noredirect": "true", **self._hdfs.token()}
        if failed:
            with suppress(RefusedError):
                return str(self._hdfs.ask(operation, path, excludedatanodes=failed, **params))
        return str(self._hdfs.ask(operation, path, **params))

    def exchange(
        self, location: str, body: bytes | Iterable[bytes | bytearray] | None = None
    ) -> requests.Response:
        """Return the streamed answer, or send a body to HDFS.

        A body is in HDFS when this returns. Raises RefusedError.
        """
        # The socket keeps the connection's time limit while a body is sent, so here that is the longer one.
        limit_s = self._hdfs.config.timeout_s
        options = {"data": body, "headers": _HEADERS, "timeout": (limit_s, limit_s * ANSWER_FACTOR)}
        try:
            if body is None:
                return self._hdfs.exchange("GET", location, stream=True)
            return self._hdfs.exchange("PUT", location, **options)
        except RefusedError as error:
            self._failed = error.problem.server
            raise
