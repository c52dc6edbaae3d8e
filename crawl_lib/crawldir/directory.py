"""The crawl directory on the DFS: existing folders and segments, and the content of their small files.

<crawl>/<folder>/iteration.json   written by start: run, number, nodes and batch sizes of the iteration
<crawl>/<folder>/<node>/          a segment, visible only when complete
<crawl>/<folder>/index.json       written by commit, changed by repairs only: sums, and parts per owner, of the
                                  segments at that time; `missing`: nodes that commit went on without. The segment of
                                  a late node appears in the folder afterwards: readers of an index look for late
                                  segments too
<crawl>/<folder>/dropped          an empty file: pages of segments of this folder were dropped by hand
<crawl>/seeds/<digest>/           injected seeds, in the form of a segment's outlinks
<crawl>/lists/<name>/             the same for URLs to fetch even if crawled before; without a scope
<crawl>/scope/<digest>            a scope, by its SHA-256: hosts of all seeds so far, and of targets of their redirects,
                                  a line each. Iterations of equal scopes share a file, kept when their folders are gone
<crawl>/scope/<folder>            hosts that an iteration added to the scope, kept when its folder is gone
<crawl>/scope/<folder>-<node>     the same for a late segment
<crawl>/started/<folder>-<n>      the attempt whose folder follows <folder>, see `naming`
<crawl>/settled/<node>/<n>        the state of a node after its last settle, see `settled`
<crawl>/retry_now/<time>-<id>     the waiting URLs that are due at once, see `retrynow`
<crawl>/index.cdxj                of all segments, made by `krake index cdxj`; no stage reads the file
<crawl>/unfilled/<name>           a source whose keys new key tables still lack, see `unfilled`
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any

from crawl_lib.crawldir.folderindex import FolderIndex, require_parts
from crawl_lib.crawldir.handed import InboxManifest
from crawl_lib.dataclass import dataclass
from crawl_lib.dfsfiles import parsed_json, read_json
from crawl_lib.durable import write_durable
from crawl_lib.errors import DamagedFileError, InputError, PathNotFoundError, os_errors
from crawl_lib.sealed import MANIFEST_FILE
from crawl_lib.stopping import Work
from crawl_lib.storage import Storage


class FileName(StrEnum):
    """Names of files and folders in a crawl directory, with prefixes and suffixes of such names."""

    ITERATION = "iteration.json"
    INDEX = "index.json"
    SEEDS = "seeds"
    LISTS = "lists"
    SCOPE = "scope"
    """A folder of the crawl directory; in injected seeds a file."""
    STARTED = "started"
    SETTLED = "settled"
    RETRY_NOW = "retry_now"
    UNFILLED = "unfilled"
    FORGOTTEN = "forgotten"
    DROPPED = "dropped"
    DAMAGED_PREFIX = ".damaged-"
    """The prefix of hidden names of damaged segments and seeds. Only `krake sweep --damaged` deletes such folders."""
    SWAP_PREFIX = ".swap-"
    """Before the node's name: the file of an iteration's folder that names the replacement of the node's segment."""
    SWAP_SUFFIX = ".json"
    START_PREFIX = ".start-"
    """The prefix of the hidden folder of an attempt to start an iteration."""
    OPEN_PREFIX = ".open-"
    """The prefix of a decision to forget that is under way."""


_SCOPE_NAME = re.compile("[0-9a-f]{64}")
KEPT_ITERATIONS = 32
"""How many iterations a reader keeps. Each names all earlier folders, so all iterations could fill the memory."""
IMPORT_NODE = "import"
"""The one "node" of an iteration that holds imported archives."""


class Kind(StrEnum):
    """The content of an iteration's folder."""

    CRAWL = "crawl"
    """Pages of one round of the nodes."""
    IMPORT = "import"
    """Imported archives."""
    LIVE = "live"
    """Pages fetched in real time."""


@dataclass(frozen=True)
class Iteration:
    """The content of `iteration.json`.

    `folder`: name of the iteration's folder, the POSIX time of its start. `batch_sizes`: the most URLs of each node;
    `limited`: whether `crawl.max_pages` limits these sizes. `taken_before`: URLs taken in the complete folders
    `summed`; `seeds`: injected folders with hosts in the scope. `scope_sha256`: of the scope. `agreed`: version, code
    and options of the machine that named the folder.
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
    kind: Kind
    limited: bool = False
    agreed: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_mapping(cls, folder: str, value: dict[str, Any]) -> "Iteration":
        """Parse the content of an `iteration.json`.

        Raises KeyError, TypeError or ValueError.
        """
        return cls(
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
            scope_sha256=value[Scopes.DIGEST],
            limited=bool(value.get("limited", False)),
            agreed=dict(value.get("agreed", {})),
            kind=Kind(value["kind"]),
        )

    @property
    def is_round(self) -> bool:
        """Whether nodes crawl in the folder.

        Pages in other folders count for no node.
        """
        return self.kind is Kind.CRAWL


def _read_scope(storage: Storage, where: str, digest: object) -> bytes:
    """Read a scope.

    `digest`: from the small file that names the scope. Raises DamagedFileError for a missing or changed file, naming
    the command to make the file again.
    """
    try:
        data = storage.read_bytes(where)
        if Scopes.digest(data) == digest:
            return data
        problem = "differs from the written file (SHA-256)"
    except PathNotFoundError:
        problem = "is not there"
    raise DamagedFileError(f"{where}: {problem}; run `krake fsck --repair`")


class Inbox:
    """URLs left for nodes, besides segments: injected seeds and lists."""

    def __init__(self, crawl: "CrawlDirectory") -> None:
        self._crawl = crawl

    def seeds(self) -> list[str]:
        """Return the names (digests) of the injected folders, sorted."""
        return self._crawl.names(FileName.SEEDS)

    def lists(self) -> list[str]:
        """Return the names of the lists, sorted."""
        return self._crawl.names(FileName.LISTS)

    def folders(self) -> list[tuple[str, str]]:
        """Return each folder's name and kind (`seeds`, `lists`), seeds first.

        No name is a number, unlike names of iterations.
        """
        return [
            (name, kind)
            for kind in (FileName.SEEDS, FileName.LISTS)
            for name in self._crawl.names(kind)
        ]

    def path(self, name: str, kind: str = FileName.SEEDS) -> str:
        """Return the folder of injected seeds, or of a list."""
        return self._crawl.at(kind, name)

    def manifest(self, name: str, kind: str = FileName.SEEDS) -> InboxManifest:
        """Read the manifest of a folder.

        Raises PathNotFoundError or DamagedFileError naming the path.
        """
        path = f"{self.path(name, kind)}/{MANIFEST_FILE}"
        return InboxManifest.from_mapping(read_json(self._crawl.storage, path), path)

    def manifest_if_there(self, name: str, kind: str = FileName.SEEDS) -> InboxManifest | None:
        """Read the manifest.

        None: another process has deleted the folder since it was listed.
        """
        try:
            return self.manifest(name, kind)
        except PathNotFoundError:
            if self._crawl.storage.exists(self.path(name, kind)):
                raise
        return None

    def scope(self, digest: str) -> set[str]:
        """Read the hosts of injected seeds. Raises DamagedFileError."""
        where, said = f"{self.path(digest)}/{FileName.SCOPE}", self.manifest(digest).said
        data = _read_scope(self._crawl.storage, where, said.get(Scopes.DIGEST))
        return set(data.decode().splitlines())


class Scopes:
    """The scopes of iterations: the hosts that belong to the crawl."""

    DIGEST = "scope_sha256"
    """The SHA-256 of a scope, in the small file that names the scope. Each reader compares: a host missing in a damaged
    scope would never return, since each iteration begins with the scope of the earlier iteration."""

    def __init__(self, crawl: "CrawlDirectory") -> None:
        self._crawl = crawl

    @staticmethod
    def digest(data: bytes) -> str:
        """Return the SHA-256 of a scope's bytes, for a small file."""
        return sha256(data).hexdigest()

    def read(self, iteration: Iteration) -> set[str]:
        """Read the hosts of an iteration's scope.

        Raises DamagedFileError.
        """
        return set(self.data(iteration.scope_sha256).decode().splitlines())

    def data(self, digest: str) -> bytes:
        """Read the scope of a digest. Raises DamagedFileError."""
        return _read_scope(self._crawl.storage, self._crawl.at(FileName.SCOPE, digest), digest)

    def path(self, iteration: Iteration) -> str:
        """Return the path of an iteration's scope."""
        return self._crawl.at(FileName.SCOPE, iteration.scope_sha256)

    def kept(self) -> list[str]:
        """Return the paths of files with hosts that iterations added.

        Files of deleted iterations are among them.
        """
        names = self._crawl.names(FileName.SCOPE, files=True)
        return [
            self._crawl.at(FileName.SCOPE, name)
            for name in names
            if not _SCOPE_NAME.fullmatch(name)
        ]

    def digests(self) -> list[str]:
        """Return the digests of the scopes named by their content."""
        return [
            name
            for name in self._crawl.names(FileName.SCOPE, files=True)
            if _SCOPE_NAME.fullmatch(name)
        ]


class CrawlDirectory:
    """The crawl directory: the places of its files, the existing files, and the content of small files.

    Readers raise PathNotFoundError for a missing file and DamagedFileError for an unreadable file, both naming the
    path.
    """

    def __init__(self, storage: Storage, path: str, work: Work | None = None) -> None:
        """Open a crawl directory.

        `path`: relative to the storage's root. `work`: the work that reads the directory; None: work that cannot be
        stopped.
        """
        self.storage = storage
        self.path = path
        self.work = work or Work()
        self.inbox = Inbox(self)
        self.scopes = Scopes(self)
        self._runs: dict[str, str] = {}
        self._iterations: dict[str, Iteration] = {}

    def at(self, *names: str) -> str:
        """Return a path within the directory."""
        return "/".join((self.path, *names))

    def folder(self, name: str) -> "Folder":
        """Return an iteration's folder, whether it exists or not."""
        return Folder(self, name)

    def segment(self, folder: str, node: str) -> "SegmentRef":
        """Return a node's segment of an iteration, whether it exists or not."""
        return SegmentRef(self, folder, node)

    def segment_named(self, text: str) -> "SegmentRef":
        """Return the segment that a user names.

        The name is `<folder>/<node>`, or a path with this end. Raises InputError.
        """
        folder, _, node = "/".join(text.rstrip("/").split("/")[-2:]).rpartition("/")
        if not folder.isdecimal() or not node or node.startswith("."):
            raise InputError(
                f"{text}: is no segment; give <folder>/<node>, such as 1795000000/node-a"
            )
        return self.segment(folder, node)

    def names(self, *below: str, files: bool = False) -> list[str]:
        """List the visible folders in a folder, or its files, sorted.

        A missing folder has no entries.
        """
        try:
            entries = self.storage.list(self.at(*below))
        except PathNotFoundError:
            return []
        return [
            entry.name
            for entry in entries
            if entry.is_dir is not files and not entry.name.startswith(".")
        ]

    def folders(self) -> list[str]:
        """Return the names of the iterations' folders, oldest first.

        Without a crawl directory the list is empty.
        """
        return sorted((name for name in self.names() if name.isdecimal()), key=int)

    def listed(self) -> str:
        """Name the newest iterations, for messages about a missing iteration."""
        names = self.folders()
        return (
            f"there are {', '.join(names[-10:])} ({len(names)} in all)"
            if names
            else "there are none yet"
        )

    def newest(self) -> str:
        """Return the newest iteration's folder, or "" without iterations."""
        return (self.folders() or [""])[-1]

    def newest_iteration(self) -> Iteration | None:
        """Return the newest iteration in which nodes took part, if any."""
        found = map(self.iteration, reversed(self.folders()))
        return next((iteration for iteration in found if iteration.is_round), None)

    def segments(self) -> "list[SegmentRef]":
        """Return all segments, by iteration and node."""
        return [
            self.segment(folder, node)
            for folder in self.folders()
            for node in self.folder(folder).segments()
        ]

    def find(
        self, run_id: str, number: int | None, *, among: Sequence[str] | None = None
    ) -> Iteration | None:
        """Find the folder of a run's iteration, None without one.

        Raises StoppedError.

        `number`: None means the newest. `among`: the folders to look at, oldest first; None: all folders.
        """
        found = self.of_run(run_id, among=among)
        return next((one for one in found if number in (None, one.iteration)), None)

    def of_run(self, run_id: str, *, among: Sequence[str] | None = None) -> Iterator[Iteration]:
        """Yield the iterations of a run, newest first.

        `among`: see `find`. Raises StoppedError. The run of a folder never changes, so folders of other runs are read
        once.
        """
        for folder in self.work.until_stopped(reversed(self.folders() if among is None else among)):
            if self._runs.get(folder, run_id) != run_id:
                continue
            iteration = self.iteration(folder)
            self._runs[folder] = iteration.run_id
            if iteration.run_id == run_id:
                yield iteration

    def iteration(self, folder: str) -> Iteration:
        """Read the `iteration.json` of a folder.

        The content of the first few folders is kept in memory. Raises PathNotFoundError or DamagedFileError naming the
        path.
        """
        found = self._iterations.get(folder) or self.folder(folder).iteration()
        if len(self._iterations) < KEPT_ITERATIONS:
            self._iterations[folder] = found
        return found

    def forget(self, folder: str) -> None:
        """Forget a deleted folder of an iteration.

        Another folder may get the same name.
        """
        self._runs.pop(folder, None)
        self._iterations.pop(folder, None)


@dataclass(frozen=True)
class Folder:
    """An iteration's folder in the crawl directory."""

    crawl: CrawlDirectory
    name: str

    @property
    def path(self) -> str:
        """The path, relative to the storage's root."""
        return self.crawl.at(self.name)

    def at(self, name: str) -> str:
        """Return the path of a file in the folder."""
        return f"{self.path}/{name}"

    def iteration(self) -> Iteration:
        """Read `iteration.json`.

        Raises PathNotFoundError or DamagedFileError naming the path.
        """
        return self._parsed(self.crawl.storage.read_bytes(self.at(FileName.ITERATION)))

    def _parsed(self, data: bytes) -> Iteration:
        path = self.at(FileName.ITERATION)
        try:
            return Iteration.from_mapping(self.name, parsed_json(data, path))
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedFileError(
                f"{path}: has no usable {error}; run `krake fsck --repair`"
            ) from error

    def copy_identity(self, room: Path) -> list[Path]:
        """Write `iteration.json` and the scope to the disk, for a segment.

        A repair copies both files back from a segment. `room`: a folder. Raises PathNotFoundError, DamagedFileError.
        """
        said = self.crawl.storage.read_bytes(self.at(FileName.ITERATION))
        digest, files = self._parsed(said).scope_sha256, []
        with os_errors(room, "cannot be written"):
            room.mkdir(parents=True, exist_ok=True)
            for name in (FileName.ITERATION, FileName.SCOPE):
                files.append(room / name)
                wanted = digest if name is FileName.SCOPE else Scopes.digest(said)
                if not files[-1].exists() or Scopes.digest(files[-1].read_bytes()) != wanted:
                    content = self.crawl.scopes.data(digest) if name is FileName.SCOPE else said
                    write_durable(files[-1], content, sync_folder=False)  # building syncs the names
        return files

    def segments(self) -> list[str]:
        """Return the nodes with segments in the folder, sorted."""
        return self.crawl.names(self.name)

    def readable_manifests(self) -> dict[str, dict[str, Any]]:
        """Return the readable manifests of segments, by node, for a repair."""
        found = {}
        for node in self.crawl.work.until_stopped(self.segments()):
            with suppress(DamagedFileError, PathNotFoundError):  # findings of the segments
                found[node] = self.crawl.segment(self.name, node).manifest()
        return found

    def index(self) -> FolderIndex | None:
        """Read `index.json`, None before the commit.

        Raises DamagedFileError naming the path.
        """
        path = self.at(FileName.INDEX)
        with suppress(PathNotFoundError):
            return FolderIndex.from_mapping(read_json(self.crawl.storage, path), path)
        return None


@dataclass(frozen=True)
class SegmentRef:
    """A node's segment of an iteration: its folder's name and its node."""

    crawl: CrawlDirectory = field(repr=False, compare=False)
    folder: str
    node: str

    def __str__(self) -> str:
        return f"{self.folder}/{self.node}"

    @property
    def path(self) -> str:
        """The path, relative to the storage's root."""
        return self.crawl.at(self.folder, self.node)

    def exists(self) -> bool:
        """Return whether the segment exists; then it is complete."""
        return self.crawl.storage.exists(self.path)

    def manifest(self) -> dict[str, Any]:
        """Read `manifest.json`.

        Raises PathNotFoundError or DamagedFileError naming the path.
        """
        path = f"{self.path}/{MANIFEST_FILE}"
        manifest = read_json(self.crawl.storage, path)
        require_parts(manifest, path)
        return manifest
