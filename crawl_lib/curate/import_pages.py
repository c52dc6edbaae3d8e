"""The pages of a foreign archive: which of its records are one exchange, and whether that is a page of this crawl."""

from __future__ import annotations

import json
from base64 import b32decode
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import md5, sha1, sha256
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from crawl_lib.curate.import_report import FileReport
from crawl_lib.errors import UrlError
from crawl_lib.records import Fetched
from crawl_lib.repair import IMPORTED_FROM, fetched_of
from crawl_lib.segment import Damage, WarcRecord, read_archive
from crawl_lib.urls import canonicalize, key_of

DIGESTS: dict[str, Callable[[bytes], Any]] = {"sha1": sha1, "md5": md5, "sha256": sha256}
RECORD_TYPES = frozenset(
    {"warcinfo", "request", "response", "resource", "revisit", "metadata", "conversion", "continuation"}
)


class ImportedPage(NamedTuple):
    """A page that may be imported. `offset`: of its response; `metadata`: where it comes from, as JSON."""

    fetched: Fetched
    key: bytes
    offset: int
    metadata: str


def paired(
    archive: BinaryIO, file: FileReport, tell: Callable[[str, int], None]
) -> Iterator[tuple[WarcRecord, WarcRecord | None]]:
    """The responses of an archive with their requests, whichever comes first; all else is counted in `file`."""
    response: WarcRecord | None = None
    request: WarcRecord | None = None
    for item in read_archive(archive):
        if isinstance(item, Damage):
            file.reject(item.reason, item.offset)
            continue
        file.records += 1
        tell(file.name, file.records)
        if item.type == "response":
            if response is not None:
                yield response, None
            response = item
        elif item.type == "request":
            if request is not None:
                file.skip(request.type)
            request = item
        else:
            file.skip(item.type if item.type in RECORD_TYPES else "other")
        if response is not None and request is not None and _match(response, request):
            yield response, request
            response = request = None
    if response is not None:
        yield response, None
    if request is not None:
        file.skip("request")


def _match(response: WarcRecord, request: WarcRecord) -> bool:
    """Whether two records are of one exchange: by their ids where they name any, else by their URL."""
    ids = [
        (one.headers["warc-concurrent-to"], other.headers.get("warc-record-id"))
        for one, other in ((request, response), (response, request))
        if "warc-concurrent-to" in one.headers
    ]
    return any(a == b for a, b in ids) if ids else response.url == request.url


def page_of(response: WarcRecord, request: WarcRecord | None, file: FileReport) -> ImportedPage | None:
    """What a response is as a page of this crawl; None, counted in `file`, if it is none."""
    if request is not None and not request.block.startswith(b"GET "):
        file.reject("not_get", response.offset, response.url)
        return None
    try:
        url = canonicalize(response.url)
    except UrlError as error:
        file.reject(f"url_{error.reason}", response.offset, response.url)
        return None
    if not digest_is_right(response):
        file.reject("block_digest", response.offset, url)
        return None
    try:
        fetched = fetched_of(response, url)
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        file.reject("no_http_answer" if "HTTP" in str(error) else "no_date", response.offset, url)
        return None
    if request is not None:
        fetched.request = request.block
    origin = {IMPORTED_FROM: Path(file.name).name, "record_id": response.headers.get("warc-record-id", "")}
    return ImportedPage(fetched, key_of(url), response.offset, json.dumps(origin))


def digest_is_right(record: WarcRecord) -> bool:
    """Whether a record's block is what its digest says, where it has one that we can compute."""
    name, colon, value = record.headers.get("warc-block-digest", "").partition(":")
    make = DIGESTS.get(name.strip().lower())
    if make is None or not colon:
        return True
    made: bytes = make(record.block).digest()
    value = value.strip()
    with suppress(ValueError):
        if len(value) == 2 * len(made):
            return bytes.fromhex(value) == made
        return b32decode(value.upper() + "=" * (-len(value) % 8)) == made
    return False
