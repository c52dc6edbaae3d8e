"""Errors of a node's own files: which command repairs what cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crawl_lib.errors import DamagedFileError, StorageError


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
        raise StorageError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFileError(
            f"{path}: {problem}: {error}; run `krake queue repair --node {path.parent.name}`"
        ) from error
