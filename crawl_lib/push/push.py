"""A push: OpenSearch gets the pages of the newest version of the index, or the differences from an earlier version.

The index behind the alias is changed in place where the note of this index names a version on disk. A new index is
filled with all pages where there is no such index, where the mapping or the languages have changed, and where pages are
missing. The alias moves to the new index at the end. All writes have the time of the version as external version, so a
late write changes nothing, and a killed push is just run again.
"""

import json
import logging
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from crawl_lib.durable import reached
from crawl_lib.errors import (
    DamagedFileError,
    InputError,
    OutputConflictError,
    SearchServerError,
    os_errors,
)
from crawl_lib.index import INDEX, newest_index
from crawl_lib.push.bulk import Bulk, PushCounts, TargetGoneError
from crawl_lib.push.changes import changes, listed_pages
from crawl_lib.push.cluster import Cluster
from crawl_lib.push.documents import documents
from crawl_lib.push.target import Note, Pushed, PushTarget, digest_of
from crawl_lib.records import JsonValue
from crawl_lib.search import IndexVersions
from crawl_lib.stores import Stores
from crawl_lib.version import mapping_file
from crawl_lib.versions import Version, Versions

MAX_ATTEMPTS = 4
"""Limit of tries of a push. Another push, or a stranger, may take the index away."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PushReport:
    """The result of a push. `index`: of OpenSearch; `superseded`: another push brings a newer version.

    The other counts are those of `PushCounts`.
    """

    version: int
    alias: str
    index: str
    pages: int
    is_anew: bool
    superseded: bool
    sent: int
    deleted: int
    newer: int
    refused: int
    bytes: int


def push_index(stores: Stores) -> PushReport:
    """Bring OpenSearch to the newest version of the index; return counts.

    Two pushes at once both end well.

    Raises InputError before the first index and where OpenSearch refuses pages, OutputConflictError where names are
    taken, ConfigError, SearchServerError, DamagedFileError, StorageError, StoppedError.
    """
    with closing(Cluster(stores)) as cluster:
        push = _Push(stores, _version_to_push(stores), cluster, load_mapping(stores))
        for _ in range(MAX_ATTEMPTS):
            try:
                if (found := push.run()) is not None:
                    return found
            except TargetGoneError as error:
                log.warning("%s; the push looks again", error)
        problem = "changes while the push works; see who else writes there"
        raise SearchServerError(f"{cluster.url}: {push.target.alias}: {problem}")


def _version_to_push(stores: Stores) -> Version:
    version = newest_index(Versions(stores, INDEX))
    if version is None:
        raise InputError(
            f"{stores.crawl.at(INDEX.folder)}: there is no index yet; run `krake index update`"
        )
    return version


def load_mapping(stores: Stores) -> dict[str, JsonValue]:
    """Read settings and mapping of a new index.

    They come from `push.mapping`, or are Krake's own. Raises InputError.
    """
    path = Path(stores.config.push.mapping or mapping_file())
    problem = "is no JSON object with `settings` and `mappings`"
    with os_errors(path, "the mapping for OpenSearch cannot be read", InputError):
        try:
            mapping = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: {problem}: {error}") from error
    if not isinstance(mapping, dict) or not isinstance(mapping.get("mappings", {}), dict):
        raise InputError(f"{path}: {problem}")
    return mapping


def alias_of(stores: Stores) -> str:
    """Return the alias of a crawl in OpenSearch.

    The alias is `push.index`, or the name of the crawl in lower case.
    """
    return stores.config.push.index or stores.config.crawl.name.lower()


@dataclass
class _Push:
    """A push of a version. `counts` and `problems`: of all attempts."""

    stores: Stores
    version: Version
    cluster: Cluster
    mapping: dict[str, Any]
    counts: PushCounts = field(default_factory=PushCounts)
    problems: list[str] = field(default_factory=list)
    is_anew: bool = False

    @cached_property
    def target(self) -> PushTarget:
        """The indexes behind the alias."""
        return PushTarget(self.cluster, alias_of(self.stores), self.stores.config.crawl.name)

    @cached_property
    def note(self) -> Note:
        """The note of an index with this version."""
        made_of = digest_of(self.mapping, self.version.manifest["settings"])
        return Note(self.stores.config.crawl.name, made_of, self.pushed)

    @cached_property
    def pushed(self) -> Pushed:
        """This version in a note."""
        return Pushed.of(self.version)

    @cached_property
    def versions(self) -> Versions:
        """The versions of the index."""
        return Versions(self.stores, INDEX)

    def run(self) -> PushReport | None:
        """Push once; return the result, or None to look again."""
        live = self.target.live()
        notes = {index: self._own_note(index) for index in live}
        if any(self._is_newer(note) for note in notes.values()):
            return self._result(live[0], superseded=True)
        if len(live) == 1 and self._may_change(live[0], notes[live[0]]):
            return self._change(live[0])
        return self._fill(live)

    def _own_note(self, index: str) -> Note | None:
        """Return the note of an index behind the alias.

        Raises OutputConflictError for another crawl's index.
        """
        note = self.target.note(index)
        if note is not None and note.crawl != self.note.crawl:
            problem = f"has the pages of the crawl {note.crawl}: name another index in push.index"
            raise OutputConflictError(f"{self.cluster.url}: {self.target.alias}: {problem}")
        return note

    def _is_newer(self, note: Note | None) -> bool:
        """Say whether an index has a later version than this push."""
        pushed = note.pushed if note is not None else None
        return (
            pushed is not None
            and pushed.version > self.version.number
            and self._find(pushed.version, pushed.digest) is not None
        )

    def _find(self, number: int, digest: str) -> Version | None:
        """Return a version on disk by number and digest, or None.

        The first digits of the digest suffice.
        """
        try:
            version = self.versions.read(number) if number in self.versions.numbers() else None
        except DamagedFileError:
            return None
        return version if version is not None and version.digest.startswith(digest) else None

    def _may_change(self, index: str, note: Note | None) -> bool:
        """Say whether differences can bring an index to this version."""
        pushed = note.pushed if note is not None else None
        if note is None or pushed is None or note.made_of != self.note.made_of:
            return False
        attempts = self.target.attempts(index)
        needed = [(pushed.version, pushed.digest), *attempts]
        if pushed.made_ms > self.pushed.made_ms or None in [
            self._find(number, digest) for number, digest in needed
        ]:
            return False
        return bool(attempts) or self.target.count(index) == pushed.pages

    def _has_newer_attempt(self, attempts: Sequence[tuple[int, str]]) -> bool:
        """Say whether a push of a later version has begun."""
        later = [(number, digest) for number, digest in attempts if number > self.version.number]
        return any(self._find(number, digest) is not None for number, digest in later)

    def _befores(self, index: str, attempts: Sequence[tuple[int, str]]) -> list[Version]:
        """Return all other versions that the index may have pages of.

        Raises TargetGoneError.
        """
        note = self.target.note(index)
        if note is None or note.pushed is None:
            raise TargetGoneError(f"{self.cluster.url}: {index}: has lost the note")
        found: dict[int, Version] = {}
        for number, digest in ((note.pushed.version, note.pushed.digest), *attempts):
            version = self._find(number, digest)
            if version is None:
                raise TargetGoneError(
                    f"{self.cluster.url}: {index}: has pages of a deleted version"
                )
            found[number] = version
        others = [version for number, version in found.items() if number != self.version.number]
        return others or [self.version]

    def _change(self, index: str) -> PushReport | None:
        """Send the differences to the index behind the alias."""
        if self.target.note(index) != self.note or self.target.attempts(index):
            alias = self.target.begin(index, self.version)
            attempts = self.target.attempts(index)
            if self._has_newer_attempt(
                attempts
            ):  # this push has written nothing that has to be undone
                self.target.end(index, [one for one in attempts if one[0] == self.version.number])
                return self._result(index, superseded=True)
            self._send(alias, self._befores(index, attempts))
            if self._is_newer(self.target.note(index)):
                return None
            if self._has_newer_attempt(
                self.target.attempts(index)
            ):  # the later push has seen the alias of this push
                return self._result(index, superseded=True)
            self._end(index, attempts)
        if self.target.count(index) != self.pushed.pages:
            log.warning("%s: the index %s has not the pages of the note", self.target.alias, index)
            return None
        self.target.point(index)
        self.target.delete_older(index, [])
        return self._result(index)

    def _fill(self, live: list[str]) -> PushReport | None:
        """Fill a new index with all pages, and move the alias."""
        index = self.target.new_name(self.note, self.version, live)
        self.is_anew = True
        self.target.create(index, self.mapping, Note(self.note.crawl, self.note.made_of))
        pages = self.pushed.pages
        if self.target.note(index) != self.note or self.target.count(index) != pages:
            self._send(self.target.begin(index, self.version), [])
            if (count := self.target.count(index)) != pages:
                problem = f"has {count} of {pages} pages; run the push again"
                raise SearchServerError(f"{self.cluster.url}: {index}: {problem}")
        self._end(index, self.target.attempts(index))
        if any(self._is_newer(self.target.note(other)) for other in self.target.live()):
            return None
        before = self.target.point(index)
        self.target.delete_older(index, before)
        return self._result(index)

    def _send(self, alias: str, befores: Sequence[Version]) -> None:
        """Send all pages without an equal in each version.

        Raises InputError where pages were refused.
        """
        config = self.stores.config.push
        shards_s = max(1, int(config.timeout_s / 2))
        bulk = Bulk(
            self.cluster,
            alias,
            self.pushed.made_ms,
            config.batch_bytes,
            shards_s,
            self.counts,
            self.problems,
        )
        index_versions = IndexVersions(self.stores)
        index_versions.verify(self.version.number)
        opened = index_versions.open(self.version.number)
        tables = [listed_pages(self.stores, version) for version in (self.version, *befores)]
        for key, document in documents(
            opened, self.stores.until_stopped(changes(tables[0], tables[1:]))
        ):
            bulk.add(key, document)
            self.stores.report(stage="push", done=self.counts.sent, unit="pages")
        bulk.flush()
        reached("push.sent")
        if self.counts.refused:
            shown = "; ".join(self.problems)
            raise InputError(
                f"{self.cluster.url}: {alias}: refuses {self.counts.refused} pages, and has taken {self.counts.sent}:"
                f" {shown}; correct the mapping (push.mapping) or the server's limits, and run the push again"
            )

    def _end(self, index: str, attempts: list[tuple[int, str]]) -> None:
        """Note this version in the index, and remove pushes' aliases."""
        self.target.write_note(index, self.note)
        self.target.end(index, attempts)

    def _result(self, index: str, *, superseded: bool = False) -> PushReport:
        return PushReport(
            self.version.number,
            self.target.alias,
            index,
            self.pushed.pages,
            self.is_anew,
            superseded,
            **vars(self.counts),
        )
