"""Connections of clients that are slow, many, or speak no HTTP, and the end of the server."""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, closing
from threading import Event
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse

from crawl_lib.cli.parser import build_parser
from crawl_lib.errors import ConfigError
from crawl_lib.serve import Address, connections
from crawl_lib.serve.listening import Server, listen
from tests.index.made import Made
from tests.serve.made import LIMIT_S, Served

HELLO = PlainTextResponse("hello")
HALF = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
WHOLE = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
SLOW = WHOLE.replace(b"/", b"/slow", 1)
DRIPPING = 2_000


class Running:
    """A server in this process. `place`: where it listens."""

    def __init__(self, app: Any, most: int = 100) -> None:
        self.stop = Event()
        self._listening = listen(Address("127.0.0.1", 0))
        self.place: tuple[str, int] = self._listening.getsockname()
        self.server = Server(app, self.stop, connections.protocol_with(most))
        self._writers: list[asyncio.StreamWriter] = []

    async def run(self, test: Callable[[], Awaitable[None]]) -> None:
        """Run a test while the server runs, then end the server."""
        with closing(self._listening):
            serving = asyncio.create_task(self.server.serve([self._listening]))
            try:
                await asyncio.wait_for(test(), LIMIT_S)
            finally:
                self.stop.set()
                await asyncio.wait_for(serving, LIMIT_S)
                for writer in self._writers:
                    writer.transport.abort()
                await asyncio.sleep(0)

    async def open(self, data: bytes) -> asyncio.StreamReader:
        """What comes over a connection over which some bytes were sent."""
        reader, writer = await asyncio.open_connection(*self.place)
        self._writers.append(writer)
        writer.write(data)
        await writer.drain()
        return reader

    async def go_on(self, number: int, data: bytes) -> None:
        """Send more over the connection with a number."""
        self._writers[number].write(data)


class Slow:
    """An application that answers `SLOW` when `may_end` is set. `busy`: whether that was asked."""

    def __init__(self) -> None:
        self.busy, self.may_end = asyncio.Event(), asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/slow":
            self.busy.set()
            await self.may_end.wait()
        await HELLO(scope, receive, send)


async def rest(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the server ends the connection."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


def test_a_head_that_does_not_end_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.05)
    running = Running(HELLO)

    async def test() -> None:
        for data in (b"", HALF, WHOLE + HALF):
            reader = await running.open(data)
            assert (await rest(reader)).endswith(b"hello") == (data.startswith(WHOLE))

    asyncio.run(running.run(test))


def test_a_client_that_takes_no_answer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer is larger than what the system holds for both sides."""
    monkeypatch.setattr(connections, "ANSWER_S", 0.05)
    running = Running(PlainTextResponse(b"x" * (64 << 20)))

    async def test() -> None:
        await running.open(WHOLE)
        while (
            running.server.server_state.total_requests < 1
            or running.server.server_state.connections
        ):
            await asyncio.sleep(0)

    asyncio.run(running.run(test))


def test_an_answer_waits_for_no_acknowledgement() -> None:
    """Head and body are two writes: with Nagle's algorithm the second one waits 40 ms for a delayed acknowledgement."""
    running = Running(HELLO)

    async def test() -> None:
        await (await running.open(WHOLE)).readuntil(b"hello")
        [connection] = running.server.server_state.connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    asyncio.run(running.run(test))


class Timers:
    """Stands for an event loop: notes each deadline that is set."""

    def __init__(self) -> None:
        self.set: list[float] = []

    def call_later(self, seconds: float, work: Callable[[], None]) -> Timers:
        self.set.append(seconds)
        return self

    def cancel(self) -> None:
        pass


def test_each_byte_of_a_head_has_the_same_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    running, timers = Running(HELLO), Timers()
    running._listening.close()
    kind = connections.protocol_with(10)
    protocol = kind(running.server.config, running.server.server_state, {}, timers)

    class Transport(asyncio.Transport):
        def get_extra_info(self, name: str, default: Any = None) -> Any:
            return default

    protocol.connection_made(Transport())
    for byte in HALF:
        protocol.data_received(bytes([byte]))
    assert timers.set == [connections.HEAD_S]


def test_where_there_are_too_many_the_longest_wait_ends() -> None:
    running = Running(HELLO, most=20)

    async def test() -> None:
        slow = [await running.open(HALF) for _ in range(20)]
        reader = await running.open(WHOLE)
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")
        assert await rest(slow[0]) == b""
        await running.go_on(19, b"1\r\n\r\n")
        assert (await slow[19].readuntil(b"hello")).startswith(b"HTTP/1.1 200")

    asyncio.run(running.run(test))


def test_idle_connections_make_room_and_busy_ones_do_not() -> None:
    app = Slow()
    running = Running(app, most=2)

    async def test() -> None:
        idle = await running.open(WHOLE)
        await idle.readuntil(b"hello")
        slow = [await running.open(SLOW) for _ in range(2)]
        assert await rest(idle) == b""
        await app.busy.wait()
        assert await rest(await running.open(WHOLE)) == b"", "there is no room for one more"
        app.may_end.set()
        for reader in slow:
            await reader.readuntil(b"hello")

    asyncio.run(running.run(test))
    assert running.server.config.http.waiting == {}


def test_a_later_request_of_a_connection_is_busy_too() -> None:
    app = Slow()
    running = Running(app, most=1)

    async def test() -> None:
        reader = await running.open(WHOLE)
        await reader.readuntil(b"hello")
        await running.go_on(0, SLOW)
        await app.busy.wait()
        assert await rest(await running.open(WHOLE)) == b"", "there is no room for one more"
        app.may_end.set()
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")

    asyncio.run(running.run(test))


@pytest.mark.parametrize(
    ("limits", "raised", "most"),
    [
        ((1024, 20_000), (4_608, 20_000), 4_096),
        ((1024, 2_048), (2_048, 2_048), 1_536),
        ((1024, resource.RLIM_INFINITY), (4_608, resource.RLIM_INFINITY), 4_096),
        ((10_000, 20_000), None, 4_096),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None, 4_096),
        ((256, 256), (256, 256), 1),
    ],
)
def test_the_limit_of_files_is_raised_as_far_as_it_may_be(
    monkeypatch: pytest.MonkeyPatch,
    limits: tuple[int, int],
    raised: tuple[int, int] | None,
    most: int,
) -> None:
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda which, wanted: found.append(wanted))
    assert connections.raise_file_limit() == most
    assert found == ([raised] if raised else [])


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        HALF + b"x" * (connections.MOST_HEAD_BYTES + 1),
    ],
)
def test_what_is_no_request_is_refused_with_the_headers(data: bytes) -> None:
    running = Running(HELLO)

    async def test() -> None:
        reader = await running.open(data)
        answer = await rest(reader)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"referrer-policy: no-referrer" in answer.lower()

    asyncio.run(running.run(test))


def test_what_comes_after_a_refused_request_breaks_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    running = Running(HELLO)

    async def test() -> None:
        bad = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
        for data in (bad, WHOLE + b"\0\0\r\n\r\n", b"\0" * 100):
            reader = await running.open(data)
            await rest(reader)
        reader = await running.open(WHOLE)
        assert b" 200 " in await reader.readline()

    asyncio.run(running.run(test))
    assert caplog.text == ""


def test_the_last_answers_go_out() -> None:
    app = Slow()
    running = Running(app)

    async def test() -> None:
        reader = await running.open(SLOW)
        idle, half = await running.open(b""), await running.open(HALF)
        await app.busy.wait()
        running.stop.set()
        assert await rest(idle) == b""
        assert await rest(half) == b""
        app.may_end.set()
        assert (await rest(reader)).endswith(b"hello")

    asyncio.run(running.run(test))


@pytest.fixture
def many_files() -> Iterator[None]:
    """As many open files as this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < DRIPPING + 1_000:
        pytest.skip(
            f"{DRIPPING} connections need more open files than this user may have (ulimit -Hn)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (DRIPPING + 500, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_connections_that_drip_stop_no_answer_for_others_and_no_end(
    made: Made, many_files: None
) -> None:
    with Served(made) as served, ExitStack() as stack:
        for _ in range(DRIPPING):
            stack.enter_context(closing(socket.create_connection(served.place, LIMIT_S))).sendall(
                HALF
            )
        found = httpx.get(f"{served.url}/api/search?q=lava", timeout=LIMIT_S)
        assert (found.status_code, found.json()["total"]) == (200, 25)
        assert (
            httpx.get(f"{served.url}/healthz", headers={"Host": "evil.example"}).status_code == 400
        )
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(LIMIT_S) == 128 + signal.SIGTERM
        assert "the search page is closed" in served.log.read_text()


@pytest.mark.parametrize(
    ("text", "address", "is_loopback"),
    [
        ("127.0.0.1:8090", Address("127.0.0.1", 8090), True),
        ("localhost:0", Address("localhost", 0), True),
        ("[::1]:1", Address("::1", 1), True),
        ("0.0.0.0:80", Address("0.0.0.0", 80), False),
        ("example.org:80", Address("example.org", 80), False),
    ],
)
def test_where_it_listens(text: str, address: Address, is_loopback: bool) -> None:
    assert Address.of(text) == address
    assert str(address) == text
    assert address.is_loopback == is_loopback


def test_an_address_that_cannot_be_listened_on_names_the_option() -> None:
    with pytest.raises(ConfigError, match=r"search\.listen: 70000 is no port"):
        Address.of("127.0.0.1:70000")
    said = r"search\.listen: 127\.0\.0\.1:\d+ cannot be listened on"
    with closing(listen(Address("127.0.0.1", 0))) as taken, pytest.raises(ConfigError, match=said):
        listen(Address(*taken.getsockname()))


def test_the_command_is_there() -> None:
    assert build_parser().parse_args(["serve", "search"]).run
