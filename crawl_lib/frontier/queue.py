"""A node's queue as it lies on the disk: data files `0`, `1`..., their meta, and `state`. Reading, never changing."""

import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice, repeat
from pathlib import Path
from typing import BinaryIO

from crawl_lib.durable import write_durable
from crawl_lib.errors import QueueError, os_error
from crawl_lib.frontier.directory import NodeDirectory
from crawl_lib.frontier.outlinks import BARE_META, decode_meta
from crawl_lib.frontier.record import Record, TakenIn, read_record
from crawl_lib.records import QueuedUrl

_COUNT_BYTES = 1 << 20
_END_BYTES = 1 << 16


NOT_BELIEVED = "is not the one that Krake wrote last, and does not begin with 0, as people's does"


@dataclass(frozen=True, slots=True)
class State:
    """The content of `state`: URLs of file 0 already processed, then each data file's number of URLs."""

    processed: int = 0
    totals: tuple[int, ...] = (0,)

    @property
    def length(self) -> int:
        """URLs that wait."""
        return sum(self.totals) - self.processed

    def to_bytes(self) -> bytes:
        """The bytes of the file."""
        return b"".join(b"%d\n" % number for number in (self.processed, *self.totals))

    def after(self, count: int) -> "tuple[State, int]":
        """The state with `count` more URLs processed, and how many files are used up and go.

        Raises ValueError if the queue holds fewer; the caller asked for too many.
        """
        processed, gone = self.processed + count, 0
        while gone < len(self.totals) and processed >= self.totals[gone]:
            processed -= self.totals[gone]
            gone += 1
        if gone == len(self.totals):
            if processed:
                raise ValueError(f"{count} URLs are more than the queue holds")
            return State(), gone
        return State(processed, self.totals[gone:]), gone

    def sha1(self) -> str:
        """Hex digest of the file's bytes."""
        return hashlib.sha1(self.to_bytes()).hexdigest()

    def is_believed(self, record: Record) -> bool:
        """Whether it is the one that Krake wrote last, or people's: theirs begins with 0, or has no `state.krake`."""
        return not self.processed or record.state_sha1 in {"", self.sha1()}


def parse_state(data: bytes) -> State:
    """Read the content of `state`, also as people write it. Raises ValueError saying what is wrong."""
    lines = data.decode("ascii", "replace").split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    numbers = [line.strip() for line in lines]
    if len(numbers) < 2:
        raise ValueError(f"has {len(numbers)} lines, and needs two or more")
    for number, text in enumerate(numbers, 1):
        if not (text.isascii() and text.isdigit()):
            raise ValueError(f"line {number} is not a number: {text[:50]!r}")
    processed, *totals = map(int, numbers)
    if processed > totals[0]:
        raise ValueError(f"says {processed} URLs of file 0 are processed, and that file 0 has {totals[0]}")
    return State(processed, tuple(totals))


class Queue:
    """The queue of one node.

    * Reading streams; no data file is ever held in memory.
    * `state` is believed only after a look at the files: QueueError says what is wrong and names `krake fsck --repair`.
    * Whoever reads without the node's lock may see a move half done; `krake status` says so.
    * It is changed by moves only (`crawl_lib.frontier.move`).
    """

    def __init__(self, directory: Path, node: str | None = None) -> None:
        """`directory`: the node's. `node`: its name in messages, else the directory's."""
        self.directory, self.files = directory, NodeDirectory(directory)
        self.node = node or directory.name

    def error(self, problem: str) -> QueueError:
        """An error about this queue, with the command that repairs it."""
        return QueueError(f"{self.directory}: {problem}; run `krake fsck --repair`")

    def create(self) -> None:
        """Make an empty queue if there is none yet; an unfinished attempt to do so is completed."""
        if self.files.state.exists() or self.files.move.exists():
            return
        files = self.data_files()
        if any(self.files.data(number).stat().st_size for number in files) or len(files) > 1:
            raise self.error(f"there is no `state` beside {len(files)} data files")
        write_durable(self.files.data(0), b"")
        write_durable(self.files.state, State().to_bytes())

    def stands(self) -> bool:
        """Whether there is a queue, be it a damaged one, or one within a move."""
        if self.files.state.exists() or self.files.move.exists():
            return True
        return any(self.files.data(number).stat().st_size for number in self.data_files())

    def data_files(self) -> list[int]:
        """Numbers of the data files that are there, ascending."""
        return self.files.data_files()

    def record(self) -> Record:
        """What `state.krake` says; an empty one if there is none."""
        return read_record(self.directory) or Record()

    def taken_in(self) -> TakenIn:
        """The (folder, node) pairs whose URLs have been taken in."""
        return self.record().taken_in

    def state(self) -> State:
        """The state, checked: data files are there without gaps, and hold the numbers of lines it says.

        Files are counted only where their sizes are not those that Krake wrote last. Raises QueueError.
        """
        state = self.unchecked_state()
        found = self.data_files()
        if found != list(range(len(state.totals))):
            names = ", ".join(map(str, found)) or "none"
            raise self.error(f"`state` lists {len(state.totals)} data files, and there are {names}")
        record = self.record()
        if not state.is_believed(record):
            raise self.error(f"`state` {NOT_BELIEVED}")
        written = record.sizes if record.state_sha1 == state.sha1() else ()
        for number, total in enumerate(state.totals):
            path = self.files.data(number)
            if number < len(written) and path.stat().st_size == written[number]:
                continue
            half = self.half_line(number, record)
            if half is not None:
                raise self.error(half_line_problem(number, half))
            count = count_lines(path)
            if count != total:
                raise self.error(f"file {number} has {count} URLs, and `state` says {total}")
        return state

    def unchecked_state(self) -> State:
        """What `state` says, with no look at the files.

        Raises QueueError if it is no state at all, StorageError if the disk refuses it.
        """
        try:
            return parse_state(self.files.state.read_bytes())
        except FileNotFoundError as error:
            raise self.error("there is no `state`") from error
        except OSError as error:
            raise os_error(error, self.files.state, "cannot be read") from error
        except ValueError as error:
            raise self.error(f"`state` {error}") from error

    def length(self) -> int:
        """URLs that wait."""
        return self.state().length

    def is_ours(self, state: State | None = None) -> bool:
        """Whether Krake wrote the queue as it lies there; if not, the next intake adopts it."""
        state = state or self.state()
        record = self.record()
        if state == State():
            return True
        if record.state_sha1 != state.sha1() or len(record.sizes) != len(state.totals):
            return False
        return all(self.files.data(n).stat().st_size == size for n, size in enumerate(record.sizes))

    def own_metas(self) -> frozenset[int]:
        """Numbers of the data files whose meta is theirs: those that still have the size that Krake wrote.

        People who replace a data file leave its old meta lying there.
        """
        paths = [(number, self.files.data(number), size) for number, size in enumerate(self.record().sizes)]
        return frozenset(number for number, path, size in paths if path.exists() and path.stat().st_size == size)

    def half_line(self, number: int, record: Record) -> bytes | None:
        """The end of a data file that was cut within its last line; None if it was not, or nobody can tell.

        Krake ends each line. So a file that Krake wrote and that is shorter now, without a newline at its end, was
        cut, and what stands there may be half a URL. People who make a queue need not end its last line: where `state`
        or the file is theirs, the line is believed. Whoever has seen that it is whole ends it with a newline.
        """
        try:
            state = parse_state(self.files.state.read_bytes()).sha1()
        except (OSError, ValueError):
            state = ""  # gone or damaged: it says nothing against the record
        ours = number < len(record.sizes) and (not state or record.state_sha1 in {"", state})
        if not ours or self.files.data(number).stat().st_size >= record.sizes[number]:
            return None
        return last_line(self.files.data(number)) or None

    def read(self, count: int | None = None) -> Iterator[QueuedUrl]:
        """The next `count` URLs (None: all), in order, without taking them."""
        for url, meta in QueueReader(self, self.state()).lines(count):
            yield decode_meta(url, meta, str(self.directory))


class QueueReader:
    """Streams raw lines from a queue's position on; knows afterwards where in the last file it stands."""

    def __init__(self, queue: Queue, state: State) -> None:
        """`state`: the queue's, checked."""
        self._metas = queue.own_metas()
        self.queue = queue
        self.state = state
        self.file = 0
        """Number of the data file read last."""
        self.line = state.processed
        """Lines of it that are behind us."""
        self.offset = 0
        self.meta_offset: int | None = None

    @cached_property
    def _offsets(self) -> tuple[int, int] | None:
        record = self.queue.record()
        if record.offset is None or record.meta_offset is None or not self.queue.is_ours(self.state):
            return None
        return record.offset, record.meta_offset

    def lines(self, count: int | None = None) -> Iterator[tuple[bytes, bytes]]:
        """The next lines of data and of meta, without newlines. Raises QueueError if a file is shorter than said."""
        left = self.state.length if count is None else min(count, self.state.length)
        for number, total in enumerate(self.state.totals):
            if not left:
                return
            start = self.state.processed if number == 0 else 0
            share = min(left, total - start)
            if share:
                yield from self._file_lines(number, start, share)
            left -= share

    def _file_lines(self, number: int, start: int, share: int) -> Iterator[tuple[bytes, bytes]]:
        queue = self.queue
        self.file, self.line = number, start
        with queue.files.data(number).open("rb") as data, self._open_meta(number) as meta:
            self._skip(data, meta, number, start)
            metas = iter(meta) if meta else repeat(BARE_META)
            seen = 0
            for url, line in zip(islice(data, share), metas, strict=False):
                seen += 1
                yield url.rstrip(b"\r\n"), line.rstrip(b"\n")
            self.line = start + seen
        if seen < share:
            raise queue.error(f"file {number} or its meta ends after {start + seen} of {start + share} lines")

    def _open_meta(self, number: int) -> "BinaryIO | _NoFile":
        if number not in self._metas:
            return _NoFile()
        return _open_if_there(self.queue.files.meta(number))

    def _skip(self, data: BinaryIO, meta: BinaryIO | None, number: int, start: int) -> None:
        if number == 0 and start and self._offsets:
            self._seek(data, self._offsets[0])
            if meta:
                self._seek(meta, self._offsets[1])
            return
        for file in (data, meta):
            if file and start:
                next(islice(file, start - 1, start), None)

    def _seek(self, file: BinaryIO, offset: int) -> None:
        """Go to where a line begins."""
        file.seek(max(0, offset - 1))
        if offset and file.read(1) != b"\n":
            raise self.queue.error(
                f"`state.krake` says that `{Path(file.name).name}` is read to byte {offset}, in a line"
            )


class _NoFile:
    """Stands for a meta file that is not there."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def _open_if_there(path: Path) -> BinaryIO | _NoFile:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return _NoFile()


def offsets_at(queue: Queue, number: int, line: int, known: tuple[int, int, int] | None = None) -> tuple[int, int]:
    """Byte offsets of line `line` (from 0) in data file `number` and in its meta.

    `known`: a line of that file with its two offsets, to start from.
    """
    start, *offsets = known if known and known[0] <= line else (0, 0, 0)
    found = []
    for path, offset in zip((queue.files.data(number), queue.files.meta(number)), offsets, strict=True):
        if not path.exists():
            found.append(0)
            continue
        with path.open("rb") as file:
            file.seek(offset)
            found.append(offset + sum(map(len, islice(file, line - start))))
    return found[0], found[1]


def half_line_problem(number: int, half: bytes) -> str:
    """A cut data file, in words."""
    return f"file {number} was cut, and ends within a line: {half[:200].decode('utf-8', 'backslashreplace')!r}"


def last_line(path: Path) -> bytes:
    """What stands after the last newline of a file: nothing, if it ends with one."""
    end = b""
    with path.open("rb") as file:
        place = file.seek(0, io.SEEK_END)
        while place and b"\n" not in end:
            place = max(0, place - _END_BYTES)
            file.seek(place)
            end = file.read()
    return end[end.rfind(b"\n") + 1 :]


def count_lines(path: Path) -> int:
    """Lines of a file; a last one without newline counts."""
    count, last = 0, b"\n"
    with path.open("rb") as file:
        for block in chain(iter(lambda: file.read(_COUNT_BYTES), b"")):
            count += block.count(b"\n")
            last = block[-1:]
    return count if last == b"\n" else count + 1
