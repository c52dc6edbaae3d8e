"""Finding and opening the files of seeds: only regular files, and for strangers only files below one directory.

A person who triggers a DAG may name a path without being a user of the machine. So links are resolved before the path
is checked. The file is then opened step by step without following links: the opened file is the checked file.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from crawl_lib.errors import InputError, os_errors

MAX_FILE_BYTES = 1 << 32
"""The limit of one file: about 50 million URLs."""
_LONGEST_PATH = 4096
_SCHEMES = ("http:", "https:", "mailto:", "javascript:", "data:")


@dataclass(frozen=True, slots=True)
class SeedFile:
    """A file of seeds. `name`: its name in messages. `path`: its place, without links if `below` is given."""

    name: str
    path: Path
    below: Path | None = None

    def open(self) -> BinaryIO:
        """Open the file for reading, without waiting for another process. Raises InputError."""
        name = f"seeds: {self.name}"
        with (
            os_errors(name, "cannot be read", InputError),
            _reached(self.path, self.below) as (descriptor, found),
        ):
            if not stat.S_ISREG(found.st_mode):
                raise InputError(f"{name}: is not a regular file: write the URLs into one")
            require_size(found.st_size, self.name)
            # Opened by its descriptor, so that this is the checked file.
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
            return os.fdopen(os.open(f"/proc/self/fd/{descriptor}", flags), "rb")


def find_files(text: str, below: Path | None) -> list[SeedFile] | None:
    """Return the files that a text names, or None for URLs.

    Files of a directory are sorted by name.

    `below`: None: all files that this user may read; else only this directory and files below it, links resolved; a
    relative path begins there. Raises InputError if the path does not exist, or a directory has no files.
    """
    if not text or len(text) > _LONGEST_PATH or any(mark in text for mark in "\n\r\t\0"):
        return None
    path = _own_path(text) if below is None else _path_below(text, below)
    if path is None:
        return None
    root = None if below is None else Path(os.path.realpath(below))
    if root is not None and not os.path.lexists(_resolved(path, root)):
        raise InputError(
            f"seeds: {text!r} is neither a URL (write http:// or https:// before it) nor a file in {_listed(root)}"
        )
    names = _names_of_directory(path, root)
    if names == []:
        raise InputError(f"seeds: {_printable(path)}: a directory without files")
    paths = [path] if names is None else [path / name for name in names]
    return [SeedFile(_printable(one), _resolved(one, root), root) for one in paths]


def _own_path(text: str) -> Path | None:
    """Return the path that an operator's text names, or None.

    None: the text has URLs.
    """
    path = Path(os.path.expanduser(text))  # noqa: PTH111 - pathlib's version raises for an unknown user
    try:
        if path.exists():
            return path
    except (OSError, ValueError):
        return None
    if "://" in text or " " in text or text.startswith("#") or text.lower().startswith(_SCHEMES):
        return None
    raise InputError(
        f"seeds: {text}: no such file or directory, and not a URL such as https://example.org/"
    )


def _path_below(text: str, below: Path) -> Path | None:
    """Return the path of a caller who may read `below` only.

    The decision does not look at the disk: a look would reveal its content.
    """
    if not text.startswith("/") and (
        "://" in text or text.startswith("#") or text.lower().startswith(_SCHEMES)
    ):
        return None
    path, root = below / text, Path(os.path.realpath(below))
    if _never_leaves(path, below) or _never_leaves(path, root):
        _resolved(path, root)
        return path
    raise _outside(path, root)


def _never_leaves(path: Path, root: Path) -> bool:
    """Say whether a path stays below the root, without links.

    A path that leaves and comes back would reveal outside names by its end: which exist, and which are links.
    """
    if not path.is_relative_to(root):
        return False
    depth = 0
    for step in path.relative_to(root).parts:
        depth += -1 if step == ".." else 1
        if depth < 0:
            return False
    return True


def _resolved(path: Path, root: Path | None) -> Path:
    """Return the path without links, if a root is given.

    Raises InputError if the path leads out of the root.
    """
    if root is None:
        return path
    with suppress(OSError, ValueError):
        real = Path(os.path.realpath(path))
        if real.is_relative_to(root):
            return real
    raise _outside(path, root)


def _outside(path: Path, root: Path) -> InputError:
    return InputError(
        f"seeds: {_printable(path)}: does not lie in inject.directory, links resolved ({root}): put the file there,"
        " or give URLs"
    )


def _listed(root: Path) -> str:
    """Return the readable names, for messages about missing ones."""
    names: list[str] = []
    with suppress(OSError):
        names = sorted(
            _printable(Path(one.name)) for one in root.iterdir() if not one.name.startswith(".")
        )
    shown = f"has {', '.join(names[:10])}: {len(names)} in all" if names else "is empty"
    return f"inject.directory ({_printable(root)}, which {shown})"


def _names_of_directory(path: Path, root: Path | None) -> list[str] | None:
    """Return a directory's sorted file names, or None.

    Hidden names and directories are left out.
    """
    where = f"seeds: {_printable(path)}"
    with (
        os_errors(where, "cannot be read", InputError),
        _reached(_resolved(path, root), root) as (descriptor, found),
    ):
        if not stat.S_ISDIR(found.st_mode):
            return None
        with os.scandir(f"/proc/self/fd/{descriptor}") as entries:
            return sorted(
                one.name for one in entries if not one.name.startswith(".") and not one.is_dir()
            )


@contextmanager
def _reached(path: Path, below: Path | None) -> Iterator[tuple[int, os.stat_result]]:
    """Open a path without reading; yield descriptor and status.

    With `below` each folder is opened from its parent, and a link on the way is refused.
    """
    flags = os.O_PATH | os.O_CLOEXEC
    descriptor = os.open(path if below is None else below, flags)
    try:
        for step in () if below is None else path.relative_to(below).parts:
            inner = os.open(step, flags | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor, os.fstat(descriptor)
    finally:
        os.close(descriptor)


def require_size(size: int, name: str) -> None:
    """Check the size of a seed file.

    Raises InputError for too many bytes.
    """
    if size > MAX_FILE_BYTES:
        raise InputError(
            f"seeds: {name}: has more than {MAX_FILE_BYTES} bytes: divide it into several files"
        )


def _printable(path: Path) -> str:
    return os.fspath(path).encode("utf-8", "backslashreplace").decode()
