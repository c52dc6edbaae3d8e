"""The pages of a foreign archive: pairs of records of one exchange, and whether the page is for this crawl."""

import json
from base64 import b16encode, b32encode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import md5, sha1, sha256
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from crawl_lib.errors import UrlError, os_errors
from crawl_lib.keys import ShardedKeyStore
from crawl_lib.parse import escape_octets
from crawl_lib.records import Fetched
from crawl_lib.repair import fetched_of, is_robots
from crawl_lib.states import KeyState
from crawl_lib.stores import Stores
from crawl_lib.urls import canonicalize, key_of
from crawl_lib.warc import Damage, WarcRecord, read_archive

EXAMPLES = 20
DIGESTS: dict[str, Callable[[bytes], Any]] = {"sha1": sha1, "md5": md5, "sha256": sha256}
CHUNK_PAGES = 500
CHUNK_BYTES = 32 << 20
RECORD_TYPES = frozenset(
    {
        "warcinfo",
        "request",
        "response",
        "resource",
        "revisit",
        "metadata",
        "conversion",
        "continuation",
    }
)


class ImportedPage(NamedTuple):
    """A page that may be imported. `metadata`: the origin of the page, as JSON."""

    fetched: Fetched
    key: bytes
    metadata: str


class ArchiveReader:
    """Reads archives one after the other, and yields the pages to import; all other records are counted.

    `keys`: the keys of the crawl; None before the crawl has keys. `seen`: keys of the pages yielded so far.
    """

    def __init__(self, stores: Stores, keys: ShardedKeyStore | None) -> None:
        self._stores, self._keys = stores, keys
        self.seen: set[bytes] = set()

    def read(self, file: "FileReport") -> Iterator[ImportedPage]:
        """Yield an archive's new pages, and robots.txt.

        Pages of an earlier archive or a fetch are left out. Raises KeyServerDownError: without an answer a page could
        be imported twice.
        """
        with os_errors(file.name), Path(file.name).open("rb") as archive:
            for chunk in _chunks(self._pages(archive, file)):
                states = (
                    self._keys.states({page.key for page in chunk}) if self._keys and chunk else {}
                )
                yield from (
                    page for page in chunk if self._is_wanted(page, states.get(page.key), file)
                )
        if not file.records:
            file.state = "refused"
        elif not file.pages and not file.robots:
            file.state = "nothing"

    def _pages(self, archive: BinaryIO, file: "FileReport") -> Iterator[ImportedPage]:
        for response, request in paired(self._records(archive, file), file):
            page = page_of(response, request, file)
            if page is not None:
                yield page

    def _records(self, archive: BinaryIO, file: "FileReport") -> Iterator[WarcRecord | Damage]:
        for item in read_archive(archive):
            done = archive.tell()
            self._stores.report(
                importing=file.name,
                done=done,
                total=file.size_bytes,
                unit="bytes",
                records=file.records,
            )
            yield item

    def _is_wanted(self, page: ImportedPage, state: KeyState | None, file: "FileReport") -> bool:
        if is_robots(page.fetched.url):
            file.robots += 1
            return True
        if page.key in self.seen:
            file.repeated += 1
            return False
        self.seen.add(page.key)
        if state not in {None, KeyState.QUEUED}:
            file.known += 1
            return False
        file.pages += 1
        file.waiting += state is KeyState.QUEUED
        return True


def _chunks(pages: Iterable[ImportedPage]) -> Iterator[list[ImportedPage]]:
    """Yield the pages in pieces, one for each question to the key store."""
    chunk: list[ImportedPage] = []
    size = 0
    for page in pages:
        chunk.append(page)
        size += len(page.fetched.body)
        if len(chunk) >= CHUNK_PAGES or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    yield chunk


def paired(
    items: Iterable[WarcRecord | Damage], file: "FileReport"
) -> Iterator[tuple[WarcRecord, WarcRecord | None]]:
    """Pair an archive's responses with their requests.

    Either record may come first; other records are counted in `file`.

    `items`: from `read_archive`.
    """
    response: WarcRecord | None = None
    request: WarcRecord | None = None
    for item in items:
        if isinstance(item, Damage):
            file.reject(item.reason, item.offset)
            continue
        file.records += 1
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
    """Say whether two records are of one exchange.

    Their ids decide, or else their URLs.
    """
    ids = [
        (one.headers["warc-concurrent-to"], other.headers.get("warc-record-id"))
        for one, other in ((request, response), (response, request))
        if "warc-concurrent-to" in one.headers
    ]
    return any(a == b for a, b in ids) if ids else response.url == request.url


def page_of(
    response: WarcRecord, request: WarcRecord | None, file: "FileReport"
) -> ImportedPage | None:
    """Return a response as a page, or None.

    A refused response is counted in `file`.
    """
    url, reason = response.url, ""
    try:
        if request is not None and not request.block.startswith(b"GET "):
            reason = "not_get"
        else:
            octets = url.encode("utf-8", "surrogateescape")
            url = canonicalize(escape_octets(octets.decode("latin-1")))
            if digest_is_right(response):
                fetched = fetched_of(response, url)
            else:
                reason = "block_digest"
    except UrlError as error:
        reason = f"url_{error.reason}"
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        reason = "no_http_answer" if "HTTP" in str(error) else "no_date"
    if reason:
        file.reject(reason, response.offset, url)
        return None
    if request is not None:
        fetched.request = request.block
    origin = {
        "imported_from": Path(file.name).name,
        "record_id": response.headers.get("warc-record-id", ""),
    }
    return ImportedPage(fetched, key_of(url), json.dumps(origin))


def digest_is_right(record: WarcRecord) -> bool:
    """Say whether a record's block fits its digest, if computable."""
    name, _, value = record.headers.get("warc-block-digest", "").partition(":")
    make = DIGESTS.get(name.strip().lower())
    if make is None or not value:
        return True
    made: bytes = make(record.block).digest()
    spellings = {spell(made).decode().rstrip("=").lower() for spell in (b16encode, b32encode)}
    return value.strip().rstrip("=").lower() in spellings


@dataclass
class FileReport:
    """Result for a single archive.

    `state`: `imported`, `nothing` (read, without a page to import: the counts say why), `already_imported`, `refused`
    (no readable record), or `readable` (dry run). `records`: all readable records. `pages`: the imported pages;
    `waiting`: the imported pages whose URL waits in a queue, and stays there; `known`: pages that the crawl has
    already; `repeated`: pages that came before in these archives. `robots`: captures of robots.txt. `skipped`: records
    without a page, by type, also requests without responses; `rejected`: responses and damaged places by reason;
    `first`: the first of these with their offsets.
    """

    name: str
    sha256: str
    size_bytes: int
    state: str = "imported"
    records: int = 0
    pages: int = 0
    robots: int = 0
    waiting: int = 0
    known: int = 0
    repeated: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    rejected: dict[str, int] = field(default_factory=dict)
    first: list[str] = field(default_factory=list)

    def skip(self, kind: str) -> None:
        """Count a record that is no page."""
        self.skipped[kind] = self.skipped.get(kind, 0) + 1

    def reject(self, reason: str, offset: int, what: str = "") -> None:
        """Count a bad record or place with its first byte."""
        self.rejected[reason] = self.rejected.get(reason, 0) + 1
        if len(self.first) < EXAMPLES:
            self.first.append(
                f"{self.name}: byte {offset}: {reason}{f': {what[:200]}' if what else ''}"
            )


@dataclass
class ImportReport:
    """The work of an import. `folder`: the iteration's, or "" without pages. `files`: a report for each archive."""

    folder: str = ""
    files: list[FileReport] = field(default_factory=list)
    dry_run: bool = False

    @property
    def totals(self) -> dict[str, int]:
        """The sums over all files."""
        names = ("records", "pages", "robots", "waiting", "known", "repeated")
        totals = {name: sum(getattr(file, name) for file in self.files) for name in names}
        for name in ("skipped", "rejected"):
            totals[name] = sum(sum(getattr(file, name).values()) for file in self.files)
        return totals
