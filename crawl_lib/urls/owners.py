"""Which node a host belongs to: rendezvous hashing, so that a new node takes only its share.

Every node scores every host with a hash of both names; the highest score owns the host. Adding a node moves hosts to
the new node only, removing one moves only its own hosts (Thaler, Ravishankar: Using Name-Based Mappings to Increase Hit
Rates, 1998). The order of the nodes in the config does not matter. The score is the first 8 bytes of BLAKE2b over
`node \\n host`: part of the crawl's format, since queues on disk are laid out by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from crawl_lib.errors import ConfigError

_MAX_REMEMBERED = 1 << 17


class Owners:
    """The owner of each host among `nodes` (names, each once). Not shared between threads."""

    def __init__(self, nodes: Sequence[str]) -> None:
        """Raises ConfigError if there is no node, or one twice."""
        if not nodes or len(set(nodes)) != len(nodes):
            raise ConfigError(f"servers: each node once, and at least one, not {list(nodes)!r}")
        self.nodes = tuple(nodes)
        self._remembered: dict[str, int] = {}

    def owner(self, host: str) -> str:
        """Return the name of the node that owns `host` (as `host_of` gives it)."""
        return self.nodes[self.index(host)]

    def index(self, host: str) -> int:
        """Return the place of the owner of `host` in `nodes`, from 0."""
        found = self._remembered.get(host)
        if found is None:
            if len(self._remembered) >= _MAX_REMEMBERED:
                self._remembered.clear()
            found = self._remembered[host] = self._choose(host)
        return found

    def _choose(self, host: str) -> int:
        if len(self.nodes) == 1:
            return 0
        scores = [(blake2b(f"{node}\n{host}".encode(), digest_size=8).digest(), node) for node in self.nodes]
        return scores.index(max(scores))
