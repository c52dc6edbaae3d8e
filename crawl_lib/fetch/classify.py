"""What a reply means: curl's numbers and our marks become an `Outcome`. No curl number is known outside this module."""

import pycurl as _curl  # type: ignore[import-untyped]

from crawl_lib.fetch.messages import Mark, Reply, head_is_whole
from crawl_lib.fetch.retry import Trouble
from crawl_lib.parse import parse_head
from crawl_lib.records import Fetched
from crawl_lib.states import Outcome

_OUTCOME_OF_MARK = {
    Mark.ADDRESS: Outcome.ADDRESS_REFUSED,
    Mark.MIME: Outcome.MIME_REFUSED,
    Mark.HEADER: Outcome.PROTOCOL_ERROR,
    Mark.STALE: Outcome.CONNECT_FAILED,
    Mark.UNUSABLE: Outcome.PROTOCOL_ERROR,
}
_WORDS_OF_MARK = {
    Mark.MIME: "",
    Mark.HEADER: "the headers pass fetch.max_header_bytes",
    Mark.STALE: "the server closed a kept connection before it answered",
}
# https://curl.se/libcurl/c/libcurl-errors.html
_OUTCOME_OF_CODE: dict[int, Outcome] = {
    _curl.E_COULDNT_RESOLVE_HOST: Outcome.DNS_FAILED,
    _curl.E_OPERATION_TIMEDOUT: Outcome.TIMEOUT,
    **dict.fromkeys(
        (
            *(_curl.E_COULDNT_RESOLVE_PROXY, _curl.E_COULDNT_CONNECT, _curl.E_GOT_NOTHING, _curl.E_SEND_ERROR),
            *(_curl.E_RECV_ERROR, _curl.E_PARTIAL_FILE, 97),  # CURLE_PROXY
        ),
        Outcome.CONNECT_FAILED,
    ),
    **dict.fromkeys(
        (
            *(_curl.E_SSL_CONNECT_ERROR, _curl.E_SSL_ENGINE_NOTFOUND, _curl.E_SSL_ENGINE_SETFAILED),
            *(_curl.E_SSL_CERTPROBLEM, _curl.E_SSL_CIPHER, _curl.E_PEER_FAILED_VERIFICATION, _curl.E_USE_SSL_FAILED),
            *(_curl.E_SSL_CACERT_BADFILE, _curl.E_SSL_SHUTDOWN_FAILED, _curl.E_SSL_CRL_BADFILE),
            *(_curl.E_SSL_ISSUER_ERROR, _curl.E_SSL_PINNEDPUBKEYNOTMATCH, _curl.E_SSL_INVALIDCERTSTATUS),
        ),
        Outcome.TLS_FAILED,
    ),
}
_MAX_ERROR_CHARS = 500


def one_line(text: str) -> str:
    """A message for people on one line, at most 500 characters."""
    return " ".join(text.split())[:_MAX_ERROR_CHARS]


def outcome_of_status(status: int, head: bytes) -> Outcome:
    """The outcome of an answer with a status and a head."""
    if 200 <= status <= 299:
        return Outcome.OK
    if 300 <= status <= 399:
        return Outcome.REDIRECT if parse_head(head).get("location") else Outcome.UNEXPECTED_STATUS
    if status in (404, 410):
        return Outcome.GONE
    if 400 <= status <= 499:
        return Outcome.CLIENT_ERROR
    if 500 <= status <= 599:
        return Outcome.SERVER_ERROR
    return Outcome.UNEXPECTED_STATUS


def fetched_of(url: str, reply: Reply, attempts: int) -> Fetched:
    """The record of a try. Answers whose headers were whole count, cut or not; others are failures."""
    outcome, truncated, error = _judge(reply)
    answered = outcome is None
    has_head = answered or outcome is Outcome.MIME_REFUSED
    return Fetched(
        url,
        reply.started,
        outcome_of_status(reply.status, reply.head) if outcome is None else outcome,
        status=reply.status if has_head else None,
        ip=reply.ip,
        request=reply.request,
        head=reply.head if has_head else b"",
        body=reply.body if answered else b"",
        truncated=truncated,
        attempts=attempts,
        duration_ms=round(reply.duration_s * 1000),
        error=error,
    )


def _judge(reply: Reply) -> tuple[Outcome | None, str | None, str]:
    """(outcome or None for an answer, WARC-Truncated's word, error)."""
    if reply.mark is Mark.LENGTH:
        return None, "length", ""
    if reply.mark:
        return _OUTCOME_OF_MARK[reply.mark], None, one_line(_WORDS_OF_MARK.get(reply.mark, reply.message))
    whole = head_is_whole(reply.head)
    if reply.code == 0:
        return (None, None, "") if whole else (Outcome.PROTOCOL_ERROR, None, "the headers do not end")
    error = one_line(f"{reply.message or 'curl failed'} (curl {reply.code})")
    if whole and reply.status >= 200:
        return None, "time" if reply.code == _curl.E_OPERATION_TIMEDOUT else "disconnect", error
    return _OUTCOME_OF_CODE.get(reply.code, Outcome.PROTOCOL_ERROR), None, error


def failure_of(fetched: Fetched, reply: Reply) -> Outcome | Trouble:
    """The row of the retry table that a try falls under."""
    if reply.mark is Mark.STALE:
        return Trouble.STALE_CONNECTION
    if fetched.status == 429:
        return Trouble.TOO_MANY_REQUESTS
    if fetched.status == 503:
        return Trouble.UNAVAILABLE
    return fetched.outcome


def retry_after_s(head: bytes) -> float:
    """Seconds that a Retry-After header asks for; 0 if there is none, or if it is a date."""
    text = parse_head(head).get("retry-after") or ""
    return float(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0.0
