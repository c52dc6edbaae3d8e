"""The small files of the crawl directory: each is checked, and, if asked, made again from other files.

The parts of an iteration's folder come in this order, since each part needs the earlier parts:

1. `iteration.json`, from the copy in a segment or an open take (`identity`), and the scope with the digest in that
   file (`scope`);
2. notes of what machines agreed on: an unreadable note is set aside, since no task asks for the note;
3. a repair of a segment with an unreadable decision: a prepared new segment takes its place, else the old segment
   stays; if all segments of a node lie aside, the newest is put back; a whole segment without dropped pages replaces
   the segment with them, and otherwise the segment with them is put back;
4. hosts that the folder added to the scope, which outlive the folder in the crawl directory's `scope`;
5. the file that says that pages were dropped, and `index.json`, from the manifests of the segments.

For seeds: `scope`, from their URLs. For all: choices of `start` (if the chosen folder has its name,
a name of no attempt says that the choice is made), lists of hosts that outlive their folders, notes of settled nodes.

An unusable file is renamed to `.broken-<name>`. Each file is replaced by itself: killed or stopped anywhere, the
command is run again. No node may crawl meanwhile; while a file is away, stages fail and say so. After a stop
(`Stores.stop`) nothing more is changed, since unread files would look damaged.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from hashlib import sha1, sha256
from typing import Any

from crawl_lib.crawldir import (
    FileName,
    Folder,
    Iteration,
    RetryNowNotes,
    SettledNotes,
    Starts,
)
from crawl_lib.dfsfiles import parsed_json, read_json
from crawl_lib.durable import reached
from crawl_lib.errors import DamagedFileError, InputError, PathNotFoundError
from crawl_lib.findings import Findings, Severity
from crawl_lib.records import RETRY_LISTS
from crawl_lib.repair.folders.identity import copy_in_segments, copy_in_takes
from crawl_lib.repair.folders.scope import (
    added_by_index,
    kept_hosts,
    no_copy,
    scope_of_iteration,
    scope_of_seeds,
)
from crawl_lib.repair.segments.swap import (
    COMPACTED_PREFIX,
    all_aside,
    finish_swaps,
    new_segments,
    read_swap,
    swap_files,
)
from crawl_lib.rounds import AGREED_PREFIX, index_problem, refresh_index
from crawl_lib.sealed import MANIFEST_FILE
from crawl_lib.seeds import check_seeds, set_damaged_aside
from crawl_lib.segment import DroppedLists, check_segment
from crawl_lib.stores import Stores
from crawl_lib.urlfiles import ScopeFile

BROKEN_PREFIX = ".broken-"
CHOSEN_AGAIN = f"{FileName.START_PREFIX}{'0' * 40}-{'0' * 32}".encode()
"""The text in place of an unreadable choice, if the chosen folder has its name: no attempt's name."""


class SmallFiles:
    """Checks the small files, a folder at a time, and repairs damaged files if told to.

    `findings`: the damage found. `say`: told each finished step of a repair; None: nothing is repaired. `dry_run`:
    steps are only told. During a repair, each method raises InputError (no file says what a file should be),
    DamagedFileError naming a file that another repair has to repair first, StorageError, StoppedError.
    """

    def __init__(
        self, stores: Stores, say: Callable[[str], None] | None = None, *, dry_run: bool = False
    ) -> None:
        self.stores, self.crawl, self.storage = stores, stores.crawl, stores.storage
        self.findings = Findings("folder", "run `krake fsck --repair`")
        self._say, self._dry_run = say, dry_run
        self._whole_scopes = set[str]()

    def shared(self, nodes: Collection[str]) -> None:
        """Check the files that folders share.

        `nodes`: nodes with held locks, whose notes may be deleted. Without a choice the next start chooses again;
        without a note the next settle writes a note.
        """
        folders = self.crawl.folders()
        for name in self.crawl.names(FileName.STARTED, files=True):
            where = self.crawl.at(FileName.STARTED, name)
            if not Starts.is_choice(self.storage.read_bytes(where)):
                follows = Starts.follower(folders, name) is not None
                act = (
                    partial(self._write, where, CHOSEN_AGAIN)
                    if follows
                    else partial(self._aside, where)
                )
                self._found("started_damaged", where, "names no attempt of a start", act)
        for name, hosts in kept_hosts(self.stores):
            if hosts is None:
                where = self.crawl.at(FileName.SCOPE, name)
                self._found(
                    "kept_scope_damaged", where, "is no list of hosts", partial(self._aside, where)
                )
        for name in self.crawl.names(FileName.RETRY_NOW, files=True):
            try:
                RetryNowNotes(self.crawl).read(name)
            except DamagedFileError as error:
                where = self.crawl.at(FileName.RETRY_NOW, name)
                again = (
                    "run `krake fsck --repair` to delete the file, then `krake retry --now` again"
                )
                self._found(
                    "retry_now_damaged",
                    where,
                    str(error),
                    partial(self.storage.delete, where),
                    repair=again,
                )
        for node in SettledNotes.nodes(self.crawl):
            try:
                SettledNotes(self.crawl, node).read()
            except DamagedFileError as error:
                again = (
                    f"settle --node {node}"
                    if node in self.stores.config.servers
                    else f"nodes retire {node}"
                )
                delete = SettledNotes(self.crawl, node).delete if node in nodes else None
                repair = f"delete it, and run `krake {again}`"
                self._found(
                    "mark_damaged", str(error).split(":")[0], str(error), delete, repair=repair
                )

    def seeds(self, digest: str, kind: str, *, full: bool) -> None:
        """Check a folder of injected seeds, or (`kind`) of a list.

        `full`: each line is read.
        """
        found = check_seeds(self.crawl, digest, kind, full=full)
        for one in found:
            self.findings.add(one.name, one.where, one.problem, repair=one.repair)
        if found and kind == FileName.LISTS and not digest.startswith(RETRY_LISTS):
            where = self.crawl.inbox.path(digest, kind)
            aside = partial(set_damaged_aside, self.crawl, digest, kind)
            self._do(
                f"{where}: set aside; all its URLs are listed again, also fetched URLs",
                aside,
            )
            return
        for one in found:
            if one.name == "scope_damaged" and self._say:
                data = scope_of_seeds(self.stores, digest)
                self._do(f"{one.where}: made again", partial(self._write, one.where, data))

    def iteration(self, folder: str) -> None:
        """Check an iteration's folder, and its files elsewhere."""
        path = self.crawl.at(folder)
        self._identity(path, folder)
        for entry in self.stores.until_stopped(self.storage.list(path)):
            if entry.name.startswith(AGREED_PREFIX):
                try:
                    read_json(self.storage, f"{path}/{entry.name}")
                except DamagedFileError as error:
                    where = f"{path}/{entry.name}"
                    self._found("agreed_damaged", where, str(error), partial(self._aside, where))
        undone = self._swaps(self.crawl.folder(folder))
        self._kept_scope(folder)
        self._dropped_file(path, folder)
        problem = (
            None if undone else index_problem(self.stores, folder)
        )  # the index may be anything during a swap
        if problem and problem[0] == "segment_missing":
            # Deleting a settled folder by hand is allowed; half of a folder may have been an accident.
            repair = "bring the files back from a copy; if deleted on purpose, move the whole folder away"
            self.findings.add(
                problem[0], path, problem[1], repair=repair, severity=Severity.WARNING
            )
        elif problem:
            self._found(
                problem[0],
                f"{path}/{FileName.INDEX}",
                problem[1],
                partial(refresh_index, self.stores, folder),
            )

    # Checks, and repairs

    def _identity(self, path: str, folder: str) -> None:
        """Check `iteration.json`, and the scope named by the file.

        A segment or an open take has a copy of the file. A file that differs from the copy belongs to another
        iteration.
        """
        where, problem = f"{path}/{FileName.ITERATION}", ""
        copy = copy_in_segments(self.stores, [folder], FileName.ITERATION)
        copy = copy_in_takes(self.stores, folder) if copy is None else copy
        try:
            iteration = self.crawl.folder(folder).iteration()
            if copy not in {None, self.storage.read_bytes(where)}:
                problem = "differs from its copy"
        except (DamagedFileError, PathNotFoundError) as error:
            problem = str(error)
        if problem and copy is None:
            advice = no_copy(self.stores, folder)
            self.findings.add("iteration_damaged", where, problem, repair=advice)
            if self._say is None:
                return
            raise InputError(f"{where}: {advice}")
        if problem and copy is not None:
            self._found("iteration_damaged", where, problem, partial(self._write, where, copy))
            iteration = Iteration.from_mapping(folder, parsed_json(copy, where))
        self._scope(iteration)

    def _scope(self, iteration: Iteration) -> None:
        """Check an iteration's scope."""
        place = self.crawl.scopes.path(iteration)
        if place in self._whole_scopes:
            return
        try:
            self.crawl.scopes.read(iteration)
            self._whole_scopes.add(place)
        except DamagedFileError as error:
            self.findings.add("scope_damaged", place, str(error))
            if self._say is not None:
                data = scope_of_iteration(self.stores, iteration)
                self._do(f"{place}: made again", partial(self._write, place, data))

    def _swaps(self, folder: Folder) -> bool:
        """Finish repairs of segments that were stopped half-way.

        Returns whether some remain.
        """
        begun, readable, undone = swap_files(folder), 0, self._say is None or self._dry_run
        for node, name in begun:
            where = folder.at(name)
            try:
                read_swap(folder, name)
                readable += 1
                again = "run `krake fsck --repair`, which goes on"
                self.findings.add(
                    "repair_open",
                    folder.at(node),
                    "its repair was stopped half-way",
                    repair=again,
                )
            except DamagedFileError as error:
                self._found(
                    "repair_damaged",
                    where,
                    str(error),
                    partial(self._undecided, folder, node, name),
                )
        if readable:
            text = f"{folder.path}: finishing a repair stopped half-way"
            self._do(text, partial(finish_swaps, self.stores, folder.name))
        decided = {node for node, _ in begun} if undone else set()
        for node, name in all_aside(folder):
            where, target = folder.at(name), folder.at(node)
            if node in decided:
                continue
            if not self.storage.exists(target):
                decided.add(node)
                problem = "was put aside, and there is no other segment of its node"
                self._found(
                    "segment_missing",
                    where,
                    problem,
                    partial(self.storage.rename, where, target),
                    "put back",
                )
            elif name.startswith(COMPACTED_PREFIX) and self._is_whole(target):
                self._do(f"{where}: deleted: the segment without dropped pages is there",
                         partial(self.storage.delete, where))  # fmt: skip
            elif name.startswith(COMPACTED_PREFIX):
                kept = folder.at(
                    f"{FileName.DAMAGED_PREFIX}{node}-{int(name.rpartition('-')[2]) + 1}"
                )
                self._do(f"{where}: put back: the segment without dropped pages is damaged",
                         partial(self._put_back, where, target, kept))  # fmt: skip
        return bool(begun) and undone

    def _put_back(self, where: str, target: str, kept: str) -> None:
        self.storage.rename(target, kept)
        reached("repair.folder.aside")
        self.storage.rename(where, target)

    def _is_whole(self, path: str) -> bool:
        found = check_segment(self.storage, path, work=self.stores)
        return all(one.severity is not Severity.ERROR for one in found)

    def _undecided(self, folder: Folder, node: str, name: str) -> None:
        """Finish a swap with an unreadable decision.

        A complete new segment decides.
        """
        for new in new_segments(folder, node):
            if not self.storage.exists(folder.at(node)):
                with suppress(PathNotFoundError):
                    manifest = self.storage.read_bytes(folder.at(f"{new}/{MANIFEST_FILE}"))
                    if sha256(manifest).hexdigest()[:16] == new[-16:]:
                        self.storage.rename(folder.at(new), folder.at(node))
        reached("repair.folder.placed")
        self.storage.delete(folder.at(name))

    def _kept_scope(self, folder: str) -> None:
        kept = [
            hosts
            for name, hosts in kept_hosts(self.stores)
            if name.partition("-")[0] == folder and hosts
        ]
        if lacks := added_by_index(self.stores, folder).difference(*kept):
            where, data = self.crawl.at(FileName.SCOPE, folder), ScopeFile.data_of(lacks)
            act = partial(self.storage.write_bytes, f"{where}-{sha1(data).hexdigest()}", data)
            self._found("kept_scope_damaged", where, f"lacks {min(lacks)}", act, count=len(lacks))

    def _dropped_file(self, path: str, folder: str) -> None:
        where = f"{path}/{FileName.DROPPED}"
        if self.storage.exists(where):
            return
        nodes = self.crawl.folder(folder).segments()
        if unmarked := [
            node for node in nodes if DroppedLists(self.storage, f"{path}/{node}").names()
        ]:
            problem = f"is not there, and pages of {', '.join(unmarked)} were dropped: `krake status` counts them"
            act = partial(self.storage.write_bytes, where, b"")
            self._found("dropped_unmarked", where, problem, act, severity=Severity.WARNING)

    # Changing

    def _found(
        self,
        name: str,
        where: str,
        problem: str,
        act: Callable[[], object] | None,
        how: str = "repaired",
        **more: Any,
    ) -> None:
        """Note a finding, and repair the damage. `how`: the work of `act`."""
        self.findings.add(name, where, problem, **more)
        if act is not None:
            self._do(
                f"{where}: {problem.removeprefix(f'{where}: ').partition('; ')[0]}; {how}", act
            )

    def _do(self, text: str, act: Callable[[], object]) -> None:
        if self._say is not None:
            self.stores.go_on()
            if not self._dry_run:
                act()
            self._say(text)

    def _write(self, path: str, data: bytes) -> None:
        self._aside(path)
        reached("repair.folder.aside")
        self.storage.write_bytes(path, data)
        reached("repair.folder.written")

    def _aside(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        with suppress(PathNotFoundError):
            if self.storage.exists(path):
                self.storage.delete(f"{folder}/{BROKEN_PREFIX}{name}")
                self.storage.rename(path, f"{folder}/{BROKEN_PREFIX}{name}")
