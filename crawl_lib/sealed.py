"""Small files of JSON with a digest inside, and errors that name the command to repair an unreadable file."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha1
from pathlib import Path
from typing import Any

from crawl_lib.errors import DamagedFileError, os_error

DIGEST = "sha1"
SEALED_VERSION = "sealed-2"
"""The `format_version` of a JSON file of the crawl directory. Each such file has a digest."""
MANIFEST_FILE = "manifest.json"
"""The manifest of a segment, or of a folder of injected seeds: the content, with digests; written last."""


def sealed(value: Mapping[str, object]) -> dict[str, object]:
    """Return the value with the digest of its content."""
    return {**value, DIGEST: sha1(json.dumps(value, sort_keys=True).encode()).hexdigest()}


def sealed_json(value: Mapping[str, Any]) -> bytes:
    """Return a line of JSON with its own digest.

    Without the digest a changed byte would be trusted, and URLs be lost.
    """
    return json.dumps(sealed(value), sort_keys=True).encode() + b"\n"


def unsealed(data: bytes) -> dict[str, Any]:
    """Return the content of a sealed line after a check.

    Raises ValueError, KeyError or TypeError.
    """
    value = json.loads(data)
    if not isinstance(value, dict):
        raise TypeError("it is no JSON object")
    if value.pop(DIGEST) != sealed(value)[DIGEST]:
        raise ValueError("its digest is that of another content")
    return value


@contextmanager
def own_file(path: Path, problem: str, node: str | None = None) -> Iterator[None]:
    """Translate errors of reading a file of a node's directory.

    `problem`: the fault if the content makes no sense; `node`: the node, if the path does not have its name. A missing
    file stays FileNotFoundError. Raises StorageError if the disk refuses the file, DamagedFileError naming the repair
    command.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except (
        NotADirectoryError
    ) as error:  # something else is in the place of the node's directory, which is not here
        raise FileNotFoundError(error.errno, error.strerror, str(path)) from error
    except OSError as error:
        raise os_error(error, path, "cannot be read") from error
    except (ValueError, KeyError, TypeError) as error:
        node = node or path.parent.name
        raise DamagedFileError(f"{path}: {problem}: {error}; run `krake fsck --repair`") from error
