"""Pages forgotten on purpose: files of the crawl directory with the keys and the time.

A forgotten page is still in its segment. A check must not call its missing key a damage, and `krake fsck --repair` must
not make the key known again. So each `krake forget` leaves a file `<crawl>/forgotten/<name>`: a sealed line of JSON
(`time_us`: POSIX microseconds, `keys`: their number, `lower`: by node and host, the number of forgotten URLs,
`keys_sha1`: of the rest), then the keys, 20 bytes each, ascending. While the decision
is under way the name begins with `.open-`; the next forget finishes such a decision.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha1

import numpy as np
import numpy.typing as npt

from crawl_lib.crawldir.directory import CrawlDirectory, FileName
from crawl_lib.errors import DamagedFileError
from crawl_lib.keyarrays import Keys
from crawl_lib.keys import KEY_BYTES
from crawl_lib.sealed import sealed_json, unsealed

_KEYS_DIGEST = "keys_sha1"


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
        """The name of the file while the decision is under way."""
        return f"{FileName.OPEN_PREFIX}{self.name}"

    def to_bytes(self) -> bytes:
        """Return the bytes of the file."""
        keys = self.keys.tobytes()
        head = {"time_us": self.time_us, "keys": len(self.keys), "lower": self.lower}
        return sealed_json({**head, _KEYS_DIGEST: sha1(keys).hexdigest()}) + keys

    @classmethod
    def from_bytes(cls, data: bytes, name: str, where: str) -> "Forget":
        """Read the file. Raises DamagedFileError naming `where`."""
        head, _, keys = data.partition(b"\n")
        try:
            value = unsealed(head)
            time_us, count, lower = int(value["time_us"]), int(value["keys"]), dict(value["lower"])
            digest = value[_KEYS_DIGEST]
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedFileError(
                f"{where}: is not a list of forgotten keys: {error!r}"
            ) from error
        if len(keys) != KEY_BYTES * count or sha1(keys).hexdigest() != digest:
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
    """All decisions to forget in a crawl, 20 bytes a key."""

    def __init__(self, crawl: CrawlDirectory) -> None:
        """Read all decisions. Raises DamagedFileError naming the file."""
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

    def of_page(self, keys: Keys, times_us: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which captures were made before a decision to forget their key.

        A capture is given by its key and time.
        """
        found = np.zeros(len(keys), np.bool_)
        for decision in self.decisions:
            found |= np.isin(keys, decision.keys) & (times_us <= decision.time_us)
        return found
