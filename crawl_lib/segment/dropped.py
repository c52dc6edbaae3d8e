"""Pages that were taken out of a committed segment by hand.

The files of a segment are never changed (`krake segment compact` writes others), so what is dropped stands in files
beside its manifest: `dropped-<digest>`, a key a line in lower-case hex, in ascending order; the digest is of the
content, so the same drop twice is one file. Readers leave these pages out. `compact` writes the segment anew without
them and keeps their keys in a file of that name, which the new manifest lists: the pages are gone then, but stay known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import sha256

from crawl_lib.errors import DamagedFileError, PathNotFoundError, TargetExistsError
from crawl_lib.segment.manifest import MANIFEST_NAME
from crawl_lib.storage import Storage

DROPPED_PREFIX = "dropped-"
REMEDY = "delete it, and run `krake segment drop` for its pages again"


def is_dropped_file(name: str) -> bool:
    """Whether a file of a segment lists dropped pages."""
    return name.startswith(DROPPED_PREFIX)


def dropped_files(storage: Storage, path: str) -> list[str]:
    """Names of these files of a segment, sorted. Raises PathNotFoundError if there is no such segment."""
    return [entry.name for entry in storage.list(path) if is_dropped_file(entry.name)]


def encode_dropped(keys: Iterable[bytes]) -> tuple[str, bytes]:
    """Name and content of the file that lists these keys."""
    data = "".join(f"{key.hex()}\n" for key in sorted(set(keys))).encode()
    return f"{DROPPED_PREFIX}{sha256(data).hexdigest()[:16]}", data


def read_dropped(storage: Storage, path: str, names: Sequence[str] | None = None) -> set[bytes]:
    """The dropped keys of a segment; `names`: only those of these files. Raises DamagedFileError naming the file."""
    keys: set[bytes] = set()
    for name in dropped_files(storage, path) if names is None else names:
        try:
            found = {bytes.fromhex(line) for line in storage.read_bytes(f"{path}/{name}").decode("ascii").splitlines()}
        except ValueError as error:
            raise DamagedFileError(f"{path}/{name}: not a list of keys: {error}; {REMEDY}") from error
        if any(len(key) != 20 for key in found):
            raise DamagedFileError(f"{path}/{name}: not a list of keys: a line is not of 40 hex digits; {REMEDY}")
        keys |= found
    return keys


def write_dropped(storage: Storage, path: str, keys: Iterable[bytes]) -> str:
    """Drop pages of a segment; returns the name of the file that says so. May be repeated."""
    name, data = encode_dropped(keys)
    with suppress(TargetExistsError):  # its name is the digest of what it says
        storage.write_bytes(f"{path}/{name}", data)
    return name


def segment_digest(storage: Storage, path: str) -> str:
    """What a segment holds, as one SHA-256 in hex: that of its manifest, and with dropped pages of their files too.

    Two equal digests mean equal rows. Raises PathNotFoundError naming the segment.
    """
    try:
        manifest = sha256(storage.read_bytes(f"{path}/{MANIFEST_NAME}")).hexdigest()
        names = dropped_files(storage, path)
    except PathNotFoundError as error:
        raise PathNotFoundError(f"{path}: the segment is gone, or has no {MANIFEST_NAME}: {error}") from error
    return sha256("\n".join([manifest, *names]).encode()).hexdigest() if names else manifest
