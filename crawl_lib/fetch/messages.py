"""What a transport is asked for and what it gives back, and the little it must understand of a head to do so."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from crawl_lib.config import FetchConfig
from crawl_lib.version import VERSION


class Mark(StrEnum):
    """Why we ended a transfer ourselves: ends that curl reports under numbers it uses for other things too."""

    NONE = ""
    LENGTH = "length"
    MIME = "mime"
    HEADER = "header"
    ADDRESS = "address"
    STALE = "stale"
    UNUSABLE = "unusable"


@dataclass(slots=True)
class Ask:
    """What to send. `address`: text form to connect to; None where a proxy looks names up (curl itself never does).

    `max_body_bytes`: the body is cut there. `mime_types`: types whose body is taken in an answer of 200 to 299; None
    takes all. `fresh`: use no kept connection. `before_send`: called once it is connected, right before the
    request is written, with the address.
    """

    url: str
    scheme_end: int
    path_start: int
    address: str | None
    max_body_bytes: int
    mime_types: frozenset[str] | None = None
    fresh: bool = False
    before_send: Callable[[str], None] | None = None


@dataclass(slots=True)
class Reply:
    """What came. `code`: curl's number, 0 is whole; `mark`: why we ended it ourselves, if we did."""

    code: int
    message: str
    mark: Mark
    started: float
    duration_s: float
    sent: bool
    request: bytes
    head: bytes
    body: bytes
    status: int
    ip: str | None


def user_agent_header(config: FetchConfig) -> str:
    """The User-Agent header: `<token>/<version> (+<contact>)`, or `<token>/<version>` without a contact."""
    contact = f" (+{config.contact})" if config.contact else ""
    return f"{config.user_agent}/{VERSION}{contact}"


def declared_type(head: bytes) -> str:
    """The media type that a head's last Content-Type declares, in lower case without parameters; "" if none."""
    found = ""
    for line in head.split(b"\n"):
        if line[:13].lower() == b"content-type:":
            found = line[13:].partition(b";")[0].strip().lower().decode("latin-1")
    return found


def mime_allowed(mime: str, allowed: frozenset[str]) -> bool:
    """Whether `allowed` names the type, itself or as `text/*`. An undeclared type ("") is allowed."""
    return not mime or mime in allowed or f"{mime.partition('/')[0]}/*" in allowed


def last_block(lines: list[bytes]) -> bytes:
    """The last header block among the lines that came: interim 1xx blocks before it and trailers after it dropped."""
    if lines.count(b"\r\n") == 1 and lines[-1] == b"\r\n":
        return b"".join(lines)
    start = 0
    for index, line in enumerate(lines):
        if line[:5] == b"HTTP/" and (index == 0 or not lines[index - 1].strip()):
            start = index
    end = next((index + 1 for index in range(start, len(lines)) if not lines[index].strip()), len(lines))
    return b"".join(lines[start:end])


def head_is_whole(head: bytes) -> bool:
    """Whether a header block ends with its empty line."""
    return head.endswith((b"\r\n\r\n", b"\n\n", b"\n\r\n"))
