"""What a failed request means: a `Problem`, and how long the same request is sent again.

Exceptions of the HTTP client, answers with an error status and answers that name a remote exception all become one of
these. Nothing here asks a server.
"""

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from urllib.parse import urlsplit

import requests
import urllib3
from hdfs.util import HdfsError  # type: ignore[import-untyped]

from crawl_lib.errors import StorageError
from crawl_lib.storage.session import TicketError

SHORT_WAIT_S = 10.0
_INVALID_TOKEN = "InvalidToken"
_NO_ANSWERS = (requests.exceptions.InvalidURL, requests.exceptions.InvalidJSONError, UnicodeError, LookupError)
FOREIGN = (HdfsError, requests.RequestException, urllib3.exceptions.HTTPError, OSError, UnicodeError, LookupError)


class Patience(Enum):
    """How long the same request is sent again after an error."""

    NONE = "it will not go away"
    SHORT = f"{SHORT_WAIT_S:.0f} s, it may go away"
    FULL = "dfs.wait_s, for it goes away when a server is back"


# Remote exception, or a word of ours in lower case -> patience; what is not named has SHORT.
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
    "TLS": Patience.NONE,
    "ticket": Patience.NONE,
    "clock": Patience.NONE,
    "redirect": Patience.NONE,
    "kdc": Patience.FULL,
    "unreachable": Patience.FULL,
}
# Words of a message that say more than its exception (IOException, mostly).
WORDS = (
    (_INVALID_TOKEN, Patience.SHORT),
    ("out of the range", Patience.NONE),
    ("(is not a directory)", Patience.NONE),
    ("Failed to find datanode", Patience.FULL),
    ("could only be written to 0 of the", Patience.FULL),
)


_PLAIN = {"unreachable", "redirect", "ticket", "kdc", "clock", ""}  # their message says it all
GATEWAY_STATUSES = {requests.codes.bad_gateway, requests.codes.service_unavailable, requests.codes.gateway_timeout}
# A TLS connection that ended without a word: the server died, also in the middle of the handshake or of what we sent.
_CUT = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError, ConnectionError)


@dataclass(frozen=True)
class Problem:
    """Why a request failed: the remote exception, or a word of ours for it; what it says; and who said it."""

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
    def is_of_token(self) -> bool:
        """Whether a server takes our delegation token no more."""
        return _INVALID_TOKEN in self.exception or _INVALID_TOKEN in self.message

    @property
    def is_below_a_file(self) -> bool:
        """Whether a part of the path is a regular file."""
        return self.exception == "ParentNotDirectoryException" or "(is not a directory)" in self.message

    def __str__(self) -> str:
        plain = self.exception in _PLAIN
        text = self.message if plain else f"{self.exception}: {self.message}"
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
    if isinstance(error, TicketError):
        return Problem(error.kind, _one_line(str(error)), server)
    if isinstance(error, _NO_ANSWERS):
        return Problem("no WebHDFS answer", _one_line(repr(error)), server)
    if isinstance(error, requests.Timeout):
        kind = "no connection" if isinstance(error, requests.ConnectTimeout) else "no answer"
        return Problem("unreachable", f"{kind} within its time limit", server)
    chain = list(_chain(error))
    kind = "unreachable"
    if isinstance(error, requests.exceptions.SSLError) and not any(isinstance(cause, _CUT) for cause in chain):
        kind = "certificate" if isinstance(chain[-1], ssl.SSLCertVerificationError) else "TLS"
    told = str(chain[-1]) if kind != "unreachable" else getattr(chain[-1], "strerror", None) or str(chain[-1])
    return Problem(kind, _one_line(told), server)


def problem_of_response(response: requests.Response) -> Problem:
    """What an answer with an error status means."""
    server = urlsplit(response.url).netloc
    if response.is_redirect:
        aim = urlsplit(response.headers["Location"])  # its query may hold a token
        return Problem("redirect", f"sends us to {aim.scheme}://{aim.netloc}: is that its address?", server)
    if response.status_code == requests.codes.unauthorized:
        return Problem("Unauthorized", "Authentication failure", server)
    try:
        remote = response.json()["RemoteException"]
        return Problem(str(remote["exception"]), _one_line(str(remote["message"])), server)
    except (ValueError, LookupError, TypeError):
        kind = "gateway" if response.status_code in GATEWAY_STATUSES else ""
        return Problem(kind, _one_line(f"HTTP status {response.status_code} {response.reason or ''}"), server)


def _server_of(error: BaseException) -> str:
    request = getattr(error, "request", None)
    return urlsplit(request.url or "").netloc if request is not None else ""


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, its cause, and so on."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _one_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0][:300]
