"""`index.json` of an iteration's folder: whether it says what its segments say, and writing it again."""

from contextlib import suppress
from typing import Any

from crawl_lib.crawldir import INDEX_FILE, read_json, sum_counts, write_json_bytes
from crawl_lib.durable import reached
from crawl_lib.errors import DamagedFileError, PathNotFoundError
from crawl_lib.rounds import write_index
from crawl_lib.stores import Stores

_PARTS = {"counts": dict, "outlinks": dict, "scope_added": list}


def index_problem(stores: Stores, folder: str) -> tuple[str, str] | None:
    """What is wrong with a folder's index: the name of a finding, and words; None if nothing is, or there is none yet.

    `segment_missing`: it names segments that are not there, which only people can bring back.
    """
    where = stores.crawl.folder(folder).at(INDEX_FILE)
    if not stores.storage.exists(where):
        half = stores.storage.exists(_kept(stores, folder))  # else it is not committed yet
        return ("index_damaged", "a repair of it was stopped half-way") if half else None
    index = _read(stores, where)
    corrected = _corrected(stores, folder, index)
    if index is None or corrected is None:
        return "index_damaged", "cannot be used"
    if missing := sorted(corrected["outlinks"].keys() - set(stores.crawl.folder(folder).segments())):
        return "segment_missing", f"it names segments that are not there: {', '.join(missing)}"
    return None if corrected == index else ("index_differs", "does not say what the manifests of its segments say")


def refresh_index(stores: Stores, folder: str) -> None:
    """Write a committed folder's index again, where it does not say what the segments say.

    Where it is missing for a moment, readers ask the segments themselves. A folder that was not committed has none.
    """
    storage, index, kept = stores.storage, stores.crawl.folder(folder).at(INDEX_FILE), _kept(stores, folder)
    if storage.exists(index):
        before = _read(stores, index)
        is_right = before is not None and before == _corrected(stores, folder, before)
        storage.delete(kept)
        if is_right:
            return
        storage.rename(index, kept)
    elif not storage.exists(kept):
        return
    reached("repair.index.aside")
    wanted = _corrected(stores, folder, _read(stores, kept))
    if wanted is not None:
        storage.write_bytes(index, write_json_bytes(wanted))
    else:
        write_index(stores, stores.crawl.folder(folder).iteration())
    reached("repair.index.written")
    storage.delete(kept)


def _kept(stores: Stores, folder: str) -> str:
    return stores.crawl.at(folder, f".{INDEX_FILE}.old")


def _read(stores: Stores, path: str) -> dict[str, Any] | None:
    with suppress(DamagedFileError, PathNotFoundError):
        return read_json(stores.storage, path)
    return None


def _corrected(stores: Stores, folder: str, index: dict[str, Any] | None) -> dict[str, Any] | None:
    """An index as its segments have it now, as far as they can be read; None if it cannot be used at all.

    Hosts that were added stay: a segment that was made again may have lost some of them.
    """
    if index is None or not all(isinstance(index.get(name), kind) for name, kind in _PARTS.items()):
        return None
    manifests: dict[str, dict[str, Any]] = {}
    for node in index["outlinks"]:
        with suppress(DamagedFileError, PathNotFoundError):  # a finding of the segment
            manifests[node] = stores.crawl.segment(folder, node).manifest()
    outlinks = {**index["outlinks"], **{node: manifest["outlinks"] for node, manifest in manifests.items()}}
    counts = [manifest["counts"] for manifest in manifests.values()]
    added = sorted({*index["scope_added"], *(host for one in manifests.values() for host in one["scope_added"])})
    whole = sum_counts(counts) if len(counts) == len(outlinks) else index["counts"]
    return {**index, "outlinks": outlinks, "counts": whole, "scope_added": added}
