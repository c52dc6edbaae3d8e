"""A file store in a bucket of an S3 object store."""

import io
from builtins import list as list_of
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from threading import Event
from typing import BinaryIO, cast

from crawl_lib.config import Config
from crawl_lib.errors import PathNotFoundError, StorageError, TargetExistsError
from crawl_lib.storage.access import S3Credentials
from crawl_lib.storage.filestore import COPY_BYTES, Entry, Storage, check_path
from crawl_lib.storage.s3_claims import (
    COPY,
    DELETE,
    LOOK,
    MOVE,
    MOVED,
    PREFIX,
    ClaimLostError,
    Holder,
    PathClaim,
    SeenClaim,
    Times,
    claim_path,
    hold,
    read_claim,
)
from crawl_lib.storage.s3_client import S3Client, S3Object, UploadEndedError
from crawl_lib.storage.s3_files import S3Reader, S3Writer, copy_object
from crawl_lib.storage.s3_memory import Memory

SEALS = ("manifest.json", "iteration.json", "note.json", "seal.json")
"""Files that say that their folder is whole: they are copied behind the others, and deleted first."""
PROBE = ".probe"
NO_ETAG = f'"{32 * "0"}"'
"""An ETag that no object has."""
OWN = Entry("", False, 0)
"""The object of a folder itself, in a list of what is directly in the folder. A rename copies it last of all."""
ENDLESS_BYTES = 1 << 60
OLD_UPLOAD = timedelta(days=1)
STRAY_COPIES = 3


_Request = Callable[[], object]


class S3Storage(Storage):
    """Files below a prefix of a bucket.

    * A file is one object under its final key. A conditional write makes the object, whole or not at all.
    * A folder is there if it has an object: an empty one `<folder>/` is made by `make_dirs`.
    * A folder is renamed or deleted under a claim, see `s3_claims`. A file needs none.
    * A process remembers committed folders, and does not ask for their claims again, see `s3_memory`.
    """

    def __init__(self, client: S3Client, times: Times | None = None) -> None:
        self._client, self._times = client, times or Times()
        self._memory = Memory()
        self._holds_conditions = False

    @classmethod
    def open(
        cls, config: Config, credentials: S3Credentials | None = None, stop: Event | None = None
    ) -> "S3Storage":
        """Open the store at `dfs_primary`; nothing is asked or made.

        `credentials`: None has them found in the environment or by the machine's role. `stop`: see `open_storage`.
        Raises ConfigError: the operator corrects `dfs_primary` or the section `s3`.
        """
        return cls(S3Client(config, credentials, stop=stop))

    @property
    def name(self) -> str:
        """The address."""
        return str(self._client.address)

    def open_read(self, path: str, offset: int = 0, length: int | None = None) -> BinaryIO:
        check_path(path)
        if not path:
            raise StorageError(f"{self.name}: cannot be read: is a directory")
        if length == 0:
            self._require_file(path, self.stat(path))
            return io.BytesIO()
        try:
            reader = S3Reader(self._client, path, offset, length)
        except PathNotFoundError:
            self._require_file(path, self._entry(path) if self._memory.may_exist(path) else None)
            raise
        if self._is_hidden(
            path.rpartition("/")[0]
        ):  # asked behind the read: a claim is older than what it hides
            reader.close()
            raise PathNotFoundError(f"{self._show(path)}: is not there")
        return cast(BinaryIO, io.BufferedReader(reader, COPY_BYTES))

    def open_write(self, path: str) -> BinaryIO:
        self._prepare(path)
        self._memory.made(path)
        return cast(BinaryIO, S3Writer(self._client, path))

    def write_bytes(self, path: str, data: bytes) -> None:
        self._prepare(path)
        self._memory.made(path)
        self._client.create(path, data)

    def rename(self, source: str, target: str) -> None:
        if not source or not target or target.startswith(f"{source}/"):
            raise StorageError(
                f"{self._show(source)}: cannot be renamed to {target!r}: the root, or inside itself"
            )
        check_path(source)
        check_path(target)
        self._require_conditions()
        head = None if source in self._memory.shown else self._client.head(source)
        if head is None:
            self._rename_folder(source, target)
        else:
            self._rename_file(
                S3Object(source, head["ContentLength"], self._client.etag(source, head)), target
            )

    def list(self, path: str) -> list_of[Entry]:
        check_path(path)
        was_shown, found = path in self._memory.shown, self._found(path)
        if path and (not found or self._is_hidden(path)):
            self._require_no_file(path)
            raise PathNotFoundError(f"{self._show(path)}: is not there")
        if (
            not was_shown and OWN not in found
        ):  # it may have been committed between the two requests
            found = self._found(path)
        self._memory.listed(path, found)
        base = f"{path}/" if path else ""
        claimed = {one.name.removeprefix(PREFIX) for one in found if one.name.startswith(PREFIX)}
        hidden = {name for name in claimed if self._is_hidden(base + name)}
        shown = [one for one in found if one.name not in hidden and not one.name.startswith(PREFIX)]
        return sorted(one for one in shown if one != OWN and base + one.name != PROBE)

    def stat(self, path: str) -> Entry | None:
        check_path(path)
        if not path:
            return Entry("", True, 0)
        entry = self._entry(path)
        if entry is None:
            return None
        shown = path if entry.is_dir else path.rpartition("/")[0]
        return None if self._is_hidden(shown) else entry

    def stamp(self, path: str) -> str | None:
        head = self._client.head(check_path(path))
        return (
            None
            if head is None
            else f"{head['ContentLength']} {head['ETag']} {head['LastModified']}"
        )

    def delete(self, path: str) -> bool:
        if not path:
            raise StorageError(f"{self.name}: the root of the file store is not deleted")
        check_path(path)
        entry = self._entry(path)
        if entry is not None and not entry.is_dir:
            self._client.delete(path)
            self._memory.forget(path)
            return True
        if entry is None:  # a claim that is left alone is for a sweep
            self._memory.forget(path)
            return False
        return self._delete_folder(path)

    def make_dirs(self, path: str) -> None:
        check_path(path)
        if path in self._memory.shown:
            return
        folder, may_exist = path.rpartition("/")[0], self._memory.may_exist(path)
        entry = self._entry(path) if may_exist else None
        if entry is not None and not entry.is_dir:
            raise StorageError(
                f"{self._show(path)}: cannot be made: is a regular file, not a directory"
            )
        if may_exist and self._is_hidden(path):
            self._finish_deletion(path)
            entry = None
        if entry is None:
            self.make_dirs(folder)
            self._make_folder(path)
        self._memory.shown.add(path)

    def _make_folder(self, path: str) -> None:
        self._require_conditions()
        try:
            self._client.create(f"{path}/", b"")
            self._memory.began(path)
        except TargetExistsError:
            if (
                self._client.head(f"{path}/") is None
            ):  # a server that keeps folders says so of a file
                raise

    def free_bytes(self) -> int:
        """Return a number beyond any crawl's size.

        An object store has no limit.
        """
        return ENDLESS_BYTES

    def sweep(self, *, dry_run: bool = False) -> list_of[str]:
        """End unfinished uploads older than a day, and broken deletions.

        Return a line for each.
        """
        uploads = [one for one in self._client.uploads("") if one.age > OLD_UPLOAD]
        pages = self._client.pages(
            "", below=True
        )  # of millions of objects only the claims are kept
        claims = [
            one.path
            for page in pages
            for one in page.objects
            if one.path.rpartition("/")[2].startswith(PREFIX)
        ]
        folders = [folder for folder in map(_claimed, claims) if self._is_left(folder)]
        if not dry_run:
            for one in uploads:
                self._client.abort(one.path, one.upload_id)
            for folder in folders:
                self._delete_folder(folder)
        left = [f"{one.path} (an unfinished upload)" for one in uploads]
        return left + [f"{folder} (an unfinished deletion)" for folder in folders]

    def _show(self, path: str) -> str:
        return self._client.show(path)

    # What is there

    def _entry(self, path: str) -> Entry | None:
        """Return the entry of a path, hidden or not, by one LIST.

        An object sorts before all longer names with the same beginning.
        """
        name = path.rpartition("/")[2]
        for page in self._client.pages(path, below=False):
            if page.objects and page.objects[0].path == path:
                return Entry(name, False, page.objects[0].size_bytes)
            if path in page.folders:
                return Entry(name, True, 0)
            if page.objects and page.objects[-1].path > f"{path}/":
                break
        return None

    def _found(self, path: str) -> list_of[Entry]:
        """Return a folder's direct content, claims and hidden folders too.

        The folder's own object has no name.
        """
        base = f"{path}/" if path else ""
        pages = list_of(self._client.pages(base, below=False))
        if len(pages) > 1:  # a claim may have been made between the first page and the last
            pages.extend(self._client.pages(base + PREFIX, below=False))
        files = {
            Entry(one.path[len(base) :], False, one.size_bytes)
            for page in pages
            for one in page.objects
        }
        return [
            *files,
            *(Entry(one[len(base) :], True, 0) for page in pages for one in page.folders),
        ]

    def _is_hidden(self, folder: str) -> bool:
        """Say whether a claim hides a folder with content.

        A folder that was shown is not asked again.
        """
        if folder in self._memory.shown:
            return False
        found = self._memory.unsure(folder)
        if len(found) > 1 and folder in found and not self._has_claim(folder, found):
            return False
        seen = read_claim(self._client, folder)
        if seen is None:
            self._memory.shown.add(folder)
            return False
        return seen.claim.hides or (
            seen.claim.does == MOVED and not self._is_target(seen.claim.other, folder)
        )

    def _is_target(self, folder: str, source: str) -> bool:
        """Say whether a folder is the target of an uncommitted rename.

        `source`: the rename's source.
        """
        seen = read_claim(self._client, folder)
        return seen is not None and seen.claim == PathClaim(source, COPY)

    def _has_claim(self, folder: str, found: set[str]) -> bool:
        """Say whether there is a claim to a folder.

        One LIST answers also for all objects next to the folder.
        """
        base = folder.rpartition("/")[0]
        base = f"{base}/" if base else ""
        pages = self._client.pages(base + PREFIX, below=False)
        claimed = {_claimed(one.path) for page in pages for one in page.objects}
        self._memory.shown |= found - claimed
        return folder in claimed

    def _require_file(self, path: str, entry: Entry | None) -> None:
        """Raise the clear error if a path is no file.

        `entry`: the path's entry.
        """
        if entry is None:
            raise PathNotFoundError(f"{self._show(path)}: is not there")
        if entry.is_dir:
            raise StorageError(f"{self._show(path)}: cannot be read: is a directory")

    def _require_no_file(self, path: str) -> None:
        """Raise StorageError if a path, or part of it, is a file."""
        while path and path not in self._memory.shown and self._memory.may_exist(path):
            if self._client.head(path) is not None:
                raise StorageError(
                    f"{self._show(path)}: cannot be listed: is a regular file, not a directory"
                )
            path = path.rpartition("/")[0]

    # What is made

    def _prepare(self, path: str) -> None:
        """Make the folder of a new file.

        Raises TargetExistsError if the path is taken.
        """
        check_path(path)
        folder = path.rpartition("/")[0]
        self.make_dirs(folder)
        self._require_conditions()
        if self._memory.may_exist(path) and self._entry(path) is not None:
            raise self._exists(path)

    def _exists(self, path: str) -> TargetExistsError:
        return TargetExistsError(f"{self._show(path)}: is there already, and was not touched")

    def _require_conditions(self) -> None:
        """Refuse a server without conditional writes.

        Requests for one object test the server before this process's first write. The object stays: a later process is
        refused with its first PUT, and asks no more. The maker of the object tries each kind of conditional request.
        """
        if self._holds_conditions:
            return
        if not _is_refused(lambda: self._client.create(PROBE, b"")):
            for what, request in self._conditional_requests():
                if not _is_refused(request):
                    self._client.delete(PROBE)
                    raise StorageError(
                        f"{self.name}: the server ignores the header {what}, without which two tasks overwrite each"
                        " other; use a server with conditional writes: docs/storage.md"
                    )
        self._holds_conditions = True

    def _conditional_requests(self) -> Iterator[tuple[str, _Request]]:
        """Yield requests that a server must refuse, with their conditions.

        The probe exists meanwhile.
        """
        yield "If-None-Match of a PUT", lambda: self._client.create(PROBE, b"")
        probe = S3Object(PROBE, 0, NO_ETAG)
        yield (
            "If-None-Match of the end of an upload",
            lambda: copy_object(self._client, probe, PROBE),
        )
        yield "If-Match of a PUT", lambda: self._client.replace(PROBE, b"", NO_ETAG)
        yield "If-Match of a DELETE", lambda: self._client.delete(PROBE, NO_ETAG)

    def _rename_file(self, source: S3Object, target: str) -> None:
        self._prepare(target)
        copy_object(self._client, source, target)
        self._memory.made(target)
        self._client.delete(source.path)

    def _rename_folder(self, source: str, target: str) -> None:
        begun = self._client.clock()
        try:
            moved_to = self._move(source, target)
        except ClaimLostError:
            while read_claim(self._client, source) is not None:
                self._client.pause(
                    "cannot be renamed", source, begun, "that another task renames it"
                )
            if self._client.has_below(f"{source}/"):
                raise
            moved_to = ""
        if moved_to != target:
            raise PathNotFoundError(f"{self._show(source)}: was renamed by another task")

    def _move(self, source: str, target: str) -> str:
        """Move a folder, or continue its rename.

        Return the folder's current place, "" after an earlier end.
        """
        mover = self._hold_source(source, target)
        to = mover.claim.other
        if mover.claim.does == MOVED and not self._is_target(to, source):
            self._delete_held(source, mover)
            return ""
        objects = self._client.below(f"{source}/")
        if not objects:
            mover.end()
            raise PathNotFoundError(
                f"{self._show(source)}: is not there, so it cannot be renamed to {target}"
            )
        try:
            self.make_dirs(to.rpartition("/")[0])
            self._copy_folder(source, objects, mover)
        except TargetExistsError:
            mover.become(mover.claim)  # else another task made the target, of this very source
            mover.end()
            if to == target:
                raise
            return self._move(source, target)
        except ClaimLostError:
            with suppress(ClaimLostError):
                mover.end()
            raise
        self._memory.made(to)
        self._memory.shown.add(to)
        self._delete_moved(source, objects, mover)
        return to

    def _hold_source(self, source: str, target: str) -> Holder:
        while True:
            claim = PathClaim(target, MOVE)
            try:
                etag = self._client.create(claim_path(source), claim.encoded())
                return Holder(self._client, source, claim, etag, self._times)
            except TargetExistsError:
                seen = self._awaited_claim(source)
            if seen is None:
                continue
            if seen.claim.does in {MOVE, MOVED}:
                holder = Holder(self._client, source, seen.claim, seen.etag, self._times)
                holder.become(seen.claim)
                return holder
            if seen.claim.does == DELETE:
                self._delete_folder(source)
            raise PathNotFoundError(f"{self._show(source)}: is not there")

    def _awaited_claim(self, source: str) -> SeenClaim | None:
        """Wait a moment for another task's rename of a folder.

        Return the current claim, or None after its end.
        """
        begun = self._client.clock()
        while (
            seen := read_claim(self._client, source)
        ) and self._client.clock() - begun < self._times.patience_s:
            self._client.pause("cannot be renamed", source, begun, "that another task renames it")
        return seen

    def _copy_folder(self, source: str, objects: list_of[S3Object], mover: Holder) -> None:
        """Copy a folder under a claim to its target, and commit.

        Raises TargetExistsError.
        """
        target, made = mover.claim.other, dict[str, str]()
        holder = self._hold_target(source, target)
        if holder.claim.does == LOOK:
            if self._entry(target) is not None:
                holder.end()
                raise self._exists(target)
            holder.become(PathClaim(source, COPY))
        else:
            self._clear(target, holder)
        for one in sorted(
            objects, key=lambda one: (one.path.endswith("/"), one.path.endswith(SEALS), one.path)
        ):
            to = target + one.path[len(source) :]
            mover.keep()
            made[to] = self._copy(one, to, holder)
        if {one.path: one.etag for one in self._client.below(f"{target}/")} != made:
            mover.become(mover.claim)  # else another task went on with this rename
            raise StorageError(
                f"{self._show(target)}: was changed while it was copied; run the task again"
            )
        mover.become(PathClaim(target, MOVED))
        holder.end()

    def _hold_target(self, source: str, target: str) -> Holder:
        """Hold the claim to the target of a rename.

        A broken deletion there is finished first.
        """
        while True:
            held = hold(self._client, target, PathClaim(source, LOOK), self._times)
            if isinstance(held, SeenClaim):
                self._delete_folder(target)
            elif held.claim.does == DELETE:
                self._client.delete_all([one.path for one in self._client.below(f"{target}/")])
                held.become(PathClaim(source, COPY))
                return held
            else:
                return held

    def _clear(self, target: str, holder: Holder) -> None:
        """Remove an earlier holder's uploads and copies.

        Each object is deleted only as it was found.
        """
        for upload in list_of(self._client.uploads(f"{target}/")):
            holder.keep()
            self._client.abort(upload.path, upload.upload_id)
        for one in self._client.below(f"{target}/"):
            holder.keep()
            self._client.delete(one.path, one.etag)

    def _copy(self, one: S3Object, target: str, holder: Holder) -> str:
        """Copy one object and return the copy's ETag.

        A late copy of an earlier holder is deleted. A copy whose upload is ended while the claim is held, as by a rule
        of the bucket, is made again. Raises ClaimLostError if another task has taken the claim: nothing of that task is
        touched.
        """
        for _ in range(STRAY_COPIES):
            try:
                if one.path.endswith("/"):
                    holder.keep()
                    return self._client.create(target, b"")
                return copy_object(self._client, one, target, holder.keep)
            except TargetExistsError:
                stray = self._client.head(target)
                holder.become(holder.claim)  # the server says whether the claim is still held
                if stray:
                    self._client.delete(target, self._client.etag(target, stray))
            except UploadEndedError:
                holder.become(holder.claim)  # else who took the claim ended the upload
        raise StorageError(f"{self._show(target)}: another task writes here; run the task again")

    # What is deleted

    def _delete_folder(self, path: str) -> bool:
        """Delete a folder under a claim.

        A folder in the middle of a rename stays.
        """
        self._require_conditions()
        held = hold(self._client, path, PathClaim("", DELETE), self._times)
        if isinstance(held, SeenClaim):
            return False
        self._delete_held(path, held)
        return True

    def _delete_held(self, path: str, holder: Holder) -> None:
        """Delete a folder under a held claim."""
        self._memory.forget(path)
        with suppress(ClaimLostError):  # another task deletes it too
            holder.become(PathClaim("", DELETE))
            paths = [one.path for one in self._client.below(f"{path}/")]
            self._client.delete_all(sorted(paths, key=lambda one: not one.endswith(SEALS)))
            holder.end()

    def _delete_moved(self, source: str, objects: list_of[S3Object], mover: Holder) -> None:
        """Delete a rename's source, hidden by its claim since the commit."""
        self._memory.forget(source)
        with suppress(ClaimLostError):  # another task deletes it too
            mover.keep()
            self._client.delete_all([one.path for one in objects])
            mover.end()

    def _finish_deletion(self, path: str) -> None:
        """Finish a broken deletion, so that the folder can be made again."""
        seen = read_claim(self._client, path)
        if seen is not None and seen.claim.does == COPY:
            raise StorageError(
                f"{self._show(path)}: is being renamed from {seen.claim.other}; run the task again"
            )
        self._delete_folder(path)

    def _is_left(self, folder: str) -> bool:
        """Say whether a claim was abandoned.

        By a broken deletion, or by a rename whose source is gone.
        """
        seen = read_claim(self._client, folder)
        if seen is None or seen.claim.does == LOOK or seen.age_s <= self._times.takeover_s:
            return False
        if seen.claim.does == MOVED:
            return not self._is_target(seen.claim.other, folder)
        source = seen.claim.other if seen.claim.does == COPY else folder
        return seen.claim.does == DELETE or not self._client.has_below(f"{source}/")


def _is_refused(request: Callable[[], object]) -> bool:
    """Say whether the condition of a request does not hold."""
    try:
        request()
    except TargetExistsError:
        return True
    return False


def _claimed(claim: str) -> str:
    """Return the path of a claim."""
    folder, slash, name = claim.rpartition("/")
    return f"{folder}{slash}{name.removeprefix(PREFIX)}"
