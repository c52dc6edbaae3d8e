"""The file `scope` of injected seeds and of an iteration: hosts, sorted, a line each.

Whatever it lacks is out of the crawl for good, since each iteration takes its scope from the one before. So the small
file beside it (`manifest.json`, `iteration.json`) holds its SHA-256, and whoever reads it compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256

from crawl_lib.errors import DamagedFileError, PathNotFoundError
from crawl_lib.storage import Storage

SCOPE_NAME = "scope"
SCOPE_DIGEST = "scope_sha256"
_HOST_LINE = re.compile(rb"[!-~]+\n")


def scope_bytes(hosts: Iterable[str]) -> bytes:
    """The file."""
    return "".join(f"{host}\n" for host in sorted(hosts)).encode()


def scope_digest(data: bytes) -> str:
    """What the small file beside it says of it."""
    return sha256(data).hexdigest()


def read_scope(storage: Storage, folder: str, digest: object) -> set[str]:
    """The hosts of `<folder>/scope`. `digest`: what the small file beside it says.

    Raises DamagedFileError if it is missing or not what was written, naming the command that makes it again.
    """
    where = f"{folder}/{SCOPE_NAME}"
    try:
        data = storage.read_bytes(where)
        if scope_digest(data) == digest:
            return set(data.decode("ascii").splitlines())
        problem = "is not what was written (SHA-256)"
    except PathNotFoundError:
        problem = "is not there"
    except UnicodeDecodeError as error:
        problem = f"is no text: {error}"
    raise DamagedFileError(f"{where}: {problem}; run `krake folder repair {short_name(folder)}`")


def is_list_of_hosts(data: bytes) -> bool:
    """Whether bytes can be a whole list of hosts, a line each; an empty one is whole."""
    return all(_HOST_LINE.fullmatch(line) for line in data.splitlines(keepends=True))


def whole_hosts(data: bytes) -> set[str]:
    """The lines of a damaged list that can be hosts."""
    return {line[:-1].decode("ascii") for line in data.splitlines(keepends=True) if _HOST_LINE.fullmatch(line)}


def short_name(folder: str) -> str:
    """How `krake folder repair` calls a folder: `<iteration>` or `seeds/<digest>`."""
    *_, parent, name = ("", *folder.split("/"))
    return f"seeds/{name}" if parent == "seeds" else name
