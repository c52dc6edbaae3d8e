"""Making a segment visible: upload beside, check, one rename.

Every file that is sent is read back once and its SHA-256 compared with the local file's. That finds what a size cannot
show, from end to end, and costs little beside making the file (`python -m benchmarks hdfs` measures both). HDFS's own
GETFILECHECKSUM is no cheaper for us: it is made of a CRC-32C for every 512 bytes, by a rule that depends on the block
size and on how the datanode is configured, and all of it would have to be computed here again.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

from crawl_lib.durable import reached
from crawl_lib.errors import OutputConflictError, PathNotFoundError, StorageError
from crawl_lib.segment.build import file_entry
from crawl_lib.segment.manifest import MANIFEST_NAME, Manifest
from crawl_lib.storage import Storage


def hidden_folder(folder: str, node: str, take_id: str) -> str:
    """Where a take's segment is put together on the store. `folder`: path of the iteration."""
    return f"{folder}/.{node}-{take_id}"


def publish(storage: Storage, folder: str, node: str, take_id: str, out_dir: Path) -> str:
    """Put a built segment at `<folder>/<node>`, all at once; returns that path. May be run again at any time.

    `folder`: path of the iteration on the store. `out_dir`: what `build_segment` wrote. What an earlier attempt
    uploaded whole is not sent again; sealed WARC files were checked when they were sealed, and need only be there in
    their size. Raises OutputConflictError if the segment of another take stands there, StorageError if an upload does
    not have the size and digest it should (Airflow retries), or if a sealed file is gone.
    """
    target, hidden = f"{folder}/{node}", hidden_folder(folder, node, take_id)
    if storage.exists(target):
        _require_ours(storage, target, take_id)
        storage.secure(target)
        storage.delete(hidden)
        return target
    manifest = Manifest.from_bytes((out_dir / MANIFEST_NAME).read_bytes(), str(out_dir / MANIFEST_NAME))
    storage.make_dirs(hidden)
    entries = [*manifest.files, file_entry(out_dir / MANIFEST_NAME)]
    standing = {found.name: found.size_bytes for found in storage.list(hidden)}
    for rubbish in standing.keys() - {entry["name"] for entry in entries}:
        storage.delete(f"{hidden}/{rubbish}")
    for entry in entries:
        if (out_dir / entry["name"]).exists():
            upload_checked(storage, out_dir / entry["name"], f"{hidden}/{entry['name']}", entry)
            reached("segment.publish.uploaded")
        elif standing.get(entry["name"]) != entry["size_bytes"]:
            raise StorageError(
                f"{storage.name}: {hidden}/{entry['name']}: is not there as it was sealed, with"
                f" {entry['size_bytes']} bytes; run the crawl task of {node} again, which says what to do"
            )
    try:
        storage.rename(hidden, target)
    except StorageError:
        # The answer of a rename that was carried out may be lost, or it was sent twice.
        if not storage.exists(target):
            raise
        _require_ours(storage, target, take_id)
    reached("segment.publish.renamed")
    return target


def upload_checked(storage: Storage, local: Path, path: str, entry: dict[str, Any]) -> None:
    """Bring a finished file to the store and read it back, unless it stands there already. `entry`: see `file_entry`.

    Raises StorageError; a file that is not what was sent is deleted.
    """
    if _is_whole(storage, path, entry):
        storage.secure(path)
        return
    storage.delete(path)
    storage.upload_final(local, path)
    if not _is_whole(storage, path, entry):
        storage.delete(path)
        raise StorageError(f"{storage.name}: {path}: was not stored as it was sent; run the task again")


def _is_whole(storage: Storage, path: str, entry: dict[str, Any]) -> bool:
    found = storage.stat(path)
    if found is None or found.size_bytes != entry["size_bytes"]:
        return False
    digest = sha256()
    with storage.open_read(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest() == str(entry["sha256"])


def _require_ours(storage: Storage, target: str, take_id: str) -> None:
    """A segment of our take at the target is success; anything else is in the way."""
    try:
        standing = Manifest.from_bytes(storage.read_bytes(f"{target}/{MANIFEST_NAME}"), f"{target}/{MANIFEST_NAME}")
    except PathNotFoundError as error:
        raise OutputConflictError(f"{storage.name}: {target}: stands in the way and is no segment; move it") from error
    if standing.take_id != take_id:
        raise OutputConflictError(
            f"{storage.name}: {target}: is of take {standing.take_id}, not of {take_id}; nothing was changed"
        )
