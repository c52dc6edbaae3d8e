"""Notes of `krake retry --now`: files of the crawl directory that say which waiting URLs are due at once.

Waiting URLs lie in queues on the nodes' disks, so each node reads the notes before its next take. A note is a file
`<crawl>/retry_now/<time>-<id>`: a sealed line of JSON (`hosts`: hosts whose back-off ends, null for all; `keys`: their
number, null for all URLs of the hosts; `keys_sha1`: of the keys; `ignore_retry_after`), then the keys, 20 bytes each,
ascending. `<time>` is in POSIX microseconds.

No wait is longer than `retry.max_wait_s`. A note of this age is over: URLs that waited at the time of the note are due,
and URLs that wait now have failed since then.
"""

import time
import uuid
from collections.abc import Collection
from hashlib import sha1

from crawl_lib.crawldir.directory import CrawlDirectory, FileName
from crawl_lib.dataclass import dataclass
from crawl_lib.durable import reached
from crawl_lib.errors import DamagedFileError
from crawl_lib.keys import KEY_BYTES
from crawl_lib.sealed import sealed_json, unsealed

_ID_CHARS = 16


@dataclass(frozen=True)
class RetryNow:
    """A note. `hosts`, `keys`: None for all; `ignore_retry_after`: whether waits by Retry-After end too."""

    name: str
    hosts: frozenset[str] | None = None
    keys: frozenset[bytes] | None = None
    ignore_retry_after: bool = False

    @classmethod
    def made(
        cls,
        hosts: Collection[str] | None,
        keys: Collection[bytes] | None,
        *,
        ignore_retry_after: bool = False,
        run_id: str | None = None,
    ) -> "RetryNow":
        """Make a note of this moment, without writing the note.

        `run_id`: a run that makes only one note.
        """
        made_by = uuid.uuid4().hex if run_id is None else sha1(run_id.encode()).hexdigest()
        name = f"{time.time_ns() // 1000}-{made_by[:_ID_CHARS]}"
        some_hosts = None if hosts is None else frozenset(hosts)
        return cls(name, some_hosts, None if keys is None else frozenset(keys), ignore_retry_after)

    def is_of_run(self, name: str) -> bool:
        """Say whether a note with this name is of the same run."""
        return name.rpartition("-")[2] == self.name.rpartition("-")[2]

    def names_host(self, host: str) -> bool:
        """Say whether the back-off of a host ends."""
        return self.hosts is None or host in self.hosts

    def names_url(self, url: bytes, host: str) -> bool:
        """Say whether a canonical URL of a host is due."""
        return self.names_host(host) and (self.keys is None or sha1(url).digest() in self.keys)

    def to_bytes(self) -> bytes:
        """Return the bytes of the file."""
        keys = b"".join(sorted(self.keys or ()))
        value = {
            "hosts": None if self.hosts is None else sorted(self.hosts),
            "keys": None if self.keys is None else len(self.keys),
            "keys_sha1": sha1(keys).hexdigest(),
            "ignore_retry_after": self.ignore_retry_after,
        }
        return sealed_json(value) + keys

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> "RetryNow":
        """Read the file. Raises ValueError, KeyError or TypeError."""
        head, _, keys = data.partition(b"\n")
        value = unsealed(head)
        hosts, count = value["hosts"], value["keys"]
        if len(keys) != KEY_BYTES * (count or 0) or sha1(keys).hexdigest() != value["keys_sha1"]:
            raise ValueError(f"it lacks some of the noted {count} keys of 20 bytes")
        found = (
            None
            if count is None
            else frozenset(keys[at : at + KEY_BYTES] for at in range(0, len(keys), KEY_BYTES))
        )
        return cls(
            name,
            None if hosts is None else frozenset(hosts),
            found,
            bool(value["ignore_retry_after"]),
        )


class RetryNowNotes:
    """The notes of `krake retry --now` in a crawl."""

    def __init__(self, crawl: CrawlDirectory) -> None:
        self._crawl = crawl

    def path(self, name: str) -> str:
        """Return the path of a note."""
        return self._crawl.at(FileName.RETRY_NOW, name)

    def names(self, max_wait_s: float, *, over: bool = False) -> list[str]:
        """Return the names of current notes, or expired ones, oldest first.

        `over`: whether to return the expired notes.

        `max_wait_s`: the longest wait of a URL, in seconds. A name without a time counts as expired.
        """
        first_us = (time.time() - max_wait_s) * 1_000_000
        names = self._crawl.names(FileName.RETRY_NOW, files=True)
        return [name for name in names if (_time_us(name) < first_us) is over]

    def write(self, note: RetryNow) -> str:
        """Write a note durably; return its path. Raises StorageError."""
        path = self.path(note.name)
        self._crawl.storage.write_bytes(path, note.to_bytes())
        reached("crawldir.retry_now.noted")
        return path

    def read(self, name: str) -> RetryNow:
        """Read a note. Raises DamagedFileError naming the file and the repair, StorageError."""
        path = self.path(name)
        try:
            return RetryNow.from_bytes(self._crawl.storage.read_bytes(path), name)
        except (ValueError, KeyError, TypeError) as error:
            again = "run `krake fsck --repair` to delete the file, then `krake retry --now` again"
            raise DamagedFileError(
                f"{path}: is not a note of `krake retry --now`: {error}; {again}"
            ) from error


def _time_us(name: str) -> int:
    text = name.partition("-")[0]
    return int(text) if text.isdecimal() and text.isascii() else 0
