"""The crawl directory on the DFS: which folders and segments stand, and what their small files say.

<crawl>/<folder>/iteration.json   written by start: whose iteration this is, its nodes and batch sizes
<crawl>/<folder>/scope            hosts of all seeds so far, and of where they redirect, a line each
<crawl>/<folder>/<node>/          a segment, there all at once
<crawl>/<folder>/index.json       written by commit, changed by repairs only: sums, and parts per owner, of the
                                  segments that stood then; `missing`: nodes that commit went on without. A late
                                  one's segment appears in the folder afterwards: whoever reads an index looks for
                                  those too
<crawl>/<folder>/dropped          an empty file: pages of some of its segments were dropped by hand
<crawl>/seeds/<digest>/           injected seeds, in the form of a segment's outlinks
<crawl>/scope/<folder>            hosts that an iteration added to the scope; it outlives the iteration's folder
<crawl>/scope/<folder>-<node>     the same of a segment that came late
<crawl>/started/<folder>-<n>      which attempt's folder follows that folder, see `naming`
<crawl>/settled/<node>/<n>        what a node's last settle found, see `marks`
<crawl>/index.cdxj                of all segments, made by `krake index`; no stage reads it
<crawl>/held/<node>/<id>/         the keys that a node holds, as `krake fsck --node` saw them, see `heldnotes`
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any

from crawl_lib.crawldir.scope import SCOPE_DIGEST, read_scope
from crawl_lib.errors import DamagedFileError, PathNotFoundError
from crawl_lib.stopping import until_stopped
from crawl_lib.storage import Storage

ITERATION_FILE = "iteration.json"
INDEX_FILE = "index.json"
SCOPE_FILE = "scope"
MANIFEST_FILE = "manifest.json"
SEEDS_FOLDER = "seeds"
SCOPE_FOLDER = "scope"
DROPPED_MARK = "dropped"
SWAP_PREFIX, SWAP_SUFFIX = ".swap-", ".json"
"""Around the node's name: the file of an iteration's folder that says which segment takes its segment's place."""
IMPORT_NODE = "import"
"""The one "node" of an iteration that holds imported archives."""


@dataclass(frozen=True)
class Iteration:
    """What `iteration.json` says.

    `folder`: name of the iteration's folder, the POSIX time of its start. `batch_sizes`: URLs that each node may take;
    `limited`: they keep `crawl.max_pages`. `taken_before`: URLs taken in the folders `summed`, which are complete;
    `seeds`: injected folders whose hosts are in the scope. `scope_sha256`: of the file `scope` beside it.
    """

    folder: str
    run_id: str
    iteration: int
    nodes: tuple[str, ...]
    routing: str
    config_digest: str
    batch_sizes: dict[str, int]
    taken_before: int
    summed: tuple[str, ...]
    seeds: tuple[str, ...]
    scope_sha256: str
    limited: bool = False

    @property
    def is_import(self) -> bool:
        """Whether it holds imported archives, so that no node took part in it."""
        return self.nodes == (IMPORT_NODE,)


def read_json(storage: Storage, path: str) -> dict[str, Any]:
    """A JSON object of the DFS. Raises PathNotFoundError, or DamagedFileError naming the path."""
    try:
        value = json.loads(storage.read_bytes(path))
    except ValueError as error:
        raise DamagedFileError(f"{path}: is not JSON: {error}; `krake fsck` says what to do") from error
    if not isinstance(value, dict):
        raise DamagedFileError(f"{path}: is not a JSON object; `krake fsck` says what to do")
    return value


def write_json_bytes(value: object) -> bytes:
    """JSON as Krake writes it: sorted, indented, with a final newline."""
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def list_folders(storage: Storage, crawl_dir: str) -> list[str]:
    """Names of the iterations' folders, oldest first; none if the crawl directory is not there yet."""
    if not storage.exists(crawl_dir):
        return []
    names = [entry.name for entry in storage.list(crawl_dir) if entry.is_dir and entry.name.isdecimal()]
    return sorted(names, key=int)


def list_seeds(storage: Storage, crawl_dir: str) -> list[str]:
    """Names (digests) of the injected folders, sorted."""
    path = f"{crawl_dir}/{SEEDS_FOLDER}"
    if not storage.exists(path):
        return []
    return [entry.name for entry in storage.list(path) if entry.is_dir and not entry.name.startswith(".")]


def read_iteration(storage: Storage, crawl_dir: str, folder: str) -> Iteration:
    """Read a folder's `iteration.json`. Raises PathNotFoundError or DamagedFileError naming the path."""
    path = f"{crawl_dir}/{folder}/{ITERATION_FILE}"
    value = read_json(storage, path)
    try:
        return iteration_of(folder, value)
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedFileError(f"{path}: has no usable {error}; run `krake folder repair {folder}`") from error


def iteration_of(folder: str, value: dict[str, Any]) -> Iteration:
    """The content of an `iteration.json`. Raises KeyError, TypeError or ValueError."""
    return Iteration(
        folder=folder,
        run_id=value["run_id"],
        iteration=value["iteration"],
        nodes=tuple(value["nodes"]),
        routing=value["routing"],
        config_digest=value["config_digest"],
        batch_sizes=dict(value["batch_sizes"]),
        taken_before=value["taken_before"],
        summed=tuple(value["summed"]),
        seeds=tuple(value["seeds"]),
        scope_sha256=value[SCOPE_DIGEST],
        limited=bool(value.get("limited", False)),
    )


def scope_of(storage: Storage, crawl_dir: str, iteration: Iteration) -> set[str]:
    """The hosts of an iteration's scope. Raises DamagedFileError if the file is not what `start` wrote."""
    return read_scope(storage, f"{crawl_dir}/{iteration.folder}", iteration.scope_sha256)


def scope_of_seeds(storage: Storage, crawl_dir: str, digest: str) -> set[str]:
    """The hosts of injected seeds. Raises PathNotFoundError or DamagedFileError naming the path."""
    path = f"{crawl_dir}/{SEEDS_FOLDER}/{digest}"
    return read_scope(storage, path, read_json(storage, f"{path}/{MANIFEST_FILE}").get(SCOPE_DIGEST))


def find_iteration(
    storage: Storage,
    crawl_dir: str,
    run_id: str,
    number: int,
    stop: Event | None = None,
    *,
    among: Sequence[str] | None = None,
) -> Iteration | None:
    """The folder that a run's iteration has, None if it has none (yet). Raises StoppedError once `stop` is set.

    `among`: the folders that are looked at, oldest first; None: all that stand.
    """
    folders = list_folders(storage, crawl_dir) if among is None else among
    for folder in until_stopped(reversed(folders), stop):
        iteration = read_iteration(storage, crawl_dir, folder)
        if (iteration.run_id, iteration.iteration) == (run_id, number):
            return iteration
    return None


def segments_of(storage: Storage, crawl_dir: str, folder: str) -> list[str]:
    """Nodes whose segment stands in a folder, sorted."""
    try:
        entries = storage.list(f"{crawl_dir}/{folder}")
    except PathNotFoundError:
        return []
    return [entry.name for entry in entries if entry.is_dir and not entry.name.startswith(".")]


def read_index(storage: Storage, crawl_dir: str, folder: str) -> dict[str, Any] | None:
    """A folder's `index.json`, None before its commit. Raises DamagedFileError naming the path."""
    path = f"{crawl_dir}/{folder}/{INDEX_FILE}"
    return read_json(storage, path) if storage.exists(path) else None


def awaited(index: dict[str, Any], standing: Collection[str]) -> list[str]:
    """Nodes that a folder's commit went on without, and whose segments do not stand yet.

    `index`: what commit wrote; `standing`: nodes whose segments stand now.
    """
    return [node for node in index.get("missing", ()) if node not in standing]


def came_late(index: dict[str, Any], standing: Collection[str]) -> list[str]:
    """Nodes whose segments stand now, and did not when the folder was committed. Arguments: see `awaited`."""
    return [node for node in index.get("missing", ()) if node in standing]


_MANIFEST_PARTS = {"counts": dict, "outlinks": dict, "scope_added": list}


def read_manifest(storage: Storage, crawl_dir: str, folder: str, node: str) -> dict[str, Any]:
    """The manifest of a segment. Raises PathNotFoundError or DamagedFileError naming the path."""
    path = f"{crawl_dir}/{folder}/{node}/{MANIFEST_FILE}"
    manifest = read_json(storage, path)
    for name, kind in _MANIFEST_PARTS.items():
        if not isinstance(manifest.get(name), kind):
            raise DamagedFileError(f"{path}: has no usable {name!r}; `krake fsck` names the command that repairs it")
    return manifest


def read_lines(storage: Storage, path: str) -> list[str]:
    """Lines of a text file, none if it is not there. Raises DamagedFileError naming the path."""
    if not storage.exists(path):
        return []
    try:
        return storage.read_bytes(path).decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise DamagedFileError(f"{path}: is no text: {error}; `krake fsck` says how to repair it") from error
