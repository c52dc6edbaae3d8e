"""`krake fsck --repair`: the small files of an iteration's folder, or of injected seeds, made again from what stands.

Of an iteration, in this order, since each needs what is before it:

1. `iteration.json` (`folder_identity`);
2. `scope` (`folder_scope`), and its digest in `iteration.json`;
3. the file of `started` that says which attempt's folder it is (any name of no attempt says that it was chosen); notes
   of what machines agreed on that cannot be read are set aside: none asks for them;
4. a repair of a segment whose decision cannot be read: the new segment takes its place if that was prepared, else the
   old one stands; of segments that lie aside while none stands the newest is put back; one without dropped pages
   replaces the one with them;
5. hosts that the folder added to the scope, which outlive it in the crawl directory's `scope`;
6. the mark of dropped pages, and `index.json`, from the manifests of the segments.

Of seeds: `scope`, and its digest in `manifest.json`.

What cannot be used is renamed to `.broken-<name>`. Each file is replaced by itself: killed or stopped anywhere, the
command is run again. Nobody may crawl meanwhile; while a file is away, stages fail and say so. Once it is to stop
(`Stores.stop`) nothing more is changed, since what could not be read any more would look like damage.
"""

import re
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha1, sha256
from typing import Any

from crawl_lib.crawldir import (
    DROPPED_MARK,
    INDEX_FILE,
    ITERATION_FILE,
    MANIFEST_FILE,
    SCOPE_DIGEST,
    SCOPE_FILE,
    SCOPE_FOLDER,
    SEEDS_FOLDER,
    STARTED_FOLDER,
    Iteration,
    delete_settled,
    follower,
    read_json,
    read_settled,
    scope_digest,
    write_json_bytes,
)
from crawl_lib.durable import reached
from crawl_lib.errors import DamagedFileError, InputError, PathNotFoundError
from crawl_lib.repair.folders.identity import CHOSEN_AGAIN, Identity, broken_choices
from crawl_lib.repair.folders.index import dropped_and_not_marked, index_problem, refresh_index
from crawl_lib.repair.folders.scope import (
    OldScope,
    kept_files,
    lacks_of_kept_scope,
    scope_of_iteration_again,
    scope_of_seeds_again,
)
from crawl_lib.repair.segments.swap import COMPACTED_PREFIX, all_aside, finish_swaps, read_swap, swap_files
from crawl_lib.stopping import go_on, until_stopped
from crawl_lib.stores import Stores
from crawl_lib.urls import is_list_of_hosts, scope_bytes

BROKEN_PREFIX = ".broken-"


@dataclass
class FolderReport:
    """What was done with a folder, or would be, a line each; none: nothing was wrong."""

    folder: str
    done: list[str] = field(default_factory=list)

    def to_mapping(self) -> dict[str, Any]:
        """The same as plain values."""
        return dict(vars(self))


def repair_folder(stores: Stores, name: str, *, dry_run: bool = False) -> FolderReport:
    """Repair a folder of the crawl. `name`: `<iteration>` or `seeds/<digest>`.

    Raises InputError (no such folder; or nothing says whose it is), DamagedFileError naming a file that has to be
    repaired by something else first, StorageError, StoppedError.
    """
    repair = _Repair(stores, FolderReport(name), dry_run)
    parent, _, digest = name.rpartition("/")
    if parent == SEEDS_FOLDER and digest in stores.crawl.seeds():
        repair.seeds(digest)
    elif not parent and name in stores.crawl.folders():
        repair.iteration(name)
    else:
        raise InputError(f"{name}: is no folder of {stores.crawl.path}; name an iteration, or seeds/<digest>")
    return repair.report


def repair_strays(stores: Stores, nodes: Collection[str], *, dry_run: bool) -> list[str]:
    """Small files of the crawl directory that belong to no folder that is there; returns what was done.

    A choice that no folder followed: the next start makes it again. Hosts of a folder that is gone: each iteration
    since has them. A mark of a node that settled: the next settle writes it. `nodes`: those whose locks are held.
    """
    repair = _Repair(stores, FolderReport(""), dry_run)
    crawl, folders = stores.crawl, stores.crawl.folders()
    for name in broken_choices(stores):
        if follower(folders, name) is None:
            repair.set_aside(crawl.at(STARTED_FOLDER, name), "names no attempt of a start")
    for name, data in kept_files(stores):
        if name.partition("-")[0] not in folders and not is_list_of_hosts(data):
            repair.set_aside(crawl.at(SCOPE_FOLDER, name), "is no list of hosts")
    for node in nodes:
        try:
            read_settled(crawl, node)
        except DamagedFileError as error:
            repair.do(str(error), partial(delete_settled, crawl, node))
    return repair.report.done


@dataclass
class _Repair:
    stores: Stores
    report: FolderReport
    dry_run: bool

    def seeds(self, digest: str) -> None:
        path = self.stores.crawl.seeds_path(digest)
        try:
            self.stores.crawl.seeds_scope(digest)
        except DamagedFileError as error:
            manifest = read_json(self.stores.storage, f"{path}/{MANIFEST_FILE}")
            data = scope_bytes(scope_of_seeds_again(self.stores, digest))
            self._replace(f"{path}/{SCOPE_FILE}", data, str(error))
            if manifest.get(SCOPE_DIGEST) != scope_digest(data):
                changed = write_json_bytes({**manifest, SCOPE_DIGEST: scope_digest(data)})
                self._replace(f"{path}/{MANIFEST_FILE}", changed, "has the digest of the new scope")

    def iteration(self, folder: str) -> None:
        path = self.stores.crawl.at(folder)
        iteration, value = self._identity(path, folder)
        self._scope(path, iteration, value)
        self._choices(folder)
        self._agreed(path)
        self._swaps(path, folder)
        self._kept_scope(folder)
        if dropped_and_not_marked(self.stores, folder):
            act = partial(self.stores.storage.write_bytes, f"{path}/{DROPPED_MARK}", b"")
            self.do(f"{path}/{DROPPED_MARK}: made: pages were dropped", act)
        problem = index_problem(self.stores, folder)
        if problem and not problem.missing:
            self.do(f"{path}/{INDEX_FILE}: made again: {problem}", lambda: refresh_index(self.stores, folder))

    def _kept_scope(self, folder: str) -> None:
        path = self.stores.crawl.at(SCOPE_FOLDER)
        for name, data in kept_files(self.stores):
            if name.partition("-")[0] == folder and not is_list_of_hosts(data):
                self.do(f"{path}/{name}: is no list of hosts", partial(self._aside, f"{path}/{name}"))
        lacks = lacks_of_kept_scope(self.stores, folder)
        if lacks:
            data = scope_bytes(lacks)
            where = f"{path}/{folder}-{sha1(data).hexdigest()}"
            text = f"{where}: made: {len(lacks)} hosts that {folder} added to the scope"
            self.do(text, partial(self.stores.storage.write_bytes, where, data))

    def _identity(self, path: str, folder: str) -> tuple[Iteration, dict[str, Any]]:
        """The iteration, and the content of its file; its digest of the scope is "" if the file was made again."""
        try:
            iteration = self.stores.crawl.folder(folder).iteration()
            other = Identity(self.stores, folder).contradicts(iteration)
            if not other:
                return iteration, read_json(self.stores.storage, f"{path}/{ITERATION_FILE}")
            self._say(f"{path}/{ITERATION_FILE}: {other}")
        except (DamagedFileError, PathNotFoundError) as error:
            self._say(str(error))
        hosts = OldScope.read(self.stores, path).hosts
        value = {**Identity(self.stores, folder).mapping(hosts), SCOPE_DIGEST: ""}
        return Iteration.from_mapping(folder, value), value

    def _scope(self, path: str, iteration: Iteration, value: dict[str, Any]) -> None:
        try:
            self.stores.crawl.scope(iteration)
        except DamagedFileError as error:
            old = OldScope.read(self.stores, path)
            hosts = scope_of_iteration_again(self.stores, iteration)
            data = scope_bytes(hosts)
            if not (old.is_whole and old.hosts == hosts):
                why = f"has {len(old.hosts)} of {len(hosts)} hosts" if not iteration.scope_sha256 else str(error)
                self._replace(f"{path}/{SCOPE_FILE}", data, why)
            if iteration.scope_sha256 != scope_digest(data):
                whole = write_json_bytes({**value, SCOPE_DIGEST: scope_digest(data)})
                whose = f"iteration {iteration.iteration} of {iteration.run_id}"
                self._replace(f"{path}/{ITERATION_FILE}", whole, whose)

    def _agreed(self, path: str) -> None:
        for entry in until_stopped(self.stores.storage.list(path), self.stores.stop):
            if entry.name.startswith("agreed-"):
                try:
                    read_json(self.stores.storage, f"{path}/{entry.name}")
                except DamagedFileError as error:
                    self.do(str(error), partial(self._aside, f"{path}/{entry.name}"))

    def _choices(self, folder: str) -> None:
        folders = self.stores.crawl.folders()
        for name in broken_choices(self.stores):
            if follower(folders, name) == folder:
                where = f"{self.stores.crawl.path}/{STARTED_FOLDER}/{name}"
                self._replace(where, CHOSEN_AGAIN, "named no attempt of a start")

    def _swaps(self, path: str, folder: str) -> None:
        storage = self.stores.storage
        begun = swap_files(storage, path)
        readable = 0
        for node, name in begun:
            try:
                read_swap(storage, f"{path}/{name}")
                readable += 1
            except DamagedFileError as error:
                self.do(str(error), partial(self._undecided, path, node, name))
        go_on(self.stores.stop)
        if readable:
            text = f"{path}: a repair that was stopped half-way is carried out"
            self.do(text, partial(finish_swaps, self.stores, folder))
        self._put_aside(path, folder, {node for node, _ in begun} if self.dry_run else set())

    def _put_aside(self, path: str, folder: str, settled: set[str]) -> None:
        """Segments that lie aside, of nodes that are not `settled`, once no decision means them any more."""
        storage = self.stores.storage
        for node, name in all_aside(storage, path):
            where, target = f"{path}/{name}", f"{path}/{node}"
            was_compacted = name.startswith(COMPACTED_PREFIX)
            if node in settled:
                continue
            if not storage.exists(target):
                settled.add(node)
                again = f"krake segment {'compact' if was_compacted else 'salvage'} {folder}/{node}"
                text = f"{where}: no other segment of {node} stands; put back: run `{again}`"
                self.do(text, partial(storage.rename, where, target))
            elif was_compacted:
                text = f"{where}: deleted: the segment without dropped pages stands"
                self.do(text, partial(storage.delete, where))

    def _undecided(self, path: str, node: str, name: str) -> None:
        """A decision that cannot be read: what is whole of the new segment decides."""
        storage = self.stores.storage
        new = re.compile(re.escape(f".new-{node}-") + "[0-9a-f]{16}")
        for entry in storage.list(path):
            if new.fullmatch(entry.name) and not storage.exists(f"{path}/{node}"):
                with suppress(PathNotFoundError):
                    manifest = storage.read_bytes(f"{path}/{entry.name}/{MANIFEST_FILE}")
                    if sha256(manifest).hexdigest()[:16] == entry.name[-16:]:
                        storage.rename(f"{path}/{entry.name}", f"{path}/{node}")
        reached("repair.folder.placed")
        storage.delete(f"{path}/{name}")

    # Changing

    def _say(self, text: str) -> None:
        self.report.done.append(text)

    def do(self, text: str, act: Callable[[], object]) -> None:
        go_on(self.stores.stop)
        self._say(text)
        if not self.dry_run:
            act()

    def set_aside(self, path: str, why: str) -> None:
        """Rename a file so that nobody reads it."""
        self.do(f"{path}: {why}; renamed to {BROKEN_PREFIX}{path.rpartition('/')[2]}", partial(self._aside, path))

    def _replace(self, path: str, data: bytes, why: str) -> None:
        self.do(f"{path}: made again: {why}", lambda: self._write(path, data))

    def _write(self, path: str, data: bytes) -> None:
        self._aside(path)
        reached("repair.folder.aside")
        self.stores.storage.write_bytes(path, data)
        reached("repair.folder.written")

    def _aside(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        with suppress(PathNotFoundError):
            if self.stores.storage.exists(path):
                self.stores.storage.delete(f"{folder}/{BROKEN_PREFIX}{name}")
                self.stores.storage.rename(path, f"{folder}/{BROKEN_PREFIX}{name}")
