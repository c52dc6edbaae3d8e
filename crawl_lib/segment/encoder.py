"""The bytes of WARC/1.1 records: one gzip member each, put together by hand for speed.

Field order and digests are warcio's; the tests prove equality byte for byte. Clock and id source are arguments.
The group of one URL is: request, response, metadata; of a URL without a response: metadata alone. A visit that found
the page as it was has a revisit record in the place of the response (`revisit`). A group ends with its metadata record,
which carries all that a rerun needs to make the rows again.
Source: https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/
"""

import os
import re
from collections.abc import Callable
from hashlib import sha1
from typing import NamedTuple

from isal import igzip_lib

from crawl_lib.dataclass import dataclass
from crawl_lib.records import Fetched, TakenUrl
from crawl_lib.segment.payload import payload_of
from crawl_lib.states import WITH_RESPONSE, Outcome
from crawl_lib.warc import END, base32, escape_field, safe_uri, utc_text

FORMAT_VERSION = 1
"""Version of the segment: its WARC fields, tables and manifest."""

EMPTY_DIGEST = "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ"
ODD_LINE = re.compile(rb"\n[^!-~]")
_FIELDS = "warc-fields"
_UUID_BYTES, _DRAWN_AHEAD = 16, 64
_drawn: list[str] = []
"""Random numbers in hexadecimal, drawn ahead: a call to the kernel for each id takes as long as making the id."""
os.register_at_fork(after_in_child=_drawn.clear)
_VARIANTS = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))


class Position(NamedTuple):
    """The place of a record: its file's name, and offset and length of its gzip member in bytes."""

    warc_file: str
    offset: int
    length: int


class Group(NamedTuple):
    """The bytes of a URL's records.

    `main_offset`, `main_length`: the response's member in `data`, or the metadata's where there is no response.
    `digest`: the response's payload digest ("sha1:..."), "" where it is not certain, None without a response.
    """

    data: bytes
    main_offset: int
    main_length: int
    digest: str | None


@dataclass(frozen=True)
class WarcInfo:
    """The facts about a crawl in the first record of each file.

    `part_of`: folder and node, as `<folder>/<node>`. `config_digest`: hex SHA-256 of the effective config.
    `user_agent`: the header as sent. `robots_policy`: `fetch.robots`.
    """

    krake_version: str
    config_digest: str
    user_agent: str
    robots_policy: str
    part_of: str = ""

    def fields(self) -> dict[str, str]:
        """Return the fields of the record's block, in order."""
        return {
            "software": f"krake/{self.krake_version}",
            "format": "WARC File Format 1.1",
            "conformsTo": "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
            "http-header-user-agent": self.user_agent,
            "robots": self.robots_policy,
            "isPartOf": self.part_of,
            "krake-format-version": str(FORMAT_VERSION),
            "krake-config-digest": self.config_digest,
        }


def new_record_id() -> str:
    """Return a random record id, `<urn:uuid:...>` (RFC 4122, version 4)."""
    try:
        h = _drawn.pop()
    except IndexError:
        digits = os.urandom(_UUID_BYTES * _DRAWN_AHEAD).hex()
        h, *rest = (
            digits[start : start + 2 * _UUID_BYTES]
            for start in range(0, len(digits), 2 * _UUID_BYTES)
        )
        _drawn.extend(rest)
    return f"<urn:uuid:{h[:8]}-{h[8:12]}-4{h[13:16]}-{_VARIANTS[h[16]]}{h[17:20]}-{h[20:]}>"


def has_certain_end(head: bytes) -> bool:
    """Return whether all readers agree where the head ends.

    It ends with an empty line, and no earlier line could be taken for one.
    """
    odd = ODD_LINE.search(head)
    return (
        head.startswith(b"HTTP/")
        and head.endswith(END)
        and odd is not None
        and odd.start() == len(head) - 3
    )


class RecordEncoder:
    """Makes records. `gzip_level`: 0 (fast) to 3, of isal. `new_id`: gives `<urn:uuid:...>`.

    `file_id`: the record id of the warcinfo record of the file that is written, which each record names; "" for none.
    No server can know the id, so a record in a body does not pass for one of the file (`warc.FileId`).
    """

    def __init__(
        self, gzip_level: int = 2, new_id: Callable[[], str] = new_record_id, file_id: str = ""
    ) -> None:
        self._level, self._new_id, self.file_id = gzip_level, new_id, file_id

    def warcinfo(self, filename: str, info: WarcInfo, seconds: float, file_id: str = "") -> bytes:
        """Make the record at the head of a file.

        The records that follow belong to that file.

        `file_id`: of records that the file has already; "": a new id.
        """
        block = "".join(
            f"{name}: {escape_field(value)}\r\n" for name, value in info.fields().items() if value
        ).encode()
        lines = (
            f"WARC-Filename: {filename}\r\nWARC-Date: "
            f"{utc_text(seconds)}\r\nWARC-Block-Digest: {_digest(block)}\r\n"
        )
        self.file_id = ""  # the record itself names none
        file_id = file_id or self._new_id()
        data = self._record("warcinfo", file_id, lines, _FIELDS, block)
        self.file_id = file_id
        return data

    def group(self, fetched: Fetched, taken: TakenUrl | None) -> Group:
        """Encode all records of a URL.

        `taken` is None for a robots.txt capture.
        """
        if not (fetched.head and fetched.outcome in WITH_RESPONSE):
            data = self.metadata(fetched, taken)
            return Group(data, 0, len(data), None)
        uri = safe_uri(fetched.url)
        about = f"WARC-Target-URI: {uri}\r\nWARC-Date: {utc_text(fetched.time)}\r\n"
        ip = f"WARC-IP-Address: {fetched.ip}\r\n" if fetched.ip else ""
        response_id = self._new_id()
        concurrent = f"WARC-Concurrent-To: {response_id}\r\n"
        request = b""
        if fetched.request:  # what is imported or salvaged may have none; none is made up
            lines = (
                f"{about}{concurrent}{ip}"
                f"WARC-Payload-Digest: {EMPTY_DIGEST}\r\nWARC-Block-Digest: {_digest(fetched.request)}\r\n"
            )
            request = self._record(
                "request", self._new_id(), lines, "http; msgtype=request", fetched.request
            )
        kind, refers, cut, head, body = (
            "response",
            "",
            fetched.truncated,
            fetched.head,
            fetched.body,
        )
        digest = f"sha1:{base32(payload_of(fetched).sha1)}" if has_certain_end(fetched.head) else ""
        if fetched.revisits is not None:
            kind, refers, body = "revisit", _refers(fetched, uri), b""
            cut, head = (None, b"") if fetched.outcome is Outcome.NOT_MODIFIED else ("length", head)
            digest = (
                f"sha1:{base32(bytes.fromhex(fetched.revisits.digest))}"
                if fetched.revisits.digest
                else ""
            )
        whole = sha1(head)
        whole.update(body)
        payload = f"WARC-Payload-Digest: {digest}\r\n" if digest else ""
        truncated = f"WARC-Truncated: {cut}\r\n" if cut else ""
        lines = f"{about}{ip}{refers}{truncated}{payload}WARC-Block-Digest: sha1:{base32(whole.digest())}\r\n"
        response = self._record(kind, response_id, lines, "http; msgtype=response", head, body)
        metadata = self._metadata(fetched, taken, uri, about + concurrent)
        return Group(b"".join((request, response, metadata)), len(request), len(response), digest)

    def metadata(self, fetched: Fetched, taken: TakenUrl | None, response_id: str = "") -> bytes:
        """Make the record that ends a group.

        `response_id`: the id of its response, if there is one.
        """
        uri, ip = safe_uri(fetched.url), f"WARC-IP-Address: {fetched.ip}\r\n" if fetched.ip else ""
        more = f"WARC-Concurrent-To: {response_id}\r\n" if response_id else ip
        about = f"WARC-Target-URI: {uri}\r\nWARC-Date: {utc_text(fetched.time)}\r\n{more}"
        return self._metadata(fetched, taken, uri, about)

    def _metadata(self, fetched: Fetched, taken: TakenUrl | None, uri: str, about: str) -> bytes:
        block = metadata_fields(fetched, taken, uri).encode("utf-8", "backslashreplace")
        digest = _digest(block)
        lines = f"{about}WARC-Payload-Digest: {digest}\r\nWARC-Block-Digest: {digest}\r\n"
        return self._record("metadata", self._new_id(), lines, _FIELDS, block)

    def _record(self, kind: str, record_id: str, lines: str, content: str, *block: bytes) -> bytes:
        file_line = f"WARC-Warcinfo-ID: {self.file_id}\r\n" if self.file_id else ""
        head = (
            f"WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Record-ID: {record_id}\r\n{file_line}{lines}"
            f"Content-Type: application/{content}\r\nContent-Length: {sum(map(len, block))}\r\n\r\n"
        )
        return igzip_lib.compress(
            b"".join((head.encode(), *block, END)), self._level, igzip_lib.COMP_GZIP
        )


def _refers(fetched: Fetched, uri: str) -> str:
    """Return the fields that refer to the capture with the body.

    Both have the same URL, since outlink lines name no other.
    """
    assert fetched.revisits is not None
    profile = (
        "server-not-modified"
        if fetched.outcome is Outcome.NOT_MODIFIED
        else "identical-payload-digest"
    )
    return (
        f"WARC-Profile: http://netpreserve.org/warc/1.1/revisit/{profile}\r\nWARC-Refers-To-Target-URI: {uri}\r\n"
        f"WARC-Refers-To-Date: {utc_text(fetched.revisits.time)}\r\n"
    )


def metadata_fields(fetched: Fetched, taken: TakenUrl | None, uri: str) -> str:
    """Return the block of a metadata record, one field a line.

    A rerun needs these facts besides request and response.
    """
    if taken is None:
        of_url = of_lists = ""
    else:
        queued = taken.queued
        via = f"via: {queued.via.hex()}\r\n" if queued.via else ""
        of_url = (
            f"krake-position: {taken.position}\r\n{via}depth: "
            f"{queued.depth}\r\nkrake-redirects: {queued.redirects}\r\n"
        )
        of_lists = (
            _line("krake-seed-metadata", queued.metadata)
            + _line("krake-list", queued.list_name)
            + _line("krake-earlier", queued.earlier)
            + (f"krake-requisite: {queued.requisite}\r\n" if queued.requisite else "")
        )
    status = "" if fetched.status is None else f"krake-status: {fetched.status}\r\n"
    retry_at = "" if fetched.retry_at is None else f"krake-retry-at: {fetched.retry_at}\r\n"
    url = "" if uri == fetched.url else fetched.url
    head = ""
    if fetched.revisits is not None and fetched.outcome is Outcome.NOT_MODIFIED:
        head = _line("krake-head", fetched.head.decode("latin-1"))
    elif fetched.head and fetched.outcome in WITH_RESPONSE and not has_certain_end(fetched.head):
        head = f"krake-head-bytes: {len(fetched.head)}\r\n"
    return (
        f"krake-kind: {'robots' if taken is None else 'page'}\r\n{of_url}krake-outcome: {fetched.outcome}\r\n{status}"
        f"krake-attempts: {fetched.attempts}\r\nfetchTimeMs: {fetched.duration_ms}\r\n{of_lists}{retry_at}"
        f"{_line('krake-error', fetched.error)}{_line('krake-url', url)}{head}"
    )


def _line(name: str, value: str) -> str:
    return f"{name}: {escape_field(value)}\r\n" if value else ""


def _digest(data: bytes) -> str:
    return f"sha1:{base32(sha1(data).digest())}"
