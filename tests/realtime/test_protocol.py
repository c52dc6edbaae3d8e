"""The lines between scheduler and fetcher: each type goes there and back, and no other line is accepted."""

import msgspec
import pytest

from crawl_lib.errors import ProtocolError
from crawl_lib.realtime import protocol
from crawl_lib.realtime.protocol import (
    MAX_LINE_BYTES,
    Body,
    Cancel,
    ClosedPart,
    Done,
    Fetch,
    Grant,
    Hello,
    Hop,
    LineReader,
    PageTarget,
    Place,
    Refused,
    Robots,
    ToFetcher,
    ToScheduler,
)

KEY = "0a" * 20
HELLO = Hello(version=protocol.PROTOCOL_VERSION, name="live-0")
HOP = Hop(
    url="http://a.example/",
    key=KEY,
    outcome="redirect",
    status=301,
    time_ms=1_795_000_000_000,
    duration_ms=12,
)


def fetch(**fields: object) -> Fetch:
    return msgspec.convert(
        {"type": "fetch", "id": 1, "url": "http://a.example/", "key": KEY, **fields}, Fetch
    )


def reader(kind: object = ToScheduler) -> LineReader[object]:
    return LineReader(kind, "fetcher live-0")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (ToFetcher, Grant(parts=((0, 127), (200, 255)))),
        (ToFetcher, fetch()),
        (
            ToFetcher,
            fetch(
                later=True,
                left_s=2.5,
                mime_types=["text/html"],
                via=KEY,
                etag='"a\n"',
                is_probe=True,
            ),
        ),
        (ToFetcher, Cancel(id=7)),
        (ToScheduler, Body(id=7, is_head=True, data=bytes(range(256)))),
        (
            ToScheduler,
            Done(id=7, hop=HOP, target=PageTarget(url="http://b.example/", key=KEY, how="refresh")),
        ),
        (
            ToScheduler,
            Done(id=7, hop=HOP, facts={"title": "\u2028\U0001f600"}, robots=Robots(noindex=True)),
        ),
        (
            ToScheduler,
            Done(id=7, hop=HOP, place=Place(warc="krake-0.warc.gz", offset=9, length=1 << 33)),
        ),
        (ToScheduler, Refused(id=7, rule="not_granted", reason="part 3", retry_at=1_795_000_000)),
        (ToScheduler, ClosedPart(name="krake-live-0-00001", pages=3)),
    ],
)
def test_a_message_arrives_as_it_was_sent_in_pieces_of_any_size(
    kind: object, message: protocol.Message
) -> None:
    line = message.to_line()
    assert line.count(b"\n") == 1
    for size in (1, 7, len(line)):
        found, data = reader(kind), HELLO.to_line() + line + line
        pieces = [data[start : start + size] for start in range(0, len(data), size)]
        assert [one for piece in pieces for one in found.feed(piece)] == [message, message]
        assert found.hello == HELLO


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"{}\n",
        b"[]\n",
        b"null\n",
        b"{\n",
        b"\xff\xfe\n",
        b'{"type":"fetch","id":1}\n',  # the scheduler's, not the fetcher's
        b'{"type":"hello","version":1}\n',
        b'{"type":"cancel"}\n',
        b'{"type":"refused","id":-1,"rule":"a"}\n',
        b'{"type":"refused","id":1e400,"rule":"a"}\n',
        b'{"type":"refused","id":true,"rule":"a"}\n',
        b'{"type":"refused","id":"1","rule":"a"}\n',
        b'{"type":"refused","id":18014398509481984,"rule":"a"}\n',
        b'{"type":"refused","id":1,"rule":null}\n',
        b'{"type":"done","id":1,"hop":{"url":"a","key":"a","outcome":"ok"}}\n',
        b'{"type":"done","id":1,"facts":[]}\n',
        b'{"type":"body","id":1,"data":"%"}\n',
        b'{"type":"done","id":1,"facts":' + b"[" * 20_000 + b"\n",
    ],
)
def test_a_malformed_line_is_a_typed_error_that_names_the_sender(line: bytes) -> None:
    found = reader()
    list(found.feed(HELLO.to_line()))
    with pytest.raises(ProtocolError, match=r"^fetcher live-0: ") as error:
        list(found.feed(line))
    assert len(str(error.value)) < 500


def test_messages_before_a_malformed_line_are_read() -> None:
    messages = reader().feed(HELLO.to_line() + Refused(id=1, rule="a").to_line() + b"x\n")
    assert next(messages) == Refused(id=1, rule="a")
    with pytest.raises(ProtocolError):
        next(messages)


@pytest.mark.parametrize(
    "first", [Refused(id=1, rule="a"), Hello(version=protocol.PROTOCOL_VERSION + 1)]
)
def test_the_first_line_is_a_hello_of_our_version(first: protocol.Message) -> None:
    with pytest.raises(ProtocolError):
        list(reader().feed(first.to_line()))


def test_a_line_without_end_is_refused_before_memory_is_full() -> None:
    found = reader()
    list(found.feed(HELLO.to_line()))
    list(found.feed(b" " * (MAX_LINE_BYTES - 1)))
    with pytest.raises(ProtocolError, match="more than"):
        list(found.feed(b" "))
    with pytest.raises(ProtocolError, match="a line of"):
        Refused(id=1, rule="a" * MAX_LINE_BYTES).to_line()


def test_unknown_fields_of_a_later_version_are_passed_over() -> None:
    found = reader()
    line = b'{"type":"refused","id":1,"rule":"a","more":[1]}\n'
    assert list(found.feed(HELLO.to_line() + line)) == [Refused(id=1, rule="a")]
