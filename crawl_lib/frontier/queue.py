"""A node's queue as it lies on the disk: data files `0`, `1`..., their meta, and `state`. Reading, never changing."""

import hashlib
import io
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import chain, islice, repeat
from pathlib import Path

from crawl_lib.errors import QueueError, os_error
from crawl_lib.frontier.directory import NodeDirectory
from crawl_lib.frontier.record import Record, digest_of
from crawl_lib.records import QueuedUrl
from crawl_lib.sealed import own_file
from crawl_lib.urlfiles import BARE_META, TakenIn, decode_meta, file_lines

_COUNT_BYTES = 1 << 20
_END_BYTES = 1 << 16


NOT_BELIEVED = "is not Krake's last file, and does not begin with 0, as people's files do"


@dataclass(frozen=True, slots=True)
class State:
    """The content of `state`: URLs of file 0 already processed, then each data file's number of URLs."""

    processed: int = 0
    totals: tuple[int, ...] = (0,)

    @property
    def length(self) -> int:
        """The number of waiting URLs."""
        return sum(self.totals) - self.processed

    def to_bytes(self) -> bytes:
        """Return the bytes of the file."""
        return b"".join(b"%d\n" % number for number in (self.processed, *self.totals))

    def after(self, count: int) -> "tuple[State, int]":
        """Return the state after `count` more URLs, and used-up files.

        The second result is the number of files that go. Raises ValueError if the queue holds fewer URLs: the caller
        asked for too many.
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
        """Return the hex digest of the file's bytes."""
        return hashlib.sha1(self.to_bytes()).hexdigest()

    def is_believed(self, record: Record) -> bool:
        """Return whether the state is Krake's latest, or people's.

        A state by people begins with 0, or has no `state.krake`.
        """
        return not self.processed or record.state_sha1 in {"", self.sha1()}

    @classmethod
    def parse(cls, data: bytes) -> "State":
        """Parse the content of `state`, also as written by people.

        Raises ValueError naming the problem.
        """
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
            raise ValueError(
                f"says {processed} URLs of file 0 are processed, and that file 0 has {totals[0]}"
            )
        return cls(processed, tuple(totals))


class Queue:
    """The queue of one node.

    * Reading streams; no data file is ever held in memory.
    * `state` is believed only after a look at the files: QueueError names the fault and `krake fsck --repair`.
    * A reader without the node's lock may see half a move; `krake status` says so.
    * Only moves change the queue (`crawl_lib.frontier.move`).
    """

    def __init__(self, directory: Path, node: str | None = None) -> None:
        """Name the queue. `directory`: the node's. `node`: its name in messages, else the directory's name."""
        self.directory, self.files = directory, NodeDirectory(directory)
        self.node = node or directory.name

    def error(self, problem: str) -> QueueError:
        """Return an error about this queue, with the repair command."""
        return QueueError(f"{self.directory}: {problem}; run `krake fsck --repair`")

    def exists(self) -> bool:
        """Return whether there is a queue.

        The queue may be damaged, or within a move.
        """
        if self.files.state.exists() or self.files.move.exists():
            return True
        return any(self.files.data(number).stat().st_size for number in self.files.data_files())

    def record(self) -> Record:
        """Read `state.krake`.

        A missing file gives an empty record.
        """
        return Record.read(self.directory) or Record()

    def taken_in(self) -> TakenIn:
        """Return the (folder, node) pairs that were taken in."""
        return self.record().taken_in

    def undecided(self) -> Iterator[bytes]:
        """Yield the outlink lines without an answer of their key servers.

        The next intake begins with these lines.
        """
        return file_lines(self.files.undecided)

    def handed_on(self) -> Iterator[bytes]:
        """Yield outlink lines that the next segment carries to their owners.

        The lines have the flag `h`.
        """
        return file_lines(self.files.handed_on)

    def scope_added(self) -> list[str]:
        """Return hosts of adopted URLs, sorted, for the scope.

        The node's next segment adds these hosts.
        """
        path = self.files.scope_added
        with suppress(FileNotFoundError), own_file(path, "is no list of hosts"):
            return path.read_bytes().decode("ascii").splitlines()
        return []

    def state(self) -> State:
        """Return the state, checked against the data files.

        The files must have no gaps, and the numbers of lines in `state`. Only files with other sizes than last written
        are counted. Raises QueueError.
        """
        state, record = self.unchecked_state(), self.record()
        written = record.sizes if record.state_sha1 == state.sha1() else ()
        for _, _, problem in self.problems(state, record, written):
            raise self.error(problem)
        return state

    def problems(
        self, state: State, record: Record, written: Sequence[int] = ()
    ) -> Iterator[tuple[str, str, str]]:
        """Yield the contradictions of a state.

        Each has the name of the finding, the file, and the problem in words.

        `written`: sizes of files without need of a count.
        """
        numbers = self.files.data_files()
        if numbers != list(range(len(state.totals))):
            names = ", ".join(map(str, numbers)) or "none"
            problem = f"`state` lists {len(state.totals)} data files, and there are {names}"
            yield "data_files", NodeDirectory.state, problem
            return
        if not state.is_believed(record):
            yield "state_damaged", NodeDirectory.state, NOT_BELIEVED
        for number, total in enumerate(state.totals):
            path = self.files.data(number)
            if number < len(written) and path.stat().st_size == written[number]:
                continue
            if half := self.half_line(number, record):
                shown = half[:200].decode("utf-8", "backslashreplace")
                yield (
                    "line_cut",
                    path.name,
                    f"file {number} was cut, and ends within a line: {shown!r}",
                )
            elif (count := count_lines(path)) != total:
                yield (
                    "state_differs",
                    path.name,
                    f"file {number} has {count} URLs, and `state` says {total}",
                )

    def unchecked_state(self) -> State:
        """Read `state` without a look at the files.

        Raises QueueError if the text is no state, StorageError if the disk refuses the file.
        """
        try:
            return State.parse(self.files.state.read_bytes())
        except FileNotFoundError as error:
            raise self.error("there is no `state`") from error
        except OSError as error:
            raise os_error(error, self.files.state, "cannot be read") from error
        except ValueError as error:
            raise self.error(f"`state` {error}") from error

    def length(self) -> int:
        """Count the waiting URLs."""
        return self.state().length

    def own_files(self, record: Record, state: State | None = None) -> frozenset[int]:
        """Return the numbers of the data files that are Krake's.

        These and their metas have the size that Krake wrote. People who replace a data file leave the old meta behind.
        A file by people may have the same size, for example after a sort: with a `state` by people, the digest has to
        be Krake's too.
        """
        paths = [
            (number, self.files.data(number), size) for number, size in enumerate(record.sizes)
        ]
        own = frozenset(
            number for number, path, size in paths if path.exists() and path.stat().st_size == size
        )
        if state is None or record.state_sha1 in {"", state.sha1()}:
            return own
        known = record.digests()
        return frozenset(
            n for n in own if known.get(str(n)) in {None, digest_of(self.files.data(n))}
        )

    def is_ours(self, state: State | None = None, record: Record | None = None) -> bool:
        """Return whether Krake wrote the queue as it is.

        Otherwise the next intake adopts it.
        """
        state, record = state or self.state(), record or self.record()
        if state == State():
            return True
        files = len(state.totals)
        return record.state_sha1 == state.sha1() and len(record.sizes) == files == len(
            self.own_files(record)
        )

    def half_line(self, number: int, record: Record) -> bytes | None:
        """Return the end of a file that was cut within a line.

        None: the file is whole, or this is unknown. Krake ends each line. A file of Krake's is therefore cut if shorter
        now and without a newline at its end. People need not end the last line: if `state` or the file is theirs, the
        line is trusted. A whole line then gets a newline.
        """
        try:
            state = State.parse(self.files.state.read_bytes()).sha1()
        except (OSError, ValueError):
            state = ""  # missing or damaged: no evidence against the record
        path = self.files.data(number)
        ours = number < len(record.sizes) and (not state or record.state_sha1 in {"", state})
        return (
            last_line(path) or None if ours and path.stat().st_size < record.sizes[number] else None
        )

    def __iter__(self) -> Iterator[QueuedUrl]:
        """Yield the waiting URLs, in order, without a take."""
        for url, meta in self.lines(self.state()):
            yield decode_meta(url, meta, str(self.directory))

    def lines(self, state: State, count: int | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield the next lines of data and meta, without newlines.

        `state`: checked. `count`: None for all lines. Raises QueueError if a file is shorter than in `state`.
        """
        left, start = state.length if count is None else min(count, state.length), state.processed
        record = self.record()
        offsets, own = self._offsets(state, record), self.own_files(record, state)
        for number, total in enumerate(state.totals):
            share = min(left, total - start)
            if share:
                meta = self.files.meta(number) if number in own else None
                yield from self._file_lines(number, meta, start, share, offsets)
            left, start, offsets = left - share, 0, None

    def _offsets(self, state: State, record: Record) -> tuple[int, int] | None:
        """Return the byte offsets of the first unprocessed line.

        The offsets are for file 0 and its meta. None: unknown.
        """
        if record.offset is None or record.meta_offset is None or not self.is_ours(state, record):
            return None
        return record.offset, record.meta_offset

    def _file_lines(
        self,
        number: int,
        meta: Path | None,
        start: int,
        share: int,
        offsets: tuple[int, int] | None,
    ) -> Iterator[tuple[bytes, bytes]]:
        seen = start
        with ExitStack() as stack:
            paths = [self.files.data(number), *([meta] if meta and meta.exists() else [])]
            files = [stack.enter_context(path.open("rb")) for path in paths]
            for file, offset in zip(files, offsets or (0, 0), strict=False):
                if not offsets:
                    next(islice(file, start, start), None)
                    continue
                file.seek(max(0, offset - 1))
                if offset and file.read(1) != b"\n":
                    name = Path(file.name).name
                    raise self.error(
                        f"`state.krake` says that `{name}` is read to byte {offset}, in a line"
                    )
            metas = files[1] if len(files) > 1 else repeat(BARE_META)
            for url, line in zip(islice(files[0], share), metas, strict=False):
                seen += 1
                yield url.rstrip(b"\r\n"), line.rstrip(b"\n")
        if seen < start + share:
            raise self.error(
                f"file {number} or its meta ends after {seen} of {start + share} lines"
            )


def lines_until(path: Path, offset: int) -> int | None:
    """Count the lines that end before a byte of a file.

    None: the byte is beyond the end, or within a line.
    """
    count, last, left = 0, b"\n", offset
    with path.open("rb") as file:
        while left and (block := file.read(min(left, _COUNT_BYTES))):
            count, last, left = count + block.count(b"\n"), block[-1:], left - len(block)
    return count if not left and last == b"\n" else None


def last_line(path: Path) -> bytes:
    """Return the bytes after the last newline of a file."""
    end = b""
    with path.open("rb") as file:
        place = file.seek(0, io.SEEK_END)
        while place and b"\n" not in end:
            place = max(0, place - _END_BYTES)
            file.seek(place)
            end = file.read()
    return end[end.rfind(b"\n") + 1 :]


def count_lines(path: Path) -> int:
    """Count the lines of a file, with an unterminated last line."""
    count, last = 0, b"\n"
    with path.open("rb") as file:
        for block in chain(iter(lambda: file.read(_COUNT_BYTES), b"")):
            count += block.count(b"\n")
            last = block[-1:]
    return count if last == b"\n" else count + 1
