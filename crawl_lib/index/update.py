"""A version of the index from the version before: files are linked, changed pages are deleted and added.

The wanted rows are compared with the table of pages of the newest version, by key and digest. The whole index is made
again without a version before, and after a change of the fields or damage to a file. This also happens if a fifth of
the documents would be deleted ones, or if the words of deleted pages have to go (`purge`).

A process may be killed after each step: files are linked (`index.linked`), changed (`index.committed`), uploaded if the
store is elsewhere (`index.uploaded`), sealed and renamed (`versions.*`). With `purge`, older versions are then deleted
(`index.purged`). The next run on this machine finishes an unfinished purge, and deletes leftovers (`_Noted`).
"""

import json
import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crawl_lib.crawldir import FileName
from crawl_lib.dfsfiles import stored_digest
from crawl_lib.durable import fsync_file, reached, write_durable
from crawl_lib.errors import DamagedFileError, os_errors
from crawl_lib.index.copies import (
    copies_folder,
    delete_other_copies,
    file_sha256,
    own_folder,
    publish_copy,
    verified_folder,
)
from crawl_lib.index.fields import Fields
from crawl_lib.index.files import change_files, count_files, link_files
from crawl_lib.index.pages import PAGES_SCHEMA
from crawl_lib.index.versions import (
    DELETED_FILE,
    INDEX,
    LEFT_OUT_FILE,
    PAGES_FILE,
    deleted_keys,
    file_of,
    made_ms_of,
)
from crawl_lib.index.wanted import LEFT_OUT_SCHEMA, Wanted
from crawl_lib.linkdb import update_outlinks
from crawl_lib.parquet import parquet_batches
from crawl_lib.scratch import turn_of
from crawl_lib.stores import Stores
from crawl_lib.text import text_table
from crawl_lib.versions import GROUP_ROWS, Filled, Version, Versions, VersionWork, seal_version

_NOTE = re.compile(r"[0-9]+-[0-9a-f]{32}")
MOST_DELETED = 0.2
"""The limit of deleted documents, as a share of the documents in Tantivy's files: at this share, all are made again."""
log = logging.getLogger(__name__)


def update_index(stores: Stores, *, now: datetime, purge: bool = False) -> Version:
    """Make or find the index version of the current pages.

    `now`: for manifests.

    `purge`: the whole index is made again, and older versions are deleted in spite of `crawldb.keep_versions`. Every
    update first finishes a killed purge. A second update on this machine waits, and then finds the version of the
    first. Updates on two machines may both do the work: the first version of a number counts, and both find that
    version.

    Raises InputError before the first segment, ConfigError, DamagedFileError, StorageError, NoRoomError, StoppedError.
    """
    fields = Fields(stores.config.index.languages)
    with turn_of(stores.config, f"index-{stores.config.crawl.name}", stores) as notes:
        versions = _Noted(stores, INDEX, notes)
        versions.delete_left()
        links = update_outlinks(stores, now=now)
        while True:
            before = newest_index(versions)
            _end_purge(versions, before)
            version = _next_version(versions, fields, links, before, now=now, purge=purge)
            if version is not None:
                _end_purge(versions, version)
                delete_other_copies(stores, version.number)
                return version
            faster = newest_index(versions)  # another machine's purge suffices
            purge = purge and not (faster is not None and faster.manifest.get("is_purge"))


@dataclass(frozen=True)
class _Noted(Versions):
    """The versions of the index. `notes`: a folder of this machine; one process at a time has its lock.

    Before each hidden folder, the process makes a note there. The next process with the lock deletes the folders with
    notes: their updates have ended, or were killed. Folders of another machine have no note here; their updates may
    still run.
    """

    notes: Path

    def hidden(self, number: int) -> str:
        """Return the path of a new hidden folder. Raises StorageError."""
        path = super().hidden(number)
        write_durable(self.notes / path.rpartition("/.")[2], b"")
        return path

    def delete_left(self) -> None:
        """Delete the hidden folders that have notes, and the notes. Raises StorageError."""
        with os_errors(self.notes, "scratch.directory cannot be used"):
            for note in filter(Path.is_file, self.notes.iterdir()):
                if _NOTE.fullmatch(note.name):
                    self.stores.storage.delete(f"{self.folder}/.{note.name}")
                note.unlink()


def _next_version(
    versions: Versions,
    fields: Fields,
    links: Version,
    before: Version | None,
    *,
    now: datetime,
    purge: bool,
) -> Version | None:
    """Return the version after `before`, or an unchanged `before`.

    None: another task was faster.
    """
    stores, number = versions.stores, versions.next_number()
    with VersionWork.of(versions, number) as work:
        wanted = Wanted.of(work, links)
        follows = {"of": _digest_of(wanted, fields, links), "settings": vars(fields.settings)}
        if (
            before is not None
            and not purge
            and all(before.manifest[name] == follows[name] for name in follows)
        ):
            return before
        times = {"now": int(now.timestamp()), "made_ms": _made_ms(now, before)}
        made = {**times, "config_digest": stores.config_digest, "is_purge": purge}
        with ExitStack() as stack:
            making = _IndexMaking(
                wanted, fields, versions, number, None if purge else before, stack
            )
            version = seal_version(versions, number, making.fill, {**made, **follows})
            if version is not None:
                making.keep_copy()
    return version


def _made_ms(now: datetime, before: Version | None) -> int:
    """Return the next version's `made_ms`.

    A second holds many versions, and a clock may go back.
    """
    now_ms = int(now.timestamp() * 1000)
    return now_ms if before is None else max(now_ms, made_ms_of(before) + 1)


def newest_index(versions: Versions) -> Version | None:
    """Return the newest complete version, or None."""
    try:
        return versions.newest()
    except DamagedFileError as error:
        log.warning("%s; the index is made again", error)
        return None


def _digest_of(wanted: Wanted, fields: Fields, links: Version) -> str:
    """Return a digest of a version's sources (SHA-256 in hex)."""
    stores, captures = wanted.work.stores, wanted.captures
    texts = [text_table(stores, segment) for segment, _ in captures.segments]
    options = [stores.config_digest, asdict(stores.config.index), vars(fields.settings)]
    seed = [captures.digest(), texts, links.digest, wanted.made_of, wanted.boosted_by, options]
    return sha256(json.dumps(seed, sort_keys=True).encode()).hexdigest()


def _end_purge(versions: Versions, version: Version | None) -> None:
    """Delete everything older than a purge's version.

    This includes damaged versions that were set aside. Raises StorageError.
    """
    if version is None or not version.manifest.get("is_purge"):
        return
    storage = versions.stores.storage
    for entry in storage.list(versions.folder):
        number = (
            entry.name.removeprefix(FileName.DAMAGED_PREFIX).removeprefix(".").partition("-")[0]
        )
        is_later = (
            number.isdecimal() and int(number) > version.number
        )  # another machine may be making this version
        if entry.name != str(version.number) and not is_later:
            storage.delete(f"{versions.folder}/{entry.name}")
            reached("index.purged")


@dataclass
class _IndexMaking:
    """The making of a version.

    `before`: the version to grow from, None if the whole index is made again. `stack`: deletes the local files.
    `staging`: the local folder of the files before the upload, if the store is elsewhere.
    """

    wanted: Wanted
    fields: Fields
    versions: Versions
    number: int
    before: Version | None
    stack: ExitStack
    staging: Path | None = None
    listed: str | None = None

    @property
    def stores(self) -> Stores:
        """The stores of the work."""
        return self.versions.stores

    def fill(self, hidden: str) -> Filled:
        """Make all files of the version in a hidden folder."""
        self.wanted.choose()
        self._give_tables()
        gone: list[bytes] = [
            key.as_py() for batch in self._stream("gone") for key in batch.column(0)
        ]
        if self.before is not None and not self._may_grow(len(gone)):
            self.before, gone = None, []
            self.wanted.work.engine.values("indexed", PAGES_SCHEMA.empty_table())
        folder = self._folder(hidden)
        hashed = self._link(folder)
        added = change_files(self.stores, self.fields, folder, gone, self.wanted.documents())
        self._write_own_files(folder, gone)
        self._upload(hidden)
        return self._filled(folder, hashed, added, len(gone))

    def _give_tables(self) -> None:
        """Make the tables `listed` (this version) and `indexed` (the parent)."""
        work, engine = self.wanted.work, self.wanted.work.engine
        self.listed = work.keep("listed", PAGES_SCHEMA, self.wanted.pages())
        if self.before is None:
            engine.values("indexed", PAGES_SCHEMA.empty_table())
        else:
            engine.table("indexed", file_of(self.before, PAGES_FILE))

    def _stream(self, query: str) -> Iterator[pa.RecordBatch]:
        return self.wanted.work.engine.stream(f"index/{query}", GROUP_ROWS, f"index.{query}")

    def _may_grow(self, gone: int) -> bool:
        """Say whether the version can grow from the one before."""
        assert self.before is not None
        manifest = self.before.manifest
        if manifest["settings"] != vars(self.fields.settings):
            return False
        every = manifest["pages"] + manifest["deleted"]
        if manifest["deleted"] + gone >= MOST_DELETED * max(1, every):
            return False
        for part, path in zip(manifest["parts"], self.before.paths, strict=True):
            if stored_digest(self.stores.storage, path, self.stores) != part["sha256"]:
                log.warning(
                    "%s: differs from the written file (SHA-256); the index is made again", path
                )
                return False
        return True

    def _folder(self, hidden: str) -> Path:
        """Make the folder for the version's files.

        The result is the hidden folder, or `staging`. Raises StorageError.
        """
        storage = self.stores.storage
        storage.make_dirs(hidden)
        if (local := storage.local_path(hidden)) is not None:
            return local
        self.staging = self.stack.enter_context(own_folder(self.stores, self.number))
        return self.staging

    def _link(self, folder: Path) -> dict[str, dict[str, Any]]:
        """Link the parent version's files.

        Return the manifest's entries of files that never change.
        """
        if self.before is None:
            return {}
        linked = set(link_files(verified_folder(self.stores, self.before), folder))
        return {
            part["name"]: part for part in self.before.manifest["parts"] if part["name"] in linked
        }

    def _write_own_files(self, folder: Path, gone: list[bytes]) -> None:
        """Write the files next to Tantivy's files. Raises StorageError."""
        stores, names = self.stores, PAGES_SCHEMA.names
        batches = (
            parquet_batches(stores.storage, self.listed, PAGES_SCHEMA, names) if self.listed else ()
        )
        rows = (pa.Table.from_batches([batch]) for batch in batches)
        deleted = (
            set(gone) if self.before is None else set(gone) | deleted_keys(stores, self.before)
        )
        _write_table(folder / PAGES_FILE, PAGES_SCHEMA, rows)
        _write_table(folder / LEFT_OUT_FILE, LEFT_OUT_SCHEMA, self.wanted.left_out())
        write_durable(folder / DELETED_FILE, b"".join(sorted(deleted)))

    def _upload(self, hidden: str) -> None:
        if self.staging is not None:
            for file in sorted(self.staging.iterdir()):
                self.stores.go_on()
                self.stores.storage.upload(file, f"{hidden}/{file.name}")
            reached("index.uploaded")

    def _filled(self, folder: Path, hashed: dict[str, Any], added: int, removed: int) -> Filled:
        counts = count_files(folder)
        settings = json.dumps(vars(self.fields.settings), sort_keys=True)
        pages = file_sha256(folder / PAGES_FILE)
        facts = {
            **asdict(counts),
            "added": added,
            "removed": removed,
            "is_anew": self.before is None,
            "left_out": dict(sorted(self.wanted.counts.items())),
            "boosts": self.wanted.boosted_by,
            "digest": sha256(f"{pages} {settings}".encode()).hexdigest(),
        }
        there = {file.name for file in folder.iterdir()}
        return Filled(facts, [entry for name, entry in hashed.items() if name in there])

    def keep_copy(self) -> None:
        """Keep the uploaded files as this machine's copy. Raises StorageError."""
        if self.staging is not None:
            with os_errors(self.staging, "search.directory cannot be used"):
                publish_copy(self.staging, copies_folder(self.stores) / str(self.number))


def _write_table(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Write a local table, durably. Raises StorageError."""
    with os_errors(path, "cannot be written"), path.open("xb") as file:
        with pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True) as writer:
            for table in tables:
                writer.write_table(table.cast(schema))
        fsync_file(file)
