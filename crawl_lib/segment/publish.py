"""Making a segment visible: upload under a hidden name, check, one rename.

Every file that is sent is read back once and its SHA-256 compared with the local file's. This check finds what a size
cannot show, from end to end, and costs little next to making the file (`python -m benchmarks hdfs` measures both).
HDFS's own GETFILECHECKSUM is no cheaper for us: it is made of a CRC-32C for every 512 bytes, by a rule that depends on
the block size and on how the datanode is configured, and all of it would have to be computed here again.

Sealing: a closed part's WARC file goes to the store while the crawl goes on, and its local room is free again.

The steps of one part, each durable before the next one begins:

1. the WARC file is uploaded into the take's hidden folder and read back (`seal.uploaded`). A kill before that leaves
   at most a piece under another hidden name, which `publish` deletes; a kill after it, a file that the next attempt
   finds whole and does not send again.
2. `<part>.sealed.json` says so, with size and digest (`seal.written`). From now on the store's file is trusted.
3. The local WARC file is deleted (`seal.freed`). Rows, index lines, outlinks and positions stay until the segment is
   published. A kill before that leaves both; the next attempt deletes the local one if the store's is still there.

`Sealer` does this while the fetching processes work, so that a crawl needs local room for a few WARC files only.
`HiddenFolder.seal_all` does the rest before the segment is built, and checks that the store still has everything.
"""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Self

from crawl_lib.dfsfiles import stored_digest
from crawl_lib.durable import delete_durable, reached
from crawl_lib.errors import (
    DamagedFileError,
    KrakeError,
    OutputConflictError,
    PathNotFoundError,
    StoppedError,
    StorageError,
    os_errors,
)
from crawl_lib.sealed import MANIFEST_FILE
from crawl_lib.segment.manifest import Manifest
from crawl_lib.segment.parts import FileEntry, Part, Spool
from crawl_lib.stopping import Work
from crawl_lib.storage import Storage


def publish(storage: Storage, folder: str, node: str, take_id: str, out_dir: Path) -> str:
    """Publish a built segment at `<folder>/<node>`, atomically; return that path.

    Repetition is harmless at any time.

    `folder`: path of the iteration on the store. `out_dir`: what `build_segment` wrote. What an earlier attempt
    uploaded whole is not sent again; sealed WARC files were checked when they were sealed, and need only be there in
    their size. Raises OutputConflictError if the segment of another take is there, StorageError if an upload does not
    have the size and digest it should (Airflow retries), or if a sealed file is gone.
    """
    target, hidden = f"{folder}/{node}", HiddenFolder.of_take(storage, folder, node, take_id)
    if storage.exists(target):
        _require_ours(storage, target, take_id)
        storage.secure(target)
        storage.delete(hidden.path)
        return target
    hidden.upload(out_dir)
    try:
        storage.rename(hidden.path, target)
    except StorageError:
        # The answer of a rename that was carried out may be lost, or it was sent twice.
        if not storage.exists(target):
            raise
        _require_ours(storage, target, take_id)
    reached("segment.publish.renamed")
    return target


def upload_checked(
    storage: Storage, local: Path, path: str, entry: FileEntry, found_bytes: int | None
) -> None:
    """Upload a finished file and read it back, unless it was uploaded.

    `found_bytes`: the size of the existing file, None without a file. Raises StorageError; a file that
    is not what was sent is deleted.
    """
    if found_bytes == entry.size_bytes and stored_digest(storage, path) == entry.sha256:
        storage.secure(path)
        return
    if found_bytes is not None:
        storage.delete(path)
    storage.upload_final(local, path)
    if stored_digest(storage, path) != entry.sha256:
        storage.delete(path)
        raise StorageError(
            f"{storage.name}: {path}: was stored with other bytes than sent; run the task again"
        )


def _require_ours(storage: Storage, target: str, take_id: str) -> None:
    """Raise OutputConflictError unless the target is this take's segment."""
    try:
        present = Manifest.from_bytes(
            storage.read_bytes(f"{target}/{MANIFEST_FILE}"), f"{target}/{MANIFEST_FILE}"
        )
    except PathNotFoundError as error:
        raise OutputConflictError(
            f"{storage.name}: {target}: is in the way and is no segment; move the folder"
        ) from error
    if present.take_id != take_id:
        raise OutputConflictError(
            f"{storage.name}: {target}: is of take {present.take_id}, not of {take_id}; nothing was changed"
        )


log = logging.getLogger(__name__)
LOOK_INTERVAL_S = 1.0
LONGEST_PAUSE_S = 60.0


class HiddenFolder:
    """The hidden folder of a segment on the store, until one rename makes the segment visible."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage, self.path = storage, path

    @classmethod
    def of_take(cls, storage: Storage, folder: str, node: str, take_id: str) -> Self:
        """Return the hidden folder of a take's segment.

        `folder`: path of the iteration.
        """
        return cls(storage, f"{folder}/.{node}-{take_id}")

    def upload(self, out_dir: Path) -> None:
        """Upload a built segment.

        Other files in the folder are deleted. Raises StorageError, also for a file that is neither here nor there.
        """
        storage, hidden = self._storage, self.path
        manifest = Manifest.from_bytes(
            (out_dir / MANIFEST_FILE).read_bytes(), str(out_dir / MANIFEST_FILE)
        )
        storage.make_dirs(hidden)
        entries = [*manifest.files, Manifest.entry_of(out_dir / MANIFEST_FILE)]
        there = {found.name: found.size_bytes for found in storage.list(hidden)}
        for rubbish in there.keys() - {entry.name for entry in entries}:
            storage.delete(f"{hidden}/{rubbish}")
        for entry in entries:
            if (out_dir / entry.name).exists():
                upload_checked(
                    storage,
                    out_dir / entry.name,
                    f"{hidden}/{entry.name}",
                    entry,
                    there.get(entry.name),
                )
                reached("segment.publish.uploaded")
            elif there.get(entry.name) != entry.size_bytes:
                raise StorageError(
                    f"{storage.name}: {hidden}/{entry.name}: is not there as it was sealed, with"
                    f" {entry.size_bytes} bytes; run the crawl task again, which says what to do"
                )

    def seal_closed(self, spool: Path, enough: Callable[[], bool] = lambda: False) -> None:
        """Seal the closed parts of a spool that are not sealed yet.

        The steps are those above.

        `enough`: asked before each part. Raises StorageError and
        DamagedFileError, naming the file.
        """
        for part in Spool(spool).parts():
            if enough():
                return
            if not part.is_closed or part.is_freed:
                continue
            with os_errors(part.warc):
                entry, path = part.sealed(), f"{self.path}/{part.warc.name}"
                found = self._storage.stat(path)
                found_bytes = None if found is None else found.size_bytes
                if entry is None or found_bytes != entry.size_bytes:
                    part.require_whole(Part.WARC_SUFFIX)
                    entry = Manifest.entry_of(part.warc)
                    upload_checked(self._storage, part.warc, path, entry, found_bytes)
                    reached("seal.uploaded")
                    part.seal(entry)
                    reached("seal.written")
                delete_durable(part.warc)
                reached("seal.freed")

    def seal_all(self, spool: Path, repair: str) -> None:
        """Seal all parts of a spool, and check those sealed earlier.

        The workers have ended.

        `repair`: the command after which the URLs of a lost file are fetched again. Raises StorageError, also for a
        part that is still open.
        """
        self.seal_closed(spool)
        for part in Spool(spool).parts():
            if not part.is_closed:
                raise StorageError(f"{part.warc}: is still open; run the crawl task again")
            if problem := self._problem(part):
                raise StorageError(
                    f"{self._storage.name}: {problem}. Put it back (trash or snapshots of the store), or run"
                    f" `{repair}`: then its {len(part.positions())} URLs are fetched again"
                )

    def damaged_parts(
        self, spool: Path, *, full: bool, work: Work
    ) -> Iterator[tuple[Part, str, str]]:
        """Yield closed parts of a spool that cannot be trusted.

        Each comes with the name of a finding and the reason.

        `full`: every byte is read, also of what is on the store, else sizes. Raises StorageError, StoppedError.
        """
        for part in work.until_stopped(Spool(spool).parts()):
            if part.is_closed:
                try:
                    part.require_whole(full=full)
                except (DamagedFileError, StorageError) as error:
                    yield part, "spool_damaged", str(error)
                else:
                    if problem := self._problem(part, work if full else None):
                        yield part, "sealed_damaged", problem

    def _problem(self, part: Part, work: Work | None = None) -> str:
        """Say why a part's file on the store cannot be trusted.

        "": it can be trusted, is still on the disk, or was never sealed.

        `work`: by which it is read.
        """
        try:
            entry = part.sealed()
        except DamagedFileError as error:
            return str(error)
        if entry is None or part.warc.exists():
            return ""  # it is sent again
        where = f"{self.path}/{entry.name}"
        found = self._storage.stat(where)
        if found is None or found.size_bytes != entry.size_bytes:
            now = "is gone" if found is None else f"has {found.size_bytes}"
            return f"{where}: was sealed with {entry.size_bytes} bytes, and {now}"
        if (
            work is not None
            and stored_digest(self._storage, where, work, entry.size_bytes) != entry.sha256
        ):
            return f"{where}: differs from the sealed file (SHA-256)"
        return ""


class Sealer:
    """Seals the parts that workers close, in a thread of its own, from `with` to its end.

    A store that fails, or whatever else goes wrong in the thread, does not end the crawl: sealing is tried again, after
    longer and longer pauses, while fetching goes on; what is left at the end, also by a thread that has died, is for
    `seal_all`, which raises the error that stays. A stop that the storage knows ends the thread too. `open_storage`:
    gives the thread a store of its own.
    """

    def __init__(
        self,
        open_storage: Callable[[], Storage],
        hidden: str,
        spool: Path,
        *,
        interval_s: float = LOOK_INTERVAL_S,
    ) -> None:
        self._open_storage, self._hidden, self._spool, self._interval_s = (
            open_storage,
            hidden,
            spool,
            interval_s,
        )
        self._done = Event()
        self._thread = Thread(target=self._run, name="sealer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Stop sending after the current file."""
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        pause_s = self._interval_s
        storage: Storage | None = None
        while not self._done.wait(pause_s):
            try:
                storage = storage or self._open_storage()
                HiddenFolder(storage, self._hidden).seal_closed(self._spool, self._done.is_set)
                pause_s = self._interval_s
            except StoppedError:
                return
            except (
                Exception
            ) as error:  # also a mistake of ours: `seal_all` meets it where the task sees it
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
                unexpected = None if isinstance(error, KrakeError | OSError) else error
                log.warning(
                    "a WARC file waits on the local disk; sent again in %.0f s: %s",
                    pause_s,
                    error,
                    exc_info=unexpected,
                )
