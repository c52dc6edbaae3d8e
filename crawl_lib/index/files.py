"""Tantivy's files of a version: linked from the version before, changed by one commit, counted.

No shared file is changed. Tantivy never changes the files of a segment, and so these are linked. Tantivy changes two
other files, and so these are copied.
"""

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from crawl_lib.durable import reached
from crawl_lib.errors import NoRoomError, StorageError, os_errors
from crawl_lib.index.fields import Fields, IndexedPage
from crawl_lib.index.versions import OWN_FILES
from crawl_lib.sealed import MANIFEST_FILE
from crawl_lib.stores import Stores

META_FILE = "meta.json"
_CHANGED = (META_FILE, ".managed.json")
"""Files that Tantivy replaces."""
_LOCKS = (".tantivy-writer.lock", ".tantivy-meta.lock")
HEAP_BYTES = 256 << 20
"""Memory of the writer. The writer has one thread, so that equal pages give equal segments."""
_NO_ROOM = ("no space left", "quota exceeded")
_FULL_BYTES = 16 << 20
"""A disk with less room counts as full. Tantivy's errors do not always tell this: a thread of its writer ends."""


@dataclass(frozen=True)
class Counts:
    """Documents of an index. `deleted`: deleted documents whose words are still in the files."""

    pages: int
    deleted: int


def link_files(before: Path, folder: Path) -> list[str]:
    """Link Tantivy's files of a version into a folder.

    Return the names of hard links; a file system without links gets copies. Raises StorageError.
    """
    linked = []
    with os_errors(folder, "cannot take over the files of the version before"):
        for file in sorted(before.iterdir()):
            if file.name in (*OWN_FILES, *_LOCKS, MANIFEST_FILE):
                continue
            if file.name in _CHANGED or not _linked(file, folder / file.name):
                shutil.copyfile(file, folder / file.name)
            else:
                linked.append(file.name)
    reached("index.linked")
    return linked


def _linked(file: Path, target: Path) -> bool:
    try:
        os.link(file, target)
    except OSError:  # the copy raises the error, if any
        return False
    return True


def change_files(
    stores: Stores,
    fields: Fields,
    folder: Path,
    gone: Iterable[bytes],
    pages: Iterable[IndexedPage],
) -> int:
    """Delete pages by key and add others, in one commit.

    Return the number of added pages. Raises NoRoomError, StorageError, StoppedError.
    """
    added = 0
    with tantivy_errors(folder):
        writer = fields.index(str(folder)).writer(HEAP_BYTES, 1)
        for key in gone:
            writer.delete_documents_by_term("key", key.hex())
    for added, page in enumerate(stores.until_stopped(pages), 1):
        document = fields.document(page)
        with tantivy_errors(folder):  # an error while pages are read is no fault of these files
            writer.add_document(document)
        stores.report(indexing=page.url, done=added, unit="pages")
    with tantivy_errors(folder):
        writer.commit()
        writer.wait_merging_threads()
        for name in _LOCKS:
            (folder / name).unlink(missing_ok=True)
    reached("index.committed")
    return added


@contextmanager
def tantivy_errors(folder: Path) -> Iterator[None]:
    """Translate Tantivy's errors. Raises NoRoomError, StorageError naming the folder."""
    try:
        yield
    except (ValueError, OSError) as error:
        problem = f"{folder}: the index cannot be written: {error}"
        said = str(error).lower()
        if any(words in said for words in _NO_ROOM) or _is_full(folder):
            raise NoRoomError(
                f"{problem}; make room, then run `krake index update` again"
            ) from error
        raise StorageError(f"{problem}; run `krake index update` again") from error


def _is_full(folder: Path) -> bool:
    with os_errors(folder, "cannot be read"):
        return shutil.disk_usage(folder).free < _FULL_BYTES


def count_files(folder: Path) -> Counts:
    """Count the documents in Tantivy's files. Raises StorageError."""
    with os_errors(folder, "cannot be read"):
        segments = json.loads((folder / META_FILE).read_bytes())["segments"]
    every = sum(segment["max_doc"] for segment in segments)
    deleted = sum(
        (segment["deletes"] or {"num_deleted_docs": 0})["num_deleted_docs"] for segment in segments
    )
    return Counts(every - deleted, deleted)
