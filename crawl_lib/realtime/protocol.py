"""The lines that scheduler and fetcher say to each other: one JSON object a line, its type in the field `type`.

Each side says `hello` first, with the version of the protocol. Then the scheduler says `rates`, `grant`, `fetch` and
`cancel`; the fetcher says `body`, `done`, `refused` and `part`. Times are POSIX milliseconds; keys and digests are
hexadecimal.

A fetcher on another machine (`gate`) has the same lines over TLS. Its scheduler says `setup` after `hello`, and `stop`
in place of the end of a socket. The fetcher says `clock` twice a second, and the scheduler says `grant` after that. The
gate says `parting` before it ends a line.

With `realtime.share_turns` a fetcher says `ask_turn` before its first request to an address. The scheduler answers with
`turn`.

A hostile page may have taken over the fetcher. Lines have at most `MAX_LINE_BYTES`, each field has its type, and any
other line raises `ProtocolError`.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from crawl_lib.errors import ProtocolError
from crawl_lib.fetch import HostState

PROTOCOL_VERSION = 3
"""Raised with each line that the other end must know; 3: `rates`, `ask_turn`, `turn`, and `ask_backlog` of a gate."""
MAX_LINE_BYTES = 256 << 10
"""The most bytes of a line. A document has at most 64 KB, and a URL may have 65,535 characters."""
MAX_FACTS_BYTES = 48 << 10
"""The most bytes of the facts of a page, as JSON; the rest of a document's 64 KB is for the hops."""
MAX_ROBOTS_BYTES = 96 << 10
"""The longest robots.txt that fetchers share, before base64 makes it a third longer. Another owner asks again."""
BODY_PIECE_BYTES = 96 << 10
"""The most bytes of an answer in one `body`, before base64 makes them a third longer."""
ALL_PARTS = (0, 255)

Key = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{40}$")]
Id = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
PartNumber = Annotated[int, msgspec.Meta(ge=0, le=255)]
IpAddress = Annotated[str, msgspec.Meta(min_length=2, max_length=64)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """A line. Unknown fields, as a later version may have them, are passed over."""

    def to_line(self) -> bytes:
        """Return the line, with the newline.

        Raises ProtocolError for a line above the limit.
        """
        line = _encoder.encode(self) + b"\n"
        if len(line) > MAX_LINE_BYTES:
            raise ProtocolError(f"a line of {len(line)} bytes; the most is {MAX_LINE_BYTES}")
        return line


class Hello(Message, tag="hello", frozen=True, kw_only=True):
    """The first line of either side. `name`: of the fetcher, such as `live-0`."""

    version: int
    name: str = ""


class Grant(Message, tag="grant", frozen=True, kw_only=True):
    """The hosts for the fetcher from now on, in place of the hosts of the last grant.

    `parts`: ranges of the parts 0 to 255, both ends included. A fetcher without a grant refuses each URL. `until_ms`:
    the end of the grant by the fetcher's own clock (`Clock`), None without an end. `unowned`: the parts among them that
    no fetcher ever had. `number`: of the grant, for `Clock`; from 1 on in the lines of a fetcher on another machine.
    """

    parts: tuple[tuple[PartNumber, PartNumber], ...]
    until_ms: Count | None = None
    unowned: tuple[tuple[PartNumber, PartNumber], ...] = ()
    number: Count = 0


class Clock(Message, tag="clock", frozen=True, kw_only=True):
    """The time by a fetcher's own clock, which never jumps, in milliseconds.

    `heard`: the number of the last grant; 0 while a request to a host without a grant is on its way.
    """

    now_ms: Count
    heard: Count = 0


class AskTurn(Message, tag="ask_turn", frozen=True, kw_only=True):
    """A fetcher's question for the turn of an address, asked once until the answer.

    `turns`: how many requests wait for the address. `start_s`: seconds that a connection to the address may take.
    `now_ms`: the fetcher's own clock (`Clock`).
    """

    address: IpAddress
    turns: Annotated[int, msgspec.Meta(ge=1, lt=1 << 31)]
    start_s: Annotated[float, msgspec.Meta(ge=0, le=60)]
    now_ms: Count


class Turn(Message, tag="turn", frozen=True, kw_only=True):
    """The span of time in which a fetcher may send requests to an address.

    `wait_ms`: from the receipt of this line to the start of the span. `until_ms`: the end of the span by the fetcher's
    own clock.
    """

    address: IpAddress
    wait_ms: Count
    until_ms: Count


class Setup(Message, tag="setup", frozen=True, kw_only=True):
    """The config of a fetcher on another machine. `digest`: SHA-256 of the service's config, for WARC files."""

    config: dict[str, Any]
    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class Stop(Message, tag="stop", frozen=True, kw_only=True):
    """The scheduler ends. The fetcher begins no further request, closes its part, and ends the line."""


class Fetch(Message, tag="fetch", frozen=True, kw_only=True):
    """A URL to fetch once. A redirect is reported, and its target is another `Fetch` of the scheduler.

    `id`: the scheduler's number, used for one URL only. `part`: of the host, for `Grant`. `later`: serve it after all
    other URLs of its host, as pictures are. `redirects`: hops before this one; a target of a redirect comes before new
    URLs of its host. `via`: the key of the hop before. `left_s`: seconds that requests for the URL may still take,
    waiting not included. `time_limit_s`, `max_body_bytes`, `mime_types`: limits of the policy, in place of those of
    `fetch`, if lower. `etag`, `last_modified`: of the answer that the row has, for a conditional request. `earlier`:
    the last full capture of the page in a segment (`records.Earlier`). `is_probe`: the URL is a picture of a page. Its
    type and size are read, and its records are those of a requisite. `is_bare`: leave no record, and report the answer
    itself in `body` lines. `is_first`: the first URL of the authority since the lease began. `known`: with it, what an
    earlier owner knew of the host; None for a host of which nothing is known.
    """

    id: Id
    url: str
    key: Key
    part: PartNumber = 0
    later: bool = False
    redirects: Count = 0
    via: Key | None = None
    left_s: Seconds | None = None
    time_limit_s: Seconds | None = None
    max_body_bytes: Annotated[int, msgspec.Meta(ge=1)] | None = None
    mime_types: tuple[str, ...] | None = None
    etag: str | None = None
    last_modified: str | None = None
    earlier: str = ""
    is_probe: bool = False
    is_bare: bool = False
    is_first: bool = False
    known: HostState | None = None


class Rate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rate that an operator has set for a domain and all names below it; None: as the config says.

    `delay_s`: seconds between requests to a host. `connections`: at once, to a host without a delay.
    """

    domain: Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
    delay_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] | None = None
    connections: Annotated[int, msgspec.Meta(ge=1, le=1000)] | None = None
    is_blocked: bool = False


class Rates(Message, tag="rates", frozen=True, kw_only=True):
    """The rates in force from now on, in place of the rates of the last such line."""

    rates: tuple[Rate, ...] = ()


class Cancel(Message, tag="cancel", frozen=True, kw_only=True):
    """A URL is no longer wanted. A request already sent goes on, and a `Done` follows."""

    id: Id


class Hop(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a chain, as documents list them. `status`: None without an answer. `time_ms`: its start."""

    url: str
    key: Key
    outcome: str
    status: int | None = None
    time_ms: Count = 0
    duration_ms: Count = 0


class PageTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The target of a page. `how`: `redirect`, `refresh` (a field or a meta), or `rule` (a normaliser's other URL)."""

    url: str
    key: Key
    how: str


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a fetch's record in the fetcher's spool."""

    warc: str
    offset: Count
    length: Count


class Robots(msgspec.Struct, frozen=True, kw_only=True):
    """The page's words to robots, by meta or field; with `nosnippet` the facts have no description."""

    noindex: bool = False
    noarchive: bool = False
    nosnippet: bool = False


class Body(Message, tag="body", frozen=True, kw_only=True):
    """A piece of the answer to a bare fetch, in order: first the head, then the body. The `Done` follows."""

    id: Id
    is_head: bool = False
    data: bytes


class Done(Message, tag="done", frozen=True, kw_only=True):
    """The end of a `Fetch`.

    `hop`: this request. `target`: the canonical URL behind a redirect or refresh; the scheduler says whether the target
    may be fetched. `error`: a line for people. `retry_at`: POSIX seconds after which a temporary failure may be tried
    again. `spent_ms`: how long all tries took, waiting not included. `waited_ms`: from the
    `Fetch` to the first request. `attempts`: requests. `place`: None for a bare fetch. `truncated`: the word of
    WARC-Truncated. `facts`: what the page says of itself (`parse.facts`). `learned`: of the host, for the next owner of
    the part, where this has changed.
    """

    id: Id
    hop: Hop
    target: PageTarget | None = None
    error: str = ""
    retry_at: Count | None = None
    attempts: Count = 0
    spent_ms: Count = 0
    waited_ms: Count = 0
    mime: str | None = None
    length: Count | None = None
    digest: Key | None = None
    truncated: str | None = None
    etag: str | None = None
    last_modified: str | None = None
    robots: Robots = Robots()
    facts: dict[str, Any] = {}
    place: Place | None = None
    learned: HostState | None = None


class Refused(Message, tag="refused", frozen=True, kw_only=True):
    """A `Fetch` without a request: a rule forbids the URL, or the host is not granted.

    `rule`: `not_granted`, `cancelled`, `stopping`, or the name of a rejection. The URL stays due for the first three.
    """

    id: Id
    rule: str
    reason: str = ""
    retry_at: Count | None = None


class ClosedPart(Message, tag="part", frozen=True, kw_only=True):
    """A part of the spool is closed, and ready for `collect`. `name`: of the part, without a suffix."""

    name: str
    pages: Count = 0


class Parting(Message, tag="parting", frozen=True, kw_only=True):
    """The reason why a gate ends the line. The scheduler connects again after a pause.

    `is_death`: the fetcher has died, perhaps by a URL without an answer. `is_taken`: another scheduler has the fetcher.
    """

    reason: str
    is_death: bool = False
    is_taken: bool = False


ToFetcher = Hello | Rates | Grant | Fetch | Cancel | Stop | Turn
ToScheduler = Hello | Body | Done | Refused | ClosedPart | Clock | AskTurn | Parting
_Said = TypeVar("_Said")
_encoder = msgspec.json.Encoder()


class LineReader(Generic[_Said]):
    """Reads the lines of the other end out of pieces of any size: first its `Hello`, then messages."""

    def __init__(self, kind: object, who: str) -> None:
        """Read messages of a union, `ToFetcher` or `ToScheduler`.

        `who`: the other end, for messages of errors.
        """
        self._decoder = msgspec.json.Decoder(kind)
        self._who = who
        self._rest = bytearray()
        self.hello: Hello | None = None

    def feed(self, data: bytes) -> Iterator[_Said]:
        """Take a piece; return the messages now complete, without the first `Hello`.

        Raises ProtocolError for a malformed line, a line above the limit, and another version of the protocol. No line
        after such a line can be trusted: the caller ends the other process.
        """
        looked = len(self._rest)
        self._rest += data
        while (end := self._rest.find(b"\n", looked)) >= 0:
            line, looked = bytes(self._rest[:end]), 0
            del self._rest[: end + 1]
            if (message := self._read(line)) is not None:
                yield message
        if len(self._rest) >= MAX_LINE_BYTES:
            raise ProtocolError(f"{self._who}: a line of more than {MAX_LINE_BYTES} bytes")

    def _read(self, line: bytes) -> _Said | None:
        """Return the message of a line; None for the first `Hello`."""
        if len(line) >= MAX_LINE_BYTES:
            raise ProtocolError(f"{self._who}: a line of more than {MAX_LINE_BYTES} bytes")
        try:
            message: _Said | Hello = self._decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ProtocolError(f"{self._who}: a malformed line: {error}: {line[:80]!r}") from error
        if isinstance(message, Hello) == (self.hello is not None):
            raise ProtocolError(
                f"{self._who}: {'a second' if self.hello else 'no'} hello: {line[:80]!r}"
            )
        if not isinstance(message, Hello):
            return message
        if message.version != PROTOCOL_VERSION:
            raise ProtocolError(
                f"{self._who}: speaks version {message.version}, and we speak {PROTOCOL_VERSION}"
            )
        self.hello = message
        return None
