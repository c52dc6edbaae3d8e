"""The manifest of injected seeds, or of a list."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Self

from crawl_lib.crawldir.folderindex import require_parts
from crawl_lib.dataclass import dataclass

_PARTS = {"accepted": int, "nodes": list, "outlinks": dict, "files": dict}


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
        given = {"nodes": [], "files": {}, **said}
        require_parts(given, path, _PARTS)
        nodes = tuple(given["nodes"])
        return cls(given["accepted"], nodes, given["outlinks"], given["files"], said)

    def count_of(self, node: str) -> int:
        """Return the number of a node's URLs."""
        return int(self.outlinks.get(node, {}).get("count", 0))
