"""Documents of URLs; and the request of a row, for a service after a restart."""

from typing import Any, TypeVar

import msgspec

from crawl_lib.realtime.pages import MAX_DATA_BYTES
from crawl_lib.realtime.protocol import Done, Hop, PageTarget, Place, Robots


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The request of a row. `redirects`: hops before this URL. `via`: the key of the hop before.

    `spent_ms`: how long the requests for the hops before took, waiting not included. `hop`, `target`: of a row
    waiting for the target of its redirect.
    """

    url: str
    policy: str = "default"
    redirects: int = 0
    via: str | None = None
    spent_ms: int = 0
    hop: Hop | None = None
    target: PageTarget | None = None


class Document(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The metadata of a URL. `hops`: all requests, from `url` to `final_url`.

    `outcome`: of the last hop (docs/outcomes.md), or `redirect_loop`, `too_many_redirects`, `fetcher_died`. `retry_at`:
    POSIX seconds of the next try after a temporary failure. `warc`: where the last full capture of the last hop lies
    in the fetcher's spool. `captured_ms`: POSIX milliseconds of that capture. `image`: what a probe saw of the picture.
    `is_cut`: parts were left out of a long document.
    """

    url: str
    outcome: str
    final_url: str
    hops: list[Hop] = []
    status: int | None = None
    error: str = ""
    retry_at: int | None = None
    mime: str | None = None
    length: int | None = None
    digest: str | None = None
    truncated: str | None = None
    etag: str | None = None
    last_modified: str | None = None
    robots: Robots = Robots()
    facts: dict[str, Any] = {}
    image: dict[str, Any] | None = None
    warc: Place | None = None
    captured_ms: int | None = None
    is_cut: bool = False


_Kind = TypeVar("_Kind")
_encoder = msgspec.json.Encoder()
_documents = msgspec.json.Decoder(Document)
_requests = msgspec.json.Decoder(Request)


def document_of(url: str, done: Done) -> Document:
    """Return the document of a single request."""
    return Document(
        url=url,
        outcome=done.hop.outcome,
        final_url=done.hop.url,
        hops=[done.hop],
        status=done.hop.status,
        error=done.error,
        retry_at=done.retry_at,
        mime=done.mime,
        length=done.length,
        digest=done.digest,
        truncated=done.truncated,
        etag=done.etag,
        last_modified=done.last_modified,
        robots=done.robots,
        facts=done.facts,
        warc=done.place,
        captured_ms=done.hop.time_ms if done.place else None,
    )


def unchanged(before: Document, done: Done) -> Document:
    """Return the document of an unchanged page: only the request is new."""
    return msgspec.structs.replace(
        before,
        hops=[done.hop],
        etag=done.etag or before.etag,
        last_modified=done.last_modified or before.last_modified,
    )


def joined(url: str, hop: Hop, rest: Document) -> Document:
    """Return a redirect's document: the target's, with another hop."""
    return msgspec.structs.replace(rest, url=url, hops=[hop, *rest.hops])


def encoded(document: Document) -> bytes:
    """Encode a document as JSON of at most 64 KB.

    A longer document loses facts first, then hops in the middle.
    """
    data = _encoder.encode(document)
    if len(data) > MAX_DATA_BYTES:
        data = _encoder.encode(msgspec.structs.replace(document, facts={}, is_cut=True))
    if len(data) > MAX_DATA_BYTES:
        ends = [document.hops[0], document.hops[-1]]
        short = msgspec.structs.replace(
            document, facts={}, hops=ends, error=document.error[:200], is_cut=True
        )
        data = _encoder.encode(short)
    return data


def decoded(data: bytes) -> Document:
    """Return the document of a row. Raises ValueError for damaged data."""
    return _read(_documents, data)


def request_bytes(request: Request) -> bytes:
    """Return a request in the form of the table."""
    return _encoder.encode(request)


def request_of(data: bytes) -> Request:
    """Return the request of a row. Raises ValueError for damaged data."""
    return _read(_requests, data)


def _read(decoder: "msgspec.json.Decoder[_Kind]", data: bytes) -> _Kind:
    try:
        return decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise ValueError(f"a row is damaged: {error}") from error
