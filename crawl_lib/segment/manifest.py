"""`manifest.json`: whose segment this is, what is in it, and where each owner's outlinks lie; and which of its pages
were taken out by hand.

The files of a segment are never changed (`krake segment compact` writes others), so what is dropped is in files next to
its manifest: `dropped-<digest>`, a key a line in lower-case hex, in ascending order; the digest is of the content, so
the same drop twice is one file. Readers leave these pages out. `compact` writes the segment again without them and
keeps their keys in a file of that name, which the new manifest lists: the pages are gone then, but stay known.
"""

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, field
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any, Self

from crawl_lib.dataclass import dataclass
from crawl_lib.errors import DamagedFileError, TargetExistsError
from crawl_lib.sealed import SEALED_VERSION, sealed, unsealed
from crawl_lib.segment.parts import FileEntry, Part
from crawl_lib.storage import Storage
from crawl_lib.warc import microseconds_of

_SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The manifest, field by field as in the file. `files`: all other files;
    `warcinfo_ids`: WARC file -> the id that each of its records carries;
    `outlinks`: owner -> offset, length (bytes), count (URLs); `started`, `finished`: ISO 8601, UTC. `history`: what was
    done by hand with the segment (salvage, compact, import), oldest first: a mapping each, `what` among its names.

    Three numbers describe the queue after the take; they are None in segments that were made again. `queue_after`:
    lines of the queue; `undecided`: URLs that wait for an answer of key servers; `next_due`: the time from which the
    first of these lines may be taken, if the take looked at the whole queue.

    The argument of `build_segment` has only some counts: `taken` (URLs of the take), `deferred` (URLs of the take that
    were left over) and `passed_over` (lines of the queue that the take looked at and left). If there are any, also
    `lost` (URLs of a salvaged segment without records), `dropped`, and `requisites` that wait in the queue;
    `build_segment` adds the requisites of the parts. `scope_added` has hosts beyond the hosts of the parts. `intake`:
    the task's counts. In `counts`, `outcomes` has the rows of `pages` by outcome, and `retried` the rows without a new
    URL."""

    PAGES_NAME, LINKS_NAME, INDEX_NAME = "pages.parquet", "links.parquet", "index.cdxj"
    SUBMISSIONS_NAME = "submissions.parquet"

    format_version: str = SEALED_VERSION
    krake_version: str
    take_id: str
    run_id: str
    iteration: int
    folder: str
    node: str
    config_digest: str
    user_agent: str
    robots_policy: str
    started: str
    finished: str = ""
    counts: dict[str, Any]
    intake: dict[str, Any] = field(default_factory=dict)
    queue_after: int | None = None
    undecided: int | None = None
    next_due: int | None = None
    scope_added: list[str] = field(default_factory=list)
    files: list[FileEntry] = field(default_factory=list)
    warcinfo_ids: dict[str, str] = field(default_factory=dict)
    outlinks: dict[str, dict[str, int]] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)

    @staticmethod
    def entry_of(path: Path) -> FileEntry:
        """Return name, size and SHA-256 of a file, as `files` has them."""
        with path.open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
            return FileEntry(path.name, file.tell(), digest)

    def to_bytes(self) -> bytes:
        """Return the bytes of the file, with a digest inside."""
        return json.dumps(sealed(asdict(self)), indent=1).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes, where: str, remedy: str = "") -> Self:
        """Parse the file, and ignore fields of later versions.

        Raises DamagedFileError naming `where`.
        """
        try:
            mapping = unsealed(data)
            given = {name: mapping[name] for name in cls.__dataclass_fields__}
            files = [FileEntry.from_mapping(entry) for entry in mapping["files"]]
            manifest = cls(**{**given, "files": files})
            manifest._require_usable()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedFileError(
                f"{where}: not the manifest of a segment: {error!r}{remedy}"
            ) from error
        return manifest

    @property
    def has_rows(self) -> bool:
        """Whether the segment holds pages or links."""
        return bool(self.counts["pages"] or self.counts["links"])

    def lacks(self, name: str) -> bool:
        """Return whether a table is missing since no URL was taken."""
        listed = [entry.name for entry in self.files]
        return not (
            self.has_rows or name in listed or any(one.endswith(Part.WARC_SUFFIX) for one in listed)
        )

    def _require_usable(self) -> None:
        """Raise an error for a malformed entry, which `from_bytes` translates.

        To ignore the entry would make a good file look superfluous.
        """
        for entry in self.files:
            if not (entry.name and "/" not in entry.name and _SHA256.fullmatch(entry.sha256)):
                raise ValueError(f"{entry} names no file")
        numbers = [
            *(entry.size_bytes for entry in self.files),
            *self.counts["outcomes"].values(),
        ]
        numbers += [self.counts[name] for name in ("taken", "deferred", "pages", "links")]
        numbers += [self.counts.get(name, 0) for name in ("lost", "dropped")]
        for owner, part in self.outlinks.items():
            if part.keys() != {"offset", "length", "count"}:
                raise ValueError(f"{part} is no part of outlinks, of {owner}")
            numbers += part.values()
        if not all(isinstance(number, int) and number >= 0 for number in numbers):
            raise ValueError(f"not all of these are counts: {numbers}")
        kinds: list[tuple[type, Any]] = [
            (str, getattr(self, name)) for name in ("folder", "node", "take_id", "run_id")
        ]
        kinds += [(list, self.scope_added), (list, self.history)]
        kinds += [
            (dict, self.warcinfo_ids),
            *((str, value) for value in self.warcinfo_ids.values()),
        ]
        for kind, value in kinds:
            if not isinstance(value, kind):
                raise TypeError(f"{value!r} is no {kind.__name__}")
        microseconds_of(self.started)


DROPPED_PREFIX = "dropped-"
DROPPED_REMEDY = "delete it, and run `krake segment drop` for its pages again"


class DroppedLists:
    """The lists of dropped pages of one segment. `path`: its folder on the store."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage, self._path = storage, path

    @staticmethod
    def has_name(name: str) -> bool:
        """Return whether a file of a segment lists dropped pages."""
        return name.startswith(DROPPED_PREFIX)

    @staticmethod
    def encode(keys: Iterable[bytes]) -> tuple[str, bytes]:
        """Name and content of the file that lists these keys."""
        data = "".join(f"{key.hex()}\n" for key in sorted(set(keys))).encode()
        return f"{DROPPED_PREFIX}{sha256(data).hexdigest()[:16]}", data

    def names(self) -> list[str]:
        """Return the names of the lists, sorted.

        Raises PathNotFoundError if there is no such segment.
        """
        return [entry.name for entry in self._storage.list(self._path) if self.has_name(entry.name)]

    def read(self, names: Sequence[str] | None = None) -> set[bytes]:
        """Read the dropped keys of the segment.

        `names`: only those of these files. Raises DamagedFileError naming the file.
        """
        keys: set[bytes] = set()
        for name in self.names() if names is None else names:
            where = f"{self._path}/{name}"
            try:
                found = {
                    bytes.fromhex(line)
                    for line in self._storage.read_bytes(where).decode("ascii").splitlines()
                }
            except ValueError as error:
                raise DamagedFileError(
                    f"{where}: not a list of keys: {error}; {DROPPED_REMEDY}"
                ) from error
            if any(len(key) != 20 for key in found):
                raise DamagedFileError(
                    f"{where}: not a list of keys: a line is not of 40 hex digits; {DROPPED_REMEDY}"
                )
            keys |= found
        return keys

    def write(self, keys: Iterable[bytes]) -> str:
        """Drop pages of the segment.

        Returns the name of the new file. Repetition is harmless.
        """
        name, data = self.encode(keys)
        with suppress(TargetExistsError):  # its name is the digest of what it says
            self._storage.write_bytes(f"{self._path}/{name}", data)
        return name
