"""`krake fsck` of WARC files that an open take has on the store only: sealed, and freed on the node's disk."""

from __future__ import annotations

from hashlib import sha256
from threading import Event

from crawl_lib.errors import DamagedFileError
from crawl_lib.frontier import NodeDirectory, open_take
from crawl_lib.repair.findings import Finding, Findings
from crawl_lib.segment import SEALED_SUFFIX, Part, hidden_folder, list_parts
from crawl_lib.stopping import go_on
from crawl_lib.storage import Storage
from crawl_lib.stores import Stores

_BLOCK_BYTES = 1 << 20


def check_seals(stores: Stores, node: str, *, full: bool = True) -> list[Finding]:
    """What is wrong with the sealed files of a node's open take, whose segment does not stand yet.

    The caller holds the node's lock. `full`: digests too, else sizes.
    """
    findings = Findings("queue", f"bring it back from a copy, or run `krake queue repair --node {node}`")
    directory = stores.node_dir(node)
    try:
        take = open_take(directory)
    except DamagedFileError:
        return []  # a finding of the queue
    if take is None:
        return []
    hidden = hidden_folder(stores.crawl.at(take.header.folder), node, take.take_id)
    for part in list_parts(NodeDirectory(directory).spool):
        problem = seal_problem(stores.storage, hidden, part, full=full)
        if problem:
            findings.add("sealed_damaged", str(part.path(SEALED_SUFFIX)), problem)
    return findings.list()


def seal_problem(storage: Storage, hidden: str, part: Part, *, full: bool, stop: Event | None = None) -> str | None:
    """Why a part's file on the store cannot be trusted; None if it can, or is still on the disk, or was never sealed.

    `hidden`: the take's folder. `full` reads the file. Raises StoppedError once `stop` is set.
    """
    try:
        entry = part.sealed()
    except DamagedFileError as error:
        return str(error)
    if entry is None or part.warc.exists():
        return None  # it is sent again
    where = f"{hidden}/{entry['name']}"
    found = storage.stat(where)
    if found is None:
        return f"{where}: is not there any more"
    if found.size_bytes != entry["size_bytes"]:
        return f"{where}: has {found.size_bytes} bytes, and was sealed with {entry['size_bytes']}"
    if full and _digest(storage, where, stop) != entry["sha256"]:
        return f"{where}: is not what was sealed (SHA-256)"
    return None


def _digest(storage: Storage, path: str, stop: Event | None) -> str:
    digest = sha256()
    with storage.open_read(path) as file:
        while block := file.read(_BLOCK_BYTES):
            go_on(stop)
            digest.update(block)
    return digest.hexdigest()
