"""A node's own small files: JSON with a digest, and errors that say which command repairs what cannot be read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha1
from pathlib import Path
from typing import Any

from crawl_lib.errors import DamagedFileError, os_error

DIGEST = "sha1"


def sealed_json(value: Mapping[str, Any]) -> bytes:
    """A line of JSON that says its own digest: with another byte in it, it would be believed, and URLs be lost."""
    text = json.dumps(value, sort_keys=True)
    return json.dumps({**value, DIGEST: sha1(text.encode()).hexdigest()}, sort_keys=True).encode() + b"\n"


def unsealed(data: bytes) -> dict[str, Any]:
    """What such a line says. Raises ValueError, KeyError or TypeError."""
    value = json.loads(data)
    if not isinstance(value, dict):
        raise TypeError("it is no JSON object")
    if value.pop(DIGEST) != sha1(json.dumps(value, sort_keys=True).encode()).hexdigest():
        raise ValueError("its digest is that of another content")
    return value


@contextmanager
def own_file(path: Path, problem: str) -> Iterator[None]:
    """A file of a node's directory is read within; `problem`: what it is not, if its content makes no sense.

    A file that is not there stays FileNotFoundError. Raises StorageError if the disk refuses it, DamagedFileError
    naming the command that repairs it.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise os_error(error, path, "cannot be read") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFileError(
            f"{path}: {problem}: {error}; run `krake queue repair --node {path.parent.name}`"
        ) from error
