"""`index.json` of an iteration's folder: whether it says what its segments say, and writing it anew."""

from contextlib import suppress
from typing import Any, NamedTuple

from crawl_lib.crawldir import DROPPED_MARK, INDEX_FILE, MANIFEST_FILE, read_json, sum_counts, write_json_bytes
from crawl_lib.durable import reached
from crawl_lib.errors import DamagedFileError, KrakeError, PathNotFoundError
from crawl_lib.rounds import commit_iteration
from crawl_lib.segment import dropped_files
from crawl_lib.storage import Storage
from crawl_lib.stores import Stores

_PARTS = {"counts": dict, "outlinks": dict, "scope_added": list}


class IndexProblem(NamedTuple):
    """What is wrong with an index: the name of the finding, and words. `missing`: segments that it names in vain."""

    name: str
    problem: str
    missing: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.problem


def index_problem(stores: Stores, folder: str) -> IndexProblem | None:
    """What is wrong with a folder's index; None if nothing is, or the folder has none yet, or nobody can tell.

    While a segment's manifest cannot be read nobody can tell; with `missing` segments only they can be brought back.
    """
    storage, path = stores.storage, stores.crawl.at(folder)
    if not storage.exists(f"{path}/{INDEX_FILE}"):
        half = IndexProblem("index_damaged", "a repair of it was stopped half-way")
        return half if storage.exists(_kept(path)) else None  # not committed yet
    try:
        index = read_json(storage, f"{path}/{INDEX_FILE}")
        counts, outlinks = index["counts"], dict(index["outlinks"])
    except (DamagedFileError, KeyError, TypeError, ValueError) as error:
        return IndexProblem("index_damaged", f"cannot be used: {error!r}")
    standing = stores.crawl.folder(folder).segments()
    missing = tuple(sorted(outlinks.keys() - set(standing)))
    if missing:
        return IndexProblem("segment_missing", f"it names segments that are not there: {', '.join(missing)}", missing)
    with suppress(KrakeError):  # a finding of the segment
        ours = {node: stores.crawl.segment(folder, node).manifest() for node in outlinks}
        if _differs(index, ours, counts):
            return IndexProblem("index_differs", "does not say what the manifests of its segments say")
    return None


def _differs(index: dict[str, Any], manifests: dict[str, dict[str, Any]], counts: object) -> bool:
    try:
        sums = sum_counts([manifest["counts"] for manifest in manifests.values()])
        same = all(manifest["outlinks"] == index["outlinks"][node] for node, manifest in manifests.items())
        # A manifest that was made anew may have lost some of them.
        return not same or sums != counts or not _added(manifests) <= set(index["scope_added"])
    except (TypeError, KeyError):
        return True


def _added(manifests: dict[str, dict[str, Any]]) -> set[str]:
    return {host for manifest in manifests.values() for host in manifest["scope_added"]}


def dropped_and_not_marked(stores: Stores, folder: str) -> list[str]:
    """Nodes of whose segments pages were dropped, where the mark that says so is not there."""
    storage, path = stores.storage, stores.crawl.at(folder)
    if storage.exists(f"{path}/{DROPPED_MARK}"):
        return []
    nodes = stores.crawl.folder(folder).segments()
    return [node for node in nodes if dropped_files(storage, f"{path}/{node}")]


def _kept(path: str) -> str:
    return f"{path}/.{INDEX_FILE}.old"


def refresh_index(stores: Stores, folder: str) -> None:
    """Write a committed folder's index anew, where it does not say what the segments say.

    Where it is missing for a moment, readers ask the segments themselves. A folder that was not committed has none.
    """
    storage, path = stores.storage, stores.crawl.at(folder)
    index, kept = f"{path}/{INDEX_FILE}", _kept(path)
    if not storage.exists(index):
        if not storage.exists(kept):
            return
        standing = None  # killed in here
    else:
        standing = _read(storage, index)
        wanted = _corrected(stores, folder, standing)
        if wanted is not None and wanted == standing:
            storage.delete(kept)
            return
        storage.delete(kept)
        storage.rename(index, kept)
    reached("repair.index.aside")
    wanted = _corrected(stores, folder, _read(storage, kept))
    if wanted is not None:
        storage.write_bytes(index, write_json_bytes(wanted))
    else:
        iteration = stores.crawl.folder(folder).iteration()
        commit_iteration(stores, run_id=iteration.run_id, iteration=iteration.iteration)
    reached("repair.index.written")
    storage.delete(kept)


def _read(storage: Storage, path: str) -> dict[str, Any] | None:
    with suppress(DamagedFileError, PathNotFoundError):
        return read_json(storage, path)
    return None


def _corrected(stores: Stores, folder: str, index: dict[str, Any] | None) -> dict[str, Any] | None:
    """An index as its segments have it now; None if it cannot be mended but must be made anew."""
    if index is None or not all(isinstance(index.get(name), kind) for name, kind in _PARTS.items()):
        return None
    storage, path = stores.storage, stores.crawl.at(folder)
    manifests = {node: _read(storage, f"{path}/{node}/{MANIFEST_FILE}") for node in index["outlinks"]}
    outlinks = {node: m["outlinks"] if (m := manifests[node]) else old for node, old in index["outlinks"].items()}
    whole = [manifest["counts"] for manifest in manifests.values() if manifest]
    counts = sum_counts(whole) if len(whole) == len(manifests) else index["counts"]
    known = {node: manifest for node, manifest in manifests.items() if manifest}
    scope_added = sorted({*_added(known), *index["scope_added"]})
    return {**index, "outlinks": outlinks, "counts": counts, "scope_added": scope_added}
