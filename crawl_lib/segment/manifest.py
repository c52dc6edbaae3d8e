"""`manifest.json`: whose segment this is, what is in it, and where each owner's outlinks lie."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from crawl_lib.errors import DamagedFileError

MANIFEST_NAME = "manifest.json"
PAGES_NAME, LINKS_NAME, INDEX_NAME, OUTLINKS_NAME = "pages.parquet", "links.parquet", "index.cdxj", "outlinks"


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

    format_version: int
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

    def to_mapping(self) -> dict[str, Any]:
        """The form that stands in the file."""
        return asdict(self)

    def to_bytes(self) -> bytes:
        """The file."""
        return json.dumps(self.to_mapping(), indent=1).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Self:
        """Read the file; fields of later versions are ignored. Raises DamagedFileError naming `where`."""
        try:
            mapping = json.loads(data)
            optional = {"history": mapping.get("history", [])}
            return cls(**{name: mapping[name] for name in cls.__dataclass_fields__ if name not in optional}, **optional)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedFileError(f"{where}: not the manifest of a segment: {error!r}") from error
