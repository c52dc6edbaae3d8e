"""The plain records that travel between the rooms."""

from dataclasses import dataclass, field
from hashlib import sha1

from crawl_lib.states import Outcome

MAX_RECORD_BYTES = 256 << 20
"""Of a WARC record, its head included: what every reader of ours reads, since a record is held in memory whole."""
MAX_BODY_BYTES = MAX_RECORD_BYTES - (1 << 20)
"""Of a body that may be fetched, so that its record can be read again. The rest is for heads: WARC's with a URL of
65,535 characters, and a server's of `fetch.max_header_bytes`."""


@dataclass(frozen=True, slots=True)
class QueuedUrl:
    """A line of a data file with its line of meta: a URL that waits for its fetch.

    `via`: key (20 bytes) of the page it was found on, None for seeds. `depth`: links from the seed; a redirect keeps
    it. `redirects`: hops since the last link. `metadata`: JSON object text of the seed's `key=value` fields, or "".
    """

    url: str
    via: bytes | None = None
    depth: int = 0
    redirects: int = 0
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class TakenUrl:
    """A URL of a take. `position` counts from 0 in batch order; `key` is SHA-1 of the URL, 20 bytes."""

    position: int
    key: bytes
    queued: QueuedUrl


@dataclass(slots=True)
class Fetched:
    """What one URL's fetch ended in, as the transport saw it.

    `time`: POSIX seconds of the last try's start. `head`: status line and header lines of the last block, byte for
    byte, with the empty line. `body`: as on the wire, transfer and content codings included. `request`: the request
    head as sent. All three are b"" where nothing was sent or came. `truncated`: None, or WARC-Truncated's word
    (`length`, `time`, `disconnect`). `error`: one line for people, "" if none. `attempts`: tries, 0 if none was sent.
    """

    url: str
    time: float
    outcome: Outcome
    status: int | None = None
    ip: str | None = None
    request: bytes = b""
    head: bytes = b""
    body: bytes = b""
    truncated: str | None = None
    attempts: int = 0
    duration_ms: int = 0
    error: str = ""
    _body_sha1: bytes = field(default=b"", init=False, repr=False, compare=False)

    def body_sha1(self) -> bytes:
        """SHA-1 of `body`, 20 bytes. Kept: the record and the row of most pages need the same one (20 us for 21 KB)."""
        if not self._body_sha1:
            self._body_sha1 = sha1(self.body, usedforsecurity=False).digest()
        return self._body_sha1
