"""Whole files of the DFS: JSON and lines as Krake writes them, and the digest of a file."""

import json
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Any

from crawl_lib.errors import DamagedFileError, PathNotFoundError
from crawl_lib.sealed import sealed, unsealed
from crawl_lib.stopping import Work
from crawl_lib.storage import Storage


def read_json(storage: Storage, path: str) -> dict[str, Any]:
    """Read a JSON object of the DFS.

    Raises PathNotFoundError, or DamagedFileError naming the path.
    """
    return parsed_json(storage.read_bytes(path), path)


def parsed_json(data: bytes, path: str) -> dict[str, Any]:
    """Parse the JSON object of a file of the DFS.

    Raises DamagedFileError naming the path.
    """
    try:
        return unsealed(data)
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFileError(
            f"{path}: is not JSON as written: {error}; `krake fsck` names the repair"
        ) from error


def readable_json(storage: Storage, path: str) -> dict[str, Any]:
    """Read a JSON object for a repair.

    A missing or unreadable file gives an empty object.
    """
    with suppress(DamagedFileError, PathNotFoundError):
        return read_json(storage, path)
    return {}


def write_json_bytes(value: Mapping[str, Any]) -> bytes:
    """Encode JSON as Krake writes it.

    The text is sorted and indented, has a digest inside, and ends with a newline.
    """
    return (json.dumps(sealed(value), indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def read_lines(storage: Storage, path: str) -> list[str]:
    """Read the lines of a text file.

    A missing file has no lines. Raises DamagedFileError naming the path.
    """
    if not storage.exists(path):
        return []
    try:
        return storage.read_bytes(path).decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise DamagedFileError(
            f"{path}: is no text: {error}; `krake fsck` says how to repair it"
        ) from error


def stored_digest(
    storage: Storage, path: str, work: Work | None = None, size_bytes: int = 0
) -> str:
    """Return the SHA-256 (hex) of a stored file.

    `size_bytes`: 0 if unknown. Raises StorageError, StoppedError.
    """
    digest, done, work = sha256(), 0, work or Work()
    with storage.open_read(path) as file:
        while block := file.read(1 << 20):
            work.go_on()
            digest.update(block)
            done += len(block)
            work.report(checking=path, done=done, total=size_bytes, unit="bytes")
    return digest.hexdigest()
