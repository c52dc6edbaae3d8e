"""Keys forgotten on purpose: files of the crawl directory that say which keys, and when.

A page that was forgotten is still in its segment. So that a check does not call its missing key a damage, and
`krake fsck --repair` does not make it known again, each `krake forget` leaves a file `<crawl>/forgotten/<name>`: a
sealed line of JSON (`time_us`: POSIX microseconds, `keys`: how many, `lower`: by node and host, how many URLs were
forgotten, `keys_sha1`: of what follows), then the keys, 20 bytes each, ascending. Older versions wrote no digests.
While it is being carried out the name begins with `.open-`; the next forget finishes it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha1

import numpy as np
import numpy.typing as npt

from crawl_lib.crawldir.directory import CrawlDirectory, FileName
from crawl_lib.errors import DamagedFileError
from crawl_lib.keyarrays import Keys
from crawl_lib.keys import KEY_BYTES
from crawl_lib.sealed import sealed_json, unsealed_or_old

_OLD, _KEYS_DIGEST = ("time_us", "keys", "lower"), "keys_sha1"


@dataclass(frozen=True)
class Forget:
    """One decision to forget. `name`: of its file without the prefix; `lower`: see the module's docstring."""

    name: str
    time_us: int
    keys: Keys
    lower: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    is_open: bool = False

    @property
    def open_name(self) -> str:
        """The name of the file while the decision is being carried out."""
        return f"{FileName.OPEN_PREFIX}{self.name}"

    def to_bytes(self) -> bytes:
        """Return the bytes of the file."""
        head, keys = (
            dict(zip(_OLD, (self.time_us, len(self.keys), self.lower), strict=True)),
            self.keys.tobytes(),
        )
        return sealed_json({**head, _KEYS_DIGEST: sha1(keys).hexdigest()}) + keys

    @classmethod
    def from_bytes(cls, data: bytes, name: str, where: str) -> "Forget":
        """Read the file. Raises DamagedFileError naming `where`."""
        head, _, keys = data.partition(b"\n")
        try:
            value = unsealed_or_old(head, _OLD)
            time_us, count, lower = int(value["time_us"]), int(value["keys"]), dict(value["lower"])
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedFileError(
                f"{where}: is not a list of forgotten keys: {error!r}"
            ) from error
        digest = sha1(keys).hexdigest()
        if len(keys) != KEY_BYTES * count or value.get(_KEYS_DIGEST, digest) != digest:
            raise DamagedFileError(f"{where}: lacks some of the noted {count} keys of 20 bytes")
        found = np.frombuffer(keys, f"S{KEY_BYTES}")
        return cls(
            name.removeprefix(FileName.OPEN_PREFIX),
            time_us,
            found,
            lower,
            name.startswith(FileName.OPEN_PREFIX),
        )


class Forgotten:
    """All that was forgotten in a crawl, 20 bytes a key."""

    def __init__(self, crawl: CrawlDirectory) -> None:
        """Read it. Raises DamagedFileError naming the file."""
        storage, self.folder = crawl.storage, crawl.at(FileName.FORGOTTEN)
        names = (
            [entry.name for entry in storage.list(self.folder)]
            if storage.exists(self.folder)
            else []
        )
        self.decisions = [
            Forget.from_bytes(
                storage.read_bytes(f"{self.folder}/{name}"), name, f"{self.folder}/{name}"
            )
            for name in names
            if not name.startswith(".") or name.startswith(FileName.OPEN_PREFIX)
        ]

    def of_page(self, keys: Sequence[bytes], times_us: npt.NDArray[np.int64]) -> list[bool]:
        """Return which captures were made before a decision to forget them.

        A capture is given by its key and time.
        """
        captured, found = np.array(keys, f"S{KEY_BYTES}"), np.zeros(len(keys), np.bool_)
        for decision in self.decisions:
            found |= np.isin(captured, decision.keys) & (times_us <= decision.time_us)
        return found.tolist()
