"""The meaning of a transfer's end: curl's numbers, and why we ended it ourselves, become rows of the retry table.

Also the few needed facts of a head. Only this module, `exchange` and `transport` know numbers
of curl.
"""

import pycurl as _curl  # type: ignore[import-untyped]

from crawl_lib.fetch.retry import Trouble
from crawl_lib.parse import parse_head
from crawl_lib.states import Outcome

Failure = Outcome | Trouble
"""A row of the retry table. An answer, too, falls under one."""
End = tuple[Failure | None, str]
"""Our own reason for the end of a transfer, and the text about this reason. None: it is an answer, cut at its limit."""
WHOLE: End = None, "whole"
"""A complete answer: its body ended before the connection did."""

OUTCOME_OF_TROUBLE = {
    Trouble.STALE_CONNECTION: Outcome.CONNECT_FAILED,
    Trouble.TURN_OVER: Outcome.CONNECT_FAILED,
    Trouble.TOO_MANY_REQUESTS: Outcome.CLIENT_ERROR,
    Trouble.UNAVAILABLE: Outcome.SERVER_ERROR,
}
_TROUBLE_OF_STATUS = {429: Trouble.TOO_MANY_REQUESTS, 503: Trouble.UNAVAILABLE}
# https://curl.se/libcurl/c/libcurl-errors.html
_OUTCOME_OF_CODE: dict[int, Outcome] = {
    _curl.E_COULDNT_RESOLVE_HOST: Outcome.DNS_FAILED,
    _curl.E_OPERATION_TIMEDOUT: Outcome.TIMEOUT,
    **dict.fromkeys(
        (
            *(
                _curl.E_COULDNT_RESOLVE_PROXY,
                _curl.E_COULDNT_CONNECT,
                _curl.E_GOT_NOTHING,
                _curl.E_SEND_ERROR,
            ),
            *(_curl.E_RECV_ERROR, _curl.E_PARTIAL_FILE, 97),  # CURLE_PROXY
        ),
        Outcome.CONNECT_FAILED,
    ),
    **dict.fromkeys(
        (
            *(_curl.E_SSL_CONNECT_ERROR, _curl.E_SSL_ENGINE_NOTFOUND, _curl.E_SSL_ENGINE_SETFAILED),
            *(
                _curl.E_SSL_CERTPROBLEM,
                _curl.E_SSL_CIPHER,
                _curl.E_PEER_FAILED_VERIFICATION,
                _curl.E_USE_SSL_FAILED,
            ),
            *(_curl.E_SSL_CACERT_BADFILE, _curl.E_SSL_SHUTDOWN_FAILED, _curl.E_SSL_CRL_BADFILE),
            *(
                _curl.E_SSL_ISSUER_ERROR,
                _curl.E_SSL_PINNEDPUBKEYNOTMATCH,
                _curl.E_SSL_INVALIDCERTSTATUS,
            ),
        ),
        Outcome.TLS_FAILED,
    ),
}
_MAX_ERROR_CHARS = 500


def one_line(text: str) -> str:
    """Shorten a message for people to one line of 500 characters."""
    return " ".join(text.split())[:_MAX_ERROR_CHARS]


def outcome_of_status(status: int, head: bytes, *, is_conditional: bool = False) -> Outcome:
    """Classify an answer by its status and head.

    `is_conditional`: the request named an earlier capture.
    """
    if status == 304 and is_conditional:
        return Outcome.NOT_MODIFIED
    if 200 <= status <= 299:
        return Outcome.OK
    if 300 <= status <= 399:
        return Outcome.REDIRECT if parse_head(head).location else Outcome.UNEXPECTED_STATUS
    if status in (404, 410):
        return Outcome.GONE
    if 400 <= status <= 499:
        return Outcome.CLIENT_ERROR
    return Outcome.SERVER_ERROR if 500 <= status <= 599 else Outcome.UNEXPECTED_STATUS


def meaning(
    end: End | None,
    code: int,
    message: str,
    status: int,
    head: bytes,
    *,
    is_conditional: bool = False,
) -> tuple[Failure, str | None, str]:
    """Return the row of the retry table, WARC-Truncated's word, and the error.

    An answer whose headers are complete counts, truncated or not.

    `code`, `message`: of curl, 0 is whole; `status`, `head`: of the last block of headers. `is_conditional`: see
    `outcome_of_status`.
    """
    answer = _TROUBLE_OF_STATUS.get(status) or outcome_of_status(
        status, head, is_conditional=is_conditional
    )
    if end is not None and end is not WHOLE:
        return end[0] or answer, None if end[0] else "length", one_line(end[1])
    is_whole = head.endswith((b"\r\n\r\n", b"\n\n", b"\n\r\n"))
    if code == 0 or end is WHOLE:
        return (
            (answer, None, "")
            if is_whole
            else (Outcome.PROTOCOL_ERROR, None, "the headers do not end")
        )
    error = one_line(f"{message or 'curl failed'} (curl {code})")
    if is_whole and status >= 200:
        return answer, "time" if code == _curl.E_OPERATION_TIMEDOUT else "disconnect", error
    return _OUTCOME_OF_CODE.get(code, Outcome.PROTOCOL_ERROR), None, error


def row_of_answer(outcome: Outcome, status: int | None) -> Failure:
    """Return the row of the retry table for a recorded fetch."""
    return _TROUBLE_OF_STATUS.get(status or 0, outcome)


def mime_allowed(mime: str | None, allowed: frozenset[str]) -> bool:
    """Return whether `allowed` names a MIME type, itself or as `text/*`.

    A missing or malformed type is allowed.
    """
    return not mime or mime in allowed or f"{mime.partition('/')[0]}/*" in allowed


def last_block(lines: list[bytes]) -> bytes:
    """Return the last header block of an answer.

    Interim 1xx blocks before the block and trailers after the block are dropped.
    """
    if lines.count(b"\r\n") == 1 and lines[-1] == b"\r\n":
        return b"".join(lines)
    start = 0
    for index, line in enumerate(lines):
        if line[:5] == b"HTTP/" and (index == 0 or not lines[index - 1].strip()):
            start = index
    end = next(
        (index + 1 for index in range(start, len(lines)) if not lines[index].strip()), len(lines)
    )
    return b"".join(lines[start:end])
