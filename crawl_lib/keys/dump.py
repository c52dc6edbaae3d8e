"""A backup of all keys in one file, and back.

The file: a line of ASCII, `krake-keys 1`, then blocks: a signed big-endian int32 with the number of keys, the keys (20
bytes each), one byte of state each. All keys ascend over the whole file, each once, with the highest state that any
server has. A block of 0 keys ends them; then an int64 with the number of all keys, and the SHA-256 of all before it.

`load_keys` reads the file twice: first all of it, so that nothing of a damaged file reaches a server.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, BinaryIO

from crawl_lib.durable import fsync_dir, fsync_file, reached
from crawl_lib.errors import DamagedFileError, InputError, KeyServerDownError, StorageError, os_error, os_errors
from crawl_lib.keys.intervals import KEY_BYTES, bounds, side_by_side
from crawl_lib.keys.keystore import KeyServer
from crawl_lib.keys.sharded import ShardedKeyStore
from crawl_lib.states import KeyState
from crawl_lib.stopping import Work

MAGIC = b"krake-keys 1\n"
BLOCK_KEYS = 50_000
DIGEST_BYTES = 32


@dataclass
class DumpReport:
    """What was written to, or read from, a dump. `down`: servers that did not answer; others had all their keys."""

    file: str
    keys: int = 0
    by_state: dict[str, int] = field(default_factory=dict)
    down: list[str] = field(default_factory=list)
    added: int = 0
    raised: int = 0

    def to_mapping(self) -> dict[str, Any]:
        """The report as plain values."""
        return asdict(self)

    def count(self, states: Sequence[int]) -> None:
        """Count keys of these states."""
        self.keys += len(states)
        for state in KeyState:
            word = state.name.lower()
            self.by_state[word] = self.by_state.get(word, 0) + states.count(int(state))


def dump_keys(store: ShardedKeyStore, path: Path, work: Work | None = None, *, dry_run: bool = False) -> DumpReport:
    """Write all keys to a new file. `dry_run`: read them all and count them, and write nothing.

    Raises InputError if the file is there, KeyServerDownError if no server answers for some keys, StorageError.
    """
    if path.exists():
        raise InputError(f"{path}: is there already: choose another name, or delete it")
    report, work = DumpReport(str(path)), work or Work()
    up = _answering(store, report)
    if dry_run:
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise StorageError(f"{path}: cannot be written: there is no such directory, or it is somebody else's")
        with Path(os.devnull).open("wb") as nowhere:
            _write(nowhere, all_keys(up), report, work)
        return report
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with os_errors(path, "cannot be written"):
        try:
            with temporary.open("xb") as file:
                _write(file, all_keys(up), report, work)
                fsync_file(file)
            reached("repair.dump.written")
            temporary.rename(path)
            fsync_dir(path.parent)
        finally:
            temporary.unlink(missing_ok=True)
    return report


def _answering(store: ShardedKeyStore, report: DumpReport) -> list[KeyServer]:
    """The servers that answer; they must hold every interval."""
    counts = store.counts()
    up = {place for place, one in enumerate(counts) if one.up}
    report.down = [one.server for one in counts if not one.up]
    for first in range(len(store.servers)):
        if not up & set(store.places(first)):
            reasons = "; ".join(one.error for one in counts if not one.up)
            raise KeyServerDownError(f"no key server answers for some keys: {reasons}: run again when one is back")
    return [store.servers[place] for place in sorted(up)]


def all_keys(servers: Sequence[KeyServer]) -> Iterator[tuple[bytes, int]]:
    """Every key that any of these servers has, ascending, with the highest state."""
    low, high = bounds(0, 1)
    for key, states in side_by_side([server.scan(low, high) for server in servers]):
        yield key, int(max(states.values()))


def _write(file: BinaryIO, keys: Iterator[tuple[bytes, int]], report: DumpReport, work: Work) -> None:
    digest = hashlib.sha256()

    def put(data: bytes) -> None:
        digest.update(data)
        file.write(data)

    put(MAGIC)
    while block := list(islice(keys, BLOCK_KEYS)):
        states = [state for _, state in block]
        put(len(block).to_bytes(4, "big", signed=True) + b"".join([key for key, _ in block]) + bytes(states))
        report.count(states)
        _tell(work, "dump", report.keys)
    put((0).to_bytes(4, "big") + report.keys.to_bytes(8, "big", signed=True))
    file.write(digest.digest())


def read_dump(path: Path) -> Iterator[tuple[list[bytes], bytes]]:
    """The keys of a dump and their states (a byte each), block by block.

    Raises DamagedFileError naming the byte; what came before may be of a damaged file too, so read it all first.
    Raises InputError if there is no such file, StorageError if it cannot be read.
    """
    try:
        with path.open("rb") as file:
            yield from _blocks(file, str(path))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except OSError as error:
        raise os_error(error, path, "cannot be read") from error


def _blocks(file: BinaryIO, where: str) -> Iterator[tuple[list[bytes], bytes]]:
    digest, total, last = hashlib.sha256(), 0, b""

    def take(size: int) -> bytes:
        data = file.read(size)
        if len(data) < size:
            raise DamagedFileError(f"{where}: ends at byte {file.tell()}, in the middle of its keys")
        digest.update(data)
        return data

    if file.read(len(MAGIC)) != MAGIC:
        raise DamagedFileError(f"{where}: is no dump of keys: it does not begin with {MAGIC[:-1].decode()!r}")
    digest.update(MAGIC)
    while True:
        at = file.tell()
        count = int.from_bytes(take(4), "big", signed=True)
        if not 0 <= count <= BLOCK_KEYS:
            raise DamagedFileError(f"{where}: byte {at}: a block of {count} keys")
        if not count:
            break
        data, states = take(KEY_BYTES * count), take(count)
        keys = [data[start : start + KEY_BYTES] for start in range(0, len(data), KEY_BYTES)]
        _check_block(keys, states, last, f"{where}: byte {at}")
        last, total = keys[-1], total + count
        yield keys, states
    if int.from_bytes(take(8), "big", signed=True) != total:
        raise DamagedFileError(f"{where}: has {total} keys, and its end says otherwise")
    if file.read(DIGEST_BYTES) != digest.digest() or file.read(1):
        raise DamagedFileError(f"{where}: is not what was written (SHA-256)")


def _check_block(keys: Sequence[bytes], states: bytes, last: bytes, place: str) -> None:
    if keys[0] <= last or any(a >= b for a, b in pairwise(keys)):
        raise DamagedFileError(f"{place}: its keys do not ascend")
    if set(states) - set(KeyState):
        raise DamagedFileError(f"{place}: a state that Krake does not know")


def load_keys(store: ShardedKeyStore, path: Path, work: Work | None = None, *, dry_run: bool = False) -> DumpReport:
    """Add the keys of a dump; of those that are there, the higher state wins. May be repeated; `dry_run`: count only.

    Raises DamagedFileError or InputError before any key is written, KeyServerDownError if a server misses some.
    """
    report, work = DumpReport(str(path)), work or Work()
    read = 0
    for keys, _ in read_dump(path):
        read += len(keys)
        _tell(work, "reading", read)
    for keys, states in read_dump(path):
        known = store.states(keys)
        report.count(list(states))
        for state in KeyState:
            some = [key for key, own in zip(keys, states, strict=True) if own == state]
            report.added += sum(1 for key in some if known[key] is None)
            report.raised += sum(1 for key in some if (known[key] or state) < state)
            missed = {} if dry_run else store.insert(some, state).missed
            if missed:
                raise KeyServerDownError(f"{', '.join(missed)}: does not answer: run again when it is back")
        reached("repair.load.block")
        _tell(work, "load", report.keys)
    return report


def _tell(work: Work, stage: str, done: int) -> None:
    work.go_on()
    work.report(stage=stage, done=done, unit="keys")
