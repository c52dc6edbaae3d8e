"""The manifest of injected seeds, or of a list."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Self

from crawl_lib.dataclass import dataclass
from crawl_lib.errors import DamagedFileError


@dataclass(frozen=True)
class InboxManifest:
    """The manifest of injected seeds, or of a list.

    `accepted`: the number of URLs, divided among `nodes`. `outlinks`: owner -> offset, length (bytes), count (URLs).
    `files`: further files of the folder with their SHA-256. `said`: all that the file says, also what its maker alone
    knows.
    """

    accepted: int = 0
    nodes: tuple[str, ...] = ()
    outlinks: Mapping[str, dict[str, int]] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    said: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_mapping(cls, said: dict[str, Any], path: str) -> Self:
        """Parse the content of the file.

        Raises DamagedFileError naming `path`.
        """
        accepted, outlinks = said.get("accepted"), said.get("outlinks")
        if not isinstance(accepted, int) or not isinstance(outlinks, dict):
            raise DamagedFileError(
                f"{path}: says nothing of outlinks; `krake fsck` says how to repair it"
            )
        return cls(accepted, tuple(said.get("nodes", ())), outlinks, said.get("files", {}), said)

    def count_of(self, node: str) -> int:
        """Return the number of a node's URLs."""
        return int(self.outlinks.get(node, {}).get("count", 0))
