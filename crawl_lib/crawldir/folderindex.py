"""`index.json`: the sums of an iteration's segments, written by the commit."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field
from typing import Any, Self

from crawl_lib.dataclass import dataclass
from crawl_lib.dfsfiles import readable_json
from crawl_lib.errors import DamagedFileError
from crawl_lib.storage import Storage

_PARTS = {"counts": dict, "outlinks": dict, "scope_added": list}
"""The parts of a segment's manifest, and of an index."""


def require_parts(
    said: Mapping[str, Any], path: str, parts: Mapping[str, type[object]] = _PARTS
) -> None:
    """Require all parts, of the right types.

    Raises DamagedFileError naming `path`.
    """
    for name, kind in parts.items():
        if not isinstance(said.get(name), kind):
            raise DamagedFileError(
                f"{path}: has no usable {name!r}; `krake fsck` names the command that repairs it"
            )


@dataclass(frozen=True)
class FolderIndex:
    """The index of a committed folder.

    `counts`: the sums of the segments; `outlinks`: node -> the outlinks of its segment; `scope_added`: hosts that the
    segments added to the scope. `said`: all that the file says.
    """

    counts: dict[str, Any] = field(default_factory=dict)
    outlinks: Mapping[str, Any] = field(default_factory=dict)
    scope_added: list[str] = field(default_factory=list)
    said: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_mapping(cls, said: Mapping[str, Any], path: str) -> Self:
        """Parse the content of the file.

        Raises DamagedFileError naming `path`.
        """
        require_parts(said, path)
        return cls(said["counts"], said["outlinks"], said["scope_added"], said)

    @classmethod
    def readable(cls, storage: Storage, path: str) -> Self | None:
        """Read an index for a repair; None if it cannot be used."""
        with suppress(DamagedFileError):
            return cls.from_mapping(readable_json(storage, path), path)
        return None

    def corrected(
        self, counts: dict[str, Any], outlinks: Mapping[str, Any], scope_added: list[str]
    ) -> Self:
        """Return the index with other parts."""
        parts = {"counts": counts, "outlinks": outlinks, "scope_added": scope_added}
        return self.from_mapping({**self.said, **parts}, "")

    @property
    def missing(self) -> list[str]:
        """The nodes that the commit did not wait for."""
        return list(self.said.get("missing", ()))
