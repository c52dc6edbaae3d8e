"""Parts of a fetcher on another machine come to this one, are collected, and are acknowledged.

A fetch is in exactly one segment, wherever this is killed. The note `arrived.json` names the parts that this machine
took over, until the fetcher has deleted them. The steps, each durable before the next:

1. both files of a part are brought into `arriving`, and compared with the sum in the part's note;
2. `arrived.json` names the part (`realtime.arriving.noted`);
3. both files are moved into `spool`, the note last (`realtime.arriving.moved`), where `collect` finds the part;
4. once the part is in no folder and in no run of `collect`, its segment is committed; the fetcher deletes the part
   (`realtime.arriving.acknowledged`), and `arrived.json` forgets it.

A part in `arriving` that the note names is moved, and any other is brought again.
"""

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from crawl_lib.config import FetcherConfig
from crawl_lib.durable import fsync_dir, fsync_file, reached, write_durable
from crawl_lib.errors import (
    KrakeError,
    LockedError,
    NoRoomError,
    ProtocolError,
    StoppedError,
    StorageError,
    os_errors,
)
from crawl_lib.frontier import NodeDirectory
from crawl_lib.node import FreeSpace
from crawl_lib.realtime.certificates import SCHEDULER, Identity
from crawl_lib.realtime.collect import NUMBERS, CollectReport, collect_parts, uncollected
from crawl_lib.realtime.places import fetcher_names, live_spool
from crawl_lib.realtime.protocol import PROTOCOL_VERSION, Hello, LineReader, Message, Parting
from crawl_lib.realtime.spooling import (
    SUFFIXES,
    Acknowledge,
    Acknowledged,
    GetFile,
    ListParts,
    PartEntry,
    PartList,
    Piece,
    ToCollector,
)
from crawl_lib.scratch import held
from crawl_lib.sealed import own_file, sealed_json, unsealed
from crawl_lib.segment import Part
from crawl_lib.stores import Stores

NOTE_FILE = "arrived.json"
TIMEOUT_S = 30.0
_READ_BYTES = 256 << 10
_SLACK_BYTES = 64 << 20
_Said = TypeVar("_Said", bound=Message)


def collect_from(stores: Stores, name: str) -> CollectReport:
    """Make a segment of a fetcher's closed parts, on any machine.

    `name`: of the fetcher; one of `realtime.fetchers` is on another machine. Raises as `collect_parts`, LockedError too
    if a collection from there is at work, StorageError if the fetcher cannot be reached or sends a damaged part, and
    ConfigError for unusable certificates.
    """
    options = stores.config.realtime
    remote = [fetcher for fetcher in options.fetchers if fetcher.name == name] if options else []
    if not remote:
        return collect_parts(stores, name)
    room = NodeDirectory(stores.node_dir(stores.config.servers[0])).live / name
    with os_errors(room, "cannot be used"):
        room.mkdir(parents=True, exist_ok=True)
        try:
            with held(room):
                return _Arrival(stores, remote[0], room).run()
        except BlockingIOError as error:
            raise LockedError(
                f"{room}: another collection is at work there; wait for its end"
            ) from error


def collect_all(stores: Stores) -> CollectReport:
    """Collect from all fetchers of the service.

    Raises as `collect_from`, once each fetcher has had its turn. Returns the sums of numbers; `folder` is the last new
    one.
    """
    total, failed = CollectReport(""), list[KrakeError]()
    for name in fetcher_names(stores.config):
        try:
            report = collect_from(stores, name)
        except StoppedError:
            raise
        except KrakeError as error:  # the parts of other fetchers need not wait for this one
            failed.append(error)
            continue
        total = CollectReport(
            report.name if report.folder else total.name or report.name,
            report.folder or total.folder,
            *(getattr(total, number) + getattr(report, number) for number in NUMBERS),
        )
    if failed:
        raise failed[0]
    return total


class PartsLine:
    """The collector's line to a gate. Each method raises StorageError, which names the fetcher."""

    def __init__(self, fetcher: FetcherConfig, identity: Identity) -> None:
        """Connect. Raises ConfigError for unusable certificates."""
        self.who = f"fetcher {fetcher.name} ({fetcher.address})"
        host, _, port = fetcher.address.rpartition(":")
        self._lines: LineReader[ToCollector] = LineReader(ToCollector, self.who)
        self._said: list[ToCollector] = []
        context = identity.context()
        with os_errors(self.who, "cannot be reached"):
            connection = socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_S)
            try:
                self._socket = context.wrap_socket(connection, server_hostname=fetcher.name)
                self._socket.sendall(Hello(version=PROTOCOL_VERSION, name="collector").to_line())
            except BaseException:
                connection.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def list(self) -> tuple[PartEntry, ...]:
        """Return the closed parts of the fetcher."""
        self._say(ListParts())
        return self._hear(PartList).parts

    def get(self, name: str, suffix: str, size: int) -> Iterator[bytes]:
        """Return the pieces of a file, of exactly this size."""
        self._say(GetFile(name=name, suffix=suffix))
        got, is_last = 0, False
        while not is_last:
            piece = self._hear(Piece)
            got, is_last = got + len(piece.data), piece.is_last
            if got > size or (is_last and got < size):
                raise StorageError(
                    f"{self.who}: {name}{suffix}: {got} bytes in place of {size}; run this again"
                )
            yield piece.data

    def acknowledge(self, names: tuple[str, ...]) -> None:
        """Have parts deleted."""
        self._say(Acknowledge(names=names))
        self._hear(Acknowledged)

    def _say(self, message: Message) -> None:
        with os_errors(self.who, "cannot be reached"):
            self._socket.sendall(message.to_line())

    def _hear(self, kind: type[_Said]) -> _Said:
        try:
            while not self._said:
                with os_errors(self.who, "does not answer"):
                    data = self._socket.recv(_READ_BYTES)
                if not data:
                    raise ProtocolError(f"{self.who}: has ended the line")
                self._said += self._lines.feed(data)
            said = self._said.pop(0)
            if isinstance(said, Parting):
                raise ProtocolError(f"{self.who}: {said.reason}")
            if not isinstance(said, kind):
                raise ProtocolError(f"{self.who}: a line of another type: {type(said).__name__}")
        except ProtocolError as error:
            raise StorageError(str(error)) from error
        return said


class _Arrival:
    """The steps of one collection from another machine. `room`: the folder of the fetcher on this machine."""

    def __init__(self, stores: Stores, fetcher: FetcherConfig, room: Path) -> None:
        self.stores, self.fetcher, self.room = stores, fetcher, room
        self.node_dir = stores.node_dir(stores.config.servers[0])
        self.spool, self.arriving, self.note = (
            live_spool(self.node_dir, fetcher.name),
            room / "arriving",
            room / NOTE_FILE,
        )
        self.names = self.noted()

    def run(self) -> CollectReport:
        identity = Identity(Path(self.stores.config.require_realtime().certificates), SCHEDULER)
        for folder in (self.spool, self.arriving):
            folder.mkdir(exist_ok=True)
        self.move()
        with PartsLine(self.fetcher, identity) as line:
            for entry in line.list():
                self.stores.go_on()
                if entry.name not in self.names:
                    self.bring(line, entry)
        report = collect_parts(self.stores, self.fetcher.name)
        done = tuple(sorted(self.names - uncollected(self.node_dir, self.fetcher.name)))
        if done:
            with PartsLine(self.fetcher, identity) as line:  # a long collection outlives a line
                self.acknowledge(line, done)
        return report

    def noted(self) -> set[str]:
        """Return the parts taken over that the fetcher may still have.

        This machine has taken them over.
        """
        if not self.note.exists():
            return set()
        with own_file(self.note, "not the note of parts that arrived"):
            return set(map(str, unsealed(self.note.read_bytes())["parts"]))

    def write_note(self) -> None:
        """Write the names down, durably."""
        write_durable(self.note, sealed_json({"parts": sorted(self.names)}))

    def move(self) -> None:
        """Move parts that the note names; delete all other arrivals.

        The parts go to the spool.
        """
        for path in sorted(
            self.arriving.iterdir(), key=lambda path: path.name.endswith(SUFFIXES[1])
        ):
            suffix = next((suffix for suffix in SUFFIXES if path.name.endswith(suffix)), "")
            if suffix and path.name.removesuffix(suffix) in self.names:
                path.rename(self.spool / path.name)
                fsync_dir(self.spool)
            else:
                path.unlink()
        fsync_dir(self.arriving)
        reached("realtime.arriving.moved")

    def bring(self, line: PartsLine, entry: PartEntry) -> None:
        """Take a part over."""
        self.require_room(line, entry)
        for suffix, size in zip(SUFFIXES, entry.sizes, strict=True):
            with (self.arriving / f"{entry.name}{suffix}").open("wb") as file:
                file.writelines(line.get(entry.name, suffix, size))
                fsync_file(file)
        fsync_dir(self.arriving)
        Part(self.arriving / entry.name).require_log()
        self.names.add(entry.name)
        self.write_note()
        reached("realtime.arriving.noted")
        self.move()

    def require_room(self, line: PartsLine, entry: PartEntry) -> None:
        """Raise NoRoomError if there is no room for a part.

        NoRoomError: the disk is full, or the part is larger than any part of this config.
        """
        config = self.stores.config
        if shortage := FreeSpace(config.watermarks, self.room).shortage():
            raise NoRoomError(shortage)
        free = shutil.disk_usage(self.room).free - config.watermarks.min_free_local_bytes
        if sum(entry.sizes) > min(free, 4 * config.segment.max_warc_bytes + _SLACK_BYTES):
            raise NoRoomError(
                f"{line.who}: part {entry.name} has {sum(entry.sizes)} bytes, too many for {self.room}"
            )

    def acknowledge(self, line: PartsLine, done: tuple[str, ...]) -> None:
        """Have committed parts deleted, and forget them."""
        line.acknowledge(done)
        reached("realtime.arriving.acknowledged")
        self.names -= set(done)
        self.write_note()
