"""`manifest.json`: whose segment this is, what is in it, and where each owner's outlinks lie."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from crawl_lib.errors import DamagedFileError
from crawl_lib.sealed import sealed, unsealed_if_new

MANIFEST_NAME = "manifest.json"
PAGES_NAME, LINKS_NAME, INDEX_NAME, OUTLINKS_NAME = "pages.parquet", "links.parquet", "index.cdxj", "outlinks"
_SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class SegmentFacts:
    """What the caller of `build_segment` knows of it.

    `nodes`: all nodes, in the order of the owners' indexes. `config_digest`: hex SHA-256. `started_s`: POSIX seconds.
    `taken`: URLs of the take; `deferred`: those of them that were left over. `intake`: counts of this task's intake.
    `scope_added`: hosts that join the scope beside those that the parts name. `lost`: taken URLs whose records are
    lost, of a segment that was salvaged; `dropped`: those that were taken out. `history`: see `Manifest`.
    """

    take_id: str
    run_id: str
    iteration: int
    folder: str
    node: str
    nodes: tuple[str, ...]
    krake_version: str
    config_digest: str
    user_agent: str
    robots_policy: str
    started_s: float
    taken: int
    deferred: int
    intake: Mapping[str, Any] = field(default_factory=dict)
    scope_added: tuple[str, ...] = ()
    lost: int = 0
    dropped: int = 0
    history: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Manifest:
    """The manifest, field by field as in the file. `files`: name, size_bytes and sha256 (hex) of all other files;
    `outlinks`: owner -> offset, length (bytes), count (URLs); `started`, `finished`: ISO 8601, UTC. `history`: what was
    done by hand with the segment (salvage, compact, import), oldest first: a mapping each, `what` among its names."""

    format_version: int | str
    krake_version: str
    take_id: str
    run_id: str
    iteration: int
    folder: str
    node: str
    config_digest: str
    user_agent: str
    robots_policy: str
    started: str
    finished: str
    counts: dict[str, Any]
    intake: dict[str, Any]
    scope_added: list[str]
    files: list[dict[str, Any]]
    outlinks: dict[str, dict[str, int]]
    history: list[dict[str, Any]] = field(default_factory=list)

    def to_bytes(self) -> bytes:
        """The file: with a digest inside, but for the manifest of an older version, whose bytes stay as they are."""
        value = asdict(self)
        return json.dumps(value if self.format_version == 1 else sealed(value), indent=1).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes, where: str, remedy: str = "") -> Self:
        """Read the file; fields of later versions are ignored. Raises DamagedFileError naming `where`."""
        try:
            mapping = {"history": [], **unsealed_if_new(data)}
            manifest = cls(**{name: mapping[name] for name in cls.__dataclass_fields__})
            manifest._require_usable()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedFileError(f"{where}: not the manifest of a segment: {error!r}{remedy}") from error
        return manifest

    def _require_usable(self) -> None:
        """Raise what `from_bytes` translates where an entry is none: what passed it over would take a good file for
        rubbish."""
        for entry in self.files:
            if not (entry["name"] and "/" not in entry["name"] and _SHA256.fullmatch(entry["sha256"])):
                raise ValueError(f"{entry} names no file")
            _require_count(entry["size_bytes"])
        for owner, part in self.outlinks.items():
            if part.keys() != {"offset", "length", "count"}:
                raise ValueError(f"{part} is no part of outlinks, of {owner}")
            for number in part.values():
                _require_count(number)
        if not isinstance(self.counts["outcomes"], dict):
            raise TypeError("counts have no outcomes")
        for kind, names in ((str, ("folder", "node", "take_id", "run_id")), (list, ("scope_added", "history"))):
            for name in names:
                if not isinstance(getattr(self, name), kind):
                    raise TypeError(f"{name} is {getattr(self, name)!r}")


def _require_count(number: object) -> None:
    if not isinstance(number, int) or number < 0:
        raise ValueError(f"{number!r} is no count")
