"""A backup of all keys in one file, and back.

The file: a line of ASCII, `krake-keys 1`, then blocks: a signed big-endian int32 with the number of keys, the keys (20
bytes each), one byte of state each. All keys ascend over the whole file, each once, with the highest state that any
server has. A block of 0 keys ends them; then an int64 with the number of all keys, and the SHA-256 of all before it.

`load_keys` reads the file twice: first all of it, so that nothing of a damaged file reaches a server.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from crawl_lib.dataclass import dataclass
from crawl_lib.durable import fsync_dir, fsync_file, reached
from crawl_lib.errors import (
    DamagedFileError,
    InputError,
    KeyServerDownError,
    StorageError,
    os_errors,
)
from crawl_lib.keys.intervals import KEY_BYTES, bounds, side_by_side
from crawl_lib.keys.server import KeyServer
from crawl_lib.keys.sharded import ShardedKeyStore
from crawl_lib.states import KeyState
from crawl_lib.stopping import Work

MAGIC = b"krake-keys 1\n"
BLOCK_KEYS = 50_000
DIGEST_BYTES = 32


@dataclass
class DumpReport:
    """Counts of keys written to, or read from, a dump. `down`: servers that did not answer; others had all their
    keys."""

    file: str
    keys: int = 0
    by_state: Counter[str] = field(default_factory=Counter)
    down: list[str] = field(default_factory=list)
    added: int = 0
    raised: int = 0

    def count(self, states: bytes) -> None:
        """Count keys of these states."""
        self.keys += len(states)
        for state in KeyState:
            self.by_state[state.name.lower()] += states.count(state)


def dump_keys(
    store: ShardedKeyStore, path: Path, work: Work | None = None, *, dry_run: bool = False
) -> DumpReport:
    """Write all keys to a new file.

    `dry_run`: read and count them only. Raises InputError if the file is there, KeyServerDownError if no server answers
    for some keys, StorageError.
    """
    with os_errors(path, "cannot be written"):
        if path.exists():
            raise InputError(f"{path}: is there already: choose another name, or delete it")
    counts, report = store.counts(), DumpReport(str(path))
    report.down = [one.server for one in counts if not one.up]
    if any(
        not any(counts[place].up for place in store.rings[first]) for first in range(len(counts))
    ):
        reasons = "; ".join(one.error for one in counts if not one.up)
        raise KeyServerDownError(
            f"no key server answers for some keys: {reasons}: run again when one is back"
        )
    keys = all_keys([server for server, one in zip(store.servers, counts, strict=True) if one.up])
    if dry_run and not os.access(path.parent, os.W_OK | os.X_OK):
        raise StorageError(
            f"{path}: cannot be written: the directory is missing, or belongs to another user"
        )
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with os_errors(path, "cannot be written"):
        try:
            with Path(os.devnull).open("wb") if dry_run else temporary.open("xb") as file:
                _write(file, keys, report, work or Work())
                if dry_run:
                    return report
                fsync_file(file)
            reached("keys.dump.written")
            temporary.rename(path)
            fsync_dir(path.parent)
        finally:
            temporary.unlink(missing_ok=True)
    return report


def all_keys(servers: Sequence[KeyServer]) -> Iterator[tuple[bytes, int]]:
    """Yield every key of these servers, ascending, with its highest state."""
    low, high = bounds(0, 1)
    for key, states in side_by_side([server.scan(low, high) for server in servers]):
        yield key, int(max(states.values()))


def _write(
    file: BinaryIO, keys: Iterator[tuple[bytes, int]], report: DumpReport, work: Work
) -> None:
    digest = hashlib.sha256()

    def put(data: bytes) -> None:
        digest.update(data)
        file.write(data)

    put(MAGIC)
    while block := list(islice(keys, BLOCK_KEYS)):
        states = bytes(state for _, state in block)
        count = len(block).to_bytes(4, "big", signed=True)
        put(count + b"".join([key for key, _ in block]) + states)
        report.count(states)
        _tell(work, "dump", report.keys)
    put((0).to_bytes(4, "big") + report.keys.to_bytes(8, "big", signed=True))
    file.write(digest.digest())


def read_dump(path: Path) -> Iterator[tuple[list[bytes], bytes]]:
    """Yield a dump's keys and states, block by block.

    A state is a byte. Raises DamagedFileError naming the byte; what came before may be of a damaged file too, so read
    it all first. Raises InputError if there is no such file, StorageError if it cannot be read.
    """
    with os_errors(path, "cannot be read"):
        if not path.exists():
            raise InputError(f"{path}: no such file")
        with path.open("rb") as file:
            yield from _blocks(file, str(path))


def _blocks(file: BinaryIO, where: str) -> Iterator[tuple[list[bytes], bytes]]:
    digest, total, last = hashlib.sha256(), 0, b""

    def take(size: int) -> bytes:
        data = file.read(size)
        if len(data) < size:
            raise DamagedFileError(
                f"{where}: ends at byte {file.tell()}, in the middle of its keys"
            )
        digest.update(data)
        return data

    if file.read(len(MAGIC)) != MAGIC:
        raise DamagedFileError(
            f"{where}: is no dump of keys: the file does not begin with {MAGIC[:-1].decode()!r}"
        )
    digest.update(MAGIC)
    while count := int.from_bytes(take(4), "big", signed=True):
        at = f"{where}: byte {file.tell() - 4}"
        if not 0 < count <= BLOCK_KEYS:
            raise DamagedFileError(f"{at}: a block of {count} keys")
        data, states = take(KEY_BYTES * count), take(count)
        keys = [data[start : start + KEY_BYTES] for start in range(0, len(data), KEY_BYTES)]
        if keys[0] <= last or keys != sorted(set(keys)):
            raise DamagedFileError(f"{at}: its keys do not ascend")
        if set(states) - set(KeyState):
            raise DamagedFileError(f"{at}: a state that Krake does not know")
        last, total = keys[-1], total + count
        yield keys, states
    if int.from_bytes(take(8), "big", signed=True) != total:
        raise DamagedFileError(f"{where}: has {total} keys, and its end says otherwise")
    if file.read(DIGEST_BYTES) != digest.digest() or file.read(1):
        raise DamagedFileError(f"{where}: differs from the written file (SHA-256)")


def load_keys(
    store: ShardedKeyStore, path: Path, work: Work | None = None, *, dry_run: bool = False
) -> DumpReport:
    """Add the keys of a dump; the higher state wins.

    May be repeated; `dry_run`: count only. Raises DamagedFileError or InputError before any key is written,
    KeyServerDownError if a server misses some.
    """
    report, work = DumpReport(str(path)), work or Work()
    read = 0
    for keys, _ in read_dump(path):
        read += len(keys)
        _tell(work, "reading", read)
    for keys, states in read_dump(path):
        known = store.states(keys)
        report.count(states)
        for state in KeyState:
            some = [key for key, own in zip(keys, states, strict=True) if own == state]
            report.added += sum(1 for key in some if known[key] is None)
            report.raised += sum(1 for key in some if (known[key] or state) < state)
            missed = {} if dry_run else store.insert(some, state)
            if missed:
                raise KeyServerDownError(
                    f"{', '.join(missed)}: does not answer: run again when it is back"
                )
        reached("keys.load.block")
        _tell(work, "load", report.keys)
    return report


def _tell(work: Work, stage: str, done: int) -> None:
    work.go_on()
    work.report(stage=stage, done=done, unit="keys")
