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
<<<<<<< HEAD
"""The `format_version` of a JSON file of the crawl directory. Each such file has a digest."""
||||||| 3cfe4e44
"""The `format_version` of a file of the crawl directory that has a digest. Older ones have 1, and no digest: no single
bit turns one into the other."""
=======
"""The `format_version` of a file of the crawl directory with a digest. Older files have 1, and no digest: no single
changed bit makes either kind look like the other."""
>>>>>>> h-prose2
MANIFEST_FILE = "manifest.json"
"""The manifest of a segment, or of a folder of injected seeds: the content, with digests; written last."""


def sealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value with the digest of its content."""
    return {**value, DIGEST: sha1(json.dumps(value, sort_keys=True).encode()).hexdigest()}


def sealed_json(value: Mapping[str, Any]) -> bytes:
    """Return a line of JSON with its own digest.

    Without the digest a changed byte would be trusted, and URLs be lost.
    """
    return json.dumps(sealed(value), sort_keys=True).encode() + b"\n"


<<<<<<< HEAD
def unsealed(data: bytes) -> dict[str, Any]:
    """Return the content of such a line, and check its digest.
||||||| 3cfe4e44
def unsealed(
    data: bytes, is_old: Callable[[dict[str, Any]], bool] = lambda value: False
) -> dict[str, Any]:
    """Return the content of such a line after a check.
=======
def unsealed(
    data: bytes, is_old: Callable[[dict[str, Any]], bool] = lambda value: False
) -> dict[str, Any]:
    """Return the content of a sealed line after a check.
>>>>>>> h-prose2

<<<<<<< HEAD
    Raises ValueError, KeyError or TypeError.
||||||| 3cfe4e44
    `is_old`: whether an older version wrote it, without a digest. Raises ValueError, KeyError or TypeError.
=======
    `is_old`: whether an older version wrote the line, without a digest. Raises ValueError, KeyError or TypeError.
>>>>>>> h-prose2
    """
    value = json.loads(data)
    if not isinstance(value, dict):
        raise TypeError("it is no JSON object")
    if value.pop(DIGEST) != sealed(value)[DIGEST]:
        raise ValueError("its digest is that of another content")
    return value


<<<<<<< HEAD
||||||| 3cfe4e44
def unsealed_if_new(data: bytes) -> dict[str, Any]:
    """Return the checked content of a file of the crawl directory.

    The digest must be right unless the file's version had none. Raises ValueError, KeyError or TypeError.
    """
    return unsealed(data, lambda value: DIGEST not in value and value.get("format_version", 1) == 1)


def unsealed_or_old(data: bytes, old: Collection[str]) -> dict[str, Any]:
    """Return the checked content of a file that may be old.

    Older versions wrote the file without a digest: theirs has exactly these names, and nothing else. So no single bit
    turns a sealed one into one of theirs. Raises ValueError, KeyError or TypeError.
    """
    return unsealed(data, lambda value: value.keys() == set(old))


=======
def unsealed_if_new(data: bytes) -> dict[str, Any]:
    """Return the checked content of a file of the crawl directory.

    The digest must be right unless the file's version had none. Raises ValueError, KeyError or TypeError.
    """
    return unsealed(data, lambda value: DIGEST not in value and value.get("format_version", 1) == 1)


def unsealed_or_old(data: bytes, old: Collection[str]) -> dict[str, Any]:
    """Return the checked content of a file that may be old.

    Older versions wrote the file without a digest: such a file has exactly the names `old`. So no single changed bit
    makes a sealed file look old. Raises ValueError, KeyError or TypeError.
    """
    return unsealed(data, lambda value: value.keys() == set(old))


>>>>>>> h-prose2
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
