"""Copies of versions on this machine: Tantivy maps local files, so a store elsewhere is copied to `search.directory`.

Each file of a copy is compared with its digest; then a rename gives the copy its name. On a local store the version
itself is used.
"""

import fcntl
import hashlib
import logging
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from crawl_lib.durable import fsync_dir, reached
from crawl_lib.errors import DamagedFileError, os_errors
from crawl_lib.index.versions import INDEX
from crawl_lib.scratch import held
from crawl_lib.stores import Stores
from crawl_lib.versions import Version

log = logging.getLogger(__name__)


def copies_folder(stores: Stores) -> Path:
    """Return the folder of this machine's copies, existing or not."""
    return Path(stores.config.search.directory) / stores.config.crawl.name


def local_folder(stores: Stores, version: Version) -> Path:
    """Return a version's folder on this machine, copied if necessary.

    A copy needs the right sizes. Raises DamagedFileError if a file differs from the written file, StorageError,
    StoppedError.
    """
    local = stores.storage.local_path(version.path)
    if local is not None:
        return local
    folder = copies_folder(stores) / str(version.number)
    if not _has_sizes(folder, version):
        shutil.rmtree(folder, ignore_errors=True)
        _copy(stores, version, folder)
    return folder


def _has_sizes(folder: Path, version: Version) -> bool:
    with os_errors(folder, "search.directory cannot be used"):
        found = (
            {file.name: file.stat().st_size for file in folder.iterdir()} if folder.is_dir() else {}
        )
    return all(found.get(part["name"]) == part["size_bytes"] for part in version.manifest["parts"])


def verified_folder(stores: Stores, version: Version) -> Path:
    """Return `local_folder` after a check of the copy's digests.

    A different copy is made again. Raises DamagedFileError if a file of the store differs from the written file,
    StorageError, StoppedError.
    """
    try:
        verify_copy(stores, version)
    except DamagedFileError as error:
        log.warning("%s; it is copied again", error)
    return local_folder(stores, version)


def verify_copy(stores: Stores, version: Version) -> None:
    """Check this machine's copy of a version; delete a damaged copy.

    Raises DamagedFileError if a file differs, StorageError, StoppedError.
    """
    if stores.storage.local_path(version.path) is not None:
        return
    folder = local_folder(stores, version)
    for part in stores.until_stopped(version.manifest["parts"]):
        file = folder / part["name"]
        with os_errors(file, "cannot be read"):
            is_whole = file_sha256(file) == part["sha256"]
        if not is_whole:
            shutil.rmtree(folder, ignore_errors=True)
            raise DamagedFileError(f"{file}: differs from the written file (SHA-256)")


def _copy(stores: Stores, version: Version, folder: Path) -> None:
    with (
        own_folder(stores, version.number) as hidden,
        os_errors(folder, "search.directory cannot be used"),
    ):
        for part, path in zip(version.manifest["parts"], version.paths, strict=True):
            stores.go_on()
            stores.storage.download(path, hidden / part["name"])
            if file_sha256(hidden / part["name"]) != part["sha256"]:
                raise DamagedFileError(
                    f"{path}: differs from the written file (SHA-256); {INDEX.remedy}"
                )
        publish_copy(hidden, folder)


@contextmanager
def own_folder(stores: Stores, number: int) -> Iterator[Path]:
    """Make a hidden folder for a version's files.

    At the end of the block the folder is deleted, unless it was renamed. A killed process no longer holds the lock of
    its folder, so `delete_other_copies` deletes the folder. Raises StorageError.
    """
    base = copies_folder(stores)
    hidden = base / f".{number}-{uuid.uuid4().hex}"
    with ExitStack() as stack:
        with os_errors(base, "search.directory cannot be used"):
            base.mkdir(parents=True, exist_ok=True)
            with _alone(base):
                hidden.mkdir()
                stack.enter_context(held(hidden))
        stack.callback(shutil.rmtree, hidden, ignore_errors=True)
        yield hidden


@contextmanager
def _alone(base: Path) -> Iterator[None]:
    """Lock the folder of all copies for changes.

    Raises OSError.
    """
    descriptor = os.open(base, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hex. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def publish_copy(hidden: Path, folder: Path) -> None:
    """Give a complete copy its name.

    Another process may have been faster. Raises OSError.
    """
    if not folder.exists():
        try:
            hidden.rename(folder)
        except OSError:
            if not folder.exists():
                raise
        fsync_dir(folder.parent)
    reached("index.copied")


def delete_other_copies(stores: Stores, number: int) -> None:
    """Delete older copies of this machine, and leftovers of killed processes.

    Raises StorageError.

    `number`: the version that is used from now on.
    """
    base = copies_folder(stores)
    with os_errors(base, "search.directory cannot be used"):
        if not base.is_dir():
            return
        with _alone(base):
            for folder in base.iterdir():
                if folder.name.isdecimal() and int(folder.name) < number:
                    shutil.rmtree(folder, ignore_errors=True)
                elif folder.name.startswith("."):
                    # The process that holds the folder is alive, or has just finished it.
                    with suppress(BlockingIOError, FileNotFoundError), held(folder):
                        shutil.rmtree(folder, ignore_errors=True)
