"""The fetcher: a process behind the walls of a crawl's worker. The fetcher asks the web for the scheduler's URLs.

    lines of the scheduler -> `LiveRun` -> WARC records in the spool -> `reading` -> lines to the scheduler

A fetcher has no secret. The task (one JSON line) comes by standard input; then both sides speak on standard output, a
socket. At the end of the scheduler's lines, or at SIGTERM, the fetcher begins nothing more. Requests in flight have
`STOP_S` seconds to end, and the open part is closed. All other URLs are `refused`, and stay due.

A kill leaves the open part as is. The next fetcher cuts off the torn tail of the part, and closes the part.
"""

import asyncio
import contextlib
import gc
import json
import os
import signal
import socket
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import uvloop

from crawl_lib.config import Config, from_mapping
from crawl_lib.errors import KrakeError, ProtocolError, os_error, os_errors
from crawl_lib.fetch import (
    MIN_TTL_S,
    HostState,
    HostStore,
    Limits,
    LiveRun,
    Spans,
    Turns,
    user_agent_header,
)
from crawl_lib.frontier import NodeDirectory
from crawl_lib.realtime.held import CLOCK_S, Held, own_ms
from crawl_lib.realtime.picture import PROBE_BYTES, picture_facts
from crawl_lib.realtime.places import live_spool
from crawl_lib.realtime.protocol import (
    BODY_PIECE_BYTES,
    MAX_ROBOTS_BYTES,
    PROTOCOL_VERSION,
    AskTurn,
    Body,
    Cancel,
    Clock,
    ClosedPart,
    Done,
    Fetch,
    Grant,
    Hello,
    Hop,
    LineReader,
    Message,
    Place,
    Rates,
    Refused,
    Stop,
    ToFetcher,
    Turn,
)
from crawl_lib.realtime.rates import is_blocked, rated
from crawl_lib.realtime.reading import AnswerReader, Told
from crawl_lib.records import Earlier, Fetched, QueuedUrl, TakenUrl
from crawl_lib.segment import PartWriter, Position, Spool, WarcInfo, payload_of
from crawl_lib.states import Outcome
from crawl_lib.urls import Chain, Scope, authority_of, host_of
from crawl_lib.version import VERSION
from crawl_lib.walls import Forked, data_bytes, fork_server, refuse_calls
from crawl_lib.worker import build_walls, limit_worker

LIVE_LIST = "live"
"""The list of each URL. Pages of a list may be fetched again."""
PART_S = 300.0
"""Seconds after which a part is closed, ready for `collect`."""
STOP_S = 4.0
"""Seconds for requests in flight at a stop."""
_READ_BYTES = 256 << 10
_PROGRAM = "crawl_lib.realtime.fetcher"


@dataclass(frozen=True)
class FetcherTask:
    """The task of a fetcher. `prefix`: begins the names of the parts; each fetcher has another prefix.

    `is_leased`: on another machine than its scheduler's, so grants end.
    """

    config: dict[str, Any]
    name: str
    node_dir: str
    spool: str
    prefix: str
    info: dict[str, str]
    part_s: float = PART_S
    is_leased: bool = False


@dataclass
class _Open:
    """A URL without an answer yet. `since`: the loop's time of the `Fetch`."""

    wanted: Fetch
    since: float


class Fetcher:
    """The fetcher's side of the line, on a running loop. All methods belong to the loop's thread."""

    def __init__(
        self,
        task: FetcherTask,
        config: Config,
        store: HostStore,
        turns: Turns,
        stream: asyncio.StreamWriter,
    ) -> None:
        self.config = config
        self.loop = asyncio.get_running_loop()
        self.stream = stream
        self.stopping = asyncio.Event()
        self.part_s = task.part_s
        self.is_leased = task.is_leased
        self.held = Held(config.fetch, store)
        self.spans = turns.spans
        self._grant = 0
        may_send = self.held.may_send if task.is_leased else None
        self.run = LiveRun(
            config=config.fetch,
            retry=config.retry,
            store=store,
            turns=turns,
            caller=self,
            may_send=may_send,
        )
        close_left_open(task, config)
        self.writer = PartWriter(
            Path(task.spool), task.prefix, WarcInfo(**task.info), config.segment, has_rows=False
        )
        self._reader = AnswerReader(config)
        self._chain = Chain(config.urls, Scope.FETCH)
        self._open: dict[int, _Open] = {}
        self._positions: dict[int, int] = {}
        self._numbers = count()
        self._file = ""
        self._lines: list[bytes] = []

    # -- what the scheduler says ----------------------------------------------------------------------------------

    def hear(self, message: ToFetcher) -> None:
        """Carry out a line."""
        match message:
            case Grant():
                self._grant = message.number
                self.held.grant(message.parts, message.until_ms, message.unowned)
                self._refuse_lapsed()
            case Rates():
                self._rate(message)
            case Turn():
                self._take_turn(message)
            case Stop():
                self.stopping.set()
            case Cancel():
                self._cancel(message.id)
            case Fetch():
                self._fetch(message)

    def _fetch(self, wanted: Fetch) -> None:
        if self.stopping.is_set():
            self.say(Refused(id=wanted.id, rule="stopping"))
        elif not self.held.has(wanted.part):
            self.say(Refused(id=wanted.id, rule="not_granted", reason=f"part {wanted.part}"))
        elif wanted.id in self._positions:
            raise ProtocolError(
                f"the scheduler: URL {wanted.id} is asked for twice: {wanted.url[:80]}"
            )
        else:
            position = self._positions[wanted.id] = next(self._numbers)
            self._open[position] = _Open(wanted, self.loop.time())
            if wanted.is_first:
                self._learn(wanted)
            taken = TakenUrl(position, bytes.fromhex(wanted.key), queued_of(wanted))
            if error := self._chain.objection(wanted.url):
                self.on_fetched(
                    taken, Fetched(wanted.url, time.time(), Outcome.FILTERED, error=error)
                )
            else:
                self.run.submit(taken, wanted.later, limits_of(wanted))

    def _rate(self, message: Rates) -> None:
        """Go by the rates of operators."""
        config = rated(self.config.fetch, message.rates)
        self.held.set_config(config)
        self.run.set_limits(config, partial(is_blocked, message.rates))

    def _take_turn(self, turn: Turn) -> None:
        """Send requests to an address within a span of time."""
        if self.spans is not None:
            now_s, left_s = time.monotonic(), (turn.until_ms - own_ms()) / 1000
            self.spans.give(f"ip {turn.address}", now_s + turn.wait_ms / 1000, now_s + left_s)

    def _learn(self, wanted: Fetch) -> None:
        """Take what an earlier owner of the part knew of the host."""
        self.run.learn(authority_of(wanted.url), wanted.known)
        self.held.tell(host_of(wanted.url), is_known=wanted.known is not None)

    def _learned(self, url: str) -> HostState | None:
        """Return what the part's next owner should know of a host."""
        state = self.run.news(authority_of(url)) if self.is_leased else None
        if state and state.robots and len(state.robots.body) > MAX_ROBOTS_BYTES:
            return state._replace(robots=None)
        return state

    def _cancel(self, number: int) -> None:
        position = self._positions.get(number)
        if position is not None and self.run.cancel(position):
            self._forget(position)
            self.say(Refused(id=number, rule="cancelled"))

    def _refuse_lapsed(self) -> None:
        """Refuse the open URLs of parts whose grant has ended."""
        lapsed = [one.wanted for one in self._open.values() if not self.held.has(one.wanted.part)]
        for wanted in lapsed:
            if self.run.cancel(self._positions[wanted.id]):
                self._forget(self._positions[wanted.id])
                self.say(Refused(id=wanted.id, rule="not_granted", reason=f"part {wanted.part}"))

    def _forget(self, position: int) -> _Open:
        found = self._open.pop(position)
        del self._positions[found.wanted.id]
        return found

    # -- what the run reports -------------------------------------------------------------------------------------

    def on_robots(self, fetched: Fetched) -> None:
        """Keep an answer to a request for robots.txt; see `LiveCaller`."""
        self._note_file(self.writer.append(None, fetched))

    def on_fetched(self, taken: TakenUrl, fetched: Fetched) -> None:
        """Keep the answer to a URL, and tell the scheduler; see `LiveCaller`."""
        found = self._forget(taken.position)
        wanted, place = found.wanted, None
        if wanted.is_bare:
            self._tell_bytes(wanted.id, fetched)
        else:
            place = self._keep(taken, fetched)
        told = self._told(fetched, wanted)
        waited_s = self.loop.time() - found.since - fetched.spent_ms / 1000
        self.say(
            Done(
                id=wanted.id,
                hop=hop_of(taken, fetched),
                error=fetched.error,
                retry_at=fetched.retry_at,
                attempts=fetched.attempts,
                spent_ms=fetched.spent_ms,
                waited_ms=max(0, round(1000 * waited_s)),
                digest=payload_of(fetched).sha1.hex() if fetched.head else None,
                truncated=fetched.truncated,
                place=place,
                learned=self._learned(fetched.url),
                **vars(told),
            )
        )

    def _told(self, fetched: Fetched, wanted: Fetch) -> Told:
        """Read an answer: a page, or the beginning of a picture."""
        if wanted.is_probe and fetched.outcome is Outcome.OK:
            facts = picture_facts(fetched, self.config)
            return Told(mime=facts.get("type"), length=facts.get("length"), facts=facts)
        return self._reader.read(fetched)

    def _keep(self, taken: TakenUrl, fetched: Fetched) -> Place | None:
        """Write the records of a fetch; return the full capture's place.

        None: the page is the same.
        """
        position = self.writer.append(recorded(taken), fetched)
        self._note_file(position)
        if fetched.revisits is not None:
            return None
        return Place(warc=position.warc_file, offset=position.offset, length=position.length)

    def _note_file(self, position: Position) -> None:
        """Tell of a full part, once another part is begun."""
        if self._file and self._file != position.warc_file:
            self.say(ClosedPart(name=self._file.partition(".")[0]))
        self._file = position.warc_file

    def _tell_bytes(self, number: int, fetched: Fetched) -> None:
        for data, is_head in ((fetched.head, True), (fetched.body, False)):
            for start in range(0, len(data), BODY_PIECE_BYTES):
                self.say(
                    Body(id=number, is_head=is_head, data=data[start : start + BODY_PIECE_BYTES])
                )

    def say(self, message: Message) -> None:
        """Tell the scheduler something, with all else of this turn of the loop.

        Each write wakes the gate, which may take this process's core at once.
        """
        if not self._lines:
            self.loop.call_soon(self._write_lines)
        self._lines.append(message.to_line())

    def _write_lines(self) -> None:
        lines, self._lines = self._lines, []
        if lines:
            self.stream.write(b"".join(lines))

    def close_part(self) -> None:
        """Close the open part, and tell of it."""
        name, pages = self.writer.close_part()
        self._file = ""
        if name:
            self.say(ClosedPart(name=name, pages=pages))

    # -- from start to end ----------------------------------------------------------------------------------------

    async def serve(self, reader: asyncio.StreamReader) -> None:
        """Carry out lines until their end, or until the stop.

        Raises ProtocolError, and errors of the run.
        """
        tasks = [
            asyncio.create_task(work)
            for work in (
                self._listen(reader),
                self._close_parts(),
                self._tell_time(),
                self.stopping.wait(),
            )
        ]
        run = asyncio.create_task(self.run.run_until_closed())
        try:
            done, _ = await asyncio.wait([run, *tasks], return_when=asyncio.FIRST_COMPLETED)
            self.stopping.set()
            self.run.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(run, STOP_S)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            for found in self._open.values():
                self.say(Refused(id=found.wanted.id, rule="stopping"))
            self.close_part()
            self._write_lines()
            self.writer.close()
            with contextlib.suppress(OSError):
                await asyncio.wait_for(self.stream.drain(), 1.0)
                self.stream.close()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        lines: LineReader[ToFetcher] = LineReader(ToFetcher, "the scheduler")
        while data := await reader.read(_READ_BYTES):
            for message in lines.feed(data):
                self.hear(message)
            await self.stream.drain()  # a scheduler that reads nothing gives no more work

    async def _tell_time(self) -> None:
        """Ask for each next grant, and end the expired one."""
        while True:
            if self.is_leased:
                self._refuse_lapsed()
                is_clear = all(self.held.has(one.wanted.part) for one in self._open.values())
                self.say(Clock(now_ms=own_ms(), heard=self._grant if is_clear else 0))
            await asyncio.sleep(CLOCK_S)

    async def _close_parts(self) -> None:
        while True:
            await asyncio.sleep(self.part_s)
            self.close_part()


def queued_of(wanted: Fetch) -> QueuedUrl:
    """Return the queued form of a URL, as records have it.

    A picture is a requisite, a step from the page.
    """
    earlier = wanted.earlier
    if not earlier and (wanted.etag or wanted.last_modified):
        nowhere = Earlier("", "", 0, 0.0, etag=wanted.etag, last_modified=wanted.last_modified)
        earlier = json.dumps(asdict(nowhere))
    steps = int(wanted.is_probe)
    return QueuedUrl(
        wanted.url,
        bytes.fromhex(wanted.via) if wanted.via else None,
        steps,
        wanted.redirects,
        list_name=LIVE_LIST,
        earlier=earlier,
        requisite=steps,
    )


def recorded(taken: TakenUrl) -> TakenUrl:
    """Drop a URL's capture, unless a segment has the capture.

    Records refer to captures in segments only.
    """
    earlier = Earlier.of(taken.queued.earlier)
    if earlier is None or earlier.segment:
        return taken
    return replace(taken, queued=replace(taken.queued, earlier=""))


def limits_of(wanted: Fetch) -> Limits:
    """Return the limits of a URL, as a `Job` has them.

    The types of the config are those of pages: not of pictures.
    """
    if wanted.is_probe:
        return Limits(PROBE_BYTES, frozenset(), wanted.time_limit_s, wanted.left_s)
    types = (
        None if wanted.mime_types is None else frozenset(kind.lower() for kind in wanted.mime_types)
    )
    return Limits(wanted.max_body_bytes, types, wanted.time_limit_s, wanted.left_s)


def hop_of(taken: TakenUrl, fetched: Fetched) -> Hop:
    """Return a request as documents list it."""
    return Hop(
        url=fetched.url,
        key=taken.key.hex(),
        outcome=fetched.outcome.value,
        status=fetched.status,
        time_ms=round(1000 * fetched.time),
        duration_ms=fetched.duration_ms,
    )


def close_left_open(task: FetcherTask, config: Config) -> None:
    """Close the open parts of killed fetchers, for `collect`."""
    spool = Path(task.spool)
    left = {
        part.stem.name.rpartition("-")[0] for part in Spool(spool).parts() if not part.is_rowless
    }
    for prefix in sorted(left):
        with PartWriter(
            spool, prefix, WarcInfo(**task.info), config.segment, has_rows=False
        ) as writer:
            deque(writer.recovered(), 0)


def address_spans(config: Config, stream: asyncio.StreamWriter) -> Spans | None:
    """Return the spans of addresses, which the scheduler reserves; None where fetchers share no turns."""
    if not config.shares_addresses:
        return None

    def ask(name: str, turns: int, start_s: float) -> None:
        asked = AskTurn(
            address=name.removeprefix("ip "), turns=turns, start_s=start_s, now_ms=own_ms()
        )
        stream.write(asked.to_line())

    return Spans(ask, lambda name, rest_s: None, addresses=True, hosts=False)


async def _serve(task: FetcherTask, config: Config, line: socket.socket) -> None:
    hosts = NodeDirectory(Path(task.node_dir)).hosts
    reader, stream = await asyncio.open_connection(sock=line)
    with (
        HostStore(hosts, robots_ttl_s=max(config.fetch.robots_ttl_s, MIN_TTL_S)) as store,
        Turns.of(hosts, config.fetch, address_spans(config, stream)) as turns,
    ):
        fetcher = Fetcher(task, config, store, turns, stream)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, fetcher.stopping.set)
        fetcher.say(Hello(version=PROTOCOL_VERSION, name=task.name))
        await fetcher.serve(reader)


def main() -> int:
    """Be a fetcher. The task comes by standard input."""
    given = FetcherTask(**json.loads(sys.stdin.readline()))
    own_bytes = data_bytes()
    gc.set_threshold(200_000, 20, 100)
    try:
        config = from_mapping(given.config, Path("/"), "the task of a fetcher")
        node = Path(given.node_dir)
        limit_worker(config, NodeDirectory(node), own_bytes)
        build_walls(node, Path(given.spool))
        refuse_calls(forks=False, internet=True, limits=False)
        line = socket.socket(fileno=os.dup(1))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(given, config, line))
    except (KrakeError, OSError) as error:
        print_error(error if isinstance(error, KrakeError) else os_error(error, given.spool))
        return 1
    return 0


def print_error(error: KrakeError) -> None:
    """Write the fetcher's last error to the log."""
    sys.stderr.writelines(f"{line}\n" for line in error.lines)
    sys.stderr.flush()


# -- the scheduler's side ---------------------------------------------------------------------------------------------


class FetcherProcess:
    """A running fetcher, for the process above. `socket`: our end of the line."""

    def __init__(self, forked: Forked) -> None:
        self.forked = forked
        self.socket = socket.socket(fileno=os.dup(forked.stdout))

    def stop(self) -> None:
        """Ask the process to end its requests and to exit.

        The process closes its part before the exit.
        """
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        """End the process now, and wait for the end.

        Called by the thread of `start_fetcher`.
        """
        if self.forked.returncode is None:
            self.forked.send_signal(signal.SIGKILL)
            self.forked.wait()
            os.close(self.forked.stdout)


def prepare_fetcher() -> None:
    """Load the modules of later fetchers of this thread, which takes a second.

    Raises OSError if no process can be started.
    """
    fork_server(_PROGRAM)


def start_fetcher(
    config: Config,
    node_dir: Path,
    *,
    name: str,
    digest: str,
    log_path: Path,
    lock: int,
    part_s: float = PART_S,
    is_leased: bool = False,
) -> FetcherProcess:
    """Start a fetcher; the fetcher dies with the calling thread.

    Args:
        config: The scheduler's config, without secrets.
        node_dir: The directory of the node; the caller holds the node's lock.
        name: The name of the fetcher and of its segments, such as `live-0`.
        digest: Hex SHA-256 of the config, for WARC files.
        log_path: The fetcher's log, overwritten.
        lock: The descriptor of the node's lock; the fetcher holds the lock too.
        part_s: Seconds after which a part is closed.
        is_leased: The scheduler is on another machine, and its grants end.

    Raises StorageError for a folder that cannot be made, KrakeError or OSError if no process can be started.
    """
    spool = live_spool(node_dir, name)
    with os_errors(spool, "cannot be made"):
        spool.mkdir(parents=True, exist_ok=True)
        NodeDirectory(node_dir).hosts.mkdir(exist_ok=True)
    info = WarcInfo(
        VERSION, digest, user_agent_header(config.fetch), config.fetch.robots, f"{LIVE_LIST}/{name}"
    )
    prefix = Spool.prefix_of(str(time.time_ns() // 1_000_000), name, 0)
    task = FetcherTask(
        config.to_mapping(),
        name,
        str(node_dir),
        str(spool),
        prefix,
        asdict(info),
        part_s,
        is_leased,
    )
    with log_path.open("wb") as log:
        line = json.dumps(asdict(task)).encode() + b"\n"
        return FetcherProcess(fork_server(_PROGRAM).fork(line, log.fileno(), lock))
