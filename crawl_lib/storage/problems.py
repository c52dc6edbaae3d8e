"""The meaning of a failed request: a `RequestProblem`, and how long the same request is sent again.

Exceptions of the HTTP client, answers with an error status and answers that name a remote exception all become such a
problem. No function here asks a server.
"""

import math
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

import requests
import urllib3

from crawl_lib.storage.session import TicketError

_NO_ANSWERS = (
    requests.exceptions.InvalidURL,
    requests.exceptions.InvalidJSONError,
    UnicodeError,
    LookupError,
)
NONE, SHORT, FULL = 0.0, 10.0, math.inf
"""How long the same request is sent again, in seconds and at most `dfs.wait_s`: it will not go away, it may go away,
it goes away when a server is back."""

# Remote exception, or a word of ours in lower case -> patience; what is not named has SHORT.
PATIENCE = {
    "StandbyException": FULL,
    "RetriableException": FULL,
    "SafeModeException": FULL,
    "ConnectException": FULL,
    "ConnectTimeoutException": FULL,
    "SocketTimeoutException": FULL,
    "SocketException": FULL,
    "EOFException": FULL,
    "NoRouteToHostException": FULL,
    "BlockMissingException": FULL,
    "FileNotFoundException": NONE,
    "FileAlreadyExistsException": NONE,
    "ParentNotDirectoryException": NONE,
    "AccessControlException": NONE,
    "SecurityException": NONE,
    "IllegalArgumentException": NONE,
    "InvalidPathException": NONE,
    "UnsupportedOperationException": NONE,
    "NSQuotaExceededException": NONE,
    "DSQuotaExceededException": NONE,
    "PathComponentTooLongException": NONE,
    "MaxDirectoryItemsExceededException": NONE,
    "Unauthorized": NONE,
    "certificate": NONE,
    "TLS": NONE,
    "ticket": NONE,
    "clock": NONE,
    "redirect": NONE,
    "kdc": FULL,
    "unreachable": FULL,
    "gateway": FULL,
}
# Words of a message that say more than the exception (IOException, mostly).
WORDS = (
    ("InvalidToken", SHORT),
    ("out of the range", NONE),
    ("(is not a directory)", NONE),
    ("Failed to find datanode", FULL),
    ("could only be written to 0 of the", FULL),
)


_PLAIN = {
    "unreachable",
    "redirect",
    "ticket",
    "kdc",
    "clock",
    "gateway",
    "",
}  # their message says it all
GATEWAY_STATUSES = {
    requests.codes.bad_gateway,
    requests.codes.service_unavailable,
    requests.codes.gateway_timeout,
}
# A TLS connection that ended without a word: the server died, also in the middle of the handshake or of what we sent.
_CUT = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError, ConnectionError)


@dataclass(frozen=True)
class RequestProblem:
    """Why a request failed: the remote exception, or a word of ours for it; what it says; and who said it."""

    exception: str
    message: str
    server: str = ""

    @property
    def patience_s(self) -> float:
        """How long to ask again."""
        for words, patience_s in WORDS:
            if words in self.message:
                return patience_s
        return PATIENCE.get(self.exception, SHORT)

    def __str__(self) -> str:
        plain = self.exception in _PLAIN
        text = self.message if plain else f"{self.exception}: {self.message}"
        return f"{self.server}: {text}" if self.server else text


class RefusedError(Exception):
    """A server's answer that is an error. Never leaves this package."""

    def __init__(self, problem: RequestProblem) -> None:
        super().__init__(str(problem))
        self.problem = problem


FOREIGN = (
    RefusedError,
    requests.RequestException,
    urllib3.exceptions.HTTPError,
    OSError,
    UnicodeError,
    LookupError,
)
"""Why a request may fail; all end as a StorageError."""


def problem_of(error: BaseException) -> RequestProblem:
    """Return the problem behind a foreign exception."""
    if isinstance(error, RefusedError):
        return error.problem
    request = getattr(error, "request", None)
    server = "" if request is None else urlsplit(request.url or "").netloc
    if isinstance(error, TicketError):
        return RequestProblem(error.kind, _one_line(str(error)), server)
    if isinstance(error, _NO_ANSWERS):
        return RequestProblem("no WebHDFS answer", _one_line(repr(error)), server)
    if isinstance(error, requests.Timeout):
        kind = "no connection" if isinstance(error, requests.ConnectTimeout) else "no answer"
        return RequestProblem("unreachable", f"{kind} within its time limit", server)
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(cause)
    kind = "unreachable"
    if isinstance(error, requests.exceptions.SSLError) and not any(
        isinstance(cause, _CUT) for cause in chain
    ):
        kind = "certificate" if isinstance(chain[-1], ssl.SSLCertVerificationError) else "TLS"
    reason = (
        str(chain[-1])
        if kind != "unreachable"
        else getattr(chain[-1], "strerror", None) or str(chain[-1])
    )
    return RequestProblem(kind, _one_line(reason), server)


def problem_of_response(response: requests.Response) -> RequestProblem:
    """Return the problem behind an answer's error status."""
    server = urlsplit(response.url).netloc
    if response.is_redirect:
        aim = urlsplit(response.headers["Location"])  # its query may hold a token
        return RequestProblem(
            "redirect", f"sends us to {aim.scheme}://{aim.netloc}: is that its address?", server
        )
    if response.status_code == requests.codes.unauthorized:
        return RequestProblem("Unauthorized", "Authentication failure", server)
    try:
        remote = response.json()["RemoteException"]
        return RequestProblem(str(remote["exception"]), _one_line(str(remote["message"])), server)
    except (ValueError, LookupError, TypeError):
        kind = "gateway" if response.status_code in GATEWAY_STATUSES else ""
        return RequestProblem(
            kind, _one_line(f"HTTP status {response.status_code} {response.reason or ''}"), server
        )


def _one_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0][:300]
