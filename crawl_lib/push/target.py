"""Indexes of OpenSearch for pushes: names, notes, and the alias for clients.

An index has a note in `_meta` of its mapping (`Note`), with the version of the pages. While a push works on an index,
the index has an alias of that push, `<index>.try-<version>-<digest>`. This alias has three uses. It tells later pushes
about pages of that version. The note keeps OpenSearch from making a deleted index again. And a push without its alias
can write no more, so a later push stops an earlier push by taking the alias away.
"""

import hashlib
import json
import logging
import re
from dataclasses import asdict, dataclass
from typing import Any

from crawl_lib.durable import reached
from crawl_lib.errors import InputError, OutputConflictError, SearchServerError
from crawl_lib.index import made_ms_of
from crawl_lib.push.bulk import TargetGoneError
from crawl_lib.push.cluster import Cluster
from crawl_lib.records import JsonValue
from crawl_lib.versions import Version

_ABSENT = (404,)
_EXISTS = "resource_already_exists_exception"
_DIGEST_CHARS = 12
_NAME = re.compile(r"(?!\.\.?$)[^\x00-\x20\x7f\ud800-\udfff\\/*?\"<>|,#:%]{1,255}")
"""Names of indexes, which become parts of paths."""
_TRY = re.compile(r"\.try-([0-9]{1,18})-([0-9a-f]{12})")
MAX_NAMES = 100
"""Tries to find a free name for an index."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pushed:
    """A version of the index in OpenSearch. `made_ms`: the time of the version, in POSIX milliseconds."""

    version: int
    digest: str
    made_ms: int
    pages: int

    @classmethod
    def of(cls, version: Version) -> "Pushed":
        """Describe a version."""
        return cls(
            version.number, version.digest, made_ms_of(version), int(version.manifest["pages"])
        )

    @classmethod
    def of_note(cls, found: dict[str, Any]) -> "Pushed":
        """Read a version in a note.

        Raises KeyError, TypeError, ValueError, OverflowError for a malformed note.
        """
        return cls(
            int(found["version"]), str(found["digest"]), int(found["made_ms"]), int(found["pages"])
        )


@dataclass(frozen=True)
class Note:
    """The note of an index of OpenSearch.

    `crawl`: the name of the crawl. `made_of`: a digest of the mapping and of the settings of fields. `pushed`: the
    version of the pages, None before the end of the first push.
    """

    crawl: str
    made_of: str
    pushed: Pushed | None = None

    def to_meta(self) -> dict[str, dict[str, JsonValue]]:
        """Return the note as `_meta` of a mapping has it."""
        return {"_meta": {"krake": asdict(self)}}

    @classmethod
    def of_mapping(cls, mapping: Any) -> "Note | None":
        """Read an index's note, or None if missing or malformed."""
        try:
            found = mapping["mappings"]["_meta"]["krake"]
            pushed = None if found["pushed"] is None else Pushed.of_note(found["pushed"])
            return cls(str(found["crawl"]), str(found["made_of"]), pushed)
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
            return None


def attempt_name(index: str, version: int, digest: str) -> str:
    """Return the alias of a push of a version into an index."""
    return f"{index}.try-{version}-{digest[:_DIGEST_CHARS]}"


@dataclass(frozen=True)
class PushTarget:
    """The indexes of a crawl behind an alias. All methods raise SearchServerError and StoppedError."""

    cluster: Cluster
    alias: str
    crawl: str

    def live(self) -> list[str]:
        """Return the indexes behind the alias.

        The list is empty before the first push, and has one index afterwards. Raises OutputConflictError where an index
        has the name of the alias.
        """
        found = self.cluster.ask("GET", f"/{self.alias}/_alias", accept=_ABSENT)
        if found.status in _ABSENT:
            return []
        if self.alias in found.body:
            problem = "is an index, and a push needs this name for an alias: choose another name in push.index"
            raise OutputConflictError(f"{self.cluster.url}: {self.alias}: {problem}")
        for name in found.body:
            if not _NAME.fullmatch(name):
                raise found.malformed("name of an index is malformed")
            found.part(name)
        return sorted(found.body)

    def note(self, index: str) -> Note | None:
        """Return the note of an index, or None."""
        path = f"/{index}/_mapping?filter_path=*.mappings._meta"
        found = self.cluster.ask("GET", path, accept=_ABSENT)
        return Note.of_mapping(found.body.get(index))

    def attempts(self, index: str) -> list[tuple[int, str]]:
        """Return the versions of pushes that have begun.

        Each has a number and the first digits of the digest.
        """
        found = self.cluster.ask("GET", f"/{index}/_alias", accept=_ABSENT).part(index, "aliases")
        names = (_TRY.fullmatch(name.removeprefix(index)) for name in found)
        return [(int(name[1]), name[2]) for name in names if name]

    def new_name(self, note: Note, version: Version, live: list[str]) -> str:
        """Return the name of the index for a version.

        Each try gets the same name, so a killed push goes on. The name gets a number where a live index, or an index
        with another content, has the name already. Raises SearchServerError where all of `MAX_NAMES` names are taken.
        """
        made_ms = Pushed.of(version).made_ms
        digest = hashlib.sha256(f"{note.made_of} {version.digest}".encode()).hexdigest()[:8]
        first = f"{self.alias}-{made_ms}-{digest}"
        for name in (first, *(f"{first}-{number}" for number in range(2, MAX_NAMES + 1))):
            if name not in live and not self._is_other(name, note):
                return name
        problem = f"OpenSearch has {MAX_NAMES} indexes with this name already; push.url must name an OpenSearch"
        raise SearchServerError(f"{self.cluster.url}: {first}: {problem}")

    def _is_other(self, index: str, note: Note) -> bool:
        answer = self.cluster.ask("GET", f"/{index}/_alias", accept=_ABSENT)
        if answer.status in _ABSENT:
            return False
        if not answer.body:
            raise answer.malformed("object is empty")
        found = self.note(index)
        return found is None or (found.crawl, found.made_of) != (note.crawl, note.made_of)

    def create(self, index: str, mapping: dict[str, Any], note: Note) -> None:
        """Make an empty index if it is missing.

        Raises InputError where OpenSearch refuses the mapping.
        """
        body = {**mapping, "mappings": {**mapping.get("mappings", {}), **note.to_meta()}}
        answer = self.cluster.ask("PUT", f"/{index}", body, accept=(400,))
        if answer.status == 400 and answer.kind != _EXISTS:
            raise InputError(
                f"{self.cluster.url}: {index}: refuses the mapping (push.mapping): {answer.reason}"
            )
        reached("push.created")

    def begin(self, index: str, version: Version) -> str:
        """Give an index the alias of a push; return the alias.

        Raises TargetGoneError.
        """
        name = attempt_name(index, version.number, version.digest)
        self._change_aliases([{"add": {"index": index, "alias": name}}])
        reached("push.begun")
        return name

    def end(self, index: str, attempts: list[tuple[int, str]]) -> None:
        """Take the aliases of pushes away, so they cannot write."""
        names = [attempt_name(index, number, digest) for number, digest in attempts]
        if names:
            self._change_aliases([{"remove": {"index": index, "aliases": names}}])
        reached("push.ended")

    def write_note(self, index: str, note: Note) -> None:
        """Replace the note of an index. Raises TargetGoneError."""
        if (
            self.cluster.ask("PUT", f"/{index}/_mapping", note.to_meta(), accept=_ABSENT).status
            in _ABSENT
        ):
            raise TargetGoneError(f"{self.cluster.url}: {index}: is gone; run the push again")
        reached("push.noted")

    def point(self, index: str) -> list[str]:
        """Move the alias to an index; return the earlier indexes.

        The alias moves in one step. Raises TargetGoneError.
        """
        live = self.live()
        others = [name for name in live if name != index]
        if live != [index]:
            removes = [
                {"remove": {"index": name, "alias": self.alias, "must_exist": True}}
                for name in others
            ]
            self._change_aliases([*removes, {"add": {"index": index, "alias": self.alias}}])
            reached("push.moved")
        return others

    def delete_older(self, index: str, before: list[str]) -> None:
        """Delete earlier indexes of this crawl.

        `before`: the indexes behind the alias until now. An index without a note of this crawl is kept, for the index
        may be someone else's.
        """
        path = f"/{self.alias}-*/_mapping?filter_path=*.mappings._meta"
        found = self.cluster.ask("GET", path, accept=_ABSENT).body
        pattern = re.compile(rf"{re.escape(self.alias)}-([0-9]{{1,18}})-[0-9a-f]{{8}}(-[0-9]+)?")
        own = pattern.fullmatch(index)
        for name in sorted(found):
            match, note = pattern.fullmatch(name), Note.of_mapping(found[name])
            is_older = match is not None and own is not None and int(match[1]) <= int(own[1])
            if (
                name != index
                and note is not None
                and note.crawl == self.crawl
                and (is_older or name in before)
            ):
                self.cluster.ask("DELETE", f"/{name}", accept=_ABSENT)
                reached("push.deleted")
        for name in before:
            if name not in found:
                log.warning("%s: the index %s has no note of Krake, and is kept", self.alias, name)

    def count(self, index: str) -> int:
        """Count an index's searchable pages, once all shards answer.

        Raises TargetGoneError.
        """
        patience = self.cluster.patience()
        while True:
            for method, name in (("POST", "_refresh"), ("GET", "_count")):
                answer = self.cluster.ask(
                    method, f"/{index}/{name}", accept=_ABSENT, patience=patience
                )
                if answer.status in _ABSENT:
                    raise TargetGoneError(
                        f"{self.cluster.url}: {index}: is gone; run the push again"
                    )
            count, failed = answer.whole("count"), answer.whole("failed", "_shards")
            if not failed:
                return count
            problem = f"{self.cluster.url}: {index}: {failed} shards do not answer"
            if not patience.wait(problem):
                raise SearchServerError(f"{problem}; run the push again when the cluster is whole")

    def _change_aliases(self, actions: list[dict[str, Any]]) -> None:
        if (
            self.cluster.ask("POST", "/_aliases", {"actions": actions}, accept=_ABSENT).status
            in _ABSENT
        ):
            raise TargetGoneError(
                f"{self.cluster.url}: another push has changed {self.alias}; run the push again"
            )


def digest_of(mapping: dict[str, Any], settings: dict[str, Any]) -> str:
    """Return a digest of mapping and field settings.

    SHA-256 in hex.
    """
    own = {name: settings[name] for name in ("revision", "languages")}
    return hashlib.sha256(json.dumps([mapping, own], sort_keys=True).encode()).hexdigest()
