"""The plain records that travel between the rooms."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha1
from typing import Any, NamedTuple, TypeAlias

from crawl_lib.states import Outcome

JsonValue: TypeAlias = bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"] | None
"""A value of JSON without names of its own: other programs wrote it, or their formats rule it."""

MAX_RECORD_BYTES = 256 << 20
"""The size of a WARC record, head included. Every reader of ours reads such records, each whole in memory."""
MAX_BODY_BYTES = MAX_RECORD_BYTES - (1 << 20)
"""The size of a fetched body, so that its record can be read again. The rest of a record is for heads: WARC's with a
URL of 65,535 characters, and a server's of `fetch.max_header_bytes`."""


RETRY_LISTS = "retry-"
"""The beginning of the names of lists made by `krake retry`: pages of these lists were crawled and counted before."""


_LATEST_S = 1 << 33


@dataclass(frozen=True, slots=True)
class Earlier:
    """The last full capture of a page, as in a list's line: a visit compares with this capture, and refers to it.

    `segment`: `<folder>/<node>`; `file`: a WARC file of the segment; `offset`: where the response record begins.
    `time`: POSIX seconds of the capture. `digest`: SHA-1 of the payload, in hex (`WARC-Payload-Digest`), "" if
    uncertain. `etag`, `last_modified`: of the answer; without both the visit asks without conditions.
    """

    segment: str
    file: str
    offset: int
    time: float
    digest: str = ""
    etag: str | None = None
    last_modified: str | None = None

    def to_text(self) -> str:
        """Return the capture as JSON object text, without unknown fields."""
        return json.dumps(
            {name: value for name, value in asdict(self).items() if value not in {None, ""}}
        )

    @classmethod
    def of(cls, text: str) -> "Earlier | None":
        """Read the text of a line; None without a valid capture.

        A visit without a capture asks without conditions.
        """
        if not text:
            return None
        try:
            value = json.loads(text)
            segment, file, offset = str(value["segment"]), str(value["file"]), int(value["offset"])
            time, digest = float(value["time"]), str(value.get("digest") or "")
            if not 0 <= time < _LATEST_S or len(bytes.fromhex(digest)) not in {
                0,
                sha1().digest_size,
            }:
                return None
            etag, last_modified = (
                str(value.get(name) or "") or None for name in ("etag", "last_modified")
            )
            return cls(segment, file, offset, time, digest, etag, last_modified)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            return None

    @property
    def place(self) -> dict[str, str | int]:
        """The place of the capture, as in `refers_to` of `pages`."""
        return {"segment": self.segment, "file": self.file, "offset": self.offset}


@dataclass(frozen=True, slots=True)
class QueuedUrl:
    """A line of a data file with its line of meta: a URL that waits for its fetch.

    `via`: key (20 bytes) of the page with the link, None for seeds. `depth`: links from the seed; a redirect keeps the
    depth. `redirects`: hops (redirects, meta refreshes) since the last link. `metadata`: JSON object text of the seed's
    `key=value` fields, or "".
    `retries`: the number of iterations with a passing failure; `due`: POSIX seconds of the earliest take.
    `list_name`: the list (`<crawl>/lists/<name>/`) that names the URL even if crawled before; "" for other URLs.
    `earlier`: in a line with a list's name, JSON object text of the page's last full capture (`Earlier`), or "".
    `requisite`: steps from the page to a requisite (a style sheet 1, a font in that sheet 2); 0: a page.
    """

    url: str
    via: bytes | None = None
    depth: int = 0
    redirects: int = 0
    metadata: str = ""
    retries: int = 0
    due: int = 0
    list_name: str = ""
    earlier: str = ""
    requisite: int = 0

    @property
    def hops(self) -> str:
        """The field of a line with redirects and requisite steps: `hops_text`."""
        return hops_text(self.redirects, self.requisite)

    @property
    def hop(self) -> str:
        """Heritrix's letter for the last step on the way to the URL.

        `S` seed, `L` link, `R` redirect, `E` requisite.
        """
        if self.requisite:
            return "E"
        return "R" if self.redirects else "L" if self.depth else "S"


MOST_IMPORTS = 5
"""The number of style sheets that may import each other in a row."""
MOST_STEPS = MOST_IMPORTS + 2
"""The steps from a page to a requisite: a style sheet, its imports, and a font in the last import."""


def steps_of_row(row: Mapping[str, Any]) -> int:
    """Return a requisite's steps by its row of `pages`.

    `depth` counts the steps; 0 for a page.
    """
    return int(row["depth"]) if row.get("hop") == "E" else 0


def hops_text(redirects: int, requisite: int) -> str:
    """Return the field `2`, or for a requisite `2E1`.

    The numbers are redirects and steps.
    """
    return f"{redirects}E{requisite}" if requisite else str(redirects)


def metadata_with_list(queued: QueuedUrl) -> str | None:
    """Return the value of the column `metadata`, or None.

    The value has the seed's fields and, as `list`, the name of the list that asked. This name replaces a seed's own
    field `list`, and the name of an earlier list.
    """
    if not queued.list_name:
        return queued.metadata or None
    return json.dumps({**json_object(queued.metadata), "list": queued.list_name})


def metadata_without_list(text: str | None) -> str:
    """Return a seed's fields from the column `metadata`.

    The text is as in a line of a queue.
    """
    fields = json_object(text)
    if fields.pop("list", None) is None:
        return text or ""
    return json.dumps(fields) if fields else ""


def json_object(text: str | None) -> dict[str, JsonValue]:
    """Return a JSON object; keep anything else as one field.

    A queue made by hand may have other texts.
    """
    try:
        value = json.loads(text or "{}")
    except ValueError:
        value = text
    return value if isinstance(value, dict) else {"text": value}


@dataclass(frozen=True, slots=True)
class TakenUrl:
    """A URL of a take. `position` counts from 0 in batch order; `key` is SHA-1 of the URL, 20 bytes."""

    position: int
    key: bytes
    queued: QueuedUrl


class Payload(NamedTuple):
    """A payload. `sha1`: 20 bytes. `is_whole`: whether no coding was damaged or cut off. `data`: None once dropped."""

    sha1: bytes
    is_whole: bool
    data: bytes | None


@dataclass(slots=True)
class Fetched:
    """Result of a URL's fetch, as the transport saw it.

    `time`: POSIX seconds of the last try's start. `head`: status line and header lines of the last block, byte for
    byte, with the empty line. `body`: as on the wire, transfer and content codings included. `request`: the request
    head as sent. All three are b"" if nothing was sent or came. `truncated`: None, or WARC-Truncated's word
    (`length`, `time`, `disconnect`). `error`: one line for people, or "". `attempts`: tries, 0 if none was sent.
    `retry_at`: POSIX seconds of the next try after a passing failure; None: the result is final.
    `revisits`: the full capture with the same body, if the page is unchanged; None: this is a full capture. The writer
    of the record sets this field. `payload`: the body without its transfer coding (`segment.payload_of`). `spent_ms`:
    the time of all tries of this run, without waits between tries; not recorded.
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
    retry_at: int | None = None
    revisits: Earlier | None = None
    payload: Payload | None = field(default=None, init=False, repr=False, compare=False)
    spent_ms: int = field(default=0, init=False, repr=False, compare=False)

    def without_body(self) -> "Fetched":
        """Return a copy without the bytes of the body.

        Digest and completeness of the payload stay known.
        """
        bare = replace(self, body=b"")
        bare.payload = self.payload and self.payload._replace(data=None)
        return bare
