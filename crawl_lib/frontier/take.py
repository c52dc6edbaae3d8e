"""The URLs that a node fetches in one iteration, for readers: the file `take`, and the decision `leftover`."""

from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field, replace
from hashlib import file_digest, sha1
from itertools import chain, compress, count
from pathlib import Path
from typing import Any

from crawl_lib.dataclass import dataclass
from crawl_lib.errors import DamagedFileError
from crawl_lib.frontier.directory import NodeDirectory
from crawl_lib.frontier.fairness import Run, positions_of, runs_of
from crawl_lib.frontier.queue import State
from crawl_lib.records import QueuedUrl, TakenUrl
from crawl_lib.sealed import own_file, unsealed
from crawl_lib.urlfiles import decode_meta

_TO_BE_FILLED_IN = 40 * "0"


@dataclass(frozen=True)
class TakeHeader:
    """The first line of `take`.

    `position_before`, `position_after`: the queue's state at the take, and after the use of all its lines (without the
    leftover). `looked_at`: the number of these lines of the queue's head; `runs`: the taken lines among these;
    `next_due`: if the take looked at the whole queue, when the first untaken line is due. `count`: the URLs of the
    take. `processes`: the number of workers among which the hosts are divided, also in a rerun. `extra`: facts that the
    caller wants to find again. `lines_sha1`: hex digest of all lines of URLs.
    """

    take_id: str
    run_id: str
    iteration: int
    folder: str
    processes: int
    extra: dict[str, Any] = field(default_factory=dict)
    node: str = ""
    position_before: State = field(default_factory=State)
    position_after: State = field(default_factory=State)
    looked_at: int = 0
    runs: Sequence[Run] = ()
    next_due: int | None = None
    count: int = 0
    lines_sha1: str = _TO_BE_FILLED_IN

    def at(self, state: State, taken: bytearray) -> "TakeHeader":
        """Return the header of a take of these lines.

        `taken`: 0 or 1 for each line that was looked at.
        """
        return replace(
            self,
            position_before=state,
            position_after=state.after(len(taken))[0],
            looked_at=len(taken),
            runs=runs_of(compress(count(), taken)),
        )

    def to_mapping(self) -> dict[str, Any]:
        """Return the content of the file as a mapping."""
        return {
            **self.__dict__,
            "position_before": [self.position_before.processed, *self.position_before.totals],
            "position_after": [self.position_after.processed, *self.position_after.totals],
        }


@dataclass(frozen=True)
class Take:
    """An open take. Its URLs stream from the file; `take.header` names run and iteration."""

    path: Path
    header: TakeHeader

    @classmethod
    def open(cls, directory: Path) -> "Take | None":
        """Open the take of a node's directory, if any.

        Raises DamagedFileError naming the file and the repair command, StorageError if the disk refuses to read.
        """
        path = NodeDirectory(directory).take
        with suppress(FileNotFoundError), own_file(path, "is not a take"):
            with path.open("rb") as file:
                value = unsealed(file.readline())
            for name in ("position_before", "position_after"):
                processed, *totals = value[name]
                value[name] = State(processed, tuple(totals))
            value["runs"] = [(start, stop) for start, stop in value["runs"]]
            _require_sums(header := TakeHeader(**value))
            return cls(path, header)
        return None

    @classmethod
    def readable(cls, directory: Path) -> "Take | None":
        """Open the take for a repair.

        The result is also None for a damaged file, which is a finding of the queue.
        """
        with suppress(DamagedFileError):
            return cls.open(directory)
        return None

    @property
    def take_id(self) -> str:
        """The id of the take, for its segment."""
        return self.header.take_id

    @property
    def count(self) -> int:
        """The number of URLs."""
        return self.header.count

    def urls(self, keys: Container[bytes] | None = None) -> Iterator[TakenUrl]:
        """Yield the URLs in batch order.

        `keys`: only URLs with these keys. Raises DamagedFileError as `lines` does.
        """
        where = str(self.path)
        for position, (url, meta) in enumerate(self.lines()):
            key = sha1(url).digest()
            if keys is None or key in keys:
                yield TakenUrl(position, key, decode_meta(url, meta, where))

    @property
    def passed_over(self) -> int:
        """The number of lines that were looked at and not taken."""
        return self.header.looked_at - sum(stop - start for start, stop in self.header.runs)

    def select(self, positions: Iterable[int]) -> Iterator[QueuedUrl]:
        """Yield the URLs at ascending positions, for a leftover."""
        wanted = set(positions)
        for position, (url, meta) in enumerate(self.lines()):
            if position in wanted:
                yield decode_meta(url, meta, str(self.path))

    def lines(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the lines of data and meta, in batch order.

        Raises DamagedFileError: before the first line if the digest of the lines is not the header's; at the end if
        the number of lines is not the header's.
        """
        seen = 0
        with own_file(self.path, "differs from the written take"), self.path.open("rb") as file:
            start = len(file.readline())
            _require(
                file_digest(file, "sha1").hexdigest() == self.header.lines_sha1,
                "its URLs have another digest than its header says",
            )
            file.seek(start)
            for line in file:
                url, _, meta = line.rstrip(b"\n").partition(b"\t")
                seen += 1
                yield url, meta
            _require(seen == self.count, f"has {seen} URLs, and its header says {self.count}")

    def leftover(self) -> list[int] | None:
        """Return the ascending positions of the leftover URLs.

        None: fetching is not over. Raises DamagedFileError naming the file and the repair command.
        """
        path = self.path.with_name(NodeDirectory.leftover)
        with suppress(FileNotFoundError), own_file(path, "cannot be read"):
            value = unsealed(path.read_bytes())
            if value["take_id"] == self.take_id:
                found = [*positions_of(value["runs"])]
                _require(
                    not found or 0 <= found[0] <= found[-1] < self.count,
                    f"names position beyond {self.count}",
                )
                return found
        return None

    @property
    def scope_path(self) -> Path:
        """The file with the hosts of the scope."""
        return NodeDirectory(self.path.parent).spool_scope

    def scope(self) -> list[str]:
        """Return the hosts of the scope, sorted.

        Raises FileNotFoundError without a decision, DamagedFileError for any damage: a missing host would lose links.
        """
        with own_file(self.scope_path, "differs from the written list of hosts", self.header.node):
            hosts = unsealed(self.scope_path.read_bytes())["hosts"]
            _require(all(isinstance(host, str) and host for host in hosts), "a host is no text")
        return list(hosts)


def _require(holds: bool, problem: str) -> None:
    """Raise ValueError within `own_file`, if a condition does not hold."""
    if not holds:
        raise ValueError(problem)


def _require_sums(header: TakeHeader) -> None:
    """Check that a header's sums agree.

    The sums are about the lines that were looked at. Raises ValueError, which `own_file` translates.
    """
    ends = [0, *chain.from_iterable(header.runs), header.looked_at]
    _require(ends == sorted(ends), "its runs are not among the examined lines")
    taken = sum(
        stop - start for start, stop in header.runs
    )  # a repair may have found less in the queue
    _require(taken <= header.count, f"its runs are {taken} lines, and it has {header.count} URLs")
    after = header.position_before.after(header.looked_at)[0]
    _require(after == header.position_after, "the take ends elsewhere than the examined lines")
